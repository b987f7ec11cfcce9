/* Internal declarations of libpetscgpufmt. */
#pragma once
#include <petsc/private/matimpl.h>
#include <petsc/private/vecimpl.h>
#include "gpufmt_plan.h"
#include "petsc_gpufmt.h"

#if PETSC_VERSION_LT(3, 24, 0)
  #error "petsc_gpufmt needs PETSc 3.24 or newer"
#endif

#define GPUFMT_HIDDEN PETSC_VISIBILITY_INTERNAL

typedef struct {
  const char *name, *seq_type, *mpi_type, *root_type;
} GpufmtFormat;

/* The values of a matrix as they are now. Those of two matrices may be counted alike: MatHeaderReplace() and MatHeaderMerge() move the data and
   the id to another matrix, which goes on counting from its own state, and a new matrix may lie where an old one was. The nonzero state moves
   with the data. */
typedef struct {
  const struct _p_Mat *matrix;
  PetscObjectId        id;
  PetscObjectState     state;
} GpufmtVersion;

static inline GpufmtVersion GpufmtVersionOf(Mat A)
{
  return (GpufmtVersion){.matrix = A, .id = ((PetscObject)A)->id, .state = ((PetscObject)A)->state};
}

static inline PetscBool GpufmtVersionIsOf(const GpufmtVersion *v, Mat A)
{
  return (PetscBool)(v->state == ((PetscObject)A)->state && v->matrix == A && v->id == ((PetscObject)A)->id);
}

/* the right to use what the planner has made, until it is given back or all that was made is gone */
typedef struct {
  int64_t token;
  int64_t generation; /* 0: nothing is held */
} GpufmtLease;

/* one stored form of a block: (backend) x (direct or transposed) */
typedef struct {
  GpufmtLease       lease; /* of the plans */
  GpufmtStoreAnswer answer;
  PetscObjectState  pattern_state;
  GpufmtVersion     values;   /* that the plans hold */
  int64_t           mults; /* since the pattern was first stored */
} GpufmtStore;

/* Managed arrays of a sequential matrix. One allocation holds the values, then the columns, aligned for either, whichever is wider. */
typedef struct _GpufmtManaged GpufmtManaged;
struct _GpufmtManaged {
  PetscScalar   *values;
  PetscInt      *rowptr, *colidx;
  PetscInt       nrows;
  PetscCount     nnz;
  size_t         bytes; /* of the allocation */
  int            references;
  GpufmtManaged *previous, *next;
};

/* CSR values of a matrix on the device */
typedef struct {
  void         *array;
  size_t        capacity; /* bytes */
  PetscBool     managed;  /* the array is that of the matrix itself */
  PetscBool     valid;    /* they are those of `version` */
  PetscBool     computed; /* by a numeric phase, and not looked at since */
  GpufmtVersion version;
} GpufmtDeviceValues;

/* a plan that changes the values of a matrix in place */
typedef struct {
  GpufmtLease      lease;   /* of the plan */
  PetscBool        applies; /* else the pattern that is to be added is not a part of the matrix's */
  int              backend;
  GpufmtPlan       plan;
  PetscObjectState pattern_state;
  PetscObjectId    added_id;            /* of the matrix that is added */
  PetscObjectState added_pattern_state; /* likewise */
} GpufmtScaleAndAdd;

/* A->spptr of a matrix of ours, sequential or parallel; survives MatHeaderMerge(), which moves spptr with the data */
typedef struct {
  const GpufmtFormat  *format;
  PetscBool            offdiag;       /* off-diagonal block of a parallel matrix: its x is the ghost vector */
  char                *parent_prefix; /* options prefix of the parallel matrix that this is a block of; else the matrix has its own */
  GpufmtStore          stores[GPUFMT_NUM_BACKENDS][2];
  void                *scratch[GPUFMT_NUM_SLOTS]; /* device copies of host vectors */
  size_t               scratch_bytes[GPUFMT_NUM_SLOTS];
  GpufmtDeviceValues   values;  /* of a matrix that sparse products read or make */
  GpufmtScaleAndAdd         scale_and_add[GPUFMT_NUM_SCALE_AND_ADD];
  GpufmtManaged       *managed; /* the arrays of a result of these; else they are PETSc's own */
  PetscErrorCode      *failure; /* inside a product of the parallel matrix that this is a block of: where a failure waits for its end */
  PetscBool            agreed[2]; /* of a parallel matrix: all ranks know that its products, direct or transposed, succeed as it was assembled */
} Mat_Gpufmt;

