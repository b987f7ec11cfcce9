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

/* Begins to digest the row pointers of the blocks of a result, which stay as they are until GpufmtResultPatternEnd(). */
PetscErrorCode GpufmtResultPatternBegin(const Mat blocks[2], GpufmtDigestion *digestion)
{
  const PetscInt *rowptr[2];
  const size_t    bytes = (size_t)(blocks[0]->rmap->n + 1) * sizeof(PetscInt);

  PetscFunctionBegin;
  for (int k = 0; k < 2; k++) PetscCall(GpufmtPatternGet(blocks[k], &rowptr[k], NULL));
  PetscCall(GpufmtDigestBegin((const void *const[]){rowptr[0], rowptr[1]}, (const size_t[]){bytes, bytes}, digestion));
  for (int k = 0; k < 2; k++) PetscCall(GpufmtPatternRestore(blocks[k], &rowptr[k], NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the pattern of the result whose blocks these are now */
PetscErrorCode GpufmtResultPatternEnd(const Mat blocks[2], GpufmtDigestion *digestion, GpufmtResultPattern *pattern)
{
  PetscFunctionBegin;
  pattern->rows = 0;
  PetscCall(GpufmtDigestEnd(digestion, &pattern->rows));
  for (int k = 0; k < 2; k++) {
    PetscCall(PetscObjectGetId((PetscObject)blocks[k], &pattern->ids[k]));
    PetscCall(MatGetNonzeroState(blocks[k], &pattern->states[k]));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* an error if the result is no longer what the symbolic phase made: entries were inserted or eliminated, or its data were replaced */
static PetscErrorCode ResultCheck(Mat C, GpufmtResultPattern *pattern)
{
  GpufmtResultPattern now;
  GpufmtDigestion     digestion;
  PetscBool           same = PETSC_TRUE;
  Mat                 blocks[2];

  PetscFunctionBegin;
  PetscCall(MatMPIAIJGetSeqAIJ(C, &blocks[0], &blocks[1], NULL));
  for (int k = 0; k < 2; k++)
    same = (PetscBool)(same && ((PetscObject)blocks[k])->id == pattern->ids[k] && blocks[k]->nonzerostate == pattern->states[k]);
  if (PetscLikely(same)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtResultPatternBegin(blocks, &digestion));
  PetscCall(GpufmtResultPatternEnd(blocks, &digestion, &now));
  PetscCheck(now.rows == pattern->rows, PETSC_COMM_SELF, PETSC_ERR_ARG_WRONGSTATE,
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
