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

/* The number by which requests name the pattern of A, or 0 for a matrix of another type: as long as something of the planner has its arrays on this
   backend, they are not sent again. It moves with the data, and another pattern has another one. */
int64_t GpufmtPatternHeld(Mat A, int backend)
{
  static int64_t      last   = 0;
  const GpufmtArrays *arrays = GpufmtArraysOf(A);

  if (!arrays) return 0;
  if (!arrays->held.number || arrays->held.backend != backend || arrays->held.state != A->nonzerostate) GpufmtPatternHold(A, backend, --last);
  return arrays->held.number;
}

/* the pattern of A as an operand of a request, until it is given back */
PetscErrorCode GpufmtOperandGet(Mat A, int backend, GpufmtOperand *operand)
{
  const PetscInt *rowptr, *colidx;

  PetscFunctionBegin;
  PetscCall(GpufmtPatternGet(A, &rowptr, &colidx));
  *operand = (GpufmtOperand){.nrows  = A->rmap->n,
                             .ncols  = A->cmap->n,
                             .nnz    = rowptr[A->rmap->n],
                             .rowptr = rowptr,
                             .colidx = colidx,
                             .held   = GpufmtPatternHeld(A, backend)};
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtOperandRestore(Mat A, const GpufmtOperand *operand)
{
  const PetscInt *rowptr = operand->rowptr, *colidx = operand->colidx;

  PetscFunctionBegin;
  PetscCall(GpufmtPatternRestore(A, &rowptr, &colidx));
  PetscFunctionReturn(PETSC_SUCCESS);
}
