/* The set-up of algebraic multigrid: a type of PCGAMG that is PETSc's agg with graph, aggregates and tentative prolongator by the planner. */
#pragma once
#include <petsc/private/pcgamgimpl.h>
#include "gpufmt_plan_multigrid.h"
#include "ksp/ksp.h"
#include "parallel/parallel.h"

#define PCGAMGGPUFMT "gpufmt"

/* The private context of PETSc's agg, from agg.c of PETSc 3.24 to 3.26; type.c holds it against each one that agg makes. */
typedef struct {
  PetscInt   nsmooths;
  PetscInt   aggressive_coarsening_levels;
  PetscInt   aggressive_mis_k;
  PetscBool  use_aggressive_square_graph;
  PetscBool  use_minimum_degree_ordering;
  PetscBool  use_low_mem_filter;
  PetscBool  graph_symmetrize;
  MatCoarsen crs;
} GpufmtGamgAgg;

/* how the set-up of a level was made, counted from the finest; `text` says it to the user */
typedef struct {
  PetscBool ours;           /* aggregates and tentative prolongator */
  PetscBool own_graph;      /* and the graph */
  PetscBool symmetric;      /* the pattern of the matrix is, its diagonal is complete, and the graph is the matrix itself */
  int       distance;       /* between the roots of aggregates */
  PetscBool by_hash;        /* rows are in the order of a hash of their numbers, in which all ranks find aggregates together; else in agg's */
  char      reason[160];    /* why it is PETSc's; "": it is ours */
  char      graph[320];     /* what the graph is, and why it is PETSc's; "": it is the matrix itself */
  char      smoothing[160]; /* why the first smoothing step takes a product of matrices; "": it takes none, or there is no step */
  char      summary[640];   /* of what is ours */
} GpufmtGamgLevel;

/* the plan of the start vector of a level's matrix */
typedef struct {
  GpufmtLease lease;
  int         backend;
  PetscInt    nrows, first;
  GpufmtPlan  fill;
} GpufmtGamgStart;

/* a smoother whose right-hand side is a start vector for a while */
typedef struct {
  KSP smoother;
  Vec right_hand_side; /* its own */
} GpufmtGamgBegun;

/* what belongs to a PCGAMG, in a container that is composed with it */
typedef struct {
  PetscBool         chosen;       /* the user has named a type */
  PetscBool         layout_known; /* of the context of agg */
  struct _PCGAMGOps agg;          /* PETSc's functions, whose place ours have taken */
  PetscErrorCode (*set_type)(PC, PCGAMGType);
  GpufmtGamgLevel levels[PETSC_MG_MAXLEVELS];
  PetscInt        nlevels;

  /* the finest pattern that was found symmetric */
  PetscObjectId    symmetric_id;
  PetscObjectState symmetric_state;

  PetscBool constant; /* the near-null space of the finest level is the constant vector: it is stored only where PETSc reads it */

  /* of the level in progress */
  PetscInt                      visited; /* its number, once its graph is asked for */
  Mat                           graph;   /* that PETSc is to destroy */
  PetscCoarsenData             *lists;   /* likewise */
  int                           backend;
  GpufmtLease                   graph_lease; /* of the pattern of the matrix, and of the graph */
  GpufmtGraphAnswer             graph_answer;
  GpufmtLease                   lease; /* of the aggregates */
  GpufmtAggregatesAnswer        aggregates;
  PetscInt                      nnodes;
  int64_t                       first, total;    /* aggregates of the ranks before this one, and of all, if they were found together */
  GpufmtLease                   tentative_lease; /* held: the prolongator has no entries yet, which are those of this answer, smoothed */
  GpufmtTentativeAnswer         tentative;
  GpufmtParallelTentativeAnswer parallel_tentative; /* in its place where the matrix is a parallel one */
  GpufmtLease                   smoothed_lease;     /* of the pattern of the smoothed prolongator */
  GpufmtGhosts                  ghosts;             /* exchanges of what ranks find together */

  GpufmtGamgStart starts[PETSC_MG_MAXLEVELS];
  GpufmtGamgBegun begun[PETSC_MG_MAXLEVELS];
  int             nbegun;

  /* of all levels so far: references that PETSc's set-up holds */
  Mat matrices[PETSC_MG_MAXLEVELS], prolongators[PETSC_MG_MAXLEVELS];
} GpufmtGamg;

