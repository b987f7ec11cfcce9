/* Krylov solvers: those of PETSc with other work on vectors, by plans of the planner. Options, set-up, views and estimates are PETSc's, and so are all
   solves that the plans cannot do, which -info says. */
#pragma once
#include <petsc/private/kspimpl.h>
#include <petsc/private/pcimpl.h>
#include "gpufmt_plan_krylov.h"
#include "matrix/matrix.h"

#define KSPGPUBCGS      "gpubcgs"
#define KSPGPUCG        "gpucg"
#define KSPGPUCHEBYSHEV "gpuchebyshev"
#define KSPGPUGMRES     "gpugmres"
#define KSPGPUFGMRES    "gpufgmres"
#define KSPMIXEDCG      "mixedcg"

/* why a solve is left to PETSc where GpufmtKspBackend() finds vectors that are not usable */
#define GPUFMT_KSP_VECTORS_ELSEWHERE "vectors are neither of PETSc's types of the host nor of those of CUDA, or of both"

/* and why each is where PETSc has complex scalars */
#define GPUFMT_KSP_COMPLEX "scalars are complex, and this method is for real ones"

typedef enum { GPUFMT_READ, GPUFMT_WRITE, GPUFMT_READ_WRITE } GpufmtAccess;

enum {
  GPUFMT_MOST_RECORDED    = 8,
  GPUFMT_GRAPH_KEYS       = GPUFMT_MOST_RECORDED + GPUFMT_RECORD_KEYS,
  GPUFMT_GRAPH_ITERATIONS = 8 /* in one launch: it costs little more than that of a kernel */
};

/* a vector in a slot of a plan, another array of the backend, or a scalar */
typedef struct {
  int          slot;
  Vec          vec; /* NULL: there is none */
  GpufmtAccess access;
  void        *word; /* what is in the slot then: an address, or a scalar by value; NULL: it is empty */
} GpufmtKspVector;

static inline GpufmtKspVector GpufmtReads(int slot, Vec vec)
{
  return (GpufmtKspVector){slot, vec, GPUFMT_READ, NULL};
}

static inline GpufmtKspVector GpufmtWrites(int slot, Vec vec)
{
  return (GpufmtKspVector){slot, vec, GPUFMT_WRITE, NULL};
}

static inline GpufmtKspVector GpufmtChanges(int slot, Vec vec)
{
  return (GpufmtKspVector){slot, vec, GPUFMT_READ_WRITE, NULL};
}

static inline GpufmtKspVector GpufmtArray(int slot, const PetscScalar *array)
{
  return (GpufmtKspVector){slot, NULL, GPUFMT_READ, (void *)array};
}

static inline GpufmtKspVector GpufmtScalar(int slot, PetscScalar scalar)
{
  return (GpufmtKspVector){slot, NULL, GPUFMT_READ, GpufmtScalarWord(scalar)};
}

/* conjugate gradients in single precision, inside of those of mixed precision */
typedef struct {
  GpufmtLease        lease; /* of the plans; held on all ranks or on none */
  GpufmtKrylovAnswer plans;
  int                backend; /* of the plans */
  PetscInt           nrows;   /* likewise */
  PetscInt           outer;   /* how what they find corrects the solution */
  PetscReal          rtol;    /* by how much the norm falls between corrections */
  PetscInt           most;    /* or so many iterations; 0: by the norm */
} GpufmtKspInner;

/* a copy of the inverses of PCPBJACOBI on the device, and which they are */
typedef struct {
  GpufmtBuffer  buffer;
  const void   *from; /* on the host; NULL: there is none */
  size_t        bytes;
  PetscObjectId pc, mat;                              /* the matrix that the PC was set up for */
  char          set_up[sizeof(((PC)NULL)->matstate)]; /* its state, as PETSc counts it */
} GpufmtKspInverses;