enum {
  GPUFMT_MAX_OPERANDS = 3
};

/* what an operand of a sparse product was in the symbolic phase */
typedef struct {
  PetscObjectId    id;
  PetscObjectState state; /* of its nonzero pattern */
  PetscInt         nrows, ncols, nnz;
  uint64_t         digest;
} GpufmtPattern;

/* whether it is known to be that of A */
static inline PetscBool GpufmtPatternIsOf(const GpufmtPattern *pattern, Mat A)
{
  return (PetscBool)(pattern->id == ((PetscObject)A)->id && pattern->state == A->nonzerostate);
}

/* C->product->data of a sparse product of ours */
typedef struct {
  int                 backend;
  GpufmtLease         lease; /* of what `answer` points to */
  GpufmtProductAnswer answer;
  struct {
    GpufmtPattern      pattern;
    GpufmtManaged     *managed; /* the pattern, if it had managed arrays: its digest is only made when it is asked for */
    GpufmtDeviceValues values; /* if the operand is not of our types */
  } operands[GPUFMT_MAX_OPERANDS];
  GpufmtDeviceValues result; /* if the result is not of our types */
  PetscObjectId      result_id;
  PetscObjectState   result_state; /* of its nonzero pattern */
} GpufmtProduct;

typedef enum {
  GPUFMT_ALGORITHM_UNSPECIFIED,
  GPUFMT_ALGORITHM_OURS,
  GPUFMT_ALGORITHM_PARENT,        /* as the options or MatProductSetAlgorithm() name it */
  GPUFMT_ALGORITHM_PARENT_DEFAULT /* whatever they name */
} GpufmtProductAlgorithm;

/* what a destroy function of PETSc takes: the address of the pointer to its data */
#if PETSC_VERSION_LT(3, 25, 0)
typedef void **GpufmtContextAddress;
#else
typedef void *GpufmtContextAddress;
#endif

/* formats.c */
GPUFMT_HIDDEN const GpufmtFormat *GpufmtFormatFind(const char type_name[]);
GPUFMT_HIDDEN PetscErrorCode      GpufmtOptionsDeclare(const GpufmtFormat *, PetscOptionItems);
GPUFMT_HIDDEN PetscErrorCode      GpufmtOptionsCollect(const GpufmtFormat *, PetscOptions, const char prefix[], size_t, char[]);

/* citations.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtCitationsReset(void);

/* block.c */
GPUFMT_HIDDEN PetscErrorCode Mat_GpufmtCreate(const GpufmtFormat *, Mat_Gpufmt **);
GPUFMT_HIDDEN PetscErrorCode Mat_GpufmtSetFormat(Mat_Gpufmt *, const GpufmtFormat *);
GPUFMT_HIDDEN PetscErrorCode Mat_GpufmtDestroy(Mat_Gpufmt **);
GPUFMT_HIDDEN PetscErrorCode GpufmtStoreGet(Mat, Mat_Gpufmt *, int backend, PetscBool transposed, GpufmtStore **);

