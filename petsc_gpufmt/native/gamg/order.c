/* The order in which PETSc's agg visits the rows of a graph if those with few entries are to come first. Else the planner knows it:
   petsc_gpufmt/coarsening/shuffle.py. */
#include "gamg/gamg.h"

static PetscErrorCode Shuffle(PetscInt n, PetscInt order[], PetscBool moved[])
{
  PetscRandom random;
  PetscReal   r;

  PetscFunctionBegin;
  PetscCall(PetscRandomCreate(PETSC_COMM_SELF, &random));
  for (PetscInt i = 0; i < n; i++) order[i] = i;
  for (PetscInt i = 0; i < n; i++) {
    PetscInt k;

    PetscCall(PetscRandomGetValueReal(random, &r));
    k = (PetscInt)(r * n) % n;
    if (!moved[k] && k != i) { /* a row is drawn for one exchange only */
      const PetscInt row = order[k];

      order[k] = order[i];
      order[i] = row;
      moved[k] = PETSC_TRUE;
    }
  }
  PetscCall(PetscRandomDestroy(&random));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* by the lengths of rows; which of equal ones comes first depends on their shuffle, and on PETSc's algorithm that sorts them */
PetscErrorCode GpufmtGamgOrderByDegrees(PetscInt n, const PetscInt rowptr[], PetscInt order[])
{
  PetscInt      *degrees;
  PetscBool     *moved;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(PetscCalloc1(n, &moved));
  ierr = Shuffle(n, order, moved);
  PetscCall(PetscFree(moved));
  PetscCall(ierr);
  PetscCall(PetscMalloc1(n, &degrees));
  for (PetscInt i = 0; i < n; i++) degrees[i] = rowptr[order[i] + 1] - rowptr[order[i]];
  ierr = PetscSortIntWithArray(n, degrees, order);
  PetscCall(PetscFree(degrees));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}