/* what belongs to a solver of ours, in a container that is composed with its KSP */
typedef struct {
  struct _KSPOps parent; /* PETSc's functions, whose place ours have taken */
  PetscErrorCode (*solve)(KSP);
  PetscInt           check;       /* iterations between two looks at the norm; 0: as many as seem right */
  PetscBool          graphs;      /* iterations are recorded where they can be; elsewhere than on a device, if this is set */
  PetscBool          fused;       /* likewise steps are made in the product */
  PetscBool          estimates;   /* an estimator of eigenvalues, see estimator.c */
  MPI_Comm           comm;        /* of it */
  int                method;      /* of the plans */
  int                backend;     /* likewise */
  PetscInt           nrows;       /* likewise */
  int                number;      /* of the plans, the same on all ranks: these were made together */
  PetscInt           restart;     /* iterations of a cycle, likewise; 0: the method has no cycles */
  PetscInt           point_block; /* rows of blocks of the preconditioner, likewise; 0: it is a diagonal */
  GpufmtLease        lease;       /* of the plans; held on all ranks or on none */
  GpufmtKrylovAnswer plans;
  PetscErrorCode     failed;   /* a failure of this rank that is kept for the end of the solve: other ranks wait for its sums */
  PetscBool          watched;  /* on some rank: someone wants to hear of each iteration, or decides by a test of his own */
  GpufmtReadback     readback; /* of the state */
  GpufmtGraph        graph;    /* of some iterations */
  PetscBool          recording;
  PetscInt           nrecorded;               /* products in the graph */
  PetscBool          record, record_dots;     /* products of the matrix can be recorded in this solve, with dot products */
  const void        *keys[GPUFMT_GRAPH_KEYS]; /* what the graph was recorded with: arrays, and what products depend on */
  GpufmtSums         sums;                    /* over ranks; NULL: by messages of MPI */
  GpufmtKspInner     inner;
  GpufmtKspInverses  inverses;
  char               last[160]; /* how the last solve was made, for -ksp_view; "": there was none */
} GpufmtKsp;

/* The iterations of a solve, or of a cycle of it: what a method queues for one, and how far they are. A method begins with .ahead = 1, and counts i. */
typedef struct {
  KSP        ksp;
  GpufmtKsp *own;
  PetscErrorCode (*iterate)(void *method);
  void           *method;
  Mat             A;
  PetscInt        nvectors;
  GpufmtKspVector vectors[GPUFMT_MOST_RECORDED]; /* all that iterations use */
  PetscInt        before, cycle;                 /* iterations of cycles that have ended, and of one at most; 0: there are no cycles */
  void           *state;                         /* as it was when it was last read; on the host it may be the state itself */
  const int64_t  *iteration, *stop;              /* in it */
  PetscInt        i;                             /* the iteration whose record comes next */
  PetscInt        ahead;                         /* iterations that were queued the last time */
  PetscInt        queued;                        /* and in all */
  int             nlooks;                        /* states that are on their way to the host */
} GpufmtKspQueue;

/* The private context of PETSc's PCJACOBI begins so, in jacobi.c of PETSc 3.24 to 3.26 */
typedef struct {
  Vec diagonal, root; /* what it multiplies by, and the root of that; NULL until they are wanted */
} GpufmtJacobiContext;

/* ---- GMRES ---- */

/* The private context of KSPGMRES, and how that of KSPFGMRES begins; from gmresimpl.h of PETSc 3.24 to 3.26 */
typedef struct {
  PetscScalar *hh_origin, *hes_origin, *hes_ritz; /* the Hessenberg matrix, rotated and as it was; that of the last full cycle */
  PetscScalar *cc_origin, *ss_origin, *rs_origin; /* rotations; the right-hand side that they make, and what the solution is made with */
#if PETSC_VERSION_LT(3, 26, 0)
  PetscScalar *orthogwork;
#endif
  PetscReal   *Dsvd;
  PetscScalar *Rsvd;
  PetscReal    haptol;
  PetscInt     max_k, nextra_vecs;
#if PETSC_VERSION_LT(3, 26, 0)
  PetscErrorCode (*orthog)(KSP, PetscInt);
  KSPGMRESCGSRefinementType cgstype;
#endif
  Vec *vecs, *vecb; /* two work vectors, and the basis from GPUFMT_GMRES_BASIS on; that of the last full cycle */
#if PETSC_VERSION_LT(3, 25, 0)
  PetscInt q_preallocate;
#else
  PetscBool q_preallocate;
#endif
  PetscInt     delta_allocate, vv_allocated, vecs_allocated;
  Vec        **user_work; /* in portions, as they were made */
  PetscInt    *mwork_alloc, nwork_alloc;
  PetscInt     it, fullcycle;
  PetscScalar *nrs;
  Vec          sol_temp;
  PetscReal    rnorm0, breakdowntol;
} GpufmtGmresContext;

