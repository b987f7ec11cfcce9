/* The parallel type: MPIAIJ whose diagonal and off-diagonal blocks are of the sequential type. */
#include "matrix/matrix.h"

/* The blocks must know where vectors live before the parent's assembly makes the ghost vector from them. */
static PetscErrorCode BlocksVecType(Mat A)
{
  Mat blocks[2];

  PetscFunctionBegin;
  if (!GpufmtDeviceUsable()) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(MatMPIAIJGetSeqAIJ(A, &blocks[0], &blocks[1], NULL));
  for (int k = 0; k < 2; k++)
    if (blocks[k]) PetscCall(GpufmtVecTypeOn(blocks[k], PETSC_TRUE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* a block has the options prefix of its parallel matrix */
static PetscErrorCode PrefixTake(Mat A, Mat_Gpufmt *block)
{
  PetscBool same;

  PetscFunctionBegin;
  PetscCall(PetscStrcmp(((PetscObject)A)->prefix, block->parent_prefix, &same));
  if (same) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscFree(block->parent_prefix));
  PetscCall(PetscStrallocpy(((PetscObject)A)->prefix, &block->parent_prefix));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* on this rank */
static PetscErrorCode BlocksConvert(Mat A)
{
  Mat_Gpufmt         *parallel = (Mat_Gpufmt *)A->spptr;
  const GpufmtFormat *format   = parallel->format;
  Mat                 blocks[2];

  PetscFunctionBegin;
  parallel->managed_blocks = PETSC_FALSE;
  PetscCall(MatMPIAIJGetSeqAIJ(A, &blocks[0], &blocks[1], NULL));
  for (int k = 0; k < 2; k++) {
    Mat_Gpufmt    *gpufmt;
    GpufmtManaged *managed;

    if (!blocks[k] || !blocks[k]->assembled) continue;
    PetscCall(MatConvert_SeqAIJ_SeqAIJGpufmt(blocks[k], format->seq_type, MAT_INPLACE_MATRIX, &blocks[k]));
    gpufmt          = (Mat_Gpufmt *)blocks[k]->spptr;
    gpufmt->offdiag = (PetscBool)(k == 1);
    PetscCall(PrefixTake(A, gpufmt));
    PetscCall(PetscObjectSetOptions((PetscObject)blocks[k], ((PetscObject)A)->options));
#if PetscDefined(HAVE_DEVICE)
    PetscCall(MatBindToCPU(blocks[k], A->boundtocpu));
#endif
    PetscCall(GpufmtManagedOf(blocks[k], &managed));
    if (managed) parallel->managed_blocks = PETSC_TRUE;
  }
  GpufmtParallelMultChanged(A);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The blocks become of our type. Collective, and so are errors, unless the pattern is that of the last time: then nothing is made that could fail. */
PetscErrorCode GpufmtBlocksConvert(Mat A)
{
  Mat_Gpufmt    *parallel = (Mat_Gpufmt *)A->spptr;
  PetscErrorCode ierr     = BlocksConvert(A);

  PetscFunctionBegin;
  if (A->nonzerostate != parallel->converted) PetscCall(GpufmtAgree((PetscObject)A, "The assembly of a matrix", ierr, 0, NULL));
  PetscCall(ierr);
  parallel->converted = A->nonzerostate;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The parent's operations write into the arrays of the blocks, and free these where a nonzero is new: not managed ones. */
static PetscErrorCode BlocksLeaveManaged(Mat A)
{
  Mat blocks[2];

  PetscFunctionBegin;
  if (!A->assembled && !A->was_assembled) PetscFunctionReturn(PETSC_SUCCESS); /* first values, many calls */
  PetscCall(MatMPIAIJGetSeqAIJ(A, &blocks[0], &blocks[1], NULL));
  for (int k = 0; k < 2; k++)
    if (blocks[k]) PetscCall(GpufmtManagedLeave(blocks[k]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* whether other ranks send entries that the assembly under way inserts; PETSc has two kinds of stash */
static PetscBool EntriesArrive(Mat A)
{
  return (PetscBool)(!A->nooffprocentries && (A->stash.nrecvranks || A->stash.nrecvs));
}

/* one hook for all the ways in which blocks come to be: preallocation, hash, COO, WithSeqAIJ, submatrices, products */
static PetscErrorCode MatAssemblyEnd_MPIAIJGpufmt(Mat A, MatAssemblyType mode)
{
  PetscFunctionBegin;
  PetscCall(BlocksVecType(A));
  if (EntriesArrive(A)) PetscCall(BlocksLeaveManaged(A));
  PetscCall((*gpufmt_mpi_parent->assemblyend)(A, mode));
  if (mode == MAT_FINAL_ASSEMBLY) PetscCall(GpufmtBlocksConvert(A));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* An assembly calls it for each row: without managed arrays in its blocks it is one branch and a jump. */
static PetscErrorCode MatSetValues_MPIAIJGpufmt(Mat A, PetscInt m, const PetscInt rows[], PetscInt n, const PetscInt columns[],
                                                const PetscScalar values[], InsertMode mode)
{
  if (PetscUnlikely(((Mat_Gpufmt *)A->spptr)->managed_blocks)) PetscCall(BlocksLeaveManaged(A));
  return (*gpufmt_mpi_parent->setvalues)(A, m, rows, n, columns, values, mode);
}

/* A coloring keeps the addresses of values. */
static PetscErrorCode MatFDColoringSetUp_MPIAIJGpufmt(Mat A, ISColoring coloring, MatFDColoring differences)
{
  Mat blocks[2];

  PetscFunctionBegin;
  PetscCall(MatMPIAIJGetSeqAIJ(A, &blocks[0], &blocks[1], NULL));
  for (int k = 0; k < 2; k++) PetscCall(GpufmtManagedPin(blocks[k]));
  PetscCall((*gpufmt_mpi_parent->fdcoloringsetup)(A, coloring, differences));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The parent's preallocates an empty diagonal block, on this rank alone, and undoes what that says of new nonzeros behind the back of its options. */
static PetscErrorCode MatShift_MPIAIJGpufmt(Mat A, PetscScalar shift)
{
  GpufmtOptionsSet options = {0};
  Mat              diag;
  PetscBool        done;

  PetscFunctionBegin;
  PetscCall(GpufmtParallelShift(A, shift, &done));
  if (done) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(BlocksLeaveManaged(A));
  PetscCall(MatMPIAIJGetSeqAIJ(A, &diag, NULL, NULL));
  if (A->preallocated && GpufmtSeqData(diag)) options = GpufmtSeqData(diag)->options;
  else diag = NULL;
  PetscCall((*gpufmt_mpi_parent->shift)(A, shift));
  if (diag) GpufmtSeqData(diag)->options = options;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MatZeroRows_MPIAIJGpufmt(Mat A, PetscInt n, const PetscInt rows[], PetscScalar diagonal, Vec x, Vec b)
{
  PetscBool done;

  PetscFunctionBegin;
  PetscCall(GpufmtParallelZero(A, n, rows, diagonal, x, b, PETSC_FALSE, &done));
  if (done) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(BlocksLeaveManaged(A));
  PetscCall((*gpufmt_mpi_parent->zerorows)(A, n, rows, diagonal, x, b));
  GpufmtParallelMultChanged(A);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MatZeroRowsColumns_MPIAIJGpufmt(Mat A, PetscInt n, const PetscInt rows[], PetscScalar diagonal, Vec x, Vec b)
{
  PetscBool done;

  PetscFunctionBegin;
  PetscCall(GpufmtParallelZero(A, n, rows, diagonal, x, b, PETSC_TRUE, &done));
  if (done) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(BlocksLeaveManaged(A));
  PetscCall((*gpufmt_mpi_parent->zerorowscolumns)(A, n, rows, diagonal, x, b));
  GpufmtParallelMultChanged(A);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the blocks get them by this, and so do those that a preallocation makes later */
static PetscErrorCode MatSetOption_MPIAIJGpufmt(Mat A, MatOption option, PetscBool flag)
{
  PetscFunctionBegin;
  GpufmtOptionsRemember(&((Mat_Gpufmt *)A->spptr)->options, option, flag);
  PetscCall((*gpufmt_mpi_parent->setoption)(A, option, flag));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Where all rows and columns are asked for, the parent's writes new values into the matrices of an earlier call without raising their states. */
static PetscErrorCode MatCreateSubMatrices_MPIAIJGpufmt(Mat A, PetscInt n, const IS rows[], const IS columns[], MatReuse reuse, Mat *matrices[])
{
  PetscFunctionBegin;
  PetscCall((*gpufmt_mpi_parent->createsubmatrices)(A, n, rows, columns, reuse, matrices));
  for (PetscInt k = 0; k < n; k++) PetscCall(PetscObjectStateIncrease((PetscObject)(*matrices)[k]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MatView_MPIAIJGpufmt(Mat A, PetscViewer viewer)
{
  Mat blocks[2];

  PetscFunctionBegin;
  PetscCall((*gpufmt_mpi_parent->view)(A, viewer));
  PetscCall(MatMPIAIJGetSeqAIJ(A, &blocks[0], &blocks[1], NULL));
  PetscCall(GpufmtViewStorage(A, blocks[0], blocks[1], viewer));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Compose(Mat B, const GpufmtFormat *format, PetscBool on)
{
  PetscFunctionBegin;
  PetscCall(GpufmtConversionsCompose(B, MATMPIAIJ, format->mpi_type, format->name, on));
  PetscCall(GpufmtParallelCooSet(B, on));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MatDestroy_MPIAIJGpufmt(Mat A)
{
  const GpufmtFormat *format = A->spptr ? ((Mat_Gpufmt *)A->spptr)->format : NULL;

  PetscFunctionBegin;
  if (format) { /* NULL after MatHeaderMerge(), which also takes the composed functions, and does not free what is composed anew here */
    PetscCall(Mat_GpufmtDestroy((Mat_Gpufmt **)&A->spptr));
    if (((PetscObject)A)->qlist) PetscCall(Compose(A, format, PETSC_FALSE));
  }
  PetscCall((*gpufmt_mpi_parent->destroy)(A));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatConvert_MPIAIJ_MPIAIJGpufmt(Mat A, MatType type, MatReuse reuse, Mat *newmat)
{
  const GpufmtFormat *format = GpufmtFormatFind(type);
  Mat_Gpufmt         *gpufmt = NULL;
  PetscBool           done;
  PetscErrorCode      ierr;
  Mat                 B;

  PetscFunctionBegin;
  PetscCall(GpufmtCheckScalars(A, type));
  PetscCall(GpufmtParentsFind(NULL));
  PetscCall(GpufmtConvertPrepare(A, reuse, newmat, &done));
  B = *newmat;
  if (!done) PetscCall(PetscObjectTypeCompare((PetscObject)B, format->mpi_type, &done));
  if (done) PetscFunctionReturn(PETSC_SUCCESS);
  if (B->ops->destroy == MatDestroy_MPIAIJGpufmt) { /* of another format so far */
    gpufmt = (Mat_Gpufmt *)B->spptr;
    PetscCall(Compose(B, gpufmt->format, PETSC_FALSE));
    PetscCall(Mat_GpufmtSetFormat(gpufmt, format));
    PetscCall(Compose(B, format, PETSC_TRUE));
    PetscCall(PetscObjectChangeTypeName((PetscObject)B, format->mpi_type));
    if (B->assembled) PetscCall(GpufmtBlocksConvert(B));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  ierr = GpufmtAgree((PetscObject)B, "The making of a matrix", Mat_GpufmtCreate(format, &gpufmt), 0, NULL);
  if (ierr) PetscCall(Mat_GpufmtDestroy(&gpufmt));
  PetscCall(ierr);
  B->spptr                      = gpufmt;
  B->ops->assemblyend           = MatAssemblyEnd_MPIAIJGpufmt;
  B->ops->destroy               = MatDestroy_MPIAIJGpufmt;
  B->ops->setfromoptions        = MatSetFromOptions_Gpufmt;
  B->ops->view                  = MatView_MPIAIJGpufmt;
  B->ops->setoption             = MatSetOption_MPIAIJGpufmt;
  B->ops->shift                 = MatShift_MPIAIJGpufmt;
  B->ops->zerorows              = MatZeroRows_MPIAIJGpufmt;
  B->ops->zerorowscolumns       = MatZeroRowsColumns_MPIAIJGpufmt;
  B->ops->fdcoloringsetup       = MatFDColoringSetUp_MPIAIJGpufmt;
  B->ops->axpy                  = MatAXPY_MPIAIJGpufmt;
  B->ops->norm                  = MatNorm_MPIAIJGpufmt;
  B->ops->convert               = MatConvert_Gpufmt;
  B->ops->createsubmatrices     = MatCreateSubMatrices_MPIAIJGpufmt;
  B->ops->getvecs               = MatCreateVecs_MPIAIJGpufmt;
  B->ops->productsetfromoptions = gpufmt_product_ops.mpi;
  GpufmtParallelMultSet(B, PETSC_TRUE);
  if (B->ops->setvalues == gpufmt_mpi_parent->setvalues) B->ops->setvalues = MatSetValues_MPIAIJGpufmt; /* else it collects first values */
  PetscCall(Compose(B, format, PETSC_TRUE));
  PetscCall(PetscObjectChangeTypeName((PetscObject)B, format->mpi_type));
  if (GpufmtDeviceUsable()) {
    PetscCall(GpufmtVecTypeOn(B, PETSC_TRUE));
#if PetscDefined(HAVE_DEVICE)
    B->boundtocpu = PETSC_FALSE;
#endif
  }
  PetscCall(GpufmtStartEarly(B, format->name));
  if (B->assembled) PetscCall(GpufmtBlocksConvert(B));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatConvert_MPIAIJGpufmt_MPIAIJ(Mat A, MatType type, MatReuse reuse, Mat *newmat)
{
  const GpufmtFormat *format;
  PetscBool           done;
  Mat                 B, blocks[2];

  PetscFunctionBegin;
  PetscCall(GpufmtConvertPrepare(A, reuse, newmat, &done));
  B = *newmat;
  if (done || !B->spptr) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtCooAgree(B, GpufmtParallelCooNote(B)));
  PetscCall(GpufmtParallelSumsForget(B));
  format = ((Mat_Gpufmt *)B->spptr)->format;
  PetscCall(Mat_GpufmtDestroy((Mat_Gpufmt **)&B->spptr));
  B->ops->assemblyend           = gpufmt_mpi_parent->assemblyend;
  B->ops->destroy               = gpufmt_mpi_parent->destroy;
  B->ops->setfromoptions        = gpufmt_mpi_parent->setfromoptions;
  B->ops->view                  = gpufmt_mpi_parent->view;
  B->ops->setoption             = gpufmt_mpi_parent->setoption;
  B->ops->shift                 = gpufmt_mpi_parent->shift;
  B->ops->zerorows              = gpufmt_mpi_parent->zerorows;
  B->ops->zerorowscolumns       = gpufmt_mpi_parent->zerorowscolumns;
  B->ops->fdcoloringsetup       = gpufmt_mpi_parent->fdcoloringsetup;
  B->ops->axpy                  = gpufmt_mpi_parent->axpy;
  B->ops->norm                  = gpufmt_mpi_parent->norm;
  B->ops->convert               = gpufmt_mpi_parent->convert;
  B->ops->createsubmatrices     = gpufmt_mpi_parent->createsubmatrices;
  B->ops->getvecs               = gpufmt_mpi_parent->getvecs;
  B->ops->productsetfromoptions = gpufmt_mpi_parent->productsetfromoptions;
  GpufmtParallelMultSet(B, PETSC_FALSE);
  if (B->ops->setvalues == MatSetValues_MPIAIJGpufmt) B->ops->setvalues = gpufmt_mpi_parent->setvalues;
  PetscCall(Compose(B, format, PETSC_FALSE));
  PetscCall(GpufmtVecTypeOn(B, PETSC_FALSE));
  PetscCall(PetscObjectChangeTypeName((PetscObject)B, MATMPIAIJ));
  PetscCall(MatMPIAIJGetSeqAIJ(B, &blocks[0], &blocks[1], NULL));
  for (int k = 0; k < 2; k++)
    if (blocks[k] && blocks[k]->spptr) PetscCall(MatConvert_SeqAIJGpufmt_SeqAIJ(blocks[k], MATSEQAIJ, MAT_INPLACE_MATRIX, &blocks[k]));
#if PetscDefined(HAVE_DEVICE)
  B->boundtocpu = PETSC_TRUE;
#endif
  PetscFunctionReturn(PETSC_SUCCESS);
}
