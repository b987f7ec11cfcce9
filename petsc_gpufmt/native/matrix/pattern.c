/* The pattern of a sequential matrix, of our types or another derived from aij. */
#include "matrix/matrix.h"

/* the host pattern of a matrix whose type is derived from SEQAIJ; no copy is made */
PetscErrorCode GpufmtPatternGet(Mat A, const PetscInt **rowptr, const PetscInt **colidx)
{
  PetscInt  nrows;
  PetscBool done;

  PetscFunctionBegin;
  PetscCall(MatGetRowIJ(A, 0, PETSC_FALSE, PETSC_FALSE, &nrows, rowptr, colidx, &done));
  PetscCheck(done, PETSC_COMM_SELF, PETSC_ERR_SUP,
             "A sparse product needs the pattern of a matrix of type %s, which does not give it: convert the matrix to aij",
             ((PetscObject)A)->type_name);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtPatternRestore(Mat A, const PetscInt **rowptr, const PetscInt **colidx)
{
  PetscInt  nrows;
  PetscBool done;

  PetscFunctionBegin;
  PetscCall(MatRestoreRowIJ(A, 0, PETSC_FALSE, PETSC_FALSE, &nrows, rowptr, colidx, &done));
  PetscFunctionReturn(PETSC_SUCCESS);
}