/* that of KSPFGMRES, from fgmresimpl.h */
typedef struct {
  GpufmtGmresContext     gmres;
  Vec                   *prevecs;           /* the basis with the preconditioner applied */
  Vec                  **prevecs_user_work; /* in the portions of the basis */
  KSPFlexibleModifyPCFn *modifypc;
  PetscCtxDestroyFn     *modifydestroy;
  void                  *modifyctx;
} GpufmtFgmresContext;

enum { GPUFMT_GMRES_BASIS = 2 };

/* modifypc where nothing is modified */
#if PETSC_VERSION_LT(3, 25, 0)
  #define GPUFMT_NO_CHANGE KSPFGMRESModifyPCNoChange
#else
  #define GPUFMT_NO_CHANGE KSPFlexibleModifyPCNoChange
#endif

typedef struct _GpufmtGmres GpufmtGmres;

/* a solve */
struct _GpufmtGmres {
  KSP                 ksp;
  GpufmtKsp          *own;
  GpufmtGmresContext *gmres;
  PetscErrorCode (*solve)(GpufmtGmres *);                       /* from the first residual to a reason */
  PetscErrorCode (*product)(GpufmtGmres *, PetscInt iteration); /* makes the next vector of the basis from this one */
  GpufmtFgmresContext *flexible;                                /* NULL: it is gpugmres */
  PetscMPIInt          nranks;
  GpufmtGmresState    *read;  /* the state and its columns as they were when they were last read; on the host as they are */
  GpufmtKspQueue       queue; /* of a cycle */
  PetscInt             next;  /* iteration of the cycle that is queued next */
};

static inline Vec GpufmtGmresVector(const GpufmtGmres *s, PetscInt iteration)
{
  return s->gmres->vecs[GPUFMT_GMRES_BASIS + iteration];
}

/* ---- conjugate gradients in mixed precision ---- */

/* a solve */
typedef struct {
  KSP              ksp;
  GpufmtKsp       *own;
  Mat              A;
  Vec              w, d, scaling; /* A times the solution; the preconditioner, NULL: none; S, likewise */
  Vec              r, p, z;       /* of the flexible method: its w is A p */
  PetscScalar      curvature;     /* p.w of it, 0 before there is a p */
  PetscMPIInt      nranks;
  Vec              best; /* the solution with the smallest residual before the last correction */
  PetscReal        best_norm;
  PetscInt         most, ncorrections, stalls;
  PetscReal        norm;  /* of the residual, in double precision */
  PetscReal        scale; /* of what inner iterations have left, to what they are about to do: factors change */
  GpufmtMixedState outer;
  GpufmtCgState    inner;      /* as it was when it was last read */
  PetscReal        inner_norm; /* where inner iterations begin */
  int64_t          base;       /* inner iterations before the last correction */
  PetscInt         queued;     /* since then, whatever came of them: as many on all ranks */
  PetscBool        told;       /* this rank had failed when the last sum was made: it is no number on all ranks */
  PetscBool        keep;       /* the inner direction goes on */
  PetscBool        loops;      /* inner iterations are one launch */
} GpufmtMixed;

/* the record of the last inner iteration that has ended */
static inline const GpufmtCgRecord *GpufmtMixedLast(const GpufmtMixed *s)
{
  return &s->inner.records[(s->inner.iteration + GPUFMT_KRYLOV_RECORDS - 1) % GPUFMT_KRYLOV_RECORDS];
}

/* ---- functions ---- */

