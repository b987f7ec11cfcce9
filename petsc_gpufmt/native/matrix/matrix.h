/* The matrix types: their formats, the stores that products with vectors run on, and what changes values. */
#pragma once
#include <petsc/private/vecimpl.h>
#include "halo/halo.h"

/* what a destroy function of PETSc takes: the address of the pointer to its data */
#if PETSC_VERSION_LT(3, 25, 0)
typedef void **GpufmtContextAddress;
#else
typedef void *GpufmtContextAddress;
#endif

typedef struct {
  const char *name, *seq_type, *mpi_type, *root_type;
} GpufmtFormat;

/* a plan GPUFMT_FUSED_... of a store */
typedef struct {
  GpufmtLease       lease; /* of the plan */
  GpufmtFusedAnswer answer;
} GpufmtFused;

/* one stored form of a matrix: (backend) x (direct or transposed) */
typedef struct {
  GpufmtLease       lease; /* of the plans */
  GpufmtStoreAnswer answer;
  PetscObjectState  pattern_state;
  GpufmtVersion     values; /* that the plans hold */
  int64_t           mults;  /* since the pattern was first stored */
  GpufmtFused       fused[GPUFMT_NUM_FUSED];
} GpufmtStore;

/* the CSR values of a matrix while plans read them */
typedef struct {
  int                 backend;
  void               *array;
  GpufmtDeviceValues *kept;    /* with the matrix, or NULL */
  GpufmtDeviceValues  passing; /* else */
} GpufmtCsrValues;

/* the copy of a matrix in single precision */
typedef struct {
  GpufmtStore  stores[GPUFMT_NUM_BACKENDS];  /* of a sequential matrix; those of a parallel one are with its blocks */
  Vec          scaling[GPUFMT_NUM_BACKENDS]; /* S, where the copy is that of S A S; NULL: of A */
  GpufmtHalo   halo;                         /* of a parallel matrix: the exchange of entries of x in single precision */
  GpufmtBuffer ghosts[GPUFMT_NUM_BACKENDS];  /* where those of other ranks arrive, unless the exchange has memory of its own */
} GpufmtLow;

/* a plan that changes the values of a matrix in place, or adds them up */
typedef struct {
  GpufmtLease      lease;   /* of the plan */
  PetscBool        applies; /* else the pattern that is to be added is not a part of the matrix's */
  int              backend;
  GpufmtPlan       plan;
  PetscObjectState pattern_state;
  PetscObjectId    added_id;            /* of the matrix that is added */
  PetscObjectState added_pattern_state; /* likewise */
  const char      *no_diagonal;         /* as in GpufmtScaleAndAddAnswer */
} GpufmtScaleAndAdd;

/* sums of the values at coordinates */
typedef struct {
  GpufmtLease   lease;   /* of the plan */
  int          *sharers; /* how many matrices have the same lease; NULL: this one */
  int           backend;
  GpufmtPlan    plan;
  PetscObjectId id;      /* of the coordinates that it was made for */
  PetscBool     entered; /* for these the matrix has had managed arrays */
  PetscInt      ntargets, nterms;
  const void   *begins, *index; /* on the backend, as in GpufmtCooAnswer, if the planner sorted the coordinates */
  PetscBool     sorted;         /* it did so for a sequential matrix */
  PetscCount    count;          /* of them */
} GpufmtCooSum;

/* what PETSc's MatSetPreallocationCOO() for seqaij leaves with the matrix: no public header has it */
typedef struct {
  PetscInt    nnz;
  PetscCount  count, nterms;
  PetscCount *begins, *places; /* [nnz + 1], [nterms]: of the given values that make a nonzero */
} GpufmtSeqCoordinates;