/* planner.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtPlannerAsk(int ask, int backend, PetscLogEvent, Mat, GpufmtPlace *request, GpufmtOutcome *answer, GpufmtLease *);
GPUFMT_HIDDEN PetscErrorCode GpufmtPlannerRelease(int64_t token);
GPUFMT_HIDDEN PetscErrorCode GpufmtPlannerReleaseAll(void);
GPUFMT_HIDDEN void           GpufmtPlannerFreePool(void);
PETSC_EXTERN int             GpufmtSetPlanner(const GpufmtPlanner *);
GPUFMT_HIDDEN void           GpufmtPlannerEnd(void);

/* lease.c */
GPUFMT_HIDDEN extern int64_t gpufmt_generation;
GPUFMT_HIDDEN void           GpufmtLeaseTake(GpufmtLease *, int64_t token);
GPUFMT_HIDDEN void           GpufmtLeaseMove(GpufmtLease *from, GpufmtLease *to);
GPUFMT_HIDDEN PetscErrorCode GpufmtLeaseDrop(GpufmtLease *);
GPUFMT_HIDDEN PetscErrorCode GpufmtLeasesForget(PetscBool release);

static inline PetscBool GpufmtLeaseHolds(const GpufmtLease *lease)
{
  return (PetscBool)(lease->generation == gpufmt_generation);
}

/* python.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtPythonStart(void);
GPUFMT_HIDDEN PetscBool      GpufmtPythonTakeInterrupt(void);
GPUFMT_HIDDEN void           GpufmtPythonInterrupt(void);

/* device.c */
GPUFMT_HIDDEN PetscBool      GpufmtDeviceUsable(void);
GPUFMT_HIDDEN PetscErrorCode GpufmtDeviceGet(int *device, void **stream);
GPUFMT_HIDDEN PetscErrorCode GpufmtDeviceSettle(void);
GPUFMT_HIDDEN PetscErrorCode GpufmtDeviceLaunch(const GpufmtLaunch *, void *stream);
GPUFMT_HIDDEN PetscErrorCode GpufmtDeviceReserve(size_t bytes, void **buffer, size_t *capacity);
GPUFMT_HIDDEN PetscErrorCode GpufmtDeviceFree(void **buffer, size_t *capacity);
GPUFMT_HIDDEN PetscErrorCode GpufmtDeviceDownload(void *host, const void *dev, size_t bytes, void *stream);
GPUFMT_HIDDEN PetscErrorCode GpufmtDeviceCopy(void *to, const void *from, size_t bytes, void *stream);
GPUFMT_HIDDEN PetscErrorCode GpufmtDeviceSynchronize(void *stream);

GPUFMT_HIDDEN PetscErrorCode GpufmtNoDevice(void);

/* upload.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtDeviceUpload(void *dev, const void *host, size_t bytes, void *stream);
GPUFMT_HIDDEN PetscErrorCode GpufmtUploadFinalize(void);

/* device_values.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtDeviceValuesUpdate(GpufmtDeviceValues *, Mat, PetscCount, void *stream);
GPUFMT_HIDDEN PetscErrorCode GpufmtDeviceValuesWrite(GpufmtDeviceValues *, Mat, PetscCount, void **array);
GPUFMT_HIDDEN PetscErrorCode GpufmtDeviceValuesComputed(GpufmtDeviceValues *, Mat, PetscCount, void *stream);
GPUFMT_HIDDEN PetscErrorCode GpufmtDeviceValuesDestroy(GpufmtDeviceValues *);
GPUFMT_HIDDEN GpufmtDeviceValues *GpufmtDeviceValuesOf(Mat, GpufmtDeviceValues *own);

/* managed.c */
GPUFMT_HIDDEN PetscBool      GpufmtManagedUsable(void);
GPUFMT_HIDDEN PetscBool      GpufmtManagedPossible(int backend);
GPUFMT_HIDDEN PetscErrorCode GpufmtManagedWanted(Mat, int backend, PetscBool *);
GPUFMT_HIDDEN PetscErrorCode GpufmtManagedCreate(PetscInt nrows, const PetscInt rowptr[], GpufmtManaged **);
GPUFMT_HIDDEN GpufmtManaged *GpufmtManagedReference(GpufmtManaged *);
GPUFMT_HIDDEN PetscErrorCode GpufmtManagedRelease(GpufmtManaged **);
GPUFMT_HIDDEN PetscErrorCode GpufmtManagedForget(void);
GPUFMT_HIDDEN PetscBool      GpufmtManagedContains(const void *);
GPUFMT_HIDDEN PetscErrorCode GpufmtManagedSetColumns(GpufmtManaged *, const PetscInt colidx[], PetscBool on_device);
GPUFMT_HIDDEN PetscErrorCode GpufmtManagedPrefetchValues(const GpufmtManaged *, void *stream);
GPUFMT_HIDDEN PetscErrorCode GpufmtManagedDigest(const GpufmtManaged *, uint64_t *digest);
GPUFMT_HIDDEN PetscErrorCode GpufmtManagedOf(Mat, GpufmtManaged **);
GPUFMT_HIDDEN PetscErrorCode GpufmtManagedAdopt(Mat, GpufmtManaged *);
GPUFMT_HIDDEN PetscErrorCode GpufmtManagedLeave(Mat);

