/* gpufgmres: KSPFGMRES whose Hessenberg matrix is where its vectors are. This rank comes to the conclusions that KSPFGMRES comes to, in its order. */
#include "ksp/ksp.h"

/* The preconditioner may be another in each iteration. */
static PetscErrorCode Product(GpufmtGmres *s, PetscInt iteration)
{
  const KSP            ksp = s->ksp;
  GpufmtFgmresContext *f   = s->flexible;
  Mat                  A;

  PetscFunctionBegin;
  PetscCall(GpufmtKspKeep(ksp, s->own, (*f->modifypc)(ksp, ksp->its, iteration, ksp->rnorm, f->modifyctx)));
  PetscCall(GpufmtKspPCApply(ksp, s->own, GpufmtGmresVector(s, iteration), f->prevecs[iteration]));
  PetscCall(PCGetOperators(ksp->pc, &A, NULL));
  PetscCall(GpufmtKspMult(ksp, s->own, A, f->prevecs[iteration], GpufmtGmresVector(s, iteration + 1)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The first vector of the basis */
static PetscErrorCode Residual(GpufmtGmres *s)
{
  const KSP ksp      = s->ksp;
  const Vec residual = GpufmtGmresVector(s, 0);
  Mat       A;

  PetscFunctionBegin;
  if (ksp->guess_zero && !ksp->its) PetscCall(GpufmtKspCopy(s->own->backend, ksp->vec_rhs, residual));
  else {
    PetscCall(PCGetOperators(ksp->pc, &A, NULL));
    PetscCall(GpufmtKspMult(ksp, s->own, A, ksp->vec_sol, s->gmres->vecs[0]));
    PetscCall(VecWAXPY(residual, -1.0, s->gmres->vecs[0], ksp->vec_rhs));
  }
  PetscCall(VecFlag(residual, s->own->failed || ksp->reason == KSP_DIVERGED_PC_FAILED)); /* on some ranks alone, it may be: the norm tells all */
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* a reason ends the solve */
static PetscErrorCode BeginCycle(GpufmtGmres *s)
{
  const KSP ksp = s->ksp;
  PetscReal norm;

  PetscFunctionBegin;
  s->gmres->it = -1;
  PetscCall(VecNorm(GpufmtGmresVector(s, 0), NORM_2, &norm));
  KSPCheckNorm(ksp, norm);
  s->gmres->rs_origin[0] = ksp->rnorm = norm;
  PetscCall(KSPLogResidualHistory(ksp, norm));
  PetscCall(KSPMonitor(ksp, ksp->its, norm));
  PetscCall((*ksp->converged)(ksp, ksp->its, norm, &ksp->reason, ksp->cnvP));
  if (!ksp->reason) PetscCall(GpufmtGmresBeginCycle(s, norm));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode TestNorm(GpufmtGmres *s, const GpufmtGmresColumn *column)
{
  const KSP ksp = s->ksp;

  PetscFunctionBegin;
  PetscCall((*ksp->converged)(ksp, ksp->its, ksp->rnorm, &ksp->reason, ksp->cnvP));
  if (column->happy && !ksp->reason) {
    PetscCheck(!ksp->errorifnotconverged, PetscObjectComm((PetscObject)ksp), PETSC_ERR_NOT_CONVERGED,
               "Reached happy break down, but convergence was not indicated. Residual norm = %g", (double)ksp->rnorm);
    ksp->reason = KSP_DIVERGED_BREAKDOWN;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The right-hand side becomes the weights of so many vectors with the preconditioner applied. */
static PetscErrorCode Solution(GpufmtGmres *s, PetscInt n)
{
  const GpufmtGmresContext *g = s->gmres;
  PetscScalar              *y = g->rs_origin;

  PetscFunctionBegin;
  for (PetscInt k = n - 1; k >= 0; k--) {
    const PetscScalar diagonal = g->hh_origin[k * (g->max_k + 2) + k];

    for (PetscInt j = k + 1; j < n; j++) y[k] -= g->hh_origin[j * (g->max_k + 2) + k] * y[j];
    if (k == n - 1 && diagonal == 0.0) y[k] = 0.0;
    else y[k] /= diagonal;
  }
  if (n) PetscCall(GpufmtGmresCombine(s, GPUFMT_GMRES_ADD, n, s->flexible->prevecs, s->ksp->vec_sol));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* from the residual to the next solution */
static PetscErrorCode Cycle(GpufmtGmres *s)
{
  const KSP           ksp = s->ksp;
  GpufmtGmresContext *g   = s->gmres;
  PetscInt            it  = 0;

  PetscFunctionBegin;
  PetscCall(BeginCycle(s));
  if (ksp->reason) PetscFunctionReturn(PETSC_SUCCESS);
  while (!ksp->reason && it < g->max_k && ksp->its < ksp->max_it) {
    const GpufmtGmresColumn *column;

    if (it) {
      PetscCall(KSPLogResidualHistory(ksp, ksp->rnorm));
      PetscCall(KSPMonitor(ksp, ksp->its, ksp->rnorm));
    }
    g->it = it - 1;
    PetscCall(GpufmtGmresIterate(s, it, &column));
    PetscCall(GpufmtGmresCheckDots(s, it));
    KSPCheckNorm(ksp, (PetscReal)column->norm);
    if (!column->happy && column->cosine == 0.0 && column->sine == 0.0) {
      ksp->reason = KSP_DIVERGED_NULL;
      break;
    }
    g->it = it++;
    ksp->its++;
    ksp->rnorm = (PetscReal)column->residual;
    PetscCall(TestNorm(s, column));
  }
  PetscCall(Solution(s, it));
  if (!ksp->reason && ksp->its >= ksp->max_it) ksp->reason = KSP_DIVERGED_ITS;
  if (it && ksp->reason) {
    PetscCall(KSPMonitor(ksp, ksp->its, ksp->rnorm));
    PetscCall(KSPLogResidualHistory(ksp, ksp->rnorm));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Solve(GpufmtGmres *s)
{
  const KSP ksp = s->ksp;

  PetscFunctionBegin;
  if (s->flexible->modifypc != GPUFMT_NO_CHANGE) s->own->watched = PETSC_TRUE; /* by who is told the norm in each iteration */
  do {
    PetscCall(Residual(s));
    PetscCall(Cycle(s));
  } while (!ksp->reason);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode KSPSolve_GPUFGMRES(KSP ksp)
{
  GpufmtFgmresContext *context = (GpufmtFgmresContext *)ksp->data;
  GpufmtGmres          s       = {.ksp = ksp, .gmres = &context->gmres, .solve = Solve, .product = Product, .flexible = context};

  PetscFunctionBegin;
  PetscCall(GpufmtGmresSolve(&s));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode KSPSetFromOptions_GPUFGMRES(KSP ksp, PetscOptionItems PetscOptionsObject)
{
  return GpufmtKspOptions(ksp, PetscOptionsObject, KSPGPUFGMRES, PETSC_FALSE);
}

PETSC_EXTERN PetscErrorCode KSPCreate_FGMRES(KSP);

PetscErrorCode KSPCreate_GPUFGMRES(KSP ksp)
{
  PetscFunctionBegin;
  PetscCall(KSPCreate_FGMRES(ksp));
  PetscCall(GpufmtKspTake(ksp, KSPSolve_GPUFGMRES, KSPSetFromOptions_GPUFGMRES));
  PetscFunctionReturn(PETSC_SUCCESS);
}
