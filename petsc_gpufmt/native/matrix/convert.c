/* Conversions to other types than aij, and what else of aij asks for exactly its types: aij's own functions do it with the matrix as one of type aij. */
#include "matrix/matrix.h"

static PetscErrorCode ToAIJ(Mat A, MatReuse reuse, Mat *B)
{
  PetscFunctionBegin;
  if (GpufmtSeqData(A)) PetscCall(MatConvert_SeqAIJGpufmt_SeqAIJ(A, MATSEQAIJ, reuse, B));
  else PetscCall(MatConvert_MPIAIJGpufmt_MPIAIJ(A, MATMPIAIJ, reuse, B));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What MatConvert() calls where no converter is known for the two types, in place of MatConvert_Basic(), which goes row by row without a
   preallocation. In place, another format leaves all that belongs to the matrix as it is. */
PetscErrorCode MatConvert_Gpufmt(Mat A, MatType type, MatReuse reuse, Mat *newmat)
{
  const GpufmtFormat *format = GpufmtFormatFind(type);
  const PetscBool     is_seq = (PetscBool)(GpufmtSeqData(A) != NULL);
  Mat                 copy;

  PetscFunctionBegin;
  if (!is_seq && A->ops->bindtocpu == gpufmt_seq_bind) { /* a block that another type has taken over */
    A->ops->convert = gpufmt_seq_parent->convert;
    PetscCall(MatConvert(A, type, reuse, newmat));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (format && strcmp(type, is_seq ? format->mpi_type : format->seq_type)) {
    if (is_seq) PetscCall(MatConvert_SeqAIJ_SeqAIJGpufmt(A, type, reuse, newmat));
    else PetscCall(MatConvert_MPIAIJ_MPIAIJGpufmt(A, type, reuse, newmat));
  } else if (reuse == MAT_INPLACE_MATRIX) {
    PetscCall(ToAIJ(A, reuse, newmat));
    PetscCall(MatConvert(A, type, reuse, newmat));
  } else {
    PetscCall(ToAIJ(A, MAT_INITIAL_MATRIX, &copy));
    PetscCall(PetscObjectSetOptions((PetscObject)copy, ((PetscObject)A)->options));
    PetscCall(MatSetOptionsPrefix(copy, ((PetscObject)A)->prefix)); /* that of -matconvert_type */
    PetscCall(MatConvert(copy, type, reuse, newmat));
    PetscCall(MatDestroy(&copy));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatSeqAIJKron_SeqAIJGpufmt(Mat A, Mat B, MatReuse reuse, Mat *C)
{
  Mat factors[2] = {A, B};

  PetscFunctionBegin;
  for (int k = 0; k < 2; k++) {
    if (GpufmtSeqData(factors[k])) PetscCall(ToAIJ(factors[k], MAT_INITIAL_MATRIX, &factors[k]));
    else PetscCall(PetscObjectReference((PetscObject)factors[k]));
  }
  PetscCall(MatSeqAIJKron(factors[0], factors[1], reuse, C));
  for (int k = 0; k < 2; k++) PetscCall(MatDestroy(&factors[k]));
  if (reuse == MAT_INITIAL_MATRIX) PetscCall(MatConvert_SeqAIJ_SeqAIJGpufmt(*C, ((PetscObject)A)->type_name, MAT_INPLACE_MATRIX, C));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Conversions between aij and a type of ours, by which PETSc finds them, and products with other types. */
PetscErrorCode GpufmtConversionsCompose(Mat A, const char parent[], const char type[], const char alias[], PetscBool on)
{
  const PetscBool   is_seq                              = (PetscBool)!strcmp(parent, MATSEQAIJ);
  const char *const names[]                             = {type, alias}; /* MatConvert() knows no aliases */
  PetscErrorCode (*to)(Mat, MatType, MatReuse, Mat *)   = is_seq ? MatConvert_SeqAIJ_SeqAIJGpufmt : MatConvert_MPIAIJ_MPIAIJGpufmt;
  PetscErrorCode (*from)(Mat, MatType, MatReuse, Mat *) = is_seq ? MatConvert_SeqAIJGpufmt_SeqAIJ : MatConvert_MPIAIJGpufmt_MPIAIJ;
  char name[128];

  PetscFunctionBegin;
  for (size_t k = 0; k < PETSC_STATIC_ARRAY_LENGTH(names); k++) {
    PetscCall(PetscSNPrintf(name, sizeof(name), "MatConvert_%s_%s_C", parent, names[k]));
    PetscCall(PetscObjectComposeFunction((PetscObject)A, name, on ? to : NULL));
  }
  PetscCall(PetscSNPrintf(name, sizeof(name), "MatConvert_%s_%s_C", type, parent));
  PetscCall(PetscObjectComposeFunction((PetscObject)A, name, on ? from : NULL));
  PetscCall(PetscObjectComposeFunction((PetscObject)A, "MatProductSetFromOptions_anytype_C", on ? gpufmt_product_ops.anytype : NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}