/* context.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtKspSetUp(void);
GPUFMT_HIDDEN PetscErrorCode GpufmtKspGet(KSP, GpufmtKsp **);
GPUFMT_HIDDEN PetscErrorCode GpufmtKspTake(KSP, PetscErrorCode (*solve)(KSP), PetscErrorCode (*options)(KSP, PetscOptionItems));
GPUFMT_HIDDEN PetscErrorCode GpufmtKspKeep(KSP, GpufmtKsp *, PetscErrorCode);
GPUFMT_HIDDEN PetscErrorCode GpufmtKspLeave(KSP, GpufmtKsp *, const char reason[]);
GPUFMT_HIDDEN PetscErrorCode GpufmtKspGoOn(KSP, GpufmtKsp *, const char reason[]);

/* plans.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtKspPlansGet(KSP, GpufmtKsp *, int method, int backend);
GPUFMT_HIDDEN PetscErrorCode GpufmtKspStep(KSP, GpufmtKsp *, int step, PetscInt n, const GpufmtKspVector[]);
GPUFMT_HIDDEN PetscErrorCode GpufmtKspMult(KSP, GpufmtKsp *, Mat, Vec x, Vec w);
GPUFMT_HIDDEN PetscErrorCode GpufmtKspMultDot(KSP, GpufmtKsp *, Mat, Vec x, Vec w, double *dots, PetscBool *done);
GPUFMT_HIDDEN PetscErrorCode GpufmtKspPCApply(KSP, GpufmtKsp *, Vec r, Vec z);
GPUFMT_HIDDEN PetscBool      GpufmtKspSumsAreLaunched(const GpufmtKsp *);
GPUFMT_HIDDEN PetscErrorCode GpufmtKspStepOfRanks(KSP, GpufmtKsp *, const GpufmtPlan *step, const GpufmtLease *, PetscInt n, const GpufmtKspVector[]);
GPUFMT_HIDDEN PetscErrorCode GpufmtKspSum(KSP, GpufmtKsp *, PetscMPIInt n, double sums[]);

/* queue.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtKspOptions(KSP, PetscOptionItems, const char name[], PetscBool may_record);
GPUFMT_HIDDEN PetscErrorCode GpufmtKspRecordReady(KSP, GpufmtKsp *, Mat, PetscBool wanted);
GPUFMT_HIDDEN PetscErrorCode GpufmtKspIterate(const GpufmtKspQueue *, PetscInt n);
GPUFMT_HIDDEN PetscErrorCode GpufmtKspLoopGet(GpufmtKsp *, const void *const keys[GPUFMT_GRAPH_KEYS], PetscErrorCode (*iterate)(void *), void *method,
                                              PetscInt n, const void *stop);
GPUFMT_HIDDEN PetscErrorCode GpufmtKspStatesReserve(KSP, GpufmtKsp *, size_t bytes);
GPUFMT_HIDDEN PetscErrorCode GpufmtKspStateQueue(GpufmtKsp *, const void *state);
GPUFMT_HIDDEN PetscErrorCode GpufmtKspStateTake(GpufmtKsp *, void *state);
GPUFMT_HIDDEN PetscErrorCode GpufmtKspStatesDrop(GpufmtKsp *);
GPUFMT_HIDDEN PetscErrorCode GpufmtKspQueueClear(GpufmtKsp *);

/* vectors.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtKspBackendHere(PetscInt n, const Vec vectors[], int *backend, PetscBool *usable);
GPUFMT_HIDDEN PetscErrorCode GpufmtKspBackend(PetscInt n, const Vec vectors[], int *backend, PetscBool *usable);
GPUFMT_HIDDEN PetscErrorCode GpufmtKspRun(int backend, const GpufmtPlan *, PetscInt n, const GpufmtKspVector[], GpufmtGraph, const GpufmtLease *);
GPUFMT_HIDDEN PetscErrorCode GpufmtKspUnlock(Vec, PetscInt locks);
GPUFMT_HIDDEN PetscErrorCode GpufmtKspArrayPlace(int backend, Vec, PetscScalar **);
GPUFMT_HIDDEN PetscErrorCode GpufmtKspArrayLook(int backend, Vec, const PetscScalar **);
GPUFMT_HIDDEN PetscErrorCode GpufmtKspArrayChanged(int backend, Vec);
GPUFMT_HIDDEN PetscErrorCode GpufmtKspCopy(int backend, Vec from, Vec to);
GPUFMT_HIDDEN PetscErrorCode GpufmtKspDiagonal(KSP, Vec *diagonal, PetscBool *is_diagonal);

/* jacobi.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtKspOnDevice(Mat, PetscBool *on_device);
GPUFMT_HIDDEN PetscErrorCode GpufmtKspJacobiTake(PC jacobi);
GPUFMT_HIDDEN PetscErrorCode GpufmtVectorReciprocals(Vec, PetscBool *positive);
GPUFMT_HIDDEN void           GpufmtJacobiUse(void);
GPUFMT_HIDDEN PetscErrorCode GpufmtJacobiLeave(void);

/* point_blocks.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtKspPointBlock(KSP, PetscInt *rows);
GPUFMT_HIDDEN PetscErrorCode GpufmtKspInversesGet(KSP, GpufmtKsp *, const PetscScalar **inverses, const char **why_not);

/* estimator.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtKspEstimatorTake(KSP, Mat);
GPUFMT_HIDDEN PetscErrorCode GpufmtKspEstimatorKeep(GpufmtKsp *);
GPUFMT_HIDDEN PetscErrorCode GpufmtKspEstimatorFind(GpufmtKsp *, int backend, PetscInt nrows);
GPUFMT_HIDDEN PetscErrorCode GpufmtKspEstimatorsForget(void);

/* ahead.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtKspFetch(GpufmtKspQueue *);
GPUFMT_HIDDEN PetscInt       GpufmtKspHalfway(PetscInt n, PetscInt done, PetscReal first, PetscReal norm, PetscReal limit, PetscInt ahead);

/* bcgs.c */
GPUFMT_HIDDEN PetscErrorCode KSPCreate_GPUBCGS(KSP);

