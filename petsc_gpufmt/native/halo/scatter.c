/* Modes that exchange by PETSc's scatter. */
#include "halo/halo.h"

static PetscErrorCode Begin(GpufmtHalo halo, Vec x)
{
  PetscFunctionBegin;
  PetscCall(VecScatterBegin(halo->scatter, x, halo->ghost, INSERT_VALUES, SCATTER_FORWARD));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode End(GpufmtHalo halo, Vec x, Vec *ghost)
{
  PetscFunctionBegin;
  PetscCall(VecScatterEnd(halo->scatter, x, halo->ghost, INSERT_VALUES, SCATTER_FORWARD));
  *ghost = halo->ghost;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode BeginAndEnd(GpufmtHalo halo, Vec x)
{
  Vec ghost;

  PetscFunctionBegin;
  PetscCall(Begin(halo, x));
  PetscCall(End(halo, x, &ghost));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode HasEnded(GpufmtHalo halo, Vec x, Vec *ghost)
{
  PetscFunctionBegin;
  *ghost = halo->ghost;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* all is exchanged before the product */
const GpufmtHaloMode gpufmt_halo_vector = {.name = "vector", .begin = BeginAndEnd, .end = HasEnded};

/* the local part is computed while messages are under way, as far as MPI goes on by itself */
const GpufmtHaloMode gpufmt_halo_overlap = {.name = "overlap", .begin = Begin, .end = End};