/* what PETSc's MatSetPreallocationCOO() for mpiaij leaves with the matrix: no public header has it; of both blocks */
typedef struct {
  PetscCount   count;
  PetscSF      exchange;
  PetscCount   nnz[2], nreceived_nnz[2];          /* nonzeros, and how many of them other ranks have values for */
  PetscCount   diag_nterms[2], offdiag_nterms[2]; /* own values, received ones */
  PetscCount  *own[2][2];                         /* begins, places */
  PetscCount  *received[2][3];                    /* nonzeros, begins, places */
  PetscCount  *sent;                              /* places of what other ranks get */
  PetscScalar *sent_values, *received_values;
  PetscInt     nsent, nreceived;
} GpufmtParallelCoordinates;

/* what the data of type mpiaij begin with: no public header has it */
typedef struct {
  Mat          diag, offdiag;
  PetscMPIInt  size, rank;
  PetscBool    donotstash; /* MAT_IGNORE_OFF_PROC_ENTRIES */
  MPI_Request *send_waits, *receive_waits;
  PetscInt     nsends, nreceives;
  PetscScalar *sent, *received;
  PetscInt     longest;
  void        *number_of_column;
  PetscInt    *columns; /* of the off-diagonal block */
  Vec          ghost;
  VecScatter   scatter;
} GpufmtParallelData;

/* What is added up: target t is the sum of the given values at places[begins[t]], ..., and then, if it is the next of `received_targets`, of
   received values. `begins` NULL: of the one at places[t]. */
typedef struct {
  PetscCount        ntargets, nterms, nreceived_targets;
  const PetscCount *begins, *places;
  const PetscCount *received_targets, *received_begins, *received_places;
  PetscCount        sizes[2]; /* values that are given, and that are received */
} GpufmtCooTerms;

/* The sums of values at coordinates of a parallel matrix, which all its copies have: their terms are the values that are given, and then those that
   were received. They come from the planner, or from PETSc's note. */
typedef struct {
  PetscCount   count, nnz[2]; /* values that are given, and nonzeros of both blocks */
  PetscInt     nsent, nreceived;
  PetscCount  *sent_places;                   /* of values that other ranks get; NULL: the note has them */
  PetscSF      exchange;                      /* brings them there */
  PetscScalar *sent_values, *received_values; /* on the host, unless they are exchanged on the device; else NULL */
  GpufmtCooSum sent, blocks[2];
} GpufmtParallelSums;

/* values at coordinates */
typedef struct {
  const PetscScalar *given;
  PetscCount         count;
  PetscBool          on_device; /* is where they are given */
  int                backend;   /* where they are added up */
  PetscBool          ours;      /* else PETSc's function adds them up, on the host */
  const PetscScalar *array;     /* where they are added up */
  void              *staged;    /* a copy of theirs there, or NULL */
  size_t             capacity;  /* of it, in bytes */
} GpufmtCooValues;

/* options of a sequential matrix that PETSc keeps with its arrays, in the order in which they were set */
enum { GPUFMT_NUM_OPTIONS_SET = 5 }; /* all that say what becomes of new nonzeros are one */
typedef struct {
  int       count;
  MatOption options[GPUFMT_NUM_OPTIONS_SET];
  PetscBool flags[GPUFMT_NUM_OPTIONS_SET];
} GpufmtOptionsSet;

/* the digest of a pattern, which takes as long as an upload of it */
typedef struct {
  PetscObjectId    id;    /* of the matrix that had the pattern; 0: nothing was digested */
  PetscObjectState state; /* of its nonzero pattern */
  uint64_t         digest;
} GpufmtDigested;

