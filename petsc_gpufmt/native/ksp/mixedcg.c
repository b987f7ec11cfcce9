/* mixedcg: KSPCG in single precision, with a copy of the matrix, corrected in double precision. Inner conjugate gradients reduce a residual somewhat; what
   they have found is added to the solution, and the residual is made anew in double precision, by which alone it is decided whether the solve has
   converged. Where single precision will not do, PETSc's method goes on from there. */
#include "ksp/ksp.h"

static const char *const outer_methods[] = {"replacement", "refinement", "flexible"};
enum { REPLACEMENT, REFINEMENT, FLEXIBLE, NUM_OUTER_METHODS };

enum { FIRST_BATCH = 16, LARGEST_BATCH = 64, MOST_STALLS = 3 };
enum { MOST_INNER = 500 }; /* iterations between corrections, where it is seen whether they are of use */

typedef struct {
  KSP              ksp;
  GpufmtKsp       *own;
  Mat              A;
  Vec              w, d, scaling; /* A times the solution; the preconditioner, NULL: none; S, likewise */
  Vec              r, p, z;       /* of the flexible method: its w is A p */
  PetscScalar      curvature;     /* p.w of it, 0 before there is a p */
  PetscMPIInt      nranks;
  Vec              best; /* the solution with the smallest residual before the last correction */
  PetscReal        best_norm;
  PetscInt         most, ncorrections, stalls;
  PetscReal        norm;  /* of the residual, in double precision */
  PetscReal        scale; /* of what inner iterations have left, to what they are about to do: factors change */
  GpufmtMixedState outer;
  GpufmtCgState    inner;      /* as it was when it was last read */
  PetscReal        inner_norm; /* where inner iterations begin */
  int64_t          base;       /* inner iterations before the last correction */
  PetscBool        keep;       /* the inner direction goes on */
} Mixed;

/* ---- inner iterations ---- */

/* on the backend */
static GpufmtCgState *InnerState(const Mixed *s)
{
  return (GpufmtCgState *)s->own->inner.plans.state;
}

static void *InnerArray(const Mixed *s, int array)
{
  return s->own->plans.arrays[array];
}

