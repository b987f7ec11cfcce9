/* The sequential type: SEQAIJ with what ours do (mult.c and its neighbours) in the place of its own operations. */
#include "matrix/matrix.h"

PetscErrorCode GpufmtCheckScalars(Mat A, MatType type)
{
  PetscFunctionBegin;
  PetscCheck(
    !PetscDefined(USE_REAL___FLOAT128) && !PetscDefined(USE_REAL___FP16), PetscObjectComm((PetscObject)A), PETSC_ERR_SUP,
    "Matrix type %s needs a PETSc with scalars in single or double precision: this one was configured otherwise; use -mat_type aij or another PETSC_ARCH",
    type);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Nothing on a device profits from rows with equal columns, and whoever looks for them reads all columns on the host: as PETSc's own types do,
   unless the user says -mat_no_inode 0. */
static PetscErrorCode InodesOff(Mat A)
{
  PetscBool off = PETSC_TRUE;

  PetscFunctionBegin;
  PetscCall(PetscOptionsGetBool(((PetscObject)A)->options, ((PetscObject)A)->prefix, "-mat_no_inode", &off, NULL));
  if (off) PetscCall((*gpufmt_seq_parent->setoption)(A, MAT_USE_INODES, PETSC_FALSE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MatBindToCPU_SeqAIJGpufmt(Mat A, PetscBool flg)
{
  PetscFunctionBegin;
#if PetscDefined(HAVE_DEVICE)
  A->boundtocpu = flg; /* MatMult() looks at it; the host values are always current */
#endif
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatSetFromOptions_Gpufmt(Mat A, PetscOptionItems PetscOptionsObject)
{
  const GpufmtFormat   *format = GpufmtFormatFind(((PetscObject)A)->type_name);
  const struct _MatOps *parent;
  PetscBool             is_seq = PETSC_TRUE;

  PetscFunctionBegin;
  if (format) {
    PetscCall(GpufmtOptionsDeclare(format, PetscOptionsObject));
    PetscCall(PetscObjectTypeCompare((PetscObject)A, format->seq_type, &is_seq));
    if (!is_seq) PetscCall(GpufmtHaloOptionsDeclare(PetscOptionsObject));
  }
  parent = is_seq ? gpufmt_seq_parent : gpufmt_mpi_parent;
  if (parent->setfromoptions) PetscCall((*parent->setfromoptions)(A, PetscOptionsObject));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MatView_SeqAIJGpufmt(Mat A, PetscViewer viewer)
{
  PetscFunctionBegin;
  PetscCall((*gpufmt_seq_parent->view)(A, viewer));
  if (GpufmtSeqData(A)) PetscCall(GpufmtViewStorage(A, A, NULL, viewer));
  PetscFunctionReturn(PETSC_SUCCESS);
}

GpufmtProductOps gpufmt_product_ops = {NULL, NULL, NULL};

static PetscErrorCode (*parent_kron)(Mat, Mat, MatReuse, Mat *) = NULL;

static PetscErrorCode (*parent_store)(Mat) = NULL;

/* The stored values are kept beside the arrays. */
static PetscErrorCode MatStoreValues_SeqAIJGpufmt(Mat A)
{
  PetscFunctionBegin;
  PetscCall(GpufmtManagedPin(A));
  PetscCall((*parent_store)(A));
  PetscFunctionReturn(PETSC_SUCCESS);
}

#if PETSC_VERSION_LT(3, 26, 0)
static PetscErrorCode (*parent_retrieve)(Mat) = NULL;

/* PETSc does not say here that values have changed. */
static PetscErrorCode MatRetrieveValues_SeqAIJGpufmt(Mat A)
{
  PetscFunctionBegin;
  PetscCall((*parent_retrieve)(A));
  PetscCall(PetscObjectStateIncrease((PetscObject)A));
  PetscFunctionReturn(PETSC_SUCCESS);
}
#endif

static PetscErrorCode Compose(Mat B, const GpufmtFormat *format, PetscBool on)
{
  PetscFunctionBegin;
  PetscCall(GpufmtConversionsCompose(B, MATSEQAIJ, format->seq_type, format->name, on));
  PetscCall(GpufmtSeqCooSet(B, on));
  GpufmtComposeFunction(B, "MatStoreValues_C", on, MatStoreValues_SeqAIJGpufmt, parent_store);
#if PETSC_VERSION_LT(3, 26, 0)
  GpufmtComposeFunction(B, "MatRetrieveValues_C", on, MatRetrieveValues_SeqAIJGpufmt, parent_retrieve);
#endif
  GpufmtComposeFunction(B, "MatSeqAIJKron_C", on, MatSeqAIJKron_SeqAIJGpufmt, parent_kron);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatDestroy_SeqAIJGpufmt(Mat A)
{
  const GpufmtFormat *format = A->spptr ? ((Mat_Gpufmt *)A->spptr)->format : NULL;
  GpufmtManaged      *managed;

  PetscFunctionBegin;
  if (format) { /* NULL after MatHeaderMerge(), which also takes the composed functions, and does not free what is composed anew here */
    PetscCall(GpufmtManagedOf(A, &managed));
    if (managed) PetscCall(GpufmtRowsLeave(A, managed, PETSC_FALSE));
    PetscCall(Mat_GpufmtDestroy((Mat_Gpufmt **)&A->spptr));
    if (((PetscObject)A)->qlist) PetscCall(Compose(A, format, PETSC_FALSE));
  }
  PetscCall((*gpufmt_seq_parent->destroy)(A));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* once, before there is a matrix of ours */
void GpufmtMatrixSetUp(GpufmtProductOps ops)
{
  gpufmt_seq_bind    = MatBindToCPU_SeqAIJGpufmt;
  gpufmt_product_ops = ops;
}

/* MAT_INITIAL and MAT_REUSE as every converter needs them; *done: nothing is left to do in place */
PetscErrorCode GpufmtConvertPrepare(Mat A, MatReuse reuse, Mat *B, PetscBool *done)
{
  PetscFunctionBegin;
  *done = PETSC_FALSE;
  if (reuse == MAT_INITIAL_MATRIX) PetscCall(MatDuplicate(A, MAT_COPY_VALUES, B));
  else if (reuse == MAT_REUSE_MATRIX) {
    PetscCall(MatCopy(A, *B, SAME_NONZERO_PATTERN));
    *done = PETSC_TRUE;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatConvert_SeqAIJ_SeqAIJGpufmt(Mat A, MatType type, MatReuse reuse, Mat *newmat)
{
  const GpufmtFormat *format = GpufmtFormatFind(type);
  Mat_Gpufmt         *gpufmt;
  PetscBool           done;
  Mat                 B;

  PetscFunctionBegin;
  PetscCall(GpufmtCheckScalars(A, type));
  PetscCall(GpufmtParentsFind(reuse == MAT_INPLACE_MATRIX ? *newmat : NULL));
  PetscCall(GpufmtConvertPrepare(A, reuse, newmat, &done));
  B = *newmat;
  if (!done) PetscCall(PetscObjectTypeCompare((PetscObject)B, format->seq_type, &done));
  if (done) PetscFunctionReturn(PETSC_SUCCESS);
  gpufmt = GpufmtSeqData(B);
  if (gpufmt) { /* of another format so far */
    PetscCall(Compose(B, gpufmt->format, PETSC_FALSE));
    PetscCall(Mat_GpufmtSetFormat(gpufmt, format));
    PetscCall(Compose(B, format, PETSC_TRUE));
    PetscCall(PetscObjectChangeTypeName((PetscObject)B, format->seq_type));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(Mat_GpufmtCreate(format, &gpufmt));
  B->spptr                      = gpufmt;
  B->ops->mult                  = MatMult_SeqAIJGpufmt;
  B->ops->multadd               = MatMultAdd_SeqAIJGpufmt;
  B->ops->multtranspose         = MatMultTranspose_SeqAIJGpufmt;
  B->ops->multtransposeadd      = MatMultTransposeAdd_SeqAIJGpufmt;
  B->ops->getdiagonal           = MatGetDiagonal_SeqAIJGpufmt;
  B->ops->destroy               = MatDestroy_SeqAIJGpufmt;
  B->ops->bindtocpu             = MatBindToCPU_SeqAIJGpufmt;
  B->ops->setfromoptions        = MatSetFromOptions_Gpufmt;
  B->ops->view                  = MatView_SeqAIJGpufmt;
  B->ops->scale                 = MatScale_SeqAIJGpufmt;
  B->ops->diagonalscale         = MatDiagonalScale_SeqAIJGpufmt;
  B->ops->axpy                  = MatAXPY_SeqAIJGpufmt;
  B->ops->diagonalset           = MatDiagonalSet_SeqAIJGpufmt;
  B->ops->zeroentries           = MatZeroEntries_SeqAIJGpufmt;
  B->ops->norm                  = MatNorm_SeqAIJGpufmt;
  B->ops->convert               = MatConvert_Gpufmt;
  B->ops->productsetfromoptions = gpufmt_product_ops.seq;
  GpufmtManagedArraysSet(B, PETSC_TRUE);
  PetscCall(Compose(B, format, PETSC_TRUE));
  PetscCall(PetscObjectChangeTypeName((PetscObject)B, format->seq_type));
  if (GpufmtDeviceUsable()) {
    PetscCall(GpufmtVecTypeOn(B, PETSC_TRUE));
    PetscCall(InodesOff(B));
#if PetscDefined(HAVE_DEVICE)
    B->boundtocpu = PETSC_FALSE;
#endif
  }
  PetscCall(GpufmtCooFound(B));
  PetscCall(GpufmtStartEarly(B, format->name));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatConvert_SeqAIJGpufmt_SeqAIJ(Mat A, MatType type, MatReuse reuse, Mat *newmat)
{
  const GpufmtFormat *format;
  PetscBool           done;
  Mat                 B;

  PetscFunctionBegin;
  PetscCall(GpufmtConvertPrepare(A, reuse, newmat, &done));
  B = *newmat;
  if (done || !B->spptr) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtCooNote(B));
  PetscCall(GpufmtManagedLeave(B));
  format = ((Mat_Gpufmt *)B->spptr)->format;
  PetscCall(Mat_GpufmtDestroy((Mat_Gpufmt **)&B->spptr));
  B->ops->mult                  = gpufmt_seq_parent->mult;
  B->ops->multadd               = gpufmt_seq_parent->multadd;
  B->ops->multtranspose         = gpufmt_seq_parent->multtranspose;
  B->ops->multtransposeadd      = gpufmt_seq_parent->multtransposeadd;
  B->ops->getdiagonal           = gpufmt_seq_parent->getdiagonal;
  B->ops->bindtocpu             = gpufmt_seq_parent->bindtocpu;
  B->ops->setfromoptions        = gpufmt_seq_parent->setfromoptions;
  B->ops->view                  = gpufmt_seq_parent->view;
  B->ops->scale                 = gpufmt_seq_parent->scale;
  B->ops->diagonalscale         = gpufmt_seq_parent->diagonalscale;
  B->ops->axpy                  = gpufmt_seq_parent->axpy;
  B->ops->diagonalset           = gpufmt_seq_parent->diagonalset;
  B->ops->zeroentries           = gpufmt_seq_parent->zeroentries;
  B->ops->norm                  = gpufmt_seq_parent->norm;
  B->ops->convert               = gpufmt_seq_parent->convert;
  B->ops->productsetfromoptions = gpufmt_seq_parent->productsetfromoptions;
  if (B->ops->destroy == MatDestroy_SeqAIJGpufmt) B->ops->destroy = gpufmt_seq_parent->destroy; /* else it comes to ours, which does no more */
  GpufmtManagedArraysSet(B, PETSC_FALSE);
  PetscCall(Compose(B, format, PETSC_FALSE));
  PetscCall(GpufmtVecTypeOn(B, PETSC_FALSE));
#if PetscDefined(HAVE_DEVICE)
  B->boundtocpu = PETSC_TRUE;
#endif
  PetscCall(PetscObjectChangeTypeName((PetscObject)B, MATSEQAIJ));
  PetscFunctionReturn(PETSC_SUCCESS);
}
