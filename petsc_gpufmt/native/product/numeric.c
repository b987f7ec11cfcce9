/* The numeric phase of sparse products: a plan is replayed with the values of the operands as they are now. */
#include "product/product.h"

/* of the operands, in the words of PETSc */
const char *GpufmtProductLetters(MatProductType type)
{
  return type == MATPRODUCT_PtAP ? "AP" : (type == MATPRODUCT_RARt ? "AR" : "ABC");
}

/* An error if C is no longer what the symbolic phase made: entries were inserted, or its data were replaced. */
static PetscErrorCode CheckResult(Mat C, const GpufmtProduct *p)
{
  const GpufmtProductAnswer *answer  = &p->answer;
  const GpufmtPlannedPattern pattern = GpufmtProductPattern(p);
  PetscObjectId              id;
  PetscObjectState           state;
  const PetscInt            *rowptr, *colidx;
  PetscInt                  *recorded;
  PetscBool                  same;

  PetscFunctionBegin;
  PetscCall(PetscObjectGetId((PetscObject)C, &id));
  PetscCall(MatGetNonzeroState(C, &state));
  if (PetscLikely(id == p->result_id && state == p->result_state)) PetscFunctionReturn(PETSC_SUCCESS);
  same = (PetscBool)(C->rmap->n == answer->nrows && C->cmap->n == answer->ncols);
  if (same) {
    PetscCall(GpufmtResultRowPointer(&pattern, &recorded));
    PetscCall(GpufmtPatternGet(C, &rowptr, &colidx));
    same = (PetscBool)!memcmp(rowptr, recorded, (size_t)(answer->nrows + 1) * sizeof(PetscInt));
    PetscCall(GpufmtPatternRestore(C, &rowptr, &colidx));
    PetscCall(PetscFree(recorded));
  }
  PetscCheck(same, PETSC_COMM_SELF, PETSC_ERR_ARG_WRONGSTATE,
             "Sparse product %s: the pattern of the result has changed since the symbolic phase; make the product anew with MAT_INITIAL_MATRIX",
             MatProductTypes[C->product->type]);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A matrix that no user sees is not assembled anew: -mat_view would show it, and there may be no rows to read. */
static PetscErrorCode IsInternal(Mat C, PetscBool *internal)
{
  GpufmtManaged *managed;

  PetscFunctionBegin;
  PetscCall(GpufmtManagedOf(C, &managed));
  *internal = (PetscBool)(managed && managed->internal);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode NumericOnDevice(Mat C, GpufmtProduct *p, const Mat operands[], int n)
{
  GpufmtDeviceValues *result                  = GpufmtDeviceValuesOf(C, &p->result);
  void               *slots[GPUFMT_NUM_SLOTS] = {NULL}, *stream;
  PetscBool           internal                = PETSC_FALSE;

  PetscFunctionBegin;
  PetscCall(GpufmtDeviceGet(NULL, &stream));
  for (int k = 0; k < n; k++) {
    GpufmtDeviceValues *values = GpufmtDeviceValuesOf(operands[k], &p->operands[k].values);

    PetscCall(GpufmtDeviceValuesUpdate(values, operands[k], p->operands[k].pattern.nnz, stream));
    slots[GPUFMT_SLOT_A_VALUES + k] = values->array;
  }
  PetscCall(GpufmtDeviceValuesWrite(result, C, p->answer.nnz, &slots[GPUFMT_SLOT_RESULT]));
  PetscCall(GpufmtReplay(&p->answer.numeric, GPUFMT_BACKEND_CUDA, slots, stream));
  PetscCall(PetscLogGpuFlops(2.0 * (PetscLogDouble)p->answer.terms));
  PetscCall(IsInternal(C, &internal));
  if (internal) PetscCall(GpufmtDeviceValuesStay(result, C));
  else PetscCall(GpufmtDeviceValuesComputed(result, C, p->answer.nnz, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode NumericOnHost(Mat C, GpufmtProduct *p, const Mat operands[], int n)
{
  const PetscScalar *values[GPUFMT_MAX_OPERANDS];
  PetscScalar       *result;
  void              *slots[GPUFMT_NUM_SLOTS] = {NULL};
  PetscBool          internal                = PETSC_FALSE;

  PetscFunctionBegin;
  for (int k = 0; k < n; k++) {
    PetscCall(MatSeqAIJGetArrayRead(operands[k], &values[k]));
    slots[GPUFMT_SLOT_A_VALUES + k] = (void *)values[k];
  }
  PetscCall(MatSeqAIJGetArrayWrite(C, &result));
  slots[GPUFMT_SLOT_RESULT] = result;
  PetscCall(GpufmtReplay(&p->answer.numeric, GPUFMT_BACKEND_HOST, slots, NULL));
  PetscCall(PetscLogFlops(2.0 * (PetscLogDouble)p->answer.terms));
  PetscCall(MatSeqAIJRestoreArrayWrite(C, &result));
  for (int k = 0; k < n; k++) PetscCall(MatSeqAIJRestoreArrayRead(operands[k], &values[k]));
  PetscCall(IsInternal(C, &internal));
  if (internal) PetscFunctionReturn(PETSC_SUCCESS); /* MatProductNumeric() raises its state */
  PetscCall(MatAssemblyBegin(C, MAT_FINAL_ASSEMBLY));
  PetscCall(MatAssemblyEnd(C, MAT_FINAL_ASSEMBLY));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatProductNumeric_SeqAIJGpufmt(Mat C)
{
  const Mat_Product *product = C->product;
  GpufmtProduct     *p       = (GpufmtProduct *)product->data;
  Mat                operands[GPUFMT_MAX_OPERANDS];
  const int          n = GpufmtProductOperands(product, operands);

  PetscFunctionBegin;
  PetscCheck(
    p && GpufmtLeaseHolds(&p->lease), PETSC_COMM_SELF, PETSC_ERR_ORDER,
    "Sparse product %s: its plan is gone, because Python, which made it, has ended or the symbolic phase was cleared; make the product anew with MAT_INITIAL_MATRIX",
    MatProductTypes[product->type]);
  for (int k = 0; k < n; k++)
    PetscCall(GpufmtProductCheckOperand(p, k, operands[k], MatProductTypes[product->type], GpufmtProductLetters(product->type)[k]));
  PetscCall(CheckResult(C, p));
  if (p->backend == GPUFMT_BACKEND_CUDA) PetscCall(NumericOnDevice(C, p, operands, n));
  else PetscCall(NumericOnHost(C, p, operands, n));
  PetscFunctionReturn(PETSC_SUCCESS);
}