/* A->spptr of a matrix of ours, sequential or parallel; survives MatHeaderMerge(), which moves spptr with the data */
typedef struct {
  GpufmtArrays        arrays; /* first */
  const GpufmtFormat *format;
  PetscBool           offdiag;       /* off-diagonal block of a parallel matrix: its x is the ghost vector */
  char               *parent_prefix; /* options prefix of the parallel matrix that this is a block of; else the matrix has its own */
  GpufmtStore         stores[GPUFMT_NUM_BACKENDS][2];
  GpufmtLow           low;
  void               *scratch[GPUFMT_NUM_SLOTS]; /* device copies of host vectors */
  size_t              scratch_bytes[GPUFMT_NUM_SLOTS];
  GpufmtScaleAndAdd   scale_and_add[GPUFMT_NUM_SCALE_AND_ADD];
  GpufmtCooSum        coo;            /* of its values; of the block of a parallel matrix: for which coordinates it has had managed arrays */
  GpufmtDigested      digested;       /* by a sparse product, for those that follow */
  GpufmtOptionsSet    options;        /* of a parallel matrix: those that its blocks are to get */
  PetscErrorCode     *failure;        /* inside a product of the parallel matrix that this is a block of: where a failure waits for its end */
  PetscBool           pinned;         /* addresses of its values are kept somewhere: it gets no other arrays */
  PetscBool           managed_blocks; /* of a parallel matrix: since it was assembled, a block may have managed arrays */
  PetscObjectState    converted;      /* of a parallel matrix: its pattern when all ranks last knew that its blocks are of our type */
  GpufmtHalo          halo;           /* of a parallel matrix that has been multiplied */
  PetscBool           agreed[2];      /* of a parallel matrix: all ranks know that its products, direct or transposed, succeed as it was assembled */
} Mat_Gpufmt;

typedef struct {
  PetscInt row, column;
} GpufmtCooPair;

/* entries that one rank sends another, which are neighbours among those that it sends */
typedef struct {
  PetscInt first, count;
} GpufmtCooParcel;

/* those outside of the diagonal block, and those of other ranks in rows of this one */
typedef struct {
  GpufmtCooBlock      block; /* the diagonal one */
  PetscMPIInt         rank;
  GpufmtOutsideAnswer outside;
  GpufmtLease         lease;  /* of it, and of all coordinates on the backend */
  PetscMPIInt        *owners; /* [outside.count] -1: left out */
  PetscInt            nsent, nreceived;
  GpufmtCooPair      *sent, *received;
  PetscCount         *sent_places;    /* their numbers */
  PetscInt           *rows, *columns; /* that were received */
  PetscMPIInt         nto, nfrom, *to, *from;
  GpufmtCooParcel    *parcels, *arriving;
  PetscSF             forward; /* from `sent` of all ranks to `received` */
} GpufmtCooExchange;

/* how sparse products are chosen, which the rooms above know: see register.c */
typedef struct {
  PetscErrorCode (*seq)(Mat);
  PetscErrorCode (*mpi)(Mat);
  PetscErrorCode (*anytype)(Mat);
} GpufmtProductOps;

/* what belongs to a sequential matrix of ours, else NULL */
static inline Mat_Gpufmt *GpufmtSeqData(Mat A)
{
  return (Mat_Gpufmt *)GpufmtArraysOf(A);
}

/* Composes our function of a name with a matrix, or else that of its parent: it is asked for once, when ours first takes its place. */
#define GpufmtComposeFunction(A, name, ours, function, parent) \
  do { \
    if ((ours) && !(parent)) PetscCall(PetscObjectQueryFunction((PetscObject)(A), name, &(parent))); \
    PetscCall(PetscObjectComposeFunction((PetscObject)(A), name, (ours) ? (function) : (parent))); \
  } while (0)

/* formats.c */
GPUFMT_HIDDEN const GpufmtFormat *GpufmtFormatFind(const char type_name[]);
GPUFMT_HIDDEN PetscErrorCode      GpufmtOptionsDeclare(const GpufmtFormat *, PetscOptionItems);
GPUFMT_HIDDEN PetscErrorCode      GpufmtOptionsCollect(const GpufmtFormat *, PetscOptions, const char prefix[], size_t, char[]);

/* citations.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtCitationsReset(void);

/* parent.c */
GPUFMT_HIDDEN extern const struct _MatOps *const gpufmt_seq_parent;
GPUFMT_HIDDEN extern const struct _MatOps *const gpufmt_mpi_parent;
GPUFMT_HIDDEN PetscErrorCode                     GpufmtParentsFind(Mat);
GPUFMT_HIDDEN void                               GpufmtParentsForget(void);