/* nodes of this rank whose aggregates belong to others, and nodes of others whose aggregates belong to this one */
typedef struct {
  PetscLayout           layout;     /* of aggregates */
  PetscSF               asking, sf; /* from the former to their aggregates; a leaf for each of the latter, whose roots are the former */
  GpufmtLease           lease;      /* of `answer` */
  GpufmtElsewhereAnswer answer;     /* the former */
  PetscInt             *ghosts;     /* their aggregates, ascending */
  PetscInt              nghosts;
  PetscInt             *nodes, *places; /* the latter, in the order of their aggregates, then of theirs; where their ranks have them in `answer` */
  PetscInt             *received;       /* their aggregates among those of this rank */
  PetscInt              nreceived;
  PetscScalar          *sent;      /* the near-null space of the former, node by node */
  PetscReal            *near_null; /* of the nodes of this rank, then of the latter, vector by vector */
  MPI_Datatype          unit;      /* what a node has in the prolongator */
} GpufmtGamgElsewhere;

/* alpha and the vector D of a smoothing step, where the plan for it reads them */
typedef struct {
  Vec                diagonal;
  const PetscScalar *array;
  PetscBool          on_device;
  void              *staged; /* on the device, of a vector that is on the host */
  size_t             capacity;
} GpufmtGamgFactors;

/* words of 32 bits */
enum { GPUFMT_GAMG_NUMBER_WORDS = sizeof(PetscInt) / sizeof(uint32_t), GPUFMT_GAMG_VALUE_WORDS = sizeof(PetscScalar) / sizeof(uint32_t) };

/* the nodes of this rank, as requests name them */
static inline GpufmtElsewhereRequest GpufmtGamgOwnAggregates(const GpufmtGamg *gamg)
{
  return (GpufmtElsewhereRequest){.nnodes      = gamg->nnodes,
                                  .aggregates  = gamg->aggregates.aggregates,
                                  .first       = gamg->first,
                                  .naggregates = gamg->aggregates.naggregates};
}

static inline PC_GAMG *GpufmtGamgOf(PC pc)
{
  return (PC_GAMG *)((PC_MG *)pc->data)->innerctx;
}

static inline GpufmtGamgAgg *GpufmtGamgAggOf(PC pc)
{
  return (GpufmtGamgAgg *)GpufmtGamgOf(pc)->subctx;
}

/* whether the near-null space of the level in progress is the constant vector: those of coarser levels are what their prolongators leave */
static inline PetscBool GpufmtGamgIsConstant(PC pc, const GpufmtGamg *gamg)
{
  return (PetscBool)(gamg->constant && !GpufmtGamgOf(pc)->current_level);
}

/* of PETSc 3.26 and later: small entries of prolongators go, and with them perhaps whole columns */
static inline PetscBool GpufmtGamgIsFiltered(const PC_GAMG *g)
{
#if PETSC_VERSION_GE(3, 26, 0)
  return (PetscBool)(g->prolongator_filter > 0);
#else
  return PETSC_FALSE;
#endif
}

/* type.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtGamgSetUp(void);
GPUFMT_HIDDEN PetscErrorCode GpufmtGamgGet(PC, GpufmtGamg **);
GPUFMT_HIDDEN PetscBool      GpufmtGamgIsOurs(PC);
GPUFMT_HIDDEN PetscErrorCode GpufmtGamgTake(PC, GpufmtGamg *, PetscBool ours);

/* choose.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtGamgCoarsenForLevel(PC);
GPUFMT_HIDDEN PetscErrorCode GpufmtGamgChoose(PC, Mat, GpufmtGamgLevel *);

/* order.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtGamgOrderByDegrees(PetscInt n, const PetscInt rowptr[], PetscInt order[]);

/* parallel_aggregates.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtGamgAgree(PC, PetscErrorCode own);
GPUFMT_HIDDEN PetscErrorCode GpufmtGamgGhostsUpdate(PC, GpufmtGamg *, Mat);
GPUFMT_HIDDEN PetscErrorCode GpufmtGamgAggregateTogether(PC, GpufmtGamg *, GpufmtGamgLevel *, Mat G, PetscBool *found);

/* graph.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtGamgNoteSymmetric(PC, GpufmtGamg *, Mat);
GPUFMT_HIDDEN PetscErrorCode GpufmtGamgCreateParentGraph(PC, GpufmtGamg *, Mat, GpufmtGamgLevel *, Mat *G);
GPUFMT_HIDDEN PetscErrorCode PCGAMGCreateGraph_Gpufmt(PC, Mat, Mat *);

/* coarsen.c */
GPUFMT_HIDDEN PetscErrorCode PCGAMGCoarsen_Gpufmt(PC, Mat *, PetscCoarsenData **);

