/* gpucg: KSPCG whose scalars stay where its vectors are. Iterations are queued some at a time, and more while what decided in them is on its way; this
   rank comes to the conclusions that KSPCG comes to, in its order. Plans stop changing anything where it may end. */
#include "ksp/ksp.h"

/* The private context of PETSc's KSPCG, from cgimpl.h of PETSc 3.24 to 3.26 */
typedef struct {
  KSPCGType    type;
  PetscScalar *e, *d; /* of the tridiagonal matrix that eigenvalues are estimated by */
  PetscReal   *ee, *dd;
  PetscReal    radius, obj, obj_min;
  PetscBool    singlereduction;
} CgContext;

typedef struct {
  KSP            ksp;
  GpufmtKsp     *own;
  CgContext     *cg;
  Mat            A;
  PetscBool      is_diagonal; /* the preconditioner */
  Vec            r, p, w, z, d;
  PetscMPIInt    nranks;
  GpufmtKspQueue queue;
  GpufmtCgState  state; /* as it was when it was last read */
  PetscInt       most;
  PetscScalar    a, b, dpi; /* as in KSPCG: alpha, beta, p.w of the last iteration */
  PetscReal      beta;      /* r.z */
} Cg;

/* on the backend */
static GpufmtCgState *StateOf(const Cg *s)
{
  return (GpufmtCgState *)s->own->plans.state;
}

/* ---- what is queued ---- */