/* pattern.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtPatternGet(Mat, const PetscInt **rowptr, const PetscInt **colidx);
GPUFMT_HIDDEN PetscErrorCode GpufmtPatternRestore(Mat, const PetscInt **rowptr, const PetscInt **colidx);
GPUFMT_HIDDEN int64_t        GpufmtPatternHeld(Mat, int backend);
GPUFMT_HIDDEN PetscErrorCode GpufmtOperandGet(Mat, int backend, GpufmtOperand *);
GPUFMT_HIDDEN PetscErrorCode GpufmtOperandRestore(Mat, const GpufmtOperand *);

/* store.c */
GPUFMT_HIDDEN extern PetscLogEvent GPUFMT_Refresh;
GPUFMT_HIDDEN PetscErrorCode       Mat_GpufmtCreate(const GpufmtFormat *, Mat_Gpufmt **);
GPUFMT_HIDDEN PetscErrorCode       Mat_GpufmtSetFormat(Mat_Gpufmt *, const GpufmtFormat *);
GPUFMT_HIDDEN PetscErrorCode       Mat_GpufmtDestroy(Mat_Gpufmt **);
GPUFMT_HIDDEN PetscErrorCode       GpufmtStoreGet(Mat, Mat_Gpufmt *, int backend, PetscBool transposed, GpufmtStore **);

GPUFMT_HIDDEN PetscErrorCode GpufmtStorePlan(Mat, int backend, PetscBool transposed, size_t scalar_bytes, GpufmtStore *);
GPUFMT_HIDDEN PetscErrorCode GpufmtStoreFill(const GpufmtStore *, int backend, void *values);
GPUFMT_HIDDEN PetscErrorCode GpufmtCsrValuesGet(Mat, int backend, GpufmtCsrValues *);
GPUFMT_HIDDEN PetscErrorCode GpufmtCsrValuesRestore(Mat, GpufmtCsrValues *);

/* low_store.c */
GPUFMT_HIDDEN const GpufmtStore *GpufmtLowStoreCurrent(Mat block, int backend);
GPUFMT_HIDDEN PetscErrorCode     GpufmtLowStoreFill(Mat block, int backend, Vec rows, Vec columns, int64_t outside[GPUFMT_NUM_OUTSIDE]);
GPUFMT_HIDDEN void               GpufmtLowStoreAccept(Mat block, int backend);

/* low_mult.c; programs may call the first two */
enum { GPUFMT_LOW_KEYS = 4 };
PETSC_EXTERN PetscErrorCode  GpufmtLowUpdate(Mat, int backend, Vec *scaling);
PETSC_EXTERN PetscErrorCode  GpufmtLowMult(Mat, int backend, const void *x, void *z);
GPUFMT_HIDDEN PetscErrorCode GpufmtLowRecordKeys(Mat, int backend, const void *keys[GPUFMT_LOW_KEYS], PetscInt *unit);
GPUFMT_HIDDEN PetscErrorCode GpufmtLowRecord(Mat, int backend, PetscInt k, const void *x, void *z, GpufmtGraph);
GPUFMT_HIDDEN PetscErrorCode GpufmtLowLaunched(Mat, int backend, PetscInt nmults);

/* mult.c */
GPUFMT_HIDDEN PetscErrorCode MatMult_SeqAIJGpufmt(Mat, Vec, Vec);
GPUFMT_HIDDEN PetscErrorCode MatMultAdd_SeqAIJGpufmt(Mat, Vec, Vec, Vec);
GPUFMT_HIDDEN PetscErrorCode MatMultTranspose_SeqAIJGpufmt(Mat, Vec, Vec);
GPUFMT_HIDDEN PetscErrorCode MatMultTransposeAdd_SeqAIJGpufmt(Mat, Vec, Vec, Vec);

