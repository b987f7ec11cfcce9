/* Smoothers of the levels, once PETSc has made them: what they are asked to do stays the same, how they do it becomes ours. */
#include "gamg/gamg.h"

static PetscErrorCode Take(KSP smoother, PetscBool fused)
{
  PC  pc;
  Mat A;

  PetscFunctionBegin;
  PetscCall(KSPGetPC(smoother, &pc));
  PetscCall(GpufmtKspJacobiTake(pc));
  PetscCall(KSPGetOperators(smoother, &A, NULL));
  if (fused && GpufmtFormatFind(((PetscObject)A)->type_name)) PetscCall(GpufmtKspChebyshevTake(smoother));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* KSPCHEBYSHEV keeps its type on each level: GAMG looks for it by name, to hand it the eigenvalues that the set-up has found. */
PetscErrorCode GpufmtGamgSmoothersTake(PC pc)
{
  static const char *const smoothers[] = {"petsc", "fused", "GpufmtGamgSmoother", "", NULL};
  const PC_MG             *mg          = (PC_MG *)pc->data;
  PetscEnum                smoother    = (PetscEnum)PETSC_TRUE;

  PetscFunctionBegin;
  PetscCall(PetscOptionsGetEnum(((PetscObject)pc)->options, ((PetscObject)pc)->prefix, "-pc_gamg_gpufmt_smoother", smoothers, &smoother, NULL));
  for (PetscInt k = mg->nlevels - 1; k > 0; k--) {
    PetscCall(Take(mg->levels[k]->smoothd, (PetscBool)smoother));
    if (mg->levels[k]->smoothu != mg->levels[k]->smoothd) PetscCall(Take(mg->levels[k]->smoothu, (PetscBool)smoother));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
