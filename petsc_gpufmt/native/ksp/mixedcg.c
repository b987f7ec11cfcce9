/* mixedcg: KSPCG in single precision, with a copy of the matrix, corrected in double precision. Inner conjugate gradients reduce a residual somewhat; what
   they have found is added to the solution, and the residual is made anew in double precision, by which alone it is decided whether the solve has
   converged. Where single precision will not do, PETSc's method goes on from there. */
#include "ksp/ksp.h"

static const char *const outer_methods[] = {"replacement", "refinement", "flexible"};
enum { REPLACEMENT, REFINEMENT, FLEXIBLE, NUM_OUTER_METHODS };
enum { MOST_STALLS = 3 };

/* ---- corrections ---- */

/* why what inner iterations have found is of no use; NULL: it is, and *s->keep says whether they could have gone on */
static const char *WhyNoCorrection(GpufmtMixed *s)
{
  const GpufmtCgState  *inner       = &s->inner;
  const PetscBool       curvature   = (PetscBool)(inner->stop == GPUFMT_STOP_CURVATURE);
  const GpufmtCgRecord *stopped     = &inner->records[inner->iteration % GPUFMT_KRYLOV_RECORDS];
  const GpufmtCgRecord *last        = GpufmtMixedLast(s);
  const PetscBool       is_anything = (PetscBool)(inner->iteration > s->base);
  PetscBool             is_number   = PETSC_TRUE; /* of all ranks: one that has failed takes part in the correction, whose norm is none */

  if (curvature) is_number = (PetscBool)(is_number && isfinite(stopped->curvature));
  if (is_anything) is_number = (PetscBool)(is_number && isfinite(last->norm) && isfinite(last->rz));
  if (!is_number) return "it is no number";
  if (!is_anything) return "there was no step";
  s->keep = (PetscBool)(s->own->inner.outer == REPLACEMENT && !curvature && (inner->stop == GPUFMT_STOP_COUNT || last->norm <= inner->limit));
  return NULL;
}

