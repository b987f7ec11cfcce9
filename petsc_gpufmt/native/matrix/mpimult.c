/* Products of the parallel type with vectors: the parent's, with blocks of the sequential type.

   A block may fail on one rank alone, when it is planned or its values are new. That must neither leave the ghost vector locked nor other
   ranks in the exchange, so the parent is made to end its product first. The first products after an assembly, which plan the blocks, then
   fail on all ranks or on none: that they are the first is known everywhere without asking. Later ones, for instance where a planner has asked
   to be called again after some products, fail on the rank that fails, and take no collective call. */
#include "matrix/matrix.h"

/* collective */
static PetscErrorCode Agree(Mat A, PetscBool transposed, PetscErrorCode own)
{
  int worst = (int)own;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, &worst, 1, MPI_INT, MPI_MAX, PetscObjectComm((PetscObject)A)));
  PetscCall(own);
  PetscCheck(!worst, PETSC_COMM_SELF, (PetscErrorCode)worst,
             "The %sproduct of a matrix of type %s with a vector failed on another rank, which says why", transposed ? "transposed " : "",
             ((PetscObject)A)->type_name);
  ((Mat_Gpufmt *)A->spptr)->agreed[transposed] = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* z = A x, or z = y + A x */
static PetscErrorCode Mult(Mat A, Vec x, Vec y, Vec z, PetscBool transposed)
{
  PetscErrorCode ierr, failure = PETSC_SUCCESS;
  Mat_Gpufmt    *blocks[2];
  Mat            diag, offdiag;

  PetscFunctionBegin;
  PetscCall(MatMPIAIJGetSeqAIJ(A, &diag, &offdiag, NULL));
  blocks[0] = GpufmtSeqData(diag);
  blocks[1] = GpufmtSeqData(offdiag);
  for (int k = 0; k < 2; k++)
    if (blocks[k]) blocks[k]->failure = &failure;
  if (y) ierr = transposed ? (*gpufmt_mpi_parent->multtransposeadd)(A, x, y, z) : (*gpufmt_mpi_parent->multadd)(A, x, y, z);
  else ierr = transposed ? (*gpufmt_mpi_parent->multtranspose)(A, x, z) : (*gpufmt_mpi_parent->mult)(A, x, z);
  for (int k = 0; k < 2; k++)
    if (blocks[k]) blocks[k]->failure = NULL;
  PetscCall(ierr);
  if (PetscUnlikely(!((Mat_Gpufmt *)A->spptr)->agreed[transposed])) PetscCall(Agree(A, transposed, failure));
  PetscCall(failure);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MatMult_MPIAIJGpufmt(Mat A, Vec x, Vec z)
{
  return Mult(A, x, NULL, z, PETSC_FALSE);
}

static PetscErrorCode MatMultAdd_MPIAIJGpufmt(Mat A, Vec x, Vec y, Vec z)
{
  return Mult(A, x, y, z, PETSC_FALSE);
}

static PetscErrorCode MatMultTranspose_MPIAIJGpufmt(Mat A, Vec x, Vec z)
{
  return Mult(A, x, NULL, z, PETSC_TRUE);
}

static PetscErrorCode MatMultTransposeAdd_MPIAIJGpufmt(Mat A, Vec x, Vec y, Vec z)
{
  return Mult(A, x, y, z, PETSC_TRUE);
}

/* gives a matrix these operations, or the parent's */
void GpufmtParallelMultSet(Mat A, PetscBool ours)
{
  const struct _MatOps *parent = gpufmt_mpi_parent;

  A->ops->mult             = ours ? MatMult_MPIAIJGpufmt : parent->mult;
  A->ops->multadd          = ours ? MatMultAdd_MPIAIJGpufmt : parent->multadd;
  A->ops->multtranspose    = ours ? MatMultTranspose_MPIAIJGpufmt : parent->multtranspose;
  A->ops->multtransposeadd = ours ? MatMultTransposeAdd_MPIAIJGpufmt : parent->multtransposeadd;
}

/* The next products are first ones again. All ranks say so, or none. */
void GpufmtParallelMultChanged(Mat A)
{
  Mat_Gpufmt *gpufmt = (Mat_Gpufmt *)A->spptr;

  gpufmt->agreed[0] = gpufmt->agreed[1] = PETSC_FALSE;
}