/* cg.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtCgWhyNot(KSP, int *backend, const char **why_not);
GPUFMT_HIDDEN PetscErrorCode GpufmtCgTake(KSP, PetscErrorCode (*solve)(KSP), PetscErrorCode (*options)(KSP, PetscOptionItems));
GPUFMT_HIDDEN PetscErrorCode KSPCreate_GPUCG(KSP);
GPUFMT_HIDDEN PetscErrorCode KSPSolve_GPUCG(KSP);

/* chebyshev.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtKspChebyshevTake(KSP);
GPUFMT_HIDDEN PetscErrorCode KSPCreate_GPUCHEBYSHEV(KSP);

/* gmres_steps.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtGmresSolve(GpufmtGmres *);
GPUFMT_HIDDEN PetscErrorCode GpufmtGmresBeginCycle(GpufmtGmres *, PetscReal norm);
GPUFMT_HIDDEN PetscErrorCode GpufmtGmresIterate(GpufmtGmres *, PetscInt iteration, const GpufmtGmresColumn **);
GPUFMT_HIDDEN PetscErrorCode GpufmtGmresCheckDots(GpufmtGmres *, PetscInt iteration);
GPUFMT_HIDDEN PetscErrorCode GpufmtGmresCombine(GpufmtGmres *, int step, PetscInt n, const Vec terms[], Vec result);
GPUFMT_HIDDEN PetscErrorCode GpufmtGmresKeep(GpufmtGmres *, PetscErrorCode, Vec, Vec);

/* gmres_refusals.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtGmresWhyNot(KSP, int *backend, const char **why_not);

/* gmres.c */
GPUFMT_HIDDEN PetscErrorCode KSPCreate_GPUGMRES(KSP);
GPUFMT_HIDDEN PetscErrorCode KSPSolve_GPUGMRES(KSP);

/* fgmres.c */
GPUFMT_HIDDEN PetscErrorCode KSPCreate_GPUFGMRES(KSP);

/* mixedcg_inner.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtMixedPlansGet(GpufmtMixed *);
GPUFMT_HIDDEN PetscErrorCode GpufmtMixedLoopGet(GpufmtMixed *);
GPUFMT_HIDDEN PetscErrorCode GpufmtMixedBegin(GpufmtMixed *);
GPUFMT_HIDDEN PetscErrorCode GpufmtMixedRun(GpufmtMixed *);
GPUFMT_HIDDEN PetscErrorCode GpufmtMixedSum(GpufmtMixed *, int n, double sums[]);

/* mixedcg.c */
GPUFMT_HIDDEN PetscErrorCode KSPCreate_MIXEDCG(KSP);