/* digest.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtDigest(const void *, size_t, uint64_t *digest);

/* product_options.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtProductAlgorithmGet(Mat, GpufmtProductAlgorithm *);
GPUFMT_HIDDEN PetscErrorCode GpufmtProductOptionsCollect(Mat, size_t, char[]);
GPUFMT_HIDDEN PetscErrorCode GpufmtProductHostValuesEager(Mat, PetscBool *eager);

/* product_state.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtProductDestroy(GpufmtProduct **);
GPUFMT_HIDDEN int            GpufmtProductOperands(const Mat_Product *, Mat[GPUFMT_MAX_OPERANDS]);
GPUFMT_HIDDEN PetscErrorCode GpufmtPatternGet(Mat, const PetscInt **rowptr, const PetscInt **colidx);
GPUFMT_HIDDEN PetscErrorCode GpufmtPatternRestore(Mat, const PetscInt **rowptr, const PetscInt **colidx);
GPUFMT_HIDDEN PetscErrorCode GpufmtProductRecordOperand(GpufmtProduct *, int k, Mat);
GPUFMT_HIDDEN PetscErrorCode GpufmtProductCheckOperand(GpufmtProduct *, int k, Mat, const char product[], char letter);

/* product_symbolic.c, product_numeric.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtProductBackend(Mat, int *backend);
GPUFMT_HIDDEN PetscErrorCode GpufmtProductSymbolic(Mat, int backend);
GPUFMT_HIDDEN PetscErrorCode MatProductSymbolic_SeqAIJGpufmt(Mat);
GPUFMT_HIDDEN PetscErrorCode MatProductNumeric_SeqAIJGpufmt(Mat);
GPUFMT_HIDDEN const char    *GpufmtProductLetters(MatProductType);

/* replay.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtReplay(const GpufmtPlan *, int backend, void *const slots[GPUFMT_NUM_SLOTS], void *stream);

/* mult.c */
GPUFMT_HIDDEN PetscErrorCode MatMult_SeqAIJGpufmt(Mat, Vec, Vec);
GPUFMT_HIDDEN PetscErrorCode MatMultAdd_SeqAIJGpufmt(Mat, Vec, Vec, Vec);
GPUFMT_HIDDEN PetscErrorCode MatMultTranspose_SeqAIJGpufmt(Mat, Vec, Vec);
GPUFMT_HIDDEN PetscErrorCode MatMultTransposeAdd_SeqAIJGpufmt(Mat, Vec, Vec, Vec);

/* mpimult.c */
GPUFMT_HIDDEN void GpufmtParallelMultSet(Mat, PetscBool ours);
GPUFMT_HIDDEN void           GpufmtParallelMultChanged(Mat);

/* diagonal.c */
GPUFMT_HIDDEN PetscErrorCode MatGetDiagonal_SeqAIJGpufmt(Mat, Vec);

