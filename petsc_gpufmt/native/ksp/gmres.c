/* gpugmres: KSPGMRES whose Hessenberg matrix is where its vectors are. This rank comes to the conclusions that KSPGMRES comes to, in its order. */
#include "ksp/ksp.h"

static PetscErrorCode Product(GpufmtGmres *s, PetscInt iteration)
{
  const Vec from = GpufmtGmresVector(s, iteration), to = GpufmtGmresVector(s, iteration + 1), between = s->gmres->vecs[1];

  PetscFunctionBegin;
  PetscCall(GpufmtGmresKeep(s, KSP_PCApplyBAorAB(s->ksp, from, to, between), from, between));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Report(KSP ksp, PetscReal norm)
{
  PetscFunctionBegin;
  PetscCall(KSPLogResidualHistory(ksp, norm));
  PetscCall(KSPLogErrorHistory(ksp));
  PetscCall(KSPMonitor(ksp, ksp->its, norm));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The residual is the first vector of the basis. A reason ends the solve. */
static PetscErrorCode BeginCycle(GpufmtGmres *s)
{
  const KSP           ksp = s->ksp;
  GpufmtGmresContext *g   = s->gmres;
  PetscReal           norm;

  PetscFunctionBegin;
  PetscCall(VecNorm(GpufmtGmresVector(s, 0), NORM_2, &norm));
  KSPCheckNorm(ksp, norm);
  if (ksp->rnorm > 0.0 && PetscAbsReal(norm - ksp->rnorm) > g->breakdowntol * g->rnorm0) {
    PetscCheck(!ksp->errorifnotconverged, PetscObjectComm((PetscObject)ksp), PETSC_ERR_CONV_FAILED,
               "Residual norm computed by GMRES recursion formula %g is far from the computed residual norm %g at restart, residual norm at start of "
               "cycle %g",
               (double)ksp->rnorm, (double)norm, (double)g->rnorm0);
    PetscCall(PetscInfo(ksp,
                        "Residual norm computed by GMRES recursion formula %g is far from the computed residual norm %g at restart, residual norm at "
                        "start of cycle %g\n",
                        (double)ksp->rnorm, (double)norm, (double)g->rnorm0));
    ksp->reason = KSP_DIVERGED_BREAKDOWN;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  g->rs_origin[0] = g->rnorm0 = ksp->rnorm = norm;
  g->it                                    = -1;
  PetscCall(Report(ksp, norm));
  if (norm == 0.0) {
    ksp->reason = KSP_CONVERGED_ATOL;
    PetscCall(PetscInfo(ksp, "Converged due to zero residual norm on entry\n"));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall((*ksp->converged)(ksp, ksp->its, norm, &ksp->reason, ksp->cnvP));
  if (!ksp->reason) PetscCall(GpufmtGmresBeginCycle(s, norm));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the residual after an iteration with numbers; `norm` stays where there is none */
static PetscErrorCode TestColumn(GpufmtGmres *s, const GpufmtGmresColumn *column, PetscReal *norm)
{
  const KSP ksp = s->ksp;

  PetscFunctionBegin;
  if (column->happy) {
    PetscCall(PetscInfo(ksp, "Detected happy breakdown, current hapbnd = %14.12e tt = %14.12e\n",
                        PetscMin(PetscAbs(column->norm / column->next), (double)s->gmres->haptol), column->norm));
  } else if (column->cosine == 0.0 && column->sine == 0.0) {
    PetscCheck(!ksp->errorifnotconverged, PetscObjectComm((PetscObject)ksp), PETSC_ERR_NOT_CONVERGED, "tt == 0.0");
    ksp->reason = KSP_DIVERGED_NULL;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  *norm = (PetscReal)column->residual;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode TestNorm(GpufmtGmres *s, const GpufmtGmresColumn *column)
{
  const KSP ksp = s->ksp;

  PetscFunctionBegin;
  PetscCall((*ksp->converged)(ksp, ksp->its, ksp->rnorm, &ksp->reason, ksp->cnvP));
  if (!column->happy) PetscFunctionReturn(PETSC_SUCCESS);
  if (ksp->normtype == KSP_NORM_NONE) ksp->reason = KSP_CONVERGED_HAPPY_BREAKDOWN; /* nothing has been tested */
  else if (!ksp->reason) {
    PetscCheck(!ksp->errorifnotconverged, PetscObjectComm((PetscObject)ksp), PETSC_ERR_NOT_CONVERGED,
               "Reached happy break down, but convergence was not indicated. Residual norm = %g", (double)ksp->rnorm);
    ksp->reason = KSP_DIVERGED_BREAKDOWN;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The right-hand side becomes the weights of so many vectors. It is a breakdown where the matrix is singular. */
static PetscErrorCode Weights(GpufmtGmres *s, PetscInt n, PetscBool *found)
{
  const KSP           ksp = s->ksp;
  GpufmtGmresContext *g   = s->gmres;
  PetscScalar        *y   = g->rs_origin;

  PetscFunctionBegin;
  *found = PETSC_FALSE;
  for (PetscInt k = n - 1; k >= 0; k--) {
    const PetscScalar diagonal = g->hh_origin[k * (g->max_k + 2) + k];

    if (diagonal == 0.0) {
      PetscCheck(!ksp->errorifnotconverged, PetscObjectComm((PetscObject)ksp), PETSC_ERR_NOT_CONVERGED,
                 "Likely your matrix or preconditioner is singular. HH(k,k) is identically zero; k = %" PetscInt_FMT, k);
      ksp->reason = KSP_DIVERGED_BREAKDOWN;
      PetscCall(PetscInfo(ksp, "Likely your matrix or preconditioner is singular. HH(k,k) is identically zero; k = %" PetscInt_FMT "\n", k));
      PetscFunctionReturn(PETSC_SUCCESS);
    }
    for (PetscInt j = k + 1; j < n; j++) y[k] -= g->hh_origin[j * (g->max_k + 2) + k] * y[j];
    y[k] /= diagonal;
  }
  *found = (PetscBool)(n > 0);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Solution(GpufmtGmres *s, PetscInt n)
{
  const Vec *vecs = s->gmres->vecs;
  PetscBool  found;

  PetscFunctionBegin;
  PetscCall(Weights(s, n, &found));
  if (!found) PetscFunctionReturn(PETSC_SUCCESS);
  if (s->ksp->pc_side == PC_LEFT) PetscCall(GpufmtGmresCombine(s, GPUFMT_GMRES_ADD, n, vecs + GPUFMT_GMRES_BASIS, s->ksp->vec_sol));
  else {
    PetscCall(GpufmtGmresCombine(s, GPUFMT_GMRES_SET, n, vecs + GPUFMT_GMRES_BASIS, vecs[0]));
    PetscCall(GpufmtGmresKeep(s, KSPUnwindPreconditioner(s->ksp, vecs[0], vecs[1]), vecs[0], vecs[1]));
    PetscCall(VecAXPY(s->ksp->vec_sol, 1.0, vecs[0]));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Residual(GpufmtGmres *s)
{
  const KSP ksp = s->ksp;
  const Vec x = ksp->vec_sol, residual = GpufmtGmresVector(s, 0);
  Vec      *vecs = s->gmres->vecs;

  PetscFunctionBegin;
  PetscCall(GpufmtGmresKeep(s, KSPInitialResidual(ksp, x, vecs[0], vecs[1], residual, ksp->vec_rhs), x, vecs[1]));
  PetscCall(VecFlag(residual, s->own->failed != PETSC_SUCCESS)); /* the norm tells all */
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* from the residual to the next solution */
static PetscErrorCode Cycle(GpufmtGmres *s, PetscInt *count)
{
  const KSP           ksp  = s->ksp;
  GpufmtGmresContext *g    = s->gmres;
  PetscReal           norm = 0.0;
  PetscInt            it   = 0;

  PetscFunctionBegin;
  *count = 0;
  PetscCall(BeginCycle(s));
  if (ksp->reason) PetscFunctionReturn(PETSC_SUCCESS);
  norm = ksp->rnorm;
  while (!ksp->reason && it < g->max_k && ksp->its < ksp->max_it) {
    const GpufmtGmresColumn *column;

    if (it) PetscCall(Report(ksp, norm));
    g->it = it - 1;
    PetscCall(GpufmtGmresIterate(s, it, &column));
    PetscCall(GpufmtGmresCheckDots(s, it));
    if (ksp->reason) break;
    KSPCheckNorm(ksp, (PetscReal)column->norm);
    PetscCall(TestColumn(s, column, &norm));
    g->it = it++;
    ksp->its++;
    ksp->rnorm = norm;
    if (!ksp->reason) PetscCall(TestNorm(s, column));
  }
  *count = it;
  PetscCall(Solution(s, it));
  if (!ksp->reason && ksp->its >= ksp->max_it) ksp->reason = KSP_DIVERGED_ITS;
  if (it && ksp->reason) PetscCall(Report(ksp, norm));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Solve(GpufmtGmres *s)
{
  const KSP           ksp        = s->ksp;
  GpufmtGmresContext *g          = s->gmres;
  const PetscBool     guess_zero = ksp->guess_zero;
  PetscInt            n, total = 0;

  PetscFunctionBegin;
  PetscCheck(!ksp->calc_sings || g->Rsvd, PetscObjectComm((PetscObject)ksp), PETSC_ERR_ORDER,
             "Must call KSPSetComputeSingularValues() before KSPSetUp() is called");
  g->fullcycle = 0;
  ksp->rnorm   = -1.0; /* of no cycle */
  while (!ksp->reason || (ksp->rnorm == -1.0 && ksp->reason == KSP_DIVERGED_PC_FAILED)) {
    PetscCall(Residual(s));
    PetscCall(Cycle(s, &n));
    g->fullcycle += n == g->max_k;
    total += n;
    if (total >= ksp->max_it) {
      if (!ksp->reason) ksp->reason = KSP_DIVERGED_ITS;
      break;
    }
    ksp->guess_zero = PETSC_FALSE; /* of cycles that follow */
  }
  ksp->guess_zero = guess_zero;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode KSPSolve_GPUGMRES(KSP ksp)
{
  GpufmtGmres s = {.ksp = ksp, .gmres = (GpufmtGmresContext *)ksp->data, .solve = Solve, .product = Product};

  PetscFunctionBegin;
  PetscCall(GpufmtGmresSolve(&s));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode KSPSetFromOptions_GPUGMRES(KSP ksp, PetscOptionItems PetscOptionsObject)
{
  return GpufmtKspOptions(ksp, PetscOptionsObject, KSPGPUGMRES, PETSC_FALSE);
}

PETSC_EXTERN PetscErrorCode KSPCreate_GMRES(KSP);

PetscErrorCode KSPCreate_GPUGMRES(KSP ksp)
{
  PetscFunctionBegin;
  PetscCall(KSPCreate_GMRES(ksp));
  PetscCall(GpufmtKspTake(ksp, KSPSolve_GPUGMRES, KSPSetFromOptions_GPUGMRES));
  PetscFunctionReturn(PETSC_SUCCESS);
}
