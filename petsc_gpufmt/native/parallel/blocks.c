/* A parallel matrix that is made of its blocks. */
#include "parallel/parallel.h"

/* The parallel matrix of two blocks, and of the columns outside of the diagonal block; it takes all three. Collective. More entries may be inserted
   later, as into products of type aij: PETSc's assembly takes part in reductions or not as the blocks allow it, on all ranks alike. These get the
   options that PETSc sets for a new parallel matrix, which take no managed arrays away from them; later ones do. */
PetscErrorCode GpufmtCreateFromBlocks(MPI_Comm comm, MatType type, PetscInt nrows, PetscInt ncols, Mat blocks[2], PetscInt **ghosts, Mat *A)
{
  const Mat       taken[] = {blocks[0], blocks[1]};
  PetscInt *const garray  = *ghosts;
  GpufmtManaged  *managed[2];

  PetscFunctionBegin;
  for (int k = 0; k < 2; k++) {
    PetscCall(GpufmtManagedOf(taken[k], &managed[k]));
    if (managed[k]) taken[k]->ops->setoption = gpufmt_seq_parent->setoption;
  }
  blocks[0] = blocks[1] = NULL;
  *ghosts               = NULL;
  PetscCall(MatCreateMPIAIJWithSeqAIJ(comm, nrows, ncols, taken[0], taken[1], garray, A));
  PetscCall(MatConvert(*A, type, MAT_INPLACE_MATRIX, A));
  PetscCall(MatSetOption(*A, MAT_NEW_NONZERO_ALLOCATION_ERR, PETSC_FALSE));
  for (int k = 0; k < 2; k++)
    if (managed[k]) GpufmtManagedArraysSet(taken[k], PETSC_TRUE);
  PetscFunctionReturn(PETSC_SUCCESS);
}