/* fused.c; tests call these too */
typedef struct {
  const void *x, *u, *b, *d; /* b NULL: 0, d NULL: 1 */
  void       *z;             /* may be u */
  PetscScalar alpha, beta, gamma;
} GpufmtSmoothing;
GPUFMT_HIDDEN PetscErrorCode GpufmtFusedDrop(GpufmtStore *);
GPUFMT_HIDDEN PetscErrorCode GpufmtFusedGet(Mat, int backend, int kind, const GpufmtFused **);
PETSC_EXTERN PetscErrorCode  GpufmtMultDot(Mat, int backend, const void *x, void *z, void *result, PetscBool *done);
PETSC_EXTERN PetscErrorCode  GpufmtAddDot(Mat, int backend, const void *x, const void *y, void *z, void *result, PetscBool *done);
PETSC_EXTERN PetscErrorCode  GpufmtSmooth(Mat, int backend, const GpufmtSmoothing *, PetscBool *done);
PETSC_EXTERN PetscErrorCode  GpufmtAddSmooth(Mat, int backend, const GpufmtSmoothing *, PetscBool *done);

/* mpimult.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtParallelParts(Mat, Mat *diag, Mat *offdiag, GpufmtHaloParts *);
GPUFMT_HIDDEN void           GpufmtParallelMultSet(Mat, PetscBool ours);
GPUFMT_HIDDEN void           GpufmtParallelMultChanged(Mat);

/* record.c */
enum { GPUFMT_RECORD_KEYS = 6 };
GPUFMT_HIDDEN PetscErrorCode GpufmtRecordExchange(const GpufmtPeer *, int step, const void *x, GpufmtGraph);
GPUFMT_HIDDEN PetscErrorCode GpufmtRecordReady(Mat, int backend, PetscBool wanted, PetscBool *ready, PetscBool *dots);
GPUFMT_HIDDEN PetscErrorCode GpufmtRecordUpdate(Mat, int backend, PetscBool *dots);
GPUFMT_HIDDEN PetscErrorCode GpufmtRecordKeys(Mat, const void *keys[GPUFMT_RECORD_KEYS], PetscInt *unit);
GPUFMT_HIDDEN PetscErrorCode GpufmtRecordMult(Mat, int backend, PetscInt k, const PetscScalar *x, PetscScalar *z, double *dots, GpufmtGraph);
GPUFMT_HIDDEN PetscErrorCode GpufmtRecordLaunched(Mat, int backend, PetscInt nmults);

/* vectors.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtVecTypeOn(Mat, PetscBool);
GPUFMT_HIDDEN PetscErrorCode MatCreateVecs_MPIAIJGpufmt(Mat, Vec *right, Vec *left);

/* diagonal.c */
GPUFMT_HIDDEN PetscErrorCode MatGetDiagonal_SeqAIJGpufmt(Mat, Vec);

