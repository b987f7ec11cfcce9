/* The sequential type: SEQAIJ with its products (mult.c) replaced. */
#include "gpufmt_impl.h"

static struct _MatOps seq_parent, mpi_parent;
static PetscBool      have_parents = PETSC_FALSE;

/* MatMult_SeqAIJ() and the like are hidden in libpetsc: take them from a pristine matrix. Under -mat_seqaij_type seqaij<fmt> the
   converter runs inside MatCreate_SeqAIJ(); then B is the pristine one, and creating another would recurse for ever. */
PetscErrorCode GpufmtParentOps(Mat B, struct _MatOps *seq, struct _MatOps *mpi)
{
  PetscFunctionBegin;
  if (!have_parents) {
    PetscBool is_seq = PETSC_FALSE;
    Mat       T;

    if (B) PetscCall(PetscObjectTypeCompare((PetscObject)B, MATSEQAIJ, &is_seq));
    if (is_seq) seq_parent = B->ops[0];
    else {
      PetscCall(MatCreate(PETSC_COMM_SELF, &T));
      PetscCall(MatSetType(T, MATSEQAIJ));
      if (!have_parents) seq_parent = T->ops[0]; /* else a nested call has found them */
      PetscCall(MatDestroy(&T));
    }
    PetscCall(MatCreate(PETSC_COMM_SELF, &T));
    PetscCall(MatSetType(T, MATMPIAIJ));
    mpi_parent   = T->ops[0];
    have_parents = PETSC_TRUE;
    PetscCall(MatDestroy(&T));
  }
  if (seq) *seq = seq_parent;
  if (mpi) *mpi = mpi_parent;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtParentOpsReset(void)
{
  PetscFunctionBegin;
  have_parents = PETSC_FALSE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtCheckScalars(Mat A, MatType type)
{
  PetscFunctionBegin;
  PetscCheck(!PetscDefined(USE_COMPLEX) && !PetscDefined(USE_REAL___FLOAT128) && !PetscDefined(USE_REAL___FP16), PetscObjectComm((PetscObject)A), PETSC_ERR_SUP,
             "Matrix type %s needs a PETSc with real scalars in single or double precision: this one was configured otherwise; use -mat_type aij or another PETSC_ARCH", type);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* vectors made from the matrix live on the device, unless the user chose a type */
PetscErrorCode GpufmtVecTypeOn(Mat A, PetscBool on)
{
  PetscFunctionBegin;
#if PetscDefined(HAVE_CUDA)
  {
    VecType   type;
    PetscBool same;

    PetscCall(MatGetVecType(A, &type));
    PetscCall(PetscStrcmp(type, on ? VECSTANDARD : VECCUDA, &same));
    if (same) PetscCall(MatSetVecType(A, on ? VECCUDA : VECSTANDARD));
  }
#endif
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MatBindToCPU_SeqAIJGpufmt(Mat A, PetscBool flg)
{
  PetscFunctionBegin;
#if PetscDefined(HAVE_DEVICE)
  A->boundtocpu = flg; /* Product() looks at it; the host values are always current */
#endif
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatSetFromOptions_Gpufmt(Mat A, PetscOptionItems PetscOptionsObject)
{
  const GpufmtFormat *format = GpufmtFormatFind(((PetscObject)A)->type_name);
  struct _MatOps      seq, mpi;
  PetscBool           is_seq;

  PetscFunctionBegin;
  PetscCall(GpufmtOptionsDeclare(format, PetscOptionsObject));
  PetscCall(GpufmtParentOps(NULL, &seq, &mpi));
  PetscCall(PetscObjectTypeCompare((PetscObject)A, format->seq_type, &is_seq));
  if (is_seq && seq.setfromoptions) PetscCall((*seq.setfromoptions)(A, PetscOptionsObject));
  if (!is_seq && mpi.setfromoptions) PetscCall((*mpi.setfromoptions)(A, PetscOptionsObject));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MatView_SeqAIJGpufmt(Mat A, PetscViewer viewer)
{
  PetscFunctionBegin;
  PetscCall((*seq_parent.view)(A, viewer));
  PetscCall(GpufmtViewStorage(A, A, NULL, viewer));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Compose(Mat B, const GpufmtFormat *format, PetscBool on)
{
  char name[128];

  PetscFunctionBegin;
  PetscCall(PetscSNPrintf(name, sizeof(name), "MatConvert_seqaij_%s_C", format->seq_type));
  PetscCall(PetscObjectComposeFunction((PetscObject)B, name, on ? MatConvert_SeqAIJ_SeqAIJGpufmt : NULL));
  PetscCall(PetscSNPrintf(name, sizeof(name), "MatConvert_seqaij_%s_C", format->name)); /* MatConvert() knows no aliases */
  PetscCall(PetscObjectComposeFunction((PetscObject)B, name, on ? MatConvert_SeqAIJ_SeqAIJGpufmt : NULL));
  PetscCall(PetscSNPrintf(name, sizeof(name), "MatConvert_%s_%s_C", format->seq_type, format->name));
  PetscCall(PetscObjectComposeFunction((PetscObject)B, name, on ? MatConvert_SeqAIJ_SeqAIJGpufmt : NULL));
  PetscCall(PetscSNPrintf(name, sizeof(name), "MatConvert_%s_seqaij_C", format->seq_type));
  PetscCall(PetscObjectComposeFunction((PetscObject)B, name, on ? MatConvert_SeqAIJGpufmt_SeqAIJ : NULL));
  PetscCall(PetscObjectComposeFunction((PetscObject)B, "MatProductSetFromOptions_anytype_C", on ? MatProductSetFromOptions_Gpufmt : NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MatDestroy_SeqAIJGpufmt(Mat A)
{
  const GpufmtFormat *format = A->spptr ? ((GpufmtBlock *)A->spptr)->format : NULL;

  PetscFunctionBegin;
  if (format) { /* NULL after MatHeaderMerge(), which also takes the composed functions */
    PetscCall(GpufmtBlockDestroy((GpufmtBlock **)&A->spptr));
    PetscCall(Compose(A, format, PETSC_FALSE));
  }
  PetscCall((*seq_parent.destroy)(A));
  PetscFunctionReturn(PETSC_SUCCESS);
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
  GpufmtBlock        *block;
  PetscBool           done;
  Mat                 B;

  PetscFunctionBegin;
  PetscCall(GpufmtCheckScalars(A, type));
  PetscCall(GpufmtParentOps(reuse == MAT_INPLACE_MATRIX ? *newmat : NULL, NULL, NULL));
  PetscCall(GpufmtConvertPrepare(A, reuse, newmat, &done));
  B = *newmat;
  if (!done) PetscCall(PetscObjectTypeCompare((PetscObject)B, format->seq_type, &done));
  if (done) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtBlockCreate(format, &block));
  B->spptr                 = block;
  B->ops->mult             = MatMult_SeqAIJGpufmt;
  B->ops->multadd          = MatMultAdd_SeqAIJGpufmt;
  B->ops->multtranspose    = MatMultTranspose_SeqAIJGpufmt;
  B->ops->multtransposeadd = MatMultTransposeAdd_SeqAIJGpufmt;
  B->ops->getdiagonal      = MatGetDiagonal_SeqAIJGpufmt;
  B->ops->destroy          = MatDestroy_SeqAIJGpufmt;
  B->ops->bindtocpu        = MatBindToCPU_SeqAIJGpufmt;
  B->ops->setfromoptions   = MatSetFromOptions_Gpufmt;
  B->ops->view             = MatView_SeqAIJGpufmt;

  B->ops->productsetfromoptions = MatProductSetFromOptions_SeqAIJGpufmt;
  PetscCall(Compose(B, format, PETSC_TRUE));
  PetscCall(PetscObjectChangeTypeName((PetscObject)B, format->seq_type));
  if (GpufmtDeviceUsable()) {
    PetscCall(GpufmtVecTypeOn(B, PETSC_TRUE));
#if PetscDefined(HAVE_DEVICE)
    B->boundtocpu = PETSC_FALSE;
#endif
  }
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
  format = ((GpufmtBlock *)B->spptr)->format;
  PetscCall(GpufmtBlockDestroy((GpufmtBlock **)&B->spptr));
  B->ops->mult             = seq_parent.mult;
  B->ops->multadd          = seq_parent.multadd;
  B->ops->multtranspose    = seq_parent.multtranspose;
  B->ops->multtransposeadd = seq_parent.multtransposeadd;
  B->ops->getdiagonal      = seq_parent.getdiagonal;
  B->ops->destroy          = seq_parent.destroy;
  B->ops->bindtocpu        = seq_parent.bindtocpu;
  B->ops->setfromoptions   = seq_parent.setfromoptions;
  B->ops->view             = seq_parent.view;

  B->ops->productsetfromoptions = seq_parent.productsetfromoptions;
  PetscCall(Compose(B, format, PETSC_FALSE));
  PetscCall(GpufmtVecTypeOn(B, PETSC_FALSE));
#if PetscDefined(HAVE_DEVICE)
  B->boundtocpu = PETSC_TRUE;
#endif
  PetscCall(PetscObjectChangeTypeName((PetscObject)B, MATSEQAIJ));
  PetscFunctionReturn(PETSC_SUCCESS);
}