/* sums of this rank, from `first` on, become those of all */
static PetscErrorCode SumOverRanks(Cg *s, int first, int n)
{
  PetscFunctionBegin;
  if (s->nranks > 1) PetscCall(GpufmtKspSum(s->ksp, s->own, n, StateOf(s)->sums + first));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* a step that sums over ranks by itself */
static PetscErrorCode StepOfRanks(Cg *s, int step, PetscInt n, const GpufmtKspVector vectors[])
{
  PetscFunctionBegin;
  PetscCall(GpufmtKspStepOfRanks(s->ksp, s->own, &s->own->plans.steps[step], &s->own->lease, n, vectors));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the sums over r and z, of all ranks */
static PetscErrorCode Dots(Cg *s, int step)
{
  const GpufmtKspVector vectors[] = {GpufmtReads(GPUFMT_SLOT_R, s->r), GpufmtReads(GPUFMT_SLOT_D, s->d), GpufmtReads(GPUFMT_SLOT_Z, s->z)};
  const PetscInt        n         = PETSC_STATIC_ARRAY_LENGTH(vectors);

  PetscFunctionBegin;
  if (s->z) PetscCall(GpufmtKspPCApply(s->ksp, s->own, s->r, s->z));
  if (step == GPUFMT_CG_DOTS_OF_RANKS) PetscCall(StepOfRanks(s, step, n, vectors));
  else {
    PetscCall(GpufmtKspStep(s->ksp, s->own, step, n, vectors));
    PetscCall(SumOverRanks(s, 2, 2));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* what follows the product of an iteration */
static PetscErrorCode Update(Cg *s)
{
  const GpufmtKspVector vectors[] = {GpufmtChanges(GPUFMT_SLOT_X, s->ksp->vec_sol), GpufmtChanges(GPUFMT_SLOT_R, s->r),
                                     GpufmtReads(GPUFMT_SLOT_P, s->p), GpufmtReads(GPUFMT_SLOT_W, s->w), GpufmtReads(GPUFMT_SLOT_D, s->d)};
  const PetscInt        n         = PETSC_STATIC_ARRAY_LENGTH(vectors);

  PetscFunctionBegin;
  if (s->nranks > 1 && GpufmtKspSumsAreLaunched(s->own)) {
    PetscCall(StepOfRanks(s, s->is_diagonal ? GPUFMT_CG_UPDATE_SUMS_OF_RANKS : GPUFMT_CG_UPDATE_OF_RANKS, n, vectors));
    if (!s->is_diagonal) PetscCall(Dots(s, GPUFMT_CG_DOTS_OF_RANKS));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(SumOverRanks(s, 0, 2));
  PetscCall(GpufmtKspStep(s->ksp, s->own, s->is_diagonal ? GPUFMT_CG_UPDATE_SUMS : GPUFMT_CG_UPDATE, n, vectors));
  if (s->is_diagonal) PetscCall(SumOverRanks(s, 2, 2));
  else PetscCall(Dots(s, GPUFMT_CG_DOTS));
  if (s->nranks > 1) PetscCall(GpufmtKspStep(s->ksp, s->own, GPUFMT_CG_END, 0, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* one iteration, or its record in a graph */
static PetscErrorCode Iterate(void *method)
{
  Cg *const             s           = (Cg *)method;
  const GpufmtKspVector direction[] = {GpufmtChanges(GPUFMT_SLOT_P, s->p), GpufmtReads(GPUFMT_SLOT_R, s->r), GpufmtReads(GPUFMT_SLOT_D, s->d),
                                       GpufmtReads(GPUFMT_SLOT_Z, s->z)};
  const GpufmtKspVector curvature[] = {GpufmtReads(GPUFMT_SLOT_P, s->p), GpufmtReads(GPUFMT_SLOT_W, s->w)};
  PetscBool             done;

  PetscFunctionBegin;
  PetscCall(GpufmtKspStep(s->ksp, s->own, GPUFMT_CG_DIRECTION, PETSC_STATIC_ARRAY_LENGTH(direction), direction));
  PetscCall(GpufmtKspMultDot(s->ksp, s->own, s->A, s->p, s->w, StateOf(s)->sums, &done));
  if (!done) PetscCall(GpufmtKspStep(s->ksp, s->own, GPUFMT_CG_CURVATURE, PETSC_STATIC_ARRAY_LENGTH(curvature), curvature));
  PetscCall(Update(s));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---- what KSPCG does with scalars ---- */

/* before the product of an iteration; a reason ends the solve */
static PetscErrorCode BeginIteration(Cg *s, PetscReal beta_before)
{
  KSP ksp = s->ksp;

  PetscFunctionBegin;
  ksp->its = s->queue.i + 1;
  if (s->beta == 0.0) {
    ksp->reason = KSP_CONVERGED_ATOL;
    PetscCall(PetscInfo(ksp, "converged due to beta = 0\n"));
  } else if (s->queue.i > 0 && s->beta * beta_before < 0.0) {
    PetscCheck(!ksp->errorifnotconverged, PetscObjectComm((PetscObject)ksp), PETSC_ERR_NOT_CONVERGED,
               "Diverged due to indefinite preconditioner, beta %g, betaold %g", (double)s->beta, (double)beta_before);
    ksp->reason = KSP_DIVERGED_INDEFINITE_PC;
    PetscCall(PetscInfo(ksp, "diverging due to indefinite preconditioner\n"));
  } else {
    s->b = s->queue.i ? s->beta / beta_before : 0.0;
    if (s->queue.i && ksp->calc_sings) {
      PetscCheck(ksp->max_it == s->most, PetscObjectComm((PetscObject)ksp), PETSC_ERR_SUP, "Can not change maxit AND calculate eigenvalues");
      s->cg->e[s->queue.i] = PetscSqrtReal(PetscAbsScalar(s->b)) / s->a;
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* after the product */
static PetscErrorCode TestCurvature(Cg *s, const GpufmtCgRecord *record)
{
  KSP               ksp    = s->ksp;
  const PetscScalar before = s->dpi;

  PetscFunctionBegin;
  s->dpi = (PetscScalar)record->curvature;
  KSPCheckDot(ksp, s->dpi);
  if (s->dpi == 0.0 || (s->queue.i > 0 && PetscSign(PetscRealPart(s->dpi)) * PetscSign(PetscRealPart(before)) < 0.0)) {
    if (ksp->converged_neg_curve) {
      PetscCall(PetscInfo(ksp, "converged due to negative curvature: %g\n", (double)PetscRealPart(s->dpi)));
      ksp->reason = KSP_CONVERGED_NEG_CURVE;
    } else {
      PetscCheck(!ksp->errorifnotconverged, PetscObjectComm((PetscObject)ksp), PETSC_ERR_NOT_CONVERGED,
                 "Diverged due to indefinite matrix, dpi %g, dpiold %g", (double)PetscRealPart(s->dpi), (double)PetscRealPart(before));
      ksp->reason = KSP_DIVERGED_INDEFINITE_MAT;
      PetscCall(PetscInfo(ksp, "diverging due to indefinite matrix\n"));
    }
  } else {
    s->a = s->beta / s->dpi;
    if (ksp->calc_sings) s->cg->d[s->queue.i] = PetscSqrtReal(PetscAbsScalar(s->b)) * s->cg->e[s->queue.i] + 1.0 / s->a;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* a norm as KSPCG finds it */
static PetscErrorCode TestNorm(Cg *s, PetscInt iteration, PetscReal norm, PetscReal beta)
{
  KSP ksp = s->ksp;

  PetscFunctionBegin;
  if (ksp->normtype == KSP_NORM_NATURAL) KSPCheckDot(ksp, beta);
  else if (ksp->normtype != KSP_NORM_NONE) KSPCheckNorm(ksp, norm);
  ksp->rnorm = norm;
  PetscCall(KSPLogResidualHistory(ksp, norm));
  PetscCall(KSPMonitor(ksp, iteration, norm));
  PetscCall((*ksp->converged)(ksp, iteration, norm, &ksp->reason, ksp->cnvP));
  if (!ksp->reason && ksp->normtype != KSP_NORM_NATURAL) KSPCheckDot(ksp, beta);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Solve(Cg *s)
{
  KSP       ksp         = s->ksp;
  PetscReal beta_before = 1.0;

  PetscFunctionBegin;
  do {
    const GpufmtCgRecord *record;

    PetscCall(BeginIteration(s, beta_before));
    if (ksp->reason) break;
    PetscCall(GpufmtKspFetch(&s->queue));
    PetscCall(GpufmtLogFlops(s->own->backend, 12.0 * s->own->nrows));
    record = &s->state.records[s->queue.i % GPUFMT_KRYLOV_RECORDS];
    PetscCall(TestCurvature(s, record));
    if (ksp->reason) break;
    s->cg->obj -= PetscRealPart(0.5 * s->a * s->beta);
    PetscCall(TestNorm(s, s->queue.i + 1, (PetscReal)record->norm, (PetscReal)record->rz));
    if (ksp->reason) break;
    beta_before = s->beta;
    s->beta     = (PetscReal)record->rz;
    s->queue.i++;
  } while (s->queue.i < ksp->max_it);
  if (s->queue.i >= ksp->max_it) ksp->reason = KSP_DIVERGED_ITS;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---- the beginning ---- */

/* r = b - A x */
static PetscErrorCode FirstResidual(Cg *s)
{
  KSP         ksp = s->ksp;
  PetscScalar rx = 0.0, bx = 0.0;

  PetscFunctionBegin;
  if (!ksp->guess_zero) {
    PetscCall(GpufmtKspMult(ksp, s->own, s->A, ksp->vec_sol, s->r));
    PetscCall(VecAYPX(s->r, -1.0, ksp->vec_rhs));
    PetscCall(VecDot(s->r, ksp->vec_sol, &rx));
    PetscCall(VecDot(ksp->vec_rhs, ksp->vec_sol, &bx));
  } else PetscCall(GpufmtKspCopy(s->own->backend, ksp->vec_rhs, s->r));
  s->cg->obj = 0.5 * PetscRealPart(rx) - 0.5 * PetscRealPart(bx);
  PetscCall(VecFlag(s->r, ksp->reason == KSP_DIVERGED_PC_FAILED)); /* on some ranks alone, it may be: the norm tells all */
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the state before the first iteration; nothing ends the iterations before the first norm is known */
static PetscErrorCode FirstNorm(Cg *s)
{
  KSP            ksp   = s->ksp;
  GpufmtCgState *state = StateOf(s), *head = &s->state;
  const size_t   bytes = offsetof(GpufmtCgState, records);
  PetscReal      norm  = 0.0;

  PetscFunctionBegin;
  *head = (GpufmtCgState){.limit = -1.0, .divergence = PETSC_INFINITY, .most = s->most, .norm = (int64_t)ksp->normtype, .alone = s->nranks == 1};
  PetscCall(GpufmtCopyToBackend(s->own->backend, state, head, bytes));
  PetscCall(Dots(s, GPUFMT_CG_FIRST_DOTS));
  PetscCall(GpufmtCopyToHost(s->own->backend, head, state, bytes));
  head->rz = head->sums[2];
  s->beta  = (PetscReal)head->rz;
  if (ksp->normtype == KSP_NORM_NATURAL) norm = PetscSqrtReal(PetscAbsReal(s->beta));
  else if (ksp->normtype != KSP_NORM_NONE) norm = (PetscReal)PetscSqrtReal(head->sums[3]);
  PetscCall(TestNorm(s, 0, norm, s->beta));
  if (ksp->reason) PetscFunctionReturn(PETSC_SUCCESS);
  if (ksp->normtype != KSP_NORM_NONE && ksp->converged == KSPConvergedDefault) {
    head->limit      = ksp->ttol;
    head->divergence = ksp->divtol * ksp->rnorm0;
  }
  PetscCall(GpufmtCopyToBackend(s->own->backend, state, head, bytes));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* why a solve is left to KSPCG; NULL: it is not */
PetscErrorCode GpufmtCgWhyNot(KSP ksp, int *backend, const char **why_not)
{
  const CgContext *cg        = (const CgContext *)ksp->data;
  const Vec        vectors[] = {ksp->vec_sol, ksp->vec_rhs, ksp->work[0], ksp->work[1], ksp->work[2]};
  PetscBool        usable;

  PetscFunctionBegin;
  PetscCall(GpufmtKspBackend(PETSC_STATIC_ARRAY_LENGTH(vectors), vectors, backend, &usable));
  if (cg->radius != 0.0) *why_not = "it is that of a trust region";
  else if (cg->obj_min < 0.0) *why_not = "an objective is to be reached";
  else if (cg->singlereduction) *why_not = "-ksp_cg_single_reduction is set";
  else if (ksp->chknorm > 0) *why_not = "norms are not checked in all iterations (-ksp_check_norm_iteration)";
  else if (ksp->transpose_solve) *why_not = "it is with the transposed matrix";
  else if (!usable) *why_not = GPUFMT_KSP_VECTORS_ELSEWHERE;
  else *why_not = NULL;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode KSPSolve_GPUCG(KSP ksp)
{
  Cg          s = {.ksp = ksp, .cg = (CgContext *)ksp->data, .r = ksp->work[0], .p = ksp->work[2], .w = ksp->work[1], .a = 1.0};
  int         backend;
  const char *why_not;

  PetscFunctionBegin;
  PetscCall(GpufmtKspGet(ksp, &s.own));
  PetscCall(GpufmtCgWhyNot(ksp, &backend, &why_not));
  if (why_not) {
    PetscCall(GpufmtKspLeave(ksp, s.own, why_not));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  ksp->its = 0;
  s.most   = PetscMax(1, ksp->max_it); /* KSPCG makes one where none is wanted */
  PetscCall(PCGetOperators(ksp->pc, &s.A, NULL));
  PetscCallMPI(MPI_Comm_size(PetscObjectComm((PetscObject)ksp), &s.nranks));
  PetscCall(GpufmtKspKeep(ksp, s.own, GpufmtKspDiagonal(ksp, &s.d, &s.is_diagonal)));
  PetscCall(GpufmtKspPlansGet(ksp, s.own, GPUFMT_KRYLOV_CG, backend));
  PetscCall(GpufmtKspStatesReserve(ksp, s.own, sizeof(s.state)));
  if (!s.is_diagonal) s.z = s.w; /* z has been used when w is written */
  PetscCall(PetscSNPrintf(s.own->last, sizeof(s.own->last), "scalars on the %s, %s", backend == GPUFMT_BACKEND_CUDA ? "device" : "host",
                          s.is_diagonal ? "the preconditioner in the update" : "with PCApply"));
  if (ksp->calc_sings) s.cg->e[0] = 0.0;
  PetscCall(GpufmtKspRecordReady(ksp, s.own, s.A, s.is_diagonal));
  s.queue = (GpufmtKspQueue){
    .ksp       = ksp,
    .own       = s.own,
    .iterate   = Iterate,
    .method    = &s,
    .A         = s.A,
    .nvectors  = 5,
    .vectors   = {GpufmtChanges(GPUFMT_SLOT_X, ksp->vec_sol), GpufmtChanges(GPUFMT_SLOT_R, s.r), GpufmtChanges(GPUFMT_SLOT_P, s.p),
                  GpufmtChanges(GPUFMT_SLOT_W, s.w), GpufmtReads(GPUFMT_SLOT_D, s.d)},
    .state     = &s.state,
    .iteration = &s.state.iteration,
    .stop      = &s.state.stop,
    .ahead     = 1,
  };
  PetscCall(FirstResidual(&s));
  PetscCall(FirstNorm(&s));
  if (!ksp->reason) PetscCall(Solve(&s));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode KSPSetFromOptions_GPUCG(KSP ksp, PetscOptionItems PetscOptionsObject)
{
  return GpufmtKspOptions(ksp, PetscOptionsObject, KSPGPUCG, PETSC_TRUE);
}

static PetscErrorCode (*cg_use_single_reduction)(KSP, PetscBool) = NULL;

/* KSPCG takes another solve then, or its first again: whatever it takes is what solves are left to. */
static PetscErrorCode KSPCGUseSingleReduction_Gpufmt(KSP ksp, PetscBool flg)
{
  PetscErrorCode (*solve)(KSP) = ksp->ops->solve;
  GpufmtKsp *own;

  PetscFunctionBegin;
  PetscCall(GpufmtKspGet(ksp, &own));
  PetscCall((*cg_use_single_reduction)(ksp, flg));
  own->parent.solve = ksp->ops->solve;
  ksp->ops->solve   = solve;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PETSC_EXTERN PetscErrorCode KSPCreate_CG(KSP);

/* a KSPCG with another solve */
PetscErrorCode GpufmtCgTake(KSP ksp, PetscErrorCode (*solve)(KSP), PetscErrorCode (*options)(KSP, PetscOptionItems))
{
  PetscFunctionBegin;
  PetscCall(KSPCreate_CG(ksp));
  PetscCall(GpufmtKspTake(ksp, solve, options));
  GpufmtComposeFunction(ksp, "KSPCGUseSingleReduction_C", PETSC_TRUE, KSPCGUseSingleReduction_Gpufmt, cg_use_single_reduction);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode KSPCreate_GPUCG(KSP ksp)
{
  return GpufmtCgTake(ksp, KSPSolve_GPUCG, KSPSetFromOptions_GPUCG);
}