/* scale_and_add.c, mpi_scale_and_add.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtValuesPlace(Mat, int *backend, PetscBool *ours);
GPUFMT_HIDDEN PetscLogDouble GpufmtEntries(Mat);
GPUFMT_HIDDEN void          *GpufmtScalarWord(PetscScalar);
GPUFMT_HIDDEN void           GpufmtAlphaSet(void *slots[GPUFMT_NUM_SLOTS], PetscScalar);
GPUFMT_HIDDEN PetscErrorCode GpufmtScaleAndAddGet(Mat, int backend, int kind, Mat added, const PetscInt columns[], const GpufmtScaleAndAdd **);
GPUFMT_HIDDEN PetscErrorCode GpufmtScaleAndAddRun(Mat, const GpufmtScaleAndAdd *, void *slots[GPUFMT_NUM_SLOTS], PetscLogDouble flops);
GPUFMT_HIDDEN PetscErrorCode GpufmtScaleAndAddRunWith(Mat, Vec, const GpufmtScaleAndAdd *, void *slots[GPUFMT_NUM_SLOTS], PetscLogDouble flops);
GPUFMT_HIDDEN PetscErrorCode GpufmtAddPlan(Mat Y, Mat X, MatStructure, const PetscInt columns[], const GpufmtScaleAndAdd **);
GPUFMT_HIDDEN PetscErrorCode GpufmtAddRun(Mat Y, PetscScalar, Mat X, MatStructure, const GpufmtScaleAndAdd *);
GPUFMT_HIDDEN PetscErrorCode MatScale_SeqAIJGpufmt(Mat, PetscScalar);
GPUFMT_HIDDEN PetscErrorCode MatDiagonalScale_SeqAIJGpufmt(Mat, Vec, Vec);
GPUFMT_HIDDEN PetscErrorCode MatAXPY_SeqAIJGpufmt(Mat, PetscScalar, Mat, MatStructure);
GPUFMT_HIDDEN PetscErrorCode MatAXPY_MPIAIJGpufmt(Mat, PetscScalar, Mat, MatStructure);
GPUFMT_HIDDEN PetscErrorCode GpufmtDiagonalPlan(Mat, const GpufmtScaleAndAdd **);
GPUFMT_HIDDEN PetscErrorCode GpufmtDiagonalShift(Mat, PetscScalar, const GpufmtScaleAndAdd *);
GPUFMT_HIDDEN PetscErrorCode GpufmtParallelShift(Mat, PetscScalar, PetscBool *done);
GPUFMT_HIDDEN PetscErrorCode MatShift_SeqAIJGpufmt(Mat, PetscScalar);
GPUFMT_HIDDEN PetscErrorCode MatDiagonalSet_SeqAIJGpufmt(Mat, Vec, InsertMode);
GPUFMT_HIDDEN PetscErrorCode MatZeroEntries_SeqAIJGpufmt(Mat);

/* zero_rows.c, mpi_zero_rows.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtZeroPlan(Mat, int kind, PetscBool removes, const GpufmtScaleAndAdd **);
GPUFMT_HIDDEN PetscInt       GpufmtZeroWithoutDiagonal(Mat, const GpufmtScaleAndAdd *, const char rows[]);
GPUFMT_HIDDEN PetscErrorCode GpufmtZeroCheckVectors(Mat, Vec x, Vec b);
GPUFMT_HIDDEN PetscErrorCode GpufmtZeroRun(Mat, const GpufmtScaleAndAdd *, const char rows[], const char columns[], PetscScalar, Vec x, Vec b);
GPUFMT_HIDDEN PetscErrorCode MatZeroRows_SeqAIJGpufmt(Mat, PetscInt, const PetscInt rows[], PetscScalar, Vec x, Vec b);
GPUFMT_HIDDEN PetscErrorCode MatZeroRowsColumns_SeqAIJGpufmt(Mat, PetscInt, const PetscInt rows[], PetscScalar, Vec x, Vec b);
GPUFMT_HIDDEN PetscErrorCode GpufmtParallelZero(Mat, PetscInt, const PetscInt rows[], PetscScalar, Vec x, Vec b, PetscBool columns, PetscBool *done);

/* norm.c, mpi_norm.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtNormPlan(Mat, NormType, const GpufmtScaleAndAdd **);
GPUFMT_HIDDEN PetscErrorCode GpufmtNormSquares(Mat, const GpufmtScaleAndAdd *, PetscReal *);
GPUFMT_HIDDEN PetscErrorCode GpufmtNormLargest(int n, const Mat[], const GpufmtScaleAndAdd *const[], PetscInt nsums, PetscReal *);
GPUFMT_HIDDEN PetscErrorCode GpufmtNormColumnSums(Mat, const GpufmtScaleAndAdd *, PetscScalar sums[]);
GPUFMT_HIDDEN PetscErrorCode GpufmtNormDrop(Mat, NormType);
GPUFMT_HIDDEN PetscErrorCode MatNorm_SeqAIJGpufmt(Mat, NormType, PetscReal *);
GPUFMT_HIDDEN PetscErrorCode MatNorm_MPIAIJGpufmt(Mat, NormType, PetscReal *);

/* managed_arrays.c */
GPUFMT_HIDDEN PetscBool      GpufmtOptionsOnNewNonzeros(const GpufmtOptionsSet *);
GPUFMT_HIDDEN void           GpufmtOptionsRemember(GpufmtOptionsSet *, MatOption, PetscBool);
GPUFMT_HIDDEN PetscErrorCode GpufmtOptionsRepeat(Mat, const GpufmtOptionsSet *);
GPUFMT_HIDDEN PetscErrorCode GpufmtManagedMatrix(Mat A, GpufmtManaged *, Mat *);
GPUFMT_HIDDEN PetscErrorCode GpufmtManagedEnter(Mat, GpufmtManaged *);
GPUFMT_HIDDEN PetscErrorCode GpufmtManagedLeave(Mat);
GPUFMT_HIDDEN PetscErrorCode GpufmtManagedPin(Mat);
GPUFMT_HIDDEN PetscBool      GpufmtManagedMayEnter(Mat);
GPUFMT_HIDDEN void           GpufmtManagedArraysSet(Mat, PetscBool ours);