static PetscErrorCode InnerStep(Mixed *s, int step)
{
  void *const slots[GPUFMT_NUM_SLOTS] = {
    [GPUFMT_SLOT_X] = InnerArray(s, GPUFMT_MIXED_ARRAY_X),
    [GPUFMT_SLOT_R] = InnerArray(s, GPUFMT_MIXED_ARRAY_R),
    [GPUFMT_SLOT_P] = InnerArray(s, GPUFMT_MIXED_ARRAY_P),
    [GPUFMT_SLOT_W] = InnerArray(s, GPUFMT_MIXED_ARRAY_W),
    [GPUFMT_SLOT_D] = s->d ? InnerArray(s, GPUFMT_MIXED_ARRAY_D) : NULL,
  };
  void *stream = NULL;

  PetscFunctionBegin;
  if (s->own->backend == GPUFMT_BACKEND_CUDA) PetscCall(GpufmtDeviceGet(NULL, &stream));
  PetscCall(GpufmtKspKeep(s->ksp, s->own, GpufmtReplay(&s->own->inner.plans.steps[step], s->own->backend, slots, stream)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* sums of this rank become those of all */
static PetscErrorCode SumOverRanks(Mixed *s, int n, double sums[])
{
  PetscFunctionBegin;
  if (s->nranks > 1) PetscCall(GpufmtKspSum(s->ksp, s->own, n, sums));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode InnerIteration(Mixed *s)
{
  double *sums = InnerState(s)->sums;

  PetscFunctionBegin;
  PetscCall(InnerStep(s, GPUFMT_CG_DIRECTION));
  PetscCall(
    GpufmtKspKeep(s->ksp, s->own, GpufmtLowMult(s->A, s->own->backend, InnerArray(s, GPUFMT_MIXED_ARRAY_P), InnerArray(s, GPUFMT_MIXED_ARRAY_W))));
  PetscCall(InnerStep(s, GPUFMT_CG_CURVATURE));
  PetscCall(SumOverRanks(s, 2, sums));
  PetscCall(InnerStep(s, GPUFMT_CG_UPDATE_SUMS));
  PetscCall(SumOverRanks(s, 2, sums + 2));
  if (s->nranks > 1) PetscCall(InnerStep(s, GPUFMT_CG_END));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* How far the inner norm is to fall. Half of what the test of convergence wants is enough. */
static PetscReal InnerDrop(const Mixed *s)
{
  const KSP       ksp  = s->ksp;
  const PetscReal drop = s->own->inner.rtol;

  if (ksp->normtype == KSP_NORM_NONE || ksp->converged != KSPConvergedDefault || s->norm <= ksp->ttol) return drop;
  return PetscMax(drop, 0.5 * ksp->ttol / s->norm);
}

/* The state of the inner iterations for the residual that there is. A direction that goes on has seen r.z in the former scale. */
static PetscErrorCode InnerBegin(Mixed *s)
{
  const GpufmtKspInner *own   = &s->own->inner;
  GpufmtCgState        *state = InnerState(s), *head = &s->inner;
  const size_t          bytes = offsetof(GpufmtCgState, records);
  const PetscInt        left  = s->most - s->ksp->its;

  PetscFunctionBegin;
  head->limit      = -1.0;
  head->divergence = PETSC_INFINITY;
  head->stop       = GPUFMT_STOP_NONE;
  head->norm       = s->scaling ? GPUFMT_NORM_NATURAL : s->outer.norm; /* the only one that S does not change */
  head->alone      = s->nranks == 1;
  head->rz_before *= s->scale;
  PetscCall(GpufmtCopyToBackend(s->own->backend, state, head, bytes));
  PetscCall(InnerStep(s, GPUFMT_CG_FIRST_DOTS));
  PetscCall(SumOverRanks(s, 2, state->sums + 2));
  PetscCall(GpufmtCopyToHost(s->own->backend, head, state, bytes));
  head->rz = head->sums[2];
  if (!s->keep || !(head->rz * head->rz_before > 0.0)) head->iteration = 0;
  s->base       = head->iteration;
  head->most    = s->base + PetscMin(left, own->most ? own->most : MOST_INNER);
  s->inner_norm = (PetscReal)sqrt(head->norm == GPUFMT_NORM_NATURAL ? fabs(head->rz) : head->sums[3]);
  if (!own->most) head->limit = InnerDrop(s) * s->inner_norm;
  PetscCall(GpufmtCopyToBackend(s->own->backend, state, head, bytes));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static const GpufmtCgRecord *LastRecord(const Mixed *s)
{
  return &s->inner.records[(s->inner.iteration + GPUFMT_KRYLOV_RECORDS - 1) % GPUFMT_KRYLOV_RECORDS];
}

/* How many inner iterations to queue next, with `queued` whose outcome is not known: half of those that seem to be left, and not many more than the last time. */
static PetscInt InnerAhead(const Mixed *s, PetscInt queued, PetscInt before)
{
  const PetscInt  done = (PetscInt)(s->inner.iteration - s->base), left = (PetscInt)(s->inner.most - s->inner.iteration) - queued;
  const PetscReal norm = done ? (PetscReal)LastRecord(s)->norm : s->inner_norm, limit = (PetscReal)s->inner.limit;
  PetscInt        n = before ? PetscMin(2 * before, LARGEST_BATCH) : FIRST_BATCH;

  if (s->own->check) n = s->own->check;
  else if (s->own->backend != GPUFMT_BACKEND_CUDA) n = 1;
  else if (limit > 0.0 && norm > limit && norm < s->inner_norm)
    n = (PetscInt)PetscMin((PetscReal)n, 1 + done * PetscLogReal(norm / limit) / PetscLogReal(s->inner_norm / norm) / 2 - queued);
  return PetscMin(queued ? n : PetscMax(1, n), left);
}

/* Inner iterations until they stop, some of them queued while what came of others is on its way. They stop on all ranks, where one has failed as well: sums are
   no numbers then. */
static PetscErrorCode InnerRun(Mixed *s)
{
  const int on_device = s->own->backend == GPUFMT_BACKEND_CUDA, most = on_device || s->own->check ? 2 : 1;
  PetscInt  queued[2] = {0, 0}, ahead = 0, n, done;                     /* of the batches on their way, the oldest first */
  PetscBool failed[2] = {PETSC_FALSE, PETSC_FALSE}, over = PETSC_FALSE; /* before such a batch: all of its sums are no numbers then */

  PetscFunctionBegin;
  do {
    for (int k = queued[0] ? 1 : 0; k < most && (n = InnerAhead(s, queued[0], ahead)) > 0; k++) {
      failed[k] = (PetscBool)(s->own->failed != PETSC_SUCCESS);
      queued[k] = ahead = n;
      for (PetscInt i = 0; i < n; i++) PetscCall(InnerIteration(s));
      PetscCall(GpufmtKspStateQueue(s->own, InnerState(s), sizeof(s->inner)));
    }
    PetscCheck(queued[0], PETSC_COMM_SELF, PETSC_ERR_PLIB, "Iterations in single precision did not stop after %" PetscInt64_FMT, s->inner.iteration);
    PetscCall(GpufmtKspStateTake(s->own, &s->inner));
    over      = (PetscBool)(s->inner.stop || failed[0]);
    queued[0] = queued[1];
    failed[0] = failed[1];
    queued[1] = 0;
  } while (!over);
  PetscCall(GpufmtKspStatesDrop(s->own));
  done = (PetscInt)(s->inner.iteration - s->base);
  s->ksp->its += done;
  PetscCall(GpufmtLogFlops(s->own->backend, 12.0 * done * s->own->nrows));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* why what inner iterations have found is of no use; NULL: it is, and *s->keep says whether they could have gone on */
static const char *WhyNoCorrection(Mixed *s)
{
  const GpufmtCgState  *inner       = &s->inner;
  const PetscBool       curvature   = (PetscBool)(inner->stop == GPUFMT_STOP_CURVATURE);
  const GpufmtCgRecord *stopped     = &inner->records[inner->iteration % GPUFMT_KRYLOV_RECORDS];
  const GpufmtCgRecord *last        = LastRecord(s);
  const PetscBool       is_anything = (PetscBool)(inner->iteration > s->base);
  PetscBool             is_number   = PETSC_TRUE; /* of all ranks: one that has failed takes part in the correction, whose norm is none */

  if (curvature) is_number = (PetscBool)(is_number && isfinite(stopped->curvature));
  if (is_anything) is_number = (PetscBool)(is_number && isfinite(last->norm) && isfinite(last->rz));
  if (!is_number) return "it is no number";
  if (!is_anything) return "there was no step";
  s->keep = (PetscBool)(s->own->inner.outer == REPLACEMENT && !curvature && (inner->stop == GPUFMT_STOP_COUNT || last->norm <= inner->limit));
  return NULL;
}

/* ---- corrections ---- */

static PetscErrorCode OuterPut(Mixed *s)
{
  PetscFunctionBegin;
  PetscCall(GpufmtCopyToBackend(s->own->backend, s->own->plans.state, &s->outer, sizeof(s->outer)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the inner right-hand side from b - w, and the sums */
static PetscErrorCode Residual(Mixed *s, Vec b, Vec w)
{
  GpufmtMixedState     *state     = (GpufmtMixedState *)s->own->plans.state;
  const GpufmtKspVector vectors[] = {GpufmtReads(GPUFMT_SLOT_Z, b), GpufmtReads(GPUFMT_SLOT_W, w), GpufmtReads(GPUFMT_SLOT_D, s->d),
                                     GpufmtReads(GPUFMT_SLOT_Y, s->scaling)};

  PetscFunctionBegin;
  PetscCall(GpufmtKspStep(s->ksp, s->own, GPUFMT_MIXED_RESIDUAL, PETSC_STATIC_ARRAY_LENGTH(vectors), vectors));
  PetscCall(SumOverRanks(s, GPUFMT_MIXED_SUMS, state->sums));
  PetscCall(GpufmtCopyToHost(s->own->backend, &s->outer, state, sizeof(s->outer)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The inner right-hand side is to be about 1, in the norm that products of single precision are made of. It is that of the residual before: what is
   narrowed is read once. */
static PetscErrorCode NewFactor(Mixed *s)
{
  const double before = s->outer.factor;

  PetscFunctionBegin;
  s->outer.factor = 1.0 / PetscSqrtReal(PetscAbsReal((PetscReal)s->outer.sums[1]));
  s->scale        = (PetscReal)(s->outer.factor / before);
  PetscCall(OuterPut(s));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* `vec` changes by what inner iterations have found, or becomes it */
static PetscErrorCode Widen(Mixed *s, int step, Vec vec)
{
  const GpufmtKspVector vectors[] = {step == GPUFMT_MIXED_WIDEN ? GpufmtWrites(GPUFMT_SLOT_X, vec) : GpufmtChanges(GPUFMT_SLOT_X, vec),
                                     GpufmtReads(GPUFMT_SLOT_Y, s->scaling)};

  PetscFunctionBegin;
  PetscCall(GpufmtKspStep(s->ksp, s->own, step, PETSC_STATIC_ARRAY_LENGTH(vectors), vectors));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What inner iterations have found is a preconditioned residual z: a step along p = z - (z.A p / p.A p) p, with p of the correction before. */
static PetscErrorCode FlexibleStep(Mixed *s)
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

static PetscErrorCode Correct(Mixed *s)
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
static PetscErrorCode FirstResidual(Mixed *s)
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
  else if (s->r) PetscCall(VecCopy(ksp->vec_rhs, s->r));
  PetscCall(Residual(s, ksp->vec_rhs, w));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---- conclusions ---- */

static PetscReal OuterNorm(const Mixed *s)
{
  return PetscSqrtReal(PetscAbsReal((PetscReal)s->outer.sums[0]));
}

/* Whether corrections are of no use: the residual has become much larger, or larger when inner iterations knew nothing of it; or again and again it is not
   much smaller, where their number is not fixed. Then the best solution comes back. A direction goes on only from where it thinks that it is. */
static PetscErrorCode TestCorrection(Mixed *s, const char **why_not)
{
  const PetscReal norm = OuterNorm(s), expected = 2.0 * s->norm * (PetscReal)LastRecord(s)->norm / s->inner_norm;
  const PetscBool known = (PetscBool)(norm <= expected), fell = (PetscBool)(norm <= 0.5 * s->norm || (s->own->inner.most && known));

  PetscFunctionBegin;
  s->keep   = (PetscBool)(s->keep && known);
  s->stalls = fell ? 0 : s->stalls + 1;
  if (s->stalls < MOST_STALLS && norm <= 10.0 * s->best_norm && (known || norm <= s->norm)) PetscFunctionReturn(PETSC_SUCCESS);
  *why_not = "the residual did not fall";
  if (!(norm <= s->best_norm)) PetscCall(VecCopy(s->best, s->ksp->vec_sol));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode TestNorm(Mixed *s)
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
static PetscErrorCode Describe(Mixed *s)
{
  PetscFunctionBegin;
  PetscCall(PetscSNPrintf(s->own->last, sizeof(s->own->last), "single precision on the %s, %" PetscInt_FMT " corrections by %s",
                          s->own->backend == GPUFMT_BACKEND_CUDA ? "device" : "host", s->ncorrections, outer_methods[s->own->inner.outer]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Solve(Mixed *s)
{
  KSP         ksp     = s->ksp;
  const char *why_not = NULL;

  PetscFunctionBegin;
  while (!ksp->reason && !why_not) {
    PetscCall(InnerBegin(s));
    PetscCall(InnerRun(s));
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

/* Plans of conjugate gradients in single precision, on all ranks or on none, for the backend and rows of those in double precision. Collective. */
static PetscErrorCode InnerPlansGet(Mixed *s)
{
  GpufmtKspInner     *inner   = &s->own->inner;
  GpufmtKrylovRequest request = {.place = {.scalar_bytes = sizeof(float)}, .method = GPUFMT_KRYLOV_CG, .nrows = s->own->nrows};
  PetscErrorCode      ierr;
  int                 is_new = !(GpufmtLeaseHolds(&inner->lease) && inner->backend == s->own->backend && inner->nrows == s->own->nrows);

  PetscFunctionBegin;
  PetscCall(GpufmtAgree((PetscObject)s->ksp, "The beginning of a solve", PETSC_SUCCESS, 1, &is_new));
  if (!is_new) PetscFunctionReturn(PETSC_SUCCESS);
  ierr = GpufmtPlannerAsk(GPUFMT_ASK_KRYLOV, s->own->backend, GPUFMT_Plan, NULL, &request.place, &inner->plans.outcome, &inner->lease);
  PetscCall(GpufmtAgree((PetscObject)s->ksp, "The plan of a Krylov method in single precision", ierr, 0, NULL));
  inner->backend = s->own->backend;
  inner->nrows   = s->own->nrows;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* why a solve is left to KSPCG, on all ranks; NULL: it is not. Collective. */
static PetscErrorCode WhyNot(Mixed *s, int *backend, const char **why_not)
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
  Mixed       s = {.ksp = ksp, .most = PetscMax(1, ksp->max_it), .best_norm = PETSC_INFINITY}; /* KSPCG makes one iteration where none is wanted */
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
  PetscCall(InnerPlansGet(&s));
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
  if (own->parent.setfromoptions) PetscCall((*own->parent.setfromoptions)(ksp, PetscOptionsObject));
  PetscOptionsHeadBegin(PetscOptionsObject, "Options of conjugate gradients in mixed precision");
  PetscCall(PetscOptionsEList("-ksp_mixedcg_outer", "How what is found in single precision corrects the solution", NULL, outer_methods,
                              NUM_OUTER_METHODS, outer_methods[own->inner.outer], &own->inner.outer, NULL));
  PetscCall(PetscOptionsRangeReal("-ksp_mixedcg_inner_rtol", "By how much the inner residual falls between corrections", NULL, own->inner.rtol,
                                  &own->inner.rtol, NULL, PETSC_SQRT_MACHINE_EPSILON, 0.5));
  PetscCall(PetscOptionsBoundedInt("-ksp_mixedcg_inner_it", "Iterations between corrections; 0: until the residual has fallen", NULL, own->inner.most,
                                   &own->inner.most, NULL, 0));
  PetscCall(PetscOptionsBoundedInt("-ksp_mixedcg_check", "Iterations between two looks at the inner norm; 0: as many as seem right", NULL, own->check,
                                   &own->check, NULL, 0));
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
