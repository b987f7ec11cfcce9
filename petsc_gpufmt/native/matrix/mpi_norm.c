/* Norms of a parallel matrix, of what its blocks add up where they are. */
#include "matrix/matrix.h"
#include <petscsf.h>

/* of this rank */
typedef struct {
  Mat          blocks[2];
  PetscReal    number; /* the sum of all squares, or the largest sum of a row */
  PetscScalar *columns, *ghosts;
} Sums;

/* all that may fail on one rank alone; `ours` is false if PETSc is to find the norm */
static PetscErrorCode OwnSums(Mat A, NormType type, Sums *sums, PetscBool *ours)
{
  const GpufmtScaleAndAdd *plans[2];
  PetscReal                squares[2];

  PetscFunctionBegin;
  PetscCall(MatMPIAIJGetSeqAIJ(A, &sums->blocks[0], &sums->blocks[1], NULL));
  for (int k = 0; k < 2; k++) PetscCall(GpufmtNormPlan(sums->blocks[k], type, &plans[k]));
  *ours = (PetscBool)(plans[0] && plans[1]);
  if (!*ours) PetscFunctionReturn(PETSC_SUCCESS);
  if (type == NORM_FROBENIUS) {
    for (int k = 0; k < 2; k++) PetscCall(GpufmtNormSquares(sums->blocks[k], plans[k], &squares[k]));
    sums->number = squares[0] + squares[1];
  } else if (type == NORM_INFINITY) PetscCall(GpufmtNormLargest(2, sums->blocks, plans, A->rmap->n, &sums->number));
  else {
    PetscCall(PetscMalloc2(sums->blocks[0]->cmap->n, &sums->columns, sums->blocks[1]->cmap->n, &sums->ghosts));
    PetscCall(GpufmtNormColumnSums(sums->blocks[0], plans[0], sums->columns));
    PetscCall(GpufmtNormColumnSums(sums->blocks[1], plans[1], sums->ghosts));
    for (int k = 0; k < 2; k++) PetscCall(GpufmtNormDrop(sums->blocks[k], type));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the largest sum of an own column, with what other ranks have in it */
static PetscErrorCode LargestColumn(Mat A, Sums *sums)
{
  const PetscInt *ghosts;
  PetscSF         owners;

  PetscFunctionBegin;
  PetscCall(MatMPIAIJGetSeqAIJ(A, NULL, NULL, &ghosts));
  PetscCall(PetscSFCreate(PetscObjectComm((PetscObject)A), &owners));
  PetscCall(PetscSFSetGraphLayout(owners, A->cmap, sums->blocks[1]->cmap->n, NULL, PETSC_OWN_POINTER, ghosts));
  PetscCall(PetscSFReduceBegin(owners, MPIU_SCALAR, sums->ghosts, sums->columns, MPIU_SUM));
  PetscCall(PetscSFReduceEnd(owners, MPIU_SCALAR, sums->ghosts, sums->columns, MPIU_SUM));
  PetscCall(PetscSFDestroy(&owners));
  for (PetscInt k = 0; k < A->cmap->n; k++) sums->number = PetscMax(sums->number, PetscRealPart(sums->columns[k]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* PETSc's own norm. Sums of columns it adds to arrays of new vectors, which are full of zeros only where these are on the host. */
static PetscErrorCode ParentNorm(Mat A, const Mat blocks[2], NormType type, PetscReal *norm)
{
  const Mat      makers[] = {A, blocks[1]}; /* of such vectors */
  char          *types[2];
  VecType        vec_type;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  for (int k = 0; k < 2; k++) {
    PetscCall(MatGetVecType(makers[k], &vec_type));
    PetscCall(PetscStrallocpy(vec_type, &types[k]));
    PetscCall(MatSetVecType(makers[k], VECSTANDARD));
  }
  ierr = (*gpufmt_mpi_parent->norm)(A, type, norm);
  for (int k = 0; k < 2; k++) {
    PetscCall(MatSetVecType(makers[k], types[k]));
    PetscCall(PetscFree(types[k]));
  }
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatNorm_MPIAIJGpufmt(Mat A, NormType type, PetscReal *norm)
{
  Sums           sums = {0};
  PetscBool      ours = PETSC_FALSE;
  PetscErrorCode ierr;
  int            petscs;

  PetscFunctionBegin;
  ierr   = OwnSums(A, type, &sums, &ours);
  petscs = !ours;
  ierr   = GpufmtAgree((PetscObject)A, "MatNorm()", ierr, 1, &petscs);
  if (!ierr && !petscs && type == NORM_1) ierr = LargestColumn(A, &sums);
  PetscCall(PetscFree2(sums.columns, sums.ghosts));
  PetscCall(ierr);
  if (petscs) {
    PetscCall(ParentNorm(A, sums.blocks, type, norm));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCallMPI(MPIU_Allreduce(&sums.number, norm, 1, MPIU_REAL, type == NORM_FROBENIUS ? MPIU_SUM : MPIU_MAX, PetscObjectComm((PetscObject)A)));
  if (type == NORM_FROBENIUS) *norm = PetscSqrtReal(*norm);
  PetscFunctionReturn(PETSC_SUCCESS);
}
