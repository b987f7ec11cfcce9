/* Products of the parallel type with vectors: those of the parent, with a halo exchange in one of several modes between blocks of the sequential
   type. Where the mode has no exchange back, transposed products are the parent's.

   A row is the sum of its local part and then of the nonlocal one, and of rows that come back likewise, so all modes give the same bits.

   A block may fail on one rank alone, when it is planned or its values are new, and an exchange for want of memory. That must neither leave the
   ghost vector locked nor other ranks in the exchange, so the product goes on to its end. The first products after an assembly, which plan the
   blocks, then fail on all ranks or on none: that they are the first is known everywhere without asking. Later ones, for instance where a planner
   has asked to be called again after some products, fail on the rank that fails, and take no collective call. */
#include "matrix/matrix.h"

/* what a product is made of */
PetscErrorCode GpufmtParallelParts(Mat A, Mat *diag, Mat *offdiag, GpufmtHaloParts *parts)
{
  const GpufmtParallelData *data = (const GpufmtParallelData *)A->data;
  const PetscInt           *columns;

  PetscFunctionBegin;
  PetscCall(MatMPIAIJGetSeqAIJ(A, diag, offdiag, &columns));
  PetscCheck(data->diag == *diag && data->offdiag == *offdiag && data->columns == columns, PETSC_COMM_SELF, PETSC_ERR_LIB,
             "The data of type mpiaij are not those of PETSc %d.%d: install petsc_gpufmt again with the PETSc that runs", PETSC_VERSION_MAJOR,
             PETSC_VERSION_MINOR);
  parts->ghost   = data->ghost;
  parts->scatter = data->scatter;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* collective */
static PetscErrorCode Agree(Mat A, PetscBool transposed, PetscErrorCode own)
{
  PetscFunctionBegin;
  PetscCall(GpufmtAgree((PetscObject)A, transposed ? "A transposed product with a vector" : "A product with a vector", own, 0, NULL));
  ((Mat_Gpufmt *)A->spptr)->agreed[transposed] = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* z = A x, or z = y + A x */
static PetscErrorCode MultDirect(GpufmtHalo halo, Mat diag, Mat offdiag, Vec x, Vec y, Vec z)
{
  PetscErrorCode ierr;
  Vec            ghost;

  PetscFunctionBegin;
  PetscCall((*halo->mode->begin)(halo, x));
  ierr = y ? (*diag->ops->multadd)(diag, x, y, z) : (*diag->ops->mult)(diag, x, z);
  PetscCall((*halo->mode->end)(halo, x, &ghost)); /* whatever becomes of the local part */
  PetscCall(ierr);
  PetscCall((*offdiag->ops->multadd)(offdiag, ghost, z, z));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* z = A^T x, or z = y + A^T x */
static PetscErrorCode MultBack(GpufmtHalo halo, Mat diag, Mat offdiag, Vec x, Vec y, Vec z)
{
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall((*offdiag->ops->multtranspose)(offdiag, x, halo->ghost));
  PetscCall((*halo->mode->begin_back)(halo));
  ierr = y ? (*diag->ops->multtransposeadd)(diag, x, y, z) : (*diag->ops->multtranspose)(diag, x, z);
  PetscCall((*halo->mode->end_back)(halo, z)); /* whatever becomes of the local part */
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Mult(Mat A, Vec x, Vec y, Vec z, PetscBool transposed)
{
  Mat_Gpufmt     *gpufmt = (Mat_Gpufmt *)A->spptr, *blocks[2];
  PetscErrorCode  ierr, failure = PETSC_SUCCESS;
  GpufmtHaloParts parts;
  Mat             diag, offdiag;

  PetscFunctionBegin;
  PetscCall(GpufmtParallelParts(A, &diag, &offdiag, &parts));
  if (PetscUnlikely(!gpufmt->agreed[transposed])) PetscCall(GpufmtHaloUpdate(A, &parts, sizeof(PetscScalar), &gpufmt->halo));
  blocks[0] = GpufmtSeqData(diag);
  blocks[1] = GpufmtSeqData(offdiag);
  for (int k = 0; k < 2; k++)
    if (blocks[k]) blocks[k]->failure = &failure;
  if (!transposed) ierr = MultDirect(gpufmt->halo, diag, offdiag, x, y, z);
  else if (gpufmt->halo->mode->begin_back) ierr = MultBack(gpufmt->halo, diag, offdiag, x, y, z);
  else if (y) ierr = (*gpufmt_mpi_parent->multtransposeadd)(A, x, y, z);
  else ierr = (*gpufmt_mpi_parent->multtranspose)(A, x, z);
  for (int k = 0; k < 2; k++)
    if (blocks[k]) blocks[k]->failure = NULL;
  PetscCall(ierr);
  if (!failure) failure = gpufmt->halo->own;
  gpufmt->halo->own = PETSC_SUCCESS;
  if (PetscUnlikely(!gpufmt->agreed[transposed])) PetscCall(Agree(A, transposed, failure));
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
