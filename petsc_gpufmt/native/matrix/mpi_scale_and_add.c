/* Shifts of a parallel matrix, and adding to it a multiple of another that has its nonzeros, or some of them: the blocks are added, where they are. PETSc's
   function does so for patterns that it is told to be the same, and inserts row after row on the host else. */
#include "matrix/matrix.h"

/* the number in Y's off-diagonal block of each column of X's, -1: none; both are numbered in the order of the parallel matrix */
static PetscErrorCode GhostColumns(PetscInt ny, const PetscInt y[], PetscInt nx, const PetscInt x[], PetscInt **out)
{
  PetscInt *columns;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1(nx, &columns));
  for (PetscInt i = 0, j = 0; i < nx; i++) {
    while (j < ny && y[j] < x[i]) j++;
    columns[i] = j < ny && y[j] == x[i] ? j : -1;
  }
  *out = columns;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode BlockPlans(Mat Y, Mat X, Mat y[2], Mat x[2], const GpufmtScaleAndAdd *scale_and_add[2])
{
  const PetscInt *y_ghosts, *x_ghosts;
  PetscInt       *columns = NULL;

  PetscFunctionBegin;
  PetscCall(MatMPIAIJGetSeqAIJ(Y, &y[0], &y[1], &y_ghosts));
  PetscCall(MatMPIAIJGetSeqAIJ(X, &x[0], &x[1], &x_ghosts));
  PetscCall(GpufmtAddPlan(y[0], x[0], SUBSET_NONZERO_PATTERN, NULL, &scale_and_add[0]));
  if (!scale_and_add[0]) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GhostColumns(y[1]->cmap->n, y_ghosts, x[1]->cmap->n, x_ghosts, &columns));
  PetscCall(GpufmtAddPlan(y[1], x[1], SUBSET_NONZERO_PATTERN, columns, &scale_and_add[1]));
  PetscCall(PetscFree(columns));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* nothing is added unless all ranks can, as PETSc's function, which then does it, is collective */
static PetscErrorCode AddSubset(Mat Y, PetscScalar a, Mat X, PetscBool *added)
{
  const GpufmtScaleAndAdd *scale_and_add[2] = {NULL, NULL};
  Mat                      y[2], x[2];
  PetscErrorCode           ierr;
  int                      petscs; /* PETSc has to add */

  PetscFunctionBegin;
  ierr   = BlockPlans(Y, X, y, x, scale_and_add);
  petscs = !scale_and_add[0] || !scale_and_add[1];
  PetscCall(GpufmtAgree((PetscObject)Y, "MatAXPY()", ierr, 1, &petscs));
  *added = (PetscBool)!petscs;
  if (!*added) PetscFunctionReturn(PETSC_SUCCESS);
  for (int k = 0; k < 2; k++) PetscCall(GpufmtAddRun(y[k], a, x[k], SUBSET_NONZERO_PATTERN, scale_and_add[k]));
  PetscCall(PetscObjectStateIncrease((PetscObject)Y));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* whether two sequential matrices of the same size have the same pattern */
static PetscErrorCode SameLocally(Mat y, Mat x, PetscBool *same)
{
  const PetscInt *y_rows, *y_columns, *x_rows, *x_columns;

  PetscFunctionBegin;
  PetscCall(GpufmtPatternGet(y, &y_rows, &y_columns));
  PetscCall(GpufmtPatternGet(x, &x_rows, &x_columns));
  PetscCall(PetscArraycmp(y_rows, x_rows, y->rmap->n + 1, same));
  if (*same) PetscCall(PetscArraycmp(y_columns, x_columns, y_rows[y->rmap->n], same));
  PetscCall(GpufmtPatternRestore(x, &x_rows, &x_columns));
  PetscCall(GpufmtPatternRestore(y, &y_rows, &y_columns));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode SameEverywhere(Mat Y, Mat X, PetscBool *out)
{
  const PetscInt *y_ghosts, *x_ghosts;
  Mat             y[2], x[2];
  PetscBool       same;
  int             all;

  PetscFunctionBegin;
  PetscCall(MatMPIAIJGetSeqAIJ(Y, &y[0], &y[1], &y_ghosts));
  PetscCall(MatMPIAIJGetSeqAIJ(X, &x[0], &x[1], &x_ghosts));
  same = (PetscBool)(y[1]->cmap->n == x[1]->cmap->n);
  if (same) PetscCall(PetscArraycmp(y_ghosts, x_ghosts, y[1]->cmap->n, &same));
  for (int k = 0; k < 2 && same; k++) PetscCall(SameLocally(y[k], x[k], &same));
  all = same;
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, PetscObjectComm((PetscObject)Y)));
  *out = (PetscBool)all;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatAXPY_MPIAIJGpufmt(Mat Y, PetscScalar a, Mat X, MatStructure structure)
{
  PetscBool added = PETSC_FALSE, same = PETSC_FALSE;

  PetscFunctionBegin;
  if (structure == SUBSET_NONZERO_PATTERN) PetscCall(AddSubset(Y, a, X, &added));
  if (added) PetscFunctionReturn(PETSC_SUCCESS);
  if (structure == DIFFERENT_NONZERO_PATTERN || structure == UNKNOWN_NONZERO_PATTERN) PetscCall(SameEverywhere(Y, X, &same));
  if (same) structure = SAME_NONZERO_PATTERN;
  PetscCall((*gpufmt_mpi_parent->axpy)(Y, a, X, structure));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* MatShift() in the diagonal blocks, if all ranks can; PETSc's inserts row after row. Collective. */
PetscErrorCode GpufmtParallelShift(Mat A, PetscScalar shift, PetscBool *done)
{
  const GpufmtScaleAndAdd *plan = NULL;
  PetscBool                congruent;
  PetscErrorCode           ierr;
  int                      petscs; /* PETSc has to shift */
  Mat                      diag;

  PetscFunctionBegin;
  *done = PETSC_FALSE;
  PetscCall(MatHasCongruentLayouts(A, &congruent));
  if (!congruent) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(MatMPIAIJGetSeqAIJ(A, &diag, NULL, NULL));
  ierr   = GpufmtDiagonalPlan(diag, &plan);
  petscs = !plan;
  PetscCall(GpufmtAgree((PetscObject)A, "MatShift()", ierr, 1, &petscs));
  if (petscs) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtDiagonalShift(diag, shift, plan));
  *done = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}
