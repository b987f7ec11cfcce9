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

    if (B && !B->hash_active) PetscCall(PetscObjectTypeCompare((PetscObject)B, MATSEQAIJ, &is_seq));
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

/* ---- what may free or replace the arrays, or give them to another matrix, finds ordinary ones: see managed.c ---- */

static PetscErrorCode MatSetValues_SeqAIJGpufmt(Mat A, PetscInt m, const PetscInt rows[], PetscInt n, const PetscInt columns[], const PetscScalar values[], InsertMode mode)
{
  PetscFunctionBegin;
  PetscCall(GpufmtManagedLeave(A));
  PetscCall((*seq_parent.setvalues)(A, m, rows, n, columns, values, mode));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the parent's goes on to read arrays that it has taken out of the matrix */
static PetscErrorCode MatShift_SeqAIJGpufmt(Mat A, PetscScalar shift)
{
  PetscFunctionBegin;
  PetscCall(GpufmtManagedLeave(A));
  PetscCall((*seq_parent.shift)(A, shift));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MatZeroRows_SeqAIJGpufmt(Mat A, PetscInt n, const PetscInt rows[], PetscScalar diagonal, Vec x, Vec b)
{
  PetscFunctionBegin;
  PetscCall(GpufmtManagedLeave(A));
  PetscCall((*seq_parent.zerorows)(A, n, rows, diagonal, x, b));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MatZeroRowsColumns_SeqAIJGpufmt(Mat A, PetscInt n, const PetscInt rows[], PetscScalar diagonal, Vec x, Vec b)
{
  PetscFunctionBegin;
  PetscCall(GpufmtManagedLeave(A));
  PetscCall((*seq_parent.zerorowscolumns)(A, n, rows, diagonal, x, b));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MatSetOption_SeqAIJGpufmt(Mat A, MatOption option, PetscBool flag)
{
  PetscFunctionBegin;
  if (option == MAT_NEW_NONZERO_LOCATIONS || option == MAT_NEW_NONZERO_LOCATION_ERR || option == MAT_NEW_NONZERO_ALLOCATION_ERR || option == MAT_SORTED_FULL) PetscCall(GpufmtManagedLeave(A));
  PetscCall((*seq_parent.setoption)(A, option, flag));
  if (option == MAT_SORTED_FULL && !flag) A->ops->setvalues = MatSetValues_SeqAIJGpufmt;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MatDuplicate_SeqAIJGpufmt(Mat A, MatDuplicateOption option, Mat *B)
{
  GpufmtManaged *managed;

  PetscFunctionBegin;
  PetscCall(GpufmtManagedOf(A, &managed));
  PetscCall((*seq_parent.duplicate)(A, managed && option == MAT_SHARE_NONZERO_PATTERN ? MAT_DO_NOT_COPY_VALUES : option, B));
  if (managed) PetscCall(MatSetOption(*B, MAT_NEW_NONZERO_ALLOCATION_ERR, PETSC_FALSE)); /* as GpufmtManagedLeave() */
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* MatCreateSeqAIJWithArrays() leaves the number of allocated nonzeros 0, and so that of unneeded ones negative */
static PetscErrorCode MatGetInfo_SeqAIJGpufmt(Mat A, MatInfoType type, MatInfo *info)
{
  PetscFunctionBegin;
  PetscCall((*seq_parent.getinfo)(A, type, info));
  info->nz_allocated = PetscMax(info->nz_allocated, info->nz_used);
  info->nz_unneeded  = info->nz_allocated - info->nz_used;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MatView_SeqAIJGpufmt(Mat A, PetscViewer viewer)
{
  PetscFunctionBegin;
  PetscCall((*seq_parent.view)(A, viewer));
  PetscCall(GpufmtViewStorage(A, A, NULL, viewer));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode (*parent_kron)(Mat, Mat, MatReuse, Mat *) = NULL;

static PetscErrorCode Compose(Mat B, const GpufmtFormat *format, PetscBool on)
{
  char name[128];

  PetscFunctionBegin;
  PetscCall(PetscSNPrintf(name, sizeof(name), "MatConvert_seqaij_%s_C", format->seq_type));
  PetscCall(PetscObjectComposeFunction((PetscObject)B, name, on ? MatConvert_SeqAIJ_SeqAIJGpufmt : NULL));
  PetscCall(PetscSNPrintf(name, sizeof(name), "MatConvert_seqaij_%s_C", format->name)); /* MatConvert() knows no aliases */
  PetscCall(PetscObjectComposeFunction((PetscObject)B, name, on ? MatConvert_SeqAIJ_SeqAIJGpufmt : NULL));
  PetscCall(PetscSNPrintf(name, sizeof(name), "MatConvert_%s_seqaij_C", format->seq_type));
  PetscCall(PetscObjectComposeFunction((PetscObject)B, name, on ? MatConvert_SeqAIJGpufmt_SeqAIJ : NULL));
  PetscCall(PetscObjectComposeFunction((PetscObject)B, "MatProductSetFromOptions_anytype_C", on ? MatProductSetFromOptions_Gpufmt : NULL));
  if (on && !parent_kron) PetscCall(PetscObjectQueryFunction((PetscObject)B, "MatSeqAIJKron_C", &parent_kron));
  PetscCall(PetscObjectComposeFunction((PetscObject)B, "MatSeqAIJKron_C", on ? MatSeqAIJKron_SeqAIJGpufmt : parent_kron));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MatDestroy_SeqAIJGpufmt(Mat A)
{
  const GpufmtFormat *format = A->spptr ? ((Mat_Gpufmt *)A->spptr)->format : NULL;

  PetscFunctionBegin;
  if (format) { /* NULL after MatHeaderMerge(), which also takes the composed functions, and does not free what is composed anew here */
    PetscCall(Mat_GpufmtDestroy((Mat_Gpufmt **)&A->spptr));
    if (((PetscObject)A)->qlist) PetscCall(Compose(A, format, PETSC_FALSE));
  }
  PetscCall((*seq_parent.destroy)(A));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What belongs to a sequential matrix of ours, else NULL. Asked at each MatSetValues(), so no names are compared. */
Mat_Gpufmt *GpufmtSeqData(Mat A)
{
  return A->ops->destroy == MatDestroy_SeqAIJGpufmt ? (Mat_Gpufmt *)A->spptr : NULL;
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
  Mat_Gpufmt        *gpufmt;
  PetscBool           done;
  Mat                 B;

  PetscFunctionBegin;
  PetscCall(GpufmtCheckScalars(A, type));
  PetscCall(GpufmtParentOps(reuse == MAT_INPLACE_MATRIX ? *newmat : NULL, NULL, NULL));
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
  B->spptr                 = gpufmt;
  B->ops->mult             = MatMult_SeqAIJGpufmt;
  B->ops->multadd          = MatMultAdd_SeqAIJGpufmt;
  B->ops->multtranspose    = MatMultTranspose_SeqAIJGpufmt;
  B->ops->multtransposeadd = MatMultTransposeAdd_SeqAIJGpufmt;
  B->ops->getdiagonal      = MatGetDiagonal_SeqAIJGpufmt;
  B->ops->destroy          = MatDestroy_SeqAIJGpufmt;
  B->ops->bindtocpu        = MatBindToCPU_SeqAIJGpufmt;
  B->ops->setfromoptions   = MatSetFromOptions_Gpufmt;
  B->ops->view             = MatView_SeqAIJGpufmt;
  B->ops->duplicate        = MatDuplicate_SeqAIJGpufmt;
  B->ops->getinfo          = MatGetInfo_SeqAIJGpufmt;
  B->ops->setoption        = MatSetOption_SeqAIJGpufmt;
  B->ops->shift            = MatShift_SeqAIJGpufmt;
  B->ops->zerorows         = MatZeroRows_SeqAIJGpufmt;
  B->ops->zerorowscolumns  = MatZeroRowsColumns_SeqAIJGpufmt;
  B->ops->scale            = MatScale_SeqAIJGpufmt;
  B->ops->diagonalscale    = MatDiagonalScale_SeqAIJGpufmt;
  B->ops->axpy             = MatAXPY_SeqAIJGpufmt;
  B->ops->convert          = MatConvert_Gpufmt;
  if (B->ops->setvalues == seq_parent.setvalues) B->ops->setvalues = MatSetValues_SeqAIJGpufmt; /* else it collects first values, or takes whole rows */

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
  PetscCall(GpufmtManagedLeave(B));
  format = ((Mat_Gpufmt *)B->spptr)->format;
  PetscCall(Mat_GpufmtDestroy((Mat_Gpufmt **)&B->spptr));
  B->ops->mult             = seq_parent.mult;
  B->ops->multadd          = seq_parent.multadd;
  B->ops->multtranspose    = seq_parent.multtranspose;
  B->ops->multtransposeadd = seq_parent.multtransposeadd;
  B->ops->getdiagonal      = seq_parent.getdiagonal;
  B->ops->destroy          = seq_parent.destroy;
  B->ops->bindtocpu        = seq_parent.bindtocpu;
  B->ops->setfromoptions   = seq_parent.setfromoptions;
  B->ops->view             = seq_parent.view;
  B->ops->duplicate        = seq_parent.duplicate;
  B->ops->getinfo          = seq_parent.getinfo;
  B->ops->setoption        = seq_parent.setoption;
  B->ops->shift            = seq_parent.shift;
  B->ops->zerorows         = seq_parent.zerorows;
  B->ops->zerorowscolumns  = seq_parent.zerorowscolumns;
  B->ops->scale            = seq_parent.scale;
  B->ops->diagonalscale    = seq_parent.diagonalscale;
  B->ops->axpy             = seq_parent.axpy;
  B->ops->convert          = seq_parent.convert;
  if (B->ops->setvalues == MatSetValues_SeqAIJGpufmt) B->ops->setvalues = seq_parent.setvalues;

  B->ops->productsetfromoptions = seq_parent.productsetfromoptions;
  PetscCall(Compose(B, format, PETSC_FALSE));
  PetscCall(GpufmtVecTypeOn(B, PETSC_FALSE));
#if PetscDefined(HAVE_DEVICE)
  B->boundtocpu = PETSC_TRUE;
#endif
  PetscCall(PetscObjectChangeTypeName((PetscObject)B, MATSEQAIJ));
  PetscFunctionReturn(PETSC_SUCCESS);
}