static PetscErrorCode OuterPut(GpufmtMixed *s)
{
  PetscFunctionBegin;
  PetscCall(GpufmtCopyToBackend(s->own->backend, s->own->plans.state, &s->outer, sizeof(s->outer)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the inner right-hand side from b - w, and the sums */
static PetscErrorCode Residual(GpufmtMixed *s, Vec b, Vec w)
{
  GpufmtMixedState     *state     = (GpufmtMixedState *)s->own->plans.state;
  const GpufmtKspVector vectors[] = {GpufmtReads(GPUFMT_SLOT_Z, b), GpufmtReads(GPUFMT_SLOT_W, w), GpufmtReads(GPUFMT_SLOT_D, s->d),
                                     GpufmtReads(GPUFMT_SLOT_Y, s->scaling)};

  PetscFunctionBegin;
  PetscCall(GpufmtKspStep(s->ksp, s->own, GPUFMT_MIXED_RESIDUAL, PETSC_STATIC_ARRAY_LENGTH(vectors), vectors));
  PetscCall(GpufmtMixedSum(s, GPUFMT_MIXED_SUMS, state->sums));
  PetscCall(GpufmtCopyToHost(s->own->backend, &s->outer, state, sizeof(s->outer)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The inner right-hand side is to be about 1, in the norm that products of single precision are made of. It is that of the residual before: what is
   narrowed is read once. */
static PetscErrorCode NewFactor(GpufmtMixed *s)
{
  const double before = s->outer.factor;

  PetscFunctionBegin;
  s->outer.factor = 1.0 / PetscSqrtReal(PetscAbsReal((PetscReal)s->outer.sums[1]));
  s->scale        = (PetscReal)(s->outer.factor / before);
  PetscCall(OuterPut(s));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* `vec` changes by what inner iterations have found, or becomes it */
static PetscErrorCode Widen(GpufmtMixed *s, int step, Vec vec)
{
  const GpufmtKspVector vectors[] = {step == GPUFMT_MIXED_WIDEN ? GpufmtWrites(GPUFMT_SLOT_X, vec) : GpufmtChanges(GPUFMT_SLOT_X, vec),
                                     GpufmtReads(GPUFMT_SLOT_Y, s->scaling)};

  PetscFunctionBegin;
  PetscCall(GpufmtKspStep(s->ksp, s->own, step, PETSC_STATIC_ARRAY_LENGTH(vectors), vectors));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What inner iterations have found is a preconditioned residual z: a step along p = z - (z.A p / p.A p) p, with p of the correction before. */
static PetscErrorCode FlexibleStep(GpufmtMixed *s)
{
  PetscScalar zw, pr;

  PetscFunctionBegin;
  PetscCall(Widen(s, GPUFMT_MIXED_WIDEN, s->z));
  if (s->curvature != 0.0) {
    PetscCall(VecDot(s->z, s->w, &zw));
    PetscCall(VecAYPX(s->p, -zw / s->curvature, s->z));
  } else PetscCall(VecCopy(s->z, s->p));
  PetscCall(GpufmtKspMult(s->ksp, s->own, s->A, s->p, s->w));
  PetscCall(VecDot(s->p, s->w, &s->curvature));
  PetscCall(VecDot(s->p, s->r, &pr));
  if (s->curvature == 0.0) PetscFunctionReturn(PETSC_SUCCESS); /* the residual does not fall then, which is noticed */
  PetscCall(VecAXPY(s->ksp->vec_sol, pr / s->curvature, s->p));
  PetscCall(VecAXPY(s->r, -pr / s->curvature, s->w));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Correct(GpufmtMixed *s)
{
  Vec x = s->ksp->vec_sol;

  PetscFunctionBegin;
  s->ncorrections++;
  if (s->norm <= s->best_norm) {
    s->best_norm = s->norm;
    PetscCall(VecCopy(x, s->best));
  }
  if (s->r) PetscCall(FlexibleStep(s));
  else {
    PetscCall(Widen(s, GPUFMT_MIXED_CORRECT, x));
    PetscCall(GpufmtKspMult(s->ksp, s->own, s->A, x, s->w));
  }
  PetscCall(NewFactor(s));
  PetscCall(s->r ? Residual(s, s->r, NULL) : Residual(s, s->ksp->vec_rhs, s->w));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the residual of the guess, with the factor that it asks for */
static PetscErrorCode FirstResidual(GpufmtMixed *s)
{
  const KSP             ksp      = s->ksp;
  const GpufmtKspVector narrow[] = {GpufmtReads(GPUFMT_SLOT_D, s->d), GpufmtReads(GPUFMT_SLOT_Y, s->scaling)};
  Vec                   w        = ksp->guess_zero ? NULL : s->w;

  PetscFunctionBegin;
  s->outer = (GpufmtMixedState){.factor = 1.0, .norm = ksp->normtype == KSP_NORM_NONE ? GPUFMT_NORM_NATURAL : (int64_t)ksp->normtype};
  PetscCall(OuterPut(s));
  PetscCall(Widen(s, GPUFMT_MIXED_WIDEN, s->w)); /* what a solve that has failed may have left goes */
  if (s->d) PetscCall(GpufmtKspStep(ksp, s->own, GPUFMT_MIXED_NARROW, PETSC_STATIC_ARRAY_LENGTH(narrow), narrow));
  if (w) PetscCall(GpufmtKspMult(ksp, s->own, s->A, ksp->vec_sol, w));
  if (s->r && w) PetscCall(VecWAXPY(s->r, -1.0, w, ksp->vec_rhs));
  else if (s->r) PetscCall(GpufmtKspCopy(s->own->backend, ksp->vec_rhs, s->r));
  PetscCall(Residual(s, ksp->vec_rhs, w));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---- conclusions ---- */

static PetscReal OuterNorm(const GpufmtMixed *s)
{
  return PetscSqrtReal(PetscAbsReal((PetscReal)s->outer.sums[0]));
}

/* Whether corrections are of no use: the residual has become much larger, or larger when inner iterations knew nothing of it; or again and again it is not
   much smaller, where their number is not fixed. Then the best solution comes back. A direction goes on only from where it thinks that it is. */
static PetscErrorCode TestCorrection(GpufmtMixed *s, const char **why_not)
{
  const PetscReal norm = OuterNorm(s), expected = 2.0 * s->norm * (PetscReal)GpufmtMixedLast(s)->norm / s->inner_norm;
  const PetscBool known = (PetscBool)(norm <= expected), fell = (PetscBool)(norm <= 0.5 * s->norm || (s->own->inner.most && known));

  PetscFunctionBegin;
  s->keep   = (PetscBool)(s->keep && known);
  s->stalls = fell ? 0 : s->stalls + 1;
  if (s->stalls < MOST_STALLS && norm <= 10.0 * s->best_norm && (known || norm <= s->norm)) PetscFunctionReturn(PETSC_SUCCESS);
  *why_not = "the residual did not fall";
  if (!(norm <= s->best_norm)) PetscCall(VecCopy(s->best, s->ksp->vec_sol));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode TestNorm(GpufmtMixed *s)
{
  KSP             ksp  = s->ksp;
  const PetscReal norm = OuterNorm(s);

  PetscFunctionBegin;
  KSPCheckNorm(ksp, norm);
  s->norm    = norm;
  ksp->rnorm = ksp->normtype == KSP_NORM_NONE ? 0.0 : norm;
  PetscCall(KSPLogResidualHistory(ksp, ksp->rnorm));
  PetscCall(KSPMonitor(ksp, ksp->its, ksp->rnorm));
  PetscCall((*ksp->converged)(ksp, ksp->its, ksp->rnorm, &ksp->reason, ksp->cnvP));
  if (!ksp->reason && norm == 0.0) {
    ksp->reason = KSP_CONVERGED_ATOL;
    PetscCall(PetscInfo(ksp, "converged due to beta = 0\n"));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* for -ksp_view */
static PetscErrorCode Describe(GpufmtMixed *s)
{
  PetscFunctionBegin;
  PetscCall(PetscSNPrintf(s->own->last, sizeof(s->own->last), "single precision on the %s, %" PetscInt_FMT " corrections by %s",
                          s->own->backend == GPUFMT_BACKEND_CUDA ? "device" : "host", s->ncorrections, outer_methods[s->own->inner.outer]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Solve(GpufmtMixed *s)
{
  KSP         ksp     = s->ksp;
  const char *why_not = NULL;

  PetscFunctionBegin;
  PetscCall(GpufmtMixedLoopGet(s));
  while (!ksp->reason && !why_not) {
    PetscCall(GpufmtMixedBegin(s));
    PetscCall(GpufmtMixedRun(s));
    why_not = WhyNoCorrection(s);
    if (why_not) {
      if (ksp->its >= s->most) ksp->reason = KSP_DIVERGED_ITS;
      break;
    }
    PetscCall(Correct(s));
    PetscCall(TestCorrection(s, &why_not));
    if (!why_not) PetscCall(TestNorm(s));
    if (!ksp->reason && ksp->its >= s->most) ksp->reason = KSP_DIVERGED_ITS;
  }
  PetscCall(Describe(s));
  if (!ksp->reason) PetscCall(GpufmtKspGoOn(ksp, s->own, why_not));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---- the beginning ---- */

/* why a solve is left to KSPCG, on all ranks; NULL: it is not. Collective. */
static PetscErrorCode WhyNot(GpufmtMixed *s, int *backend, const char **why_not)
{
  PetscErrorCode ierr;
  PetscBool      is_diagonal = PETSC_TRUE;
  int            flag;

  PetscFunctionBegin;
  PetscCall(GpufmtCgWhyNot(s->ksp, backend, why_not));
  if (*why_not) PetscFunctionReturn(PETSC_SUCCESS);
  if (sizeof(PetscScalar) == sizeof(float)) *why_not = "this PETSc has single precision itself";
  else if (s->ksp->calc_sings) *why_not = "eigenvalues or singular values are to be estimated";
  else if (!GpufmtFormatFind(((PetscObject)s->A)->type_name)) *why_not = "the matrix is of a type that has no copy in single precision";
  if (*why_not) PetscFunctionReturn(PETSC_SUCCESS);
  ierr = GpufmtKspDiagonal(s->ksp, &s->d, &is_diagonal);
  flag = !is_diagonal;
  PetscCall(GpufmtAgree((PetscObject)s->ksp, "A look at a preconditioner", ierr, 1, &flag));
  if (flag) *why_not = "the preconditioner is neither none nor jacobi, or the matrix has a null space";
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode KSPSolve_MIXEDCG(KSP ksp)
{
  GpufmtMixed s = {.ksp = ksp, .most = PetscMax(1, ksp->max_it), .best_norm = PETSC_INFINITY}; /* KSPCG makes one iteration where none is wanted */
  int         backend;
  const char *why_not;

  PetscFunctionBegin;
  PetscCall(GpufmtKspGet(ksp, &s.own));
  PetscCall(PCGetOperators(ksp->pc, &s.A, NULL));
  if (s.own->inner.outer == FLEXIBLE) PetscCall(KSPSetWorkVecs(ksp, 5));
  PetscCall(WhyNot(&s, &backend, &why_not));
  if (why_not) {
    PetscCall(GpufmtKspLeave(ksp, s.own, why_not));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  ksp->its = 0;
  PetscCallMPI(MPI_Comm_size(PetscObjectComm((PetscObject)ksp), &s.nranks));
  PetscCall(GpufmtKspPlansGet(ksp, s.own, GPUFMT_KRYLOV_MIXED, backend));
  PetscCall(GpufmtKspStatesReserve(ksp, s.own, sizeof(s.inner)));
  PetscCall(GpufmtMixedPlansGet(&s));
  PetscCall(GpufmtLowUpdate(s.A, backend, &s.scaling));
  if (s.scaling) { /* of the type that the matrix has for its vectors */
    const Vec vectors[] = {s.scaling, ksp->work[0]};
    PetscBool usable;

    PetscCall(GpufmtKspBackend(PETSC_STATIC_ARRAY_LENGTH(vectors), vectors, &backend, &usable));
    if (!usable) {
      PetscCall(GpufmtKspLeave(ksp, s.own, "the scaling of the copy in single precision lies elsewhere than the vectors"));
      PetscFunctionReturn(PETSC_SUCCESS);
    }
  }
  s.w    = ksp->work[1];
  s.best = ksp->work[0];
  if (s.own->inner.outer == FLEXIBLE) {
    s.r    = ksp->work[0];
    s.p    = ksp->work[2];
    s.z    = ksp->work[3];
    s.best = ksp->work[4];
  }
  PetscCall(FirstResidual(&s));
  PetscCall(TestNorm(&s));
  PetscCall(Describe(&s));
  if (ksp->reason) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(NewFactor(&s));
  PetscCall(Residual(&s, s.r ? s.r : ksp->vec_rhs, s.r || ksp->guess_zero ? NULL : s.w));
  PetscCall(Solve(&s));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode KSPSetFromOptions_MIXEDCG(KSP ksp, PetscOptionItems PetscOptionsObject)
{
  GpufmtKsp *own;

  PetscFunctionBegin;
  PetscCall(GpufmtKspGet(ksp, &own));
  PetscCall(GpufmtKspOptions(ksp, PetscOptionsObject, KSPMIXEDCG, PETSC_TRUE));
  PetscOptionsHeadBegin(PetscOptionsObject, "Options of conjugate gradients in mixed precision");
  PetscCall(PetscOptionsEList("-ksp_mixedcg_outer", "How what is found in single precision corrects the solution", NULL, outer_methods,
                              NUM_OUTER_METHODS, outer_methods[own->inner.outer], &own->inner.outer, NULL));
  PetscCall(PetscOptionsRangeReal("-ksp_mixedcg_inner_rtol", "By how much the inner residual falls between corrections", NULL, own->inner.rtol,
                                  &own->inner.rtol, NULL, PETSC_SQRT_MACHINE_EPSILON, 0.5));
  PetscCall(PetscOptionsBoundedInt("-ksp_mixedcg_inner_it", "Iterations between corrections; 0: until the residual has fallen", NULL, own->inner.most,
                                   &own->inner.most, NULL, 0));
  PetscOptionsHeadEnd();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode KSPCreate_MIXEDCG(KSP ksp)
{
  GpufmtKsp *own;

  PetscFunctionBegin;
  PetscCall(GpufmtCgTake(ksp, KSPSolve_MIXEDCG, KSPSetFromOptions_MIXEDCG));
  PetscCall(GpufmtKspGet(ksp, &own));
  own->inner.outer = REPLACEMENT;
  own->inner.rtol  = 1e-2;
  PetscFunctionReturn(PETSC_SUCCESS);
}
