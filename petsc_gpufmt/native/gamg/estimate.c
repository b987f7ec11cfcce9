/* The estimate of the largest eigenvalue of a level, as PCGAMGOptimizeProlongator_AGG() makes it: with a start vector that is made where the matrix
   is, and no vector that passes through the host. */
#include "gamg/gamg.h"

/* the solver with the user's options, as agg makes it; its type then decides whether the solve is ours */
static PetscErrorCode EstimatorPrepare(PC pc, Mat A, KSP ksp)
{
  const char *prefix;
  PetscBool   known, definite;
  PC          jacobi;

  PetscFunctionBegin;
  PetscCall(KSPSetNestLevel(ksp, pc->kspnestlevel));
  PetscCall(PCGetOptionsPrefix(pc, &prefix));
  PetscCall(KSPSetOptionsPrefix(ksp, prefix));
  PetscCall(KSPAppendOptionsPrefix(ksp, "pc_gamg_esteig_"));
  PetscCall(MatIsSPDKnown(A, &known, &definite));
  if (known && definite) PetscCall(KSPSetType(ksp, KSPCG));
  PetscCall(KSPSetErrorIfNotConverged(ksp, pc->erroriffailure));
  PetscCall(KSPSetNormType(ksp, KSP_NORM_NONE));
  PetscCall(KSPSetInitialGuessNonzero(ksp, PETSC_FALSE));
  PetscCall(KSPSetOperators(ksp, A, A));
  PetscCall(KSPGetPC(ksp, &jacobi));
  PetscCall(PCSetType(jacobi, PCJACOBI));
  PetscCall(KSPSetTolerances(ksp, PETSC_CURRENT, PETSC_CURRENT, PETSC_CURRENT, 10));
  PetscCall(KSPSetFromOptions(ksp));
  PetscCall(GpufmtKspJacobiTake(jacobi));
  PetscCall(GpufmtKspEstimatorTake(ksp, A));
  PetscCall(KSPSetComputeSingularValues(ksp, PETSC_TRUE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode EstimatorSolve(PC pc, GpufmtGamg *gamg, Mat A, KSP ksp, Vec start, Vec solution, PetscReal *emin, PetscReal *emax)
{
  PetscFunctionBegin;
  PetscCall(GpufmtGamgStartVector(gamg, GpufmtGamgOf(pc)->current_level, A, start));
  PetscCall(EstimatorPrepare(pc, A, ksp));
  PetscCall(KSPSolve(ksp, start, solution));
  PetscCall(KSPCheckSolve(ksp, pc, solution));
  PetscCall(KSPComputeExtremeSingularValues(ksp, emax, emin));
  PetscCall(PetscInfo(pc, "%s: Smooth P0: max eigen=%e min=%e PC=%s\n", ((PetscObject)pc)->prefix, (double)*emax, (double)*emin, PCJACOBI));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode EstimatorRun(PC pc, GpufmtGamg *gamg, Mat A, PetscReal *emin, PetscReal *emax)
{
  Vec            start = NULL, solution = NULL;
  KSP            ksp = NULL;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(MatCreateVecs(A, &start, NULL));
  PetscCall(MatCreateVecs(A, &solution, NULL));
  PetscCall(KSPCreate(PetscObjectComm((PetscObject)A), &ksp));
  ierr = EstimatorSolve(pc, gamg, A, ksp, start, solution, emin, emax);
  PetscCall(VecDestroy(&solution));
  PetscCall(VecDestroy(&start));
  PetscCall(KSPDestroy(&ksp));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Extreme eigenvalues of the current level, unless the user has given them, and what smoothers of it are to know of them. */
PetscErrorCode GpufmtGamgEstimate(PC pc, GpufmtGamg *gamg, Mat A, PetscReal *emin, PetscReal *emax)
{
  const PC_GAMG *g     = GpufmtGamgOf(pc);
  PC_MG         *mg    = (PC_MG *)pc->data;
  const PetscInt level = g->current_level;

  PetscFunctionBegin;
  *emin = g->emin;
  *emax = g->emax;
  if (g->emax <= 0) PetscCall(EstimatorRun(pc, gamg, A, emin, emax));
  mg->min_eigen_DinvA[level] = g->use_sa_esteig ? *emin : 0;
  mg->max_eigen_DinvA[level] = g->use_sa_esteig ? *emax : 0;
  if (g->use_sa_esteig)
    PetscCall(
      PetscInfo(pc, "%s: Smooth P0: level %" PetscInt_FMT ", cache spectra %g %g\n", ((PetscObject)pc)->prefix, level, (double)*emin, (double)*emax));
  PetscCheck(*emax != 0.0, PetscObjectComm((PetscObject)pc), PETSC_ERR_PLIB, "Computed maximum singular value as zero");
  PetscFunctionReturn(PETSC_SUCCESS);
}
