/* Whether the parallel matrices of a product are still those of its symbolic phase; and how all ranks learn what is wrong on one. */
#include "parallel/parallel.h"

/* A rank that fails alone, for want of memory say, must not leave the others waiting for it. Collective. */
PetscErrorCode GpufmtFailTogether(Mat C, PetscErrorCode own)
{
  char what[64];

  PetscFunctionBegin;
  PetscCall(PetscSNPrintf(what, sizeof(what), "Sparse product %s: it", MatProductTypes[C->product->type]));
  PetscCall(GpufmtAgree((PetscObject)C, what, own, 0, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode GhostsDigest(Mat A, uint64_t *digest)
{
  const PetscInt *garray;
  Mat             offdiag;

  PetscFunctionBegin;
  PetscCall(MatMPIAIJGetSeqAIJ(A, NULL, &offdiag, &garray));
  *digest = 0;
  PetscCall(GpufmtDigest(garray, (size_t)offdiag->cmap->n * sizeof(PetscInt), digest));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* pattern->blocks is to be destroyed by GpufmtProductDestroy() */
PetscErrorCode GpufmtParallelPatternRecord(Mat A, GpufmtParallelPattern *pattern)
{
  Mat blocks[2];

  PetscFunctionBegin;
  PetscCall(PetscObjectGetId((PetscObject)A, &pattern->id));
  PetscCall(PetscNew(&pattern->blocks));
  PetscCall(MatMPIAIJGetSeqAIJ(A, &blocks[0], &blocks[1], NULL));
  for (int k = 0; k < 2; k++) PetscCall(GpufmtProductRecordOperand(pattern->blocks, k, blocks[k]));
  PetscCall(GhostsDigest(A, &pattern->ghosts));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Patterns are only compared when a block is another matrix, or PETSc has counted a change of its pattern: MatEliminateZeros() counts it for
   the blocks alone, and not on all ranks. The columns outside the diagonal block change with the block that has them. */
static PetscErrorCode OperandCheck(Mat C, Mat A, char letter, GpufmtParallelPattern *pattern)
{
  const char   *product = MatProductTypes[C->product->type];
  PetscBool     same    = PETSC_TRUE;
  PetscObjectId id;
  uint64_t      ghosts;
  Mat           blocks[2];

  PetscFunctionBegin;
  PetscCall(PetscObjectGetId((PetscObject)A, &id));
  PetscCall(MatMPIAIJGetSeqAIJ(A, &blocks[0], &blocks[1], NULL));
  for (int k = 0; k < 2; k++) same = (PetscBool)(same && GpufmtPatternIsOf(&pattern->blocks->operands[k].pattern, blocks[k]));
  if (PetscLikely(same && id == pattern->id)) PetscFunctionReturn(PETSC_SUCCESS);
  for (int k = 0; k < 2; k++) PetscCall(GpufmtProductCheckOperand(pattern->blocks, k, blocks[k], product, letter));
  PetscCall(GhostsDigest(A, &ghosts));
  PetscCheck(
    ghosts == pattern->ghosts, PETSC_COMM_SELF, PETSC_ERR_ARG_WRONGSTATE,
    "Sparse product %s: the columns of %c that this rank has outside its diagonal block have changed since the symbolic phase: make the product anew with MAT_INITIAL_MATRIX",
    product, letter);
  pattern->id = id;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtResultPatternRecord(Mat C, GpufmtResultPattern *pattern)
{
  Mat blocks[2];

  PetscFunctionBegin;
  PetscCall(MatMPIAIJGetSeqAIJ(C, &blocks[0], &blocks[1], NULL));
  for (int k = 0; k < 2; k++) {
    const PetscInt *rowptr;

    PetscCall(PetscObjectGetId((PetscObject)blocks[k], &pattern->ids[k]));
    PetscCall(MatGetNonzeroState(blocks[k], &pattern->states[k]));
    pattern->rows[k] = 0;
    PetscCall(GpufmtPatternGet(blocks[k], &rowptr, NULL));
    PetscCall(GpufmtDigest(rowptr, (size_t)(blocks[k]->rmap->n + 1) * sizeof(PetscInt), &pattern->rows[k]));
    PetscCall(GpufmtPatternRestore(blocks[k], &rowptr, NULL));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* an error if the result is no longer what the symbolic phase made: entries were inserted or eliminated, or its data were replaced */
static PetscErrorCode ResultCheck(Mat C, GpufmtResultPattern *pattern)
{
  GpufmtResultPattern now;
  PetscBool           same = PETSC_TRUE;
  Mat                 blocks[2];

  PetscFunctionBegin;
  PetscCall(MatMPIAIJGetSeqAIJ(C, &blocks[0], &blocks[1], NULL));
  for (int k = 0; k < 2; k++)
    same = (PetscBool)(same && ((PetscObject)blocks[k])->id == pattern->ids[k] && blocks[k]->nonzerostate == pattern->states[k]);
  if (PetscLikely(same)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtResultPatternRecord(C, &now));
  PetscCheck(now.rows[0] == pattern->rows[0] && now.rows[1] == pattern->rows[1], PETSC_COMM_SELF, PETSC_ERR_ARG_WRONGSTATE,
             "Sparse product %s: the pattern of the result has changed since the symbolic phase; make the product anew with MAT_INITIAL_MATRIX",
             MatProductTypes[C->product->type]);
  *pattern = now;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* an error unless operands and result have the patterns of the symbolic phase on this rank; it is for the caller to agree on */
PetscErrorCode GpufmtParallelPatternsCheck(Mat C, GpufmtParallelPattern operands[], GpufmtResultPattern *result)
{
  Mat       given[GPUFMT_MAX_OPERANDS];
  const int n = GpufmtProductOperands(C->product, given);

  PetscFunctionBegin;
  for (int k = 0; k < n; k++) PetscCall(OperandCheck(C, given[k], GpufmtProductLetters(C->product->type)[k], &operands[k]));
  PetscCall(ResultCheck(C, result));
  PetscFunctionReturn(PETSC_SUCCESS);
}