/* blocks.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtBlockCreate(MatType, PetscInt nrows, PetscInt ncols, PetscInt row_block, PetscInt col_block, Mat *);
GPUFMT_HIDDEN PetscErrorCode GpufmtCreateFromBlocks(MPI_Comm, MatType, PetscInt nrows, PetscInt ncols, PetscBool extensible, Mat blocks[2],
                                                    PetscInt **ghosts, Mat *);

/* parcels.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtParcelsExchange(MPI_Comm, PetscMPIInt n, PetscMPIInt nto, const PetscMPIInt to[], const void *parcels,
                                                   PetscMPIInt *nfrom, PetscMPIInt **from, void *arrived);

/* coo_pattern.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtCooAssemble(Mat, PetscCount, const PetscInt rows[], const PetscInt columns[], PetscBool *done);
GPUFMT_HIDDEN PetscErrorCode GpufmtCooSortPlace(Mat, PetscCount, const PetscInt rows[], const PetscInt columns[], int *backend, PetscBool *wanted);
GPUFMT_HIDDEN PetscErrorCode GpufmtCooSort(Mat, int backend, GpufmtCooRequest *, GpufmtCooSum *, GpufmtManaged **);
GPUFMT_HIDDEN PetscErrorCode GpufmtCooToCounts(const void *from, PetscInt count, int backend, PetscCount **);
GPUFMT_HIDDEN PetscErrorCode GpufmtCooForget(Mat);
GPUFMT_HIDDEN PetscErrorCode GpufmtCooNote(Mat);
GPUFMT_HIDDEN PetscErrorCode GpufmtCooFound(Mat);
GPUFMT_HIDDEN PetscErrorCode GpufmtCooShare(Mat from, Mat to);
GPUFMT_HIDDEN PetscErrorCode GpufmtCooDrop(GpufmtCooSum *);

/* mpi_coo_exchange.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtCooExchangeRun(Mat, int backend, PetscCount, const PetscInt rows[], const PetscInt columns[], GpufmtCooExchange *,
                                                  PetscSF *);
GPUFMT_HIDDEN PetscErrorCode GpufmtCooExchangeFree(GpufmtCooExchange *);

/* mpi_coo_pattern.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtParallelCooAssemble(Mat, int backend, PetscCount, const PetscInt rows[], const PetscInt columns[]);

/* mpi_coo_sums.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtParallelSumsGet(Mat, GpufmtParallelSums **, PetscObjectId *);
GPUFMT_HIDDEN PetscErrorCode GpufmtParallelSumsSet(Mat, GpufmtParallelSums **, PetscObjectId *);
GPUFMT_HIDDEN PetscErrorCode GpufmtParallelSumsForget(Mat);
GPUFMT_HIDDEN PetscErrorCode GpufmtParallelSumsPlan(Mat, int backend, GpufmtParallelSums *);
GPUFMT_HIDDEN PetscErrorCode GpufmtParallelSumsDestroy(GpufmtParallelSums **);
GPUFMT_HIDDEN PetscErrorCode GpufmtParallelCooNote(Mat);

/* coo.c, mpi_coo.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtCooToHost(PetscCount, PetscInt rows[], PetscInt columns[], PetscInt *copies[2]);
GPUFMT_HIDDEN PetscErrorCode GpufmtCooFind(Mat, void *coordinates, PetscObjectId *);
GPUFMT_HIDDEN PetscErrorCode GpufmtCooCheck(Mat, PetscCount nnz);
GPUFMT_HIDDEN PetscErrorCode GpufmtCooPlace(Mat, const PetscScalar[], PetscCount, GpufmtCooValues *);
GPUFMT_HIDDEN PetscErrorCode GpufmtCooPlan(Mat, const GpufmtCooTerms *, PetscObjectId, int backend, GpufmtCooSum *);
GPUFMT_HIDDEN PetscErrorCode GpufmtCooStage(GpufmtCooValues *);
GPUFMT_HIDDEN PetscErrorCode GpufmtCooReserve(Mat, int backend, InsertMode, GpufmtManaged **);
GPUFMT_HIDDEN PetscErrorCode GpufmtCooEnter(Mat, GpufmtManaged **);
GPUFMT_HIDDEN PetscErrorCode GpufmtCooRun(Mat, const GpufmtCooSum *, const PetscScalar *given, const void *received, InsertMode);
GPUFMT_HIDDEN PetscErrorCode GpufmtCooRelease(GpufmtCooValues *);
GPUFMT_HIDDEN PetscErrorCode GpufmtSeqCooCount(Mat, PetscCount *);
GPUFMT_HIDDEN PetscErrorCode GpufmtSeqCooSet(Mat, PetscBool ours);
GPUFMT_HIDDEN PetscErrorCode GpufmtParallelCooCount(Mat, PetscCount *);
GPUFMT_HIDDEN PetscErrorCode GpufmtCooAgree(Mat, PetscErrorCode);
GPUFMT_HIDDEN PetscErrorCode GpufmtParallelCooSet(Mat, PetscBool ours);

/* assembly.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtCheckOurs(Mat);
GPUFMT_HIDDEN PetscErrorCode GpufmtKeepMessage(MPI_Comm, int line, const char function[], const char file[], PetscErrorCode, PetscErrorType,
                                               const char message[], void *kept);

/* interpolation.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtInterpolationSetUp(void);

/* view.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtViewStorage(Mat A, Mat diag, Mat offdiag, PetscViewer);

/* seqaij.c, mpiaij.c */
GPUFMT_HIDDEN PetscErrorCode          GpufmtBlocksConvert(Mat);
GPUFMT_HIDDEN extern GpufmtProductOps gpufmt_product_ops;
GPUFMT_HIDDEN void                    GpufmtMatrixSetUp(GpufmtProductOps);
GPUFMT_HIDDEN PetscErrorCode          GpufmtConvertPrepare(Mat, MatReuse, Mat *, PetscBool *done);
GPUFMT_HIDDEN PetscErrorCode          GpufmtCheckScalars(Mat, MatType);
GPUFMT_HIDDEN PetscErrorCode          MatDestroy_SeqAIJGpufmt(Mat);
GPUFMT_HIDDEN PetscErrorCode          MatConvert_SeqAIJ_SeqAIJGpufmt(Mat, MatType, MatReuse, Mat *);
GPUFMT_HIDDEN PetscErrorCode          MatConvert_SeqAIJGpufmt_SeqAIJ(Mat, MatType, MatReuse, Mat *);
GPUFMT_HIDDEN PetscErrorCode          MatConvert_MPIAIJ_MPIAIJGpufmt(Mat, MatType, MatReuse, Mat *);
GPUFMT_HIDDEN PetscErrorCode          MatConvert_MPIAIJGpufmt_MPIAIJ(Mat, MatType, MatReuse, Mat *);
GPUFMT_HIDDEN PetscErrorCode          MatSetFromOptions_Gpufmt(Mat, PetscOptionItems);

/* convert.c */
GPUFMT_HIDDEN PetscErrorCode MatConvert_Gpufmt(Mat, MatType, MatReuse, Mat *);
GPUFMT_HIDDEN PetscErrorCode MatSeqAIJKron_SeqAIJGpufmt(Mat, Mat, MatReuse, Mat *);
GPUFMT_HIDDEN PetscErrorCode GpufmtConversionsCompose(Mat, const char parent[], const char type[], const char alias[], PetscBool on);
