/* The blocks of a parallel matrix, and one that is made of them. */
#include "matrix/matrix.h"

/* a sequential matrix of a type and its sizes, without a pattern yet */
PetscErrorCode GpufmtBlockCreate(MatType type, PetscInt nrows, PetscInt ncols, PetscInt row_block, PetscInt col_block, Mat *A)
{
  PetscFunctionBegin;
  PetscCall(MatCreate(PETSC_COMM_SELF, A));
  PetscCall(MatSetSizes(*A, nrows, ncols, nrows, ncols));
  PetscCall(MatSetBlockSizes(*A, row_block, col_block));
  PetscCall(MatSetType(*A, type));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The parallel matrix of two blocks, and of the columns outside of the diagonal block; it takes all three. Collective. `extensible`: more entries may
   be inserted later, as into products of type aij. PETSc's assembly takes part in reductions or not as the blocks allow it, on all ranks alike. These
   get the options that are set for a new parallel matrix, which take no managed arrays away from them; later ones do. */
PetscErrorCode GpufmtCreateFromBlocks(MPI_Comm comm, MatType type, PetscInt nrows, PetscInt ncols, PetscBool extensible, Mat blocks[2],
                                      PetscInt **ghosts, Mat *A)
{
  const Mat       taken[] = {blocks[0], blocks[1]};
  PetscInt *const garray  = *ghosts;
  GpufmtManaged  *managed[2];
  PetscErrorCode  ierr;

  PetscFunctionBegin;
  for (int k = 0; k < 2; k++) {
    PetscCall(GpufmtManagedOf(taken[k], &managed[k]));
    if (managed[k]) taken[k]->ops->setoption = gpufmt_seq_parent->setoption;
  }
  blocks[0] = blocks[1] = NULL;
  *ghosts               = NULL;
  PetscCall(MatCreateMPIAIJWithSeqAIJ(comm, nrows, ncols, taken[0], taken[1], garray, A));
  ierr = MatConvert(*A, type, MAT_INPLACE_MATRIX, A);
  if (!ierr && extensible) ierr = MatSetOption(*A, MAT_NEW_NONZERO_ALLOCATION_ERR, PETSC_FALSE);
  if (ierr) PetscCall(MatDestroy(A));
  PetscCall(ierr);
  for (int k = 0; k < 2; k++)
    if (managed[k]) GpufmtManagedArraysSet(taken[k], PETSC_TRUE);
  PetscFunctionReturn(PETSC_SUCCESS);
}
