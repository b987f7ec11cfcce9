/* Sparse products of sequential matrices, between and in their phases. */
#pragma once
#include "matrix/matrix.h"

enum { GPUFMT_MAX_OPERANDS = 3 };

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
  int                 product; /* GPUFMT_PRODUCT_... */
  int                 backend;
  GpufmtLease         lease; /* of what `answer` points to */
  GpufmtProductAnswer answer;
  struct {
    GpufmtPattern      pattern;
    GpufmtManaged     *managed; /* the pattern, if it had managed arrays: its digest is only made when it is asked for */
    GpufmtDeviceValues values;  /* if the operand is not of our types */
  } operands[GPUFMT_MAX_OPERANDS];
  GpufmtDeviceValues result; /* if the result is not of our types */
  PetscObjectId      result_id;
  PetscObjectState   result_state; /* of its nonzero pattern */
} GpufmtProduct;

/* the pattern of a result, on the backend that has found it */
typedef struct {
  int         backend;
  int64_t     nrows, ncols, nnz;
  const void *rowptr, *colidx;
} GpufmtPlannedPattern;

static inline GpufmtPlannedPattern GpufmtProductPattern(const GpufmtProduct *p)
{
  const GpufmtProductAnswer *answer = &p->answer;

  return (GpufmtPlannedPattern){p->backend, answer->nrows, answer->ncols, answer->nnz, answer->rowptr, answer->colidx};
}

typedef enum {
  GPUFMT_ALGORITHM_UNSPECIFIED,
  GPUFMT_ALGORITHM_OURS,
  GPUFMT_ALGORITHM_PARENT,        /* as the options or MatProductSetAlgorithm() name it */
  GPUFMT_ALGORITHM_PARENT_DEFAULT /* whatever they name */
} GpufmtProductAlgorithm;

/* options.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtProductAlgorithmGet(Mat, GpufmtProductAlgorithm *);
GPUFMT_HIDDEN PetscErrorCode GpufmtProductOptionsCollect(Mat, size_t, char[]);
GPUFMT_HIDDEN PetscErrorCode GpufmtProductHostValuesEager(Mat, PetscBool *eager);

/* What a destroy function of Mat_Product is given: the data in PETSc 3.24, later the address of the pointer to them, which becomes NULL. */
static inline void *GpufmtProductTake(void *given)
{
#if PETSC_VERSION_LT(3, 25, 0)
  return given;
#else
  void *data = *(void **)given;

  *(void **)given = NULL;
  return data;
#endif
}

/* choose.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtProductBackend(Mat, int *backend);
GPUFMT_HIDDEN PetscErrorCode GpufmtProductChoose(Mat, PetscBool parallel, PetscBool *ours);
GPUFMT_HIDDEN PetscErrorCode MatProductSetFromOptions_SeqAIJGpufmt(Mat);
GPUFMT_HIDDEN PetscErrorCode MatProductSetFromOptions_Gpufmt(Mat);

/* state.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtProductDestroy(GpufmtProduct **);
GPUFMT_HIDDEN int            GpufmtProductOperands(const Mat_Product *, Mat[GPUFMT_MAX_OPERANDS]);
GPUFMT_HIDDEN PetscErrorCode GpufmtProductRecordBegin(GpufmtProduct *, int k, const Mat[], GpufmtDigestion *);
GPUFMT_HIDDEN PetscErrorCode GpufmtProductRecordEnd(GpufmtProduct *, int k, const Mat[], GpufmtDigestion *);
GPUFMT_HIDDEN PetscErrorCode GpufmtProductRecordOperand(GpufmtProduct *, int k, Mat);
GPUFMT_HIDDEN PetscErrorCode GpufmtProductCheckOperand(GpufmtProduct *, int k, Mat, const char product[], char letter);

/* symbolic.c */
GPUFMT_HIDDEN extern PetscLogEvent GPUFMT_Symbolic;
GPUFMT_HIDDEN const GpufmtProduct *GpufmtProductOf(Mat);
GPUFMT_HIDDEN PetscErrorCode       GpufmtProductSymbolic(Mat, int product, int backend, PetscBool internal);
GPUFMT_HIDDEN PetscErrorCode       MatProductSymbolic_SeqAIJGpufmt(Mat);

/* numeric.c */
GPUFMT_HIDDEN PetscErrorCode MatProductNumeric_SeqAIJGpufmt(Mat);
GPUFMT_HIDDEN const char    *GpufmtProductLetters(MatProductType);

/* result.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtManagedWanted(Mat, int backend, PetscBool *);
GPUFMT_HIDDEN PetscErrorCode GpufmtManagedAdopt(Mat, GpufmtManaged *);
GPUFMT_HIDDEN PetscErrorCode GpufmtResultRowPointer(const GpufmtPlannedPattern *, PetscInt **);
GPUFMT_HIDDEN PetscErrorCode GpufmtResultManaged(Mat, const GpufmtPlannedPattern *, PetscBool internal, GpufmtManaged **);
GPUFMT_HIDDEN PetscErrorCode GpufmtResultSetPattern(Mat, const GpufmtPlannedPattern *, GpufmtManaged *);