/* near_null.c */
GPUFMT_HIDDEN PetscErrorCode PCGAMGCreateDefaultData_Gpufmt(PC, Mat);
GPUFMT_HIDDEN PetscErrorCode GpufmtGamgReplaceNearNull(PC_GAMG *, int backend, int64_t ncols, const void *coarse);

/* prolongator.c */
GPUFMT_HIDDEN PetscErrorCode PCGAMGProlongator_Gpufmt(PC, Mat, PetscCoarsenData *, Mat *);

GPUFMT_HIDDEN PetscErrorCode GpufmtGamgCheckAggregates(const GpufmtGamg *);
GPUFMT_HIDDEN PetscErrorCode GpufmtGamgSetSizes(Mat P, Mat A, PetscInt col_block, int64_t ncols);
GPUFMT_HIDDEN PetscErrorCode GpufmtGamgFillTentative(GpufmtGamg *, Mat A, Mat P);
GPUFMT_HIDDEN PetscErrorCode GpufmtGamgSetPattern(Mat P, Mat A, const GpufmtPlannedPattern *);
GPUFMT_HIDDEN PetscErrorCode GpufmtGamgComputeValues(Mat P, int backend, const GpufmtPlan *, int64_t nnz, void *slots[GPUFMT_NUM_SLOTS]);

/* start_vector.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtGamgStartVector(GpufmtGamg *, PetscInt level, Mat A, Vec);
GPUFMT_HIDDEN PetscErrorCode GpufmtGamgStartsBegin(PC, GpufmtGamg *);
GPUFMT_HIDDEN PetscErrorCode GpufmtGamgStartsEnd(GpufmtGamg *);

/* smoothers.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtGamgSmoothersTake(PC);

/* estimate.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtGamgEstimate(PC, GpufmtGamg *, Mat A, PetscReal *emin, PetscReal *emax);

/* smooth.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtGamgFactorsGet(const GpufmtGamg *, Vec diagonal, PetscReal alpha, void *slots[GPUFMT_NUM_SLOTS],
                                                  GpufmtGamgFactors *);
GPUFMT_HIDDEN PetscErrorCode GpufmtGamgFactorsRestore(GpufmtGamgFactors *);
GPUFMT_HIDDEN PetscErrorCode GpufmtGamgLogFlops(const GpufmtGamg *, int64_t nnz, int64_t written);
GPUFMT_HIDDEN PetscErrorCode PCGAMGOptimizeProlongator_Gpufmt(PC, Mat, Mat *);

/* values.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtGamgBlocks(Mat, Mat blocks[2]);
GPUFMT_HIDDEN PetscErrorCode GpufmtGamgSendValues(PC, const GpufmtGamg *, Mat, PetscBool now);

/* elsewhere.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtGamgElsewhereFind(PC, const GpufmtGamg *, Mat, GpufmtGamgElsewhere *);
GPUFMT_HIDDEN PetscErrorCode GpufmtGamgElsewhereFree(GpufmtGamgElsewhere *);

/* parallel_prolongator.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtGamgFillTogether(PC, GpufmtGamg *, Mat A, Mat *P);
GPUFMT_HIDDEN PetscErrorCode GpufmtGamgProlongatorTogether(PC, GpufmtGamg *, Mat A, PetscBool is_smoothed, Mat *P);

/* parallel_smooth.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtGamgSmoothTogether(PC, GpufmtGamg *, Mat A, Vec diagonal, PetscReal alpha, Mat *P, PetscBool *done);

/* from_blocks.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtGamgFromBlocks(PC, const GpufmtGamg *, Mat A, int64_t nghosts, const void *ghosts, const GpufmtBlockAnswer[2],
                                                  Mat *P);
GPUFMT_HIDDEN PetscErrorCode GpufmtGamgBlockWrite(Mat block, int backend, int64_t nnz, void **values);
GPUFMT_HIDDEN PetscErrorCode GpufmtGamgBlockWritten(Mat block, int backend, int64_t nnz, void **values);

/* apply.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtMgSetUp(void);
GPUFMT_HIDDEN void           GpufmtMgRichardsonTake(PC);

/* memory.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtGamgTellMemory(PC, PetscInt number, Mat A, Mat P, Mat coarse);

/* set_up.c */
GPUFMT_HIDDEN extern PetscErrorCode (*gpufmt_gamg_parent_setup)(PC);
GPUFMT_HIDDEN PetscErrorCode PCGAMGCreateLevel_Gpufmt(PC, Mat, PetscInt, Mat *, Mat *, PetscMPIInt *, IS *, PetscBool);
GPUFMT_HIDDEN PetscErrorCode PCSetUp_GAMGGpufmt(PC);