/* update.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtAddPlan(Mat Y, Mat X, MatStructure, const PetscInt columns[], const GpufmtScaleAndAdd **);
GPUFMT_HIDDEN PetscErrorCode GpufmtAddRun(Mat Y, PetscScalar, Mat X, MatStructure, const GpufmtScaleAndAdd *);
GPUFMT_HIDDEN PetscErrorCode MatScale_SeqAIJGpufmt(Mat, PetscScalar);
GPUFMT_HIDDEN PetscErrorCode MatDiagonalScale_SeqAIJGpufmt(Mat, Vec, Vec);
GPUFMT_HIDDEN PetscErrorCode MatAXPY_SeqAIJGpufmt(Mat, PetscScalar, Mat, MatStructure);

/* mpiadd.c */
GPUFMT_HIDDEN PetscErrorCode MatAXPY_MPIAIJGpufmt(Mat, PetscScalar, Mat, MatStructure);

/* view.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtViewStorage(Mat A, Mat diag, Mat offdiag, PetscViewer);

/* seqaij.c, mpiaij.c, product.c */
GPUFMT_HIDDEN extern const struct _MatOps *const gpufmt_seq_parent, *const gpufmt_mpi_parent;
GPUFMT_HIDDEN PetscErrorCode GpufmtParentsFind(Mat);
GPUFMT_HIDDEN void GpufmtParentsForget(void);
GPUFMT_HIDDEN void GpufmtManagedArraysSet(Mat, PetscBool ours);
GPUFMT_HIDDEN PetscErrorCode GpufmtDeviceValuesStay(GpufmtDeviceValues *, Mat);
GPUFMT_HIDDEN Mat_Gpufmt   *GpufmtSeqData(Mat);
GPUFMT_HIDDEN PetscErrorCode GpufmtConvertPrepare(Mat, MatReuse, Mat *, PetscBool *done);
GPUFMT_HIDDEN PetscErrorCode GpufmtVecTypeOn(Mat, PetscBool);
GPUFMT_HIDDEN PetscErrorCode GpufmtCheckScalars(Mat, MatType);
GPUFMT_HIDDEN PetscErrorCode MatConvert_SeqAIJ_SeqAIJGpufmt(Mat, MatType, MatReuse, Mat *);
GPUFMT_HIDDEN PetscErrorCode MatConvert_SeqAIJGpufmt_SeqAIJ(Mat, MatType, MatReuse, Mat *);
GPUFMT_HIDDEN PetscErrorCode MatConvert_MPIAIJ_MPIAIJGpufmt(Mat, MatType, MatReuse, Mat *);
GPUFMT_HIDDEN PetscErrorCode MatConvert_MPIAIJGpufmt_MPIAIJ(Mat, MatType, MatReuse, Mat *);
GPUFMT_HIDDEN PetscErrorCode MatSetFromOptions_Gpufmt(Mat, PetscOptionItems);
GPUFMT_HIDDEN PetscErrorCode GpufmtProductChoose(Mat, PetscBool parallel, PetscBool *ours);
GPUFMT_HIDDEN PetscErrorCode MatProductSetFromOptions_SeqAIJGpufmt(Mat);
GPUFMT_HIDDEN PetscErrorCode MatProductSetFromOptions_Gpufmt(Mat);

/* convert.c */
GPUFMT_HIDDEN PetscErrorCode MatConvert_Gpufmt(Mat, MatType, MatReuse, Mat *);
GPUFMT_HIDDEN PetscErrorCode MatSeqAIJKron_SeqAIJGpufmt(Mat, Mat, MatReuse, Mat *);

/* mpiproduct.c */
GPUFMT_HIDDEN PetscErrorCode MatProductSetFromOptions_MPIAIJGpufmt(Mat);

GPUFMT_HIDDEN extern PetscLogEvent GPUFMT_Plan, GPUFMT_Refresh, GPUFMT_Symbolic;
