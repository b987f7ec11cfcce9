/* A prolongator of a parallel matrix, from the two blocks of it that the planner has made. */
#include "gamg/gamg.h"

/* a block with its pattern */
static PetscErrorCode BlockCreate(Mat A, int backend, PetscInt col_block, const GpufmtBlockAnswer *answer, Mat *block)
{
  const GpufmtPlannedPattern pattern = {backend, A->rmap->n, answer->ncols, answer->nnz, answer->rowptr, answer->colidx};
  PetscInt                   ncols, row_block;
  MatType                    type;
  Mat                        diag;

  PetscFunctionBegin;
  PetscCall(MatMPIAIJGetSeqAIJ(A, &diag, NULL, NULL));
  PetscCall(MatGetType(diag, &type));
  PetscCall(MatGetBlockSize(A, &row_block));
  PetscCall(PetscIntCast(answer->ncols, &ncols));
  PetscCall(GpufmtBlockCreate(type, A->rmap->n, ncols, row_block, col_block, block));
  PetscCall(GpufmtGamgSetPattern(*block, A, &pattern));
  GpufmtPatternHold(*block, backend, answer->held);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode BlocksCreate(const GpufmtGamg *gamg, Mat A, PetscInt nvectors, PetscInt nghosts, const PetscInt ghosts[],
                                   const GpufmtBlockAnswer answers[2], Mat blocks[2], PetscInt **garray)
{
  PetscFunctionBegin;
  for (int k = 0; k < 2; k++) PetscCall(BlockCreate(A, gamg->backend, k ? 1 : nvectors, &answers[k], &blocks[k]));
  PetscCall(PetscMalloc1(nghosts * nvectors, garray));
  for (PetscInt k = 0; k < nghosts * nvectors; k++) (*garray)[k] = ghosts[k / nvectors] * nvectors + k % nvectors;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the parallel matrix of the blocks; collective */
static PetscErrorCode Join(const GpufmtGamg *gamg, Mat A, PetscInt nvectors, Mat blocks[2], PetscInt **garray, Mat *P)
{
  PetscFunctionBegin;
  PetscCall(GpufmtCreateFromBlocks(PetscObjectComm((PetscObject)A), ((PetscObject)A)->type_name, A->rmap->N, (PetscInt)gamg->total * nvectors,
                                   PETSC_TRUE, blocks, garray, P));
#if PetscDefined(HAVE_DEVICE)
  PetscCall(MatBindToCPU(*P, A->boundtocpu));
  if (A->boundtocpu) PetscCall(MatSetBindingPropagates(*P, PETSC_TRUE));
#endif
  PetscCall(MatAssemblyBegin(*P, MAT_FINAL_ASSEMBLY)); /* before there are values on the device that it could take for older than those on the host */
  PetscCall(MatAssemblyEnd(*P, MAT_FINAL_ASSEMBLY));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* P with the patterns of `answers`, without values; `ghosts` are the aggregates of the second block. Collective, and so are its errors. */
PetscErrorCode GpufmtGamgFromBlocks(PC pc, const GpufmtGamg *gamg, Mat A, int64_t nghosts, const void *ghosts, const GpufmtBlockAnswer answers[2],
                                    Mat *P)
{
  const PetscInt nvectors  = GpufmtGamgOf(pc)->data_cell_cols;
  Mat            blocks[2] = {NULL, NULL};
  PetscInt      *garray    = NULL;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  *P   = NULL;
  ierr = GpufmtGamgAgree(pc, BlocksCreate(gamg, A, nvectors, (PetscInt)nghosts, (const PetscInt *)ghosts, answers, blocks, &garray));
  if (!ierr) ierr = Join(gamg, A, nvectors, blocks, &garray, P);
  for (int k = 0; k < 2; k++) PetscCall(MatDestroy(&blocks[k]));
  PetscCall(PetscFree(garray));
  if (ierr) PetscCall(MatDestroy(P));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* where the values of a block are written; GpufmtGamgBlockWritten() follows */
PetscErrorCode GpufmtGamgBlockWrite(Mat block, int backend, int64_t nnz, void **values)
{
  PetscFunctionBegin;
  if (backend == GPUFMT_BACKEND_CUDA) PetscCall(GpufmtDeviceValuesWrite(GpufmtDeviceValuesOf(block, NULL), block, nnz, values));
  else PetscCall(MatSeqAIJGetArrayWrite(block, (PetscScalar **)values));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtGamgBlockWritten(Mat block, int backend, int64_t nnz, void **values)
{
  PetscFunctionBegin;
  if (backend == GPUFMT_BACKEND_CUDA) {
    GpufmtDeviceValues *computed = GpufmtDeviceValuesOf(block, NULL);
    void               *stream;

    PetscCall(GpufmtDeviceGet(NULL, &stream));
    PetscCall(GpufmtDeviceValuesComputed(computed, block, nnz, stream));
    computed->computed = PETSC_FALSE; /* no MatProductNumeric() of this matrix goes on to raise its state */
  } else {
    PetscCall(MatSeqAIJRestoreArrayWrite(block, (PetscScalar **)values));
    PetscCall(PetscObjectStateIncrease((PetscObject)block));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
