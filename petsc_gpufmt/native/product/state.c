/* What a sparse product of ours keeps between its phases, and whether the patterns are still those of the symbolic phase. */
#include "product/product.h"
#include <inttypes.h>

PetscErrorCode GpufmtProductDestroy(GpufmtProduct **out)
{
  GpufmtProduct *p = *out;

  PetscFunctionBegin;
  if (!p) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtLeaseDrop(&p->lease));
  for (int k = 0; k < GPUFMT_MAX_OPERANDS; k++) {
    PetscCall(GpufmtDeviceValuesDestroy(&p->operands[k].values));
    PetscCall(GpufmtManagedRelease(&p->operands[k].managed));
  }
  PetscCall(GpufmtDeviceValuesDestroy(&p->result));
  PetscCall(PetscFree(*out));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the operands in the order of the formula; returns how many there are */
int GpufmtProductOperands(const Mat_Product *product, Mat operands[GPUFMT_MAX_OPERANDS])
{
  operands[0] = product->A;
  operands[1] = product->B;
  operands[2] = product->type == MATPRODUCT_ABC ? product->C : NULL;
  return operands[2] ? 3 : 2;
}

/* all but the digest */
static PetscErrorCode PatternDescribe(Mat A, GpufmtPattern *pattern)
{
  const PetscInt *rowptr, *colidx;

  PetscFunctionBegin;
  PetscCall(PetscObjectGetId((PetscObject)A, &pattern->id));
  PetscCall(MatGetNonzeroState(A, &pattern->state));
  PetscCall(GpufmtPatternGet(A, &rowptr, &colidx));
  pattern->nrows  = A->rmap->n;
  pattern->ncols  = A->cmap->n;
  pattern->nnz    = rowptr[pattern->nrows];
  pattern->digest = 0;
  PetscCall(GpufmtPatternRestore(A, &rowptr, &colidx));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* begins to digest a pattern that has been described, unless a product has done it; the matrix keeps it until the end of that */
static PetscErrorCode PatternDigestBegin(Mat A, GpufmtPattern *pattern, GpufmtDigestion *digestion)
{
  const Mat_Gpufmt *gpufmt = GpufmtSeqData(A);
  const PetscInt   *rowptr, *colidx;

  PetscFunctionBegin;
  *digestion = NULL;
  if (gpufmt && gpufmt->digested.id == pattern->id && gpufmt->digested.state == pattern->state) {
    pattern->digest = gpufmt->digested.digest;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(GpufmtPatternGet(A, &rowptr, &colidx));
  PetscCall(GpufmtDigestBegin((const void *const[]){rowptr, colidx},
                              (const size_t[]){(size_t)(pattern->nrows + 1) * sizeof(PetscInt), (size_t)pattern->nnz * sizeof(PetscInt)}, digestion));
  PetscCall(GpufmtPatternRestore(A, &rowptr, &colidx));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PatternDigestEnd(Mat A, GpufmtPattern *pattern, GpufmtDigestion *digestion)
{
  Mat_Gpufmt *gpufmt = GpufmtSeqData(A);

  PetscFunctionBegin;
  if (!*digestion) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtDigestEnd(digestion, &pattern->digest));
  if (gpufmt) gpufmt->digested = (GpufmtDigested){pattern->id, pattern->state, pattern->digest};
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PatternRecord(Mat A, GpufmtPattern *pattern)
{
  GpufmtDigestion digestion;

  PetscFunctionBegin;
  PetscCall(PatternDescribe(A, pattern));
  PetscCall(PatternDigestBegin(A, pattern, &digestion));
  PetscCall(PatternDigestEnd(A, pattern, &digestion));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* an error unless A has the recorded pattern; it is then recorded as that of this matrix */
static PetscErrorCode PatternCheck(Mat A, GpufmtPattern *pattern, const char product[], char letter)
{
  GpufmtPattern now;

  PetscFunctionBegin;
  PetscCall(PatternRecord(A, &now));
  PetscCheck(now.nrows == pattern->nrows && now.ncols == pattern->ncols && now.nnz == pattern->nnz && now.digest == pattern->digest, PETSC_COMM_SELF,
             PETSC_ERR_ARG_WRONGSTATE,
             "Sparse product %s: the pattern of %c has changed since the symbolic phase, from %" PetscInt_FMT " x %" PetscInt_FMT
             " with %" PetscInt_FMT " nonzeros to %" PetscInt_FMT " x %" PetscInt_FMT " with %" PetscInt_FMT
             ": values alone may change under MAT_REUSE_MATRIX and MatProductNumeric(); make the product anew with MAT_INITIAL_MATRIX",
             product, letter, pattern->nrows, pattern->ncols, pattern->nnz, now.nrows, now.ncols, now.nnz);
  *pattern = now;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Remembers the pattern of operand k of those in `operands`, in threads that go on until GpufmtProductRecordEnd(). One in managed arrays is
   kept instead of digested: that would bring it to the host. A matrix that comes twice is digested once. */
PetscErrorCode GpufmtProductRecordBegin(GpufmtProduct *p, int k, const Mat operands[], GpufmtDigestion *digestion)
{
  GpufmtManaged *managed;

  PetscFunctionBegin;
  *digestion = NULL;
  PetscCall(PatternDescribe(operands[k], &p->operands[k].pattern));
  PetscCall(GpufmtManagedOf(operands[k], &managed));
  p->operands[k].managed = GpufmtManagedReference(managed);
  for (int j = 0; j < k; j++)
    if (operands[j] == operands[k]) PetscFunctionReturn(PETSC_SUCCESS);
  if (!managed) PetscCall(PatternDigestBegin(operands[k], &p->operands[k].pattern, digestion));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtProductRecordEnd(GpufmtProduct *p, int k, const Mat operands[], GpufmtDigestion *digestion)
{
  PetscFunctionBegin;
  PetscCall(PatternDigestEnd(operands[k], &p->operands[k].pattern, digestion));
  for (int j = 0; j < k; j++)
    if (operands[j] == operands[k]) p->operands[k].pattern.digest = p->operands[j].pattern.digest;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Remembers the pattern of one matrix as operand k. */
PetscErrorCode GpufmtProductRecordOperand(GpufmtProduct *p, int k, Mat A)
{
  Mat             operands[GPUFMT_MAX_OPERANDS] = {NULL};
  GpufmtDigestion digestion;

  PetscFunctionBegin;
  operands[k] = A;
  PetscCall(GpufmtProductRecordBegin(p, k, operands, &digestion));
  PetscCall(GpufmtProductRecordEnd(p, k, operands, &digestion));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* An error unless A, or a matrix in its place, has the pattern of the symbolic phase. Patterns are only compared when the matrix is another
   one, or PETSc has counted a change. */
PetscErrorCode GpufmtProductCheckOperand(GpufmtProduct *p, int k, Mat A, const char product[], char letter)
{
  GpufmtPattern *pattern = &p->operands[k].pattern, now;
  GpufmtManaged *managed;

  PetscFunctionBegin;
  if (PetscLikely(GpufmtPatternIsOf(pattern, A))) PetscFunctionReturn(PETSC_SUCCESS);
  if (p->operands[k].managed) {
    PetscCall(GpufmtManagedOf(A, &managed));
    PetscCall(PatternDescribe(A, &now));
    if (managed == p->operands[k].managed && now.nnz == pattern->nnz) {
      *pattern = now;
      PetscFunctionReturn(PETSC_SUCCESS);
    }
    PetscCall(GpufmtManagedDigest(p->operands[k].managed, &pattern->digest));
    PetscCall(GpufmtManagedRelease(&p->operands[k].managed));
  }
  PetscCall(PatternCheck(A, pattern, product, letter));
  PetscFunctionReturn(PETSC_SUCCESS);
}
