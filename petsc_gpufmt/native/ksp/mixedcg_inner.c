/* What mixedcg does in single precision between corrections: conjugate gradients, in one launch where graphs have loops, or queued in batches. */
#include "ksp/ksp.h"

enum { FIRST_BATCH = 16, LARGEST_BATCH = 64, BATCH_OF_RANKS = 8 };
enum { MOST_INNER = 500 }; /* iterations between corrections, where it is seen whether they are of use */

/* Plans of conjugate gradients in single precision, on all ranks or on none, for the backend and rows of those in double precision. Collective. */
PetscErrorCode GpufmtMixedPlansGet(GpufmtMixed *s)
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

/* on the backend */
static GpufmtCgState *StateOf(const GpufmtMixed *s)
{
  return (GpufmtCgState *)s->own->inner.plans.state;
}

static void *ArrayOf(const GpufmtMixed *s, int array)
{
  return s->own->plans.arrays[array];
}

static GpufmtKspVector Filled(const GpufmtMixed *s, int slot, int array)
{
  return (GpufmtKspVector){.slot = slot, .word = ArrayOf(s, array)};
}

static PetscErrorCode Step(GpufmtMixed *s, int step)
{
  GpufmtKsp *const      own       = s->own;
  const GpufmtPlan     *plan      = &own->inner.plans.steps[step];
  const GpufmtKspVector vectors[] = {Filled(s, GPUFMT_SLOT_X, GPUFMT_MIXED_ARRAY_X), Filled(s, GPUFMT_SLOT_R, GPUFMT_MIXED_ARRAY_R),
                                     Filled(s, GPUFMT_SLOT_P, GPUFMT_MIXED_ARRAY_P), Filled(s, GPUFMT_SLOT_W, GPUFMT_MIXED_ARRAY_W),
                                     Filled(s, GPUFMT_SLOT_D, GPUFMT_MIXED_ARRAY_D)};
  const PetscInt        n         = PETSC_STATIC_ARRAY_LENGTH(vectors) - !s->d; /* the last one is for a preconditioner */

  PetscFunctionBegin;
  if (step == GPUFMT_CG_UPDATE_SUMS_OF_RANKS) PetscCall(GpufmtKspStepOfRanks(s->ksp, own, plan, &own->inner.lease, n, vectors));
  else PetscCall(GpufmtKspKeep(s->ksp, own, GpufmtKspRun(own->backend, plan, n, vectors, own->recording ? own->graph : NULL, &own->inner.lease)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Mult(GpufmtMixed *s)
{
  const int   backend = s->own->backend;
  const void *p       = ArrayOf(s, GPUFMT_MIXED_ARRAY_P);
  void       *w       = ArrayOf(s, GPUFMT_MIXED_ARRAY_W);

  PetscFunctionBegin;
  if (s->own->recording) PetscCall(GpufmtLowRecord(s->A, backend, s->own->nrecorded++, p, w, s->own->graph));
  else PetscCall(GpufmtKspKeep(s->ksp, s->own, GpufmtLowMult(s->A, backend, p, w)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* sums of this rank become those of all */
PetscErrorCode GpufmtMixedSum(GpufmtMixed *s, int n, double sums[])
{
  PetscFunctionBegin;
  if (s->nranks > 1) PetscCall(GpufmtKspSum(s->ksp, s->own, n, sums));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* one iteration, or its record in a graph */
static PetscErrorCode Iterate(void *method)
{
  GpufmtMixed *const s    = (GpufmtMixed *)method;
  double            *sums = StateOf(s)->sums;

  PetscFunctionBegin;
  PetscCall(Step(s, GPUFMT_CG_DIRECTION));
  PetscCall(Mult(s));
  PetscCall(Step(s, GPUFMT_CG_CURVATURE));
  if (s->nranks > 1 && GpufmtKspSumsAreLaunched(s->own)) {
    PetscCall(Step(s, GPUFMT_CG_UPDATE_SUMS_OF_RANKS));
    s->told = (PetscBool)(s->own->failed != PETSC_SUCCESS);
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(GpufmtMixedSum(s, 2, sums));
  PetscCall(Step(s, GPUFMT_CG_UPDATE_SUMS));
  s->told = (PetscBool)(s->own->failed != PETSC_SUCCESS);
  PetscCall(GpufmtMixedSum(s, 2, sums + 2));
  if (s->nranks > 1) PetscCall(Step(s, GPUFMT_CG_END));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* How far the inner norm is to fall. Half of what the test of convergence wants is enough. */
static PetscReal Drop(const GpufmtMixed *s)
{
  const KSP       ksp  = s->ksp;
  const PetscReal drop = s->own->inner.rtol;

  if (ksp->normtype == KSP_NORM_NONE || ksp->converged != KSPConvergedDefault || s->norm <= ksp->ttol) return drop;
  return PetscMax(drop, 0.5 * ksp->ttol / s->norm);
}

/* The state of the inner iterations for the residual that there is. A direction that goes on has seen r.z in the former scale. */
PetscErrorCode GpufmtMixedBegin(GpufmtMixed *s)
{
  const GpufmtKspInner *own   = &s->own->inner;
  GpufmtCgState        *state = StateOf(s), *head = &s->inner;
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
  PetscCall(Step(s, GPUFMT_CG_FIRST_DOTS));
  PetscCall(GpufmtMixedSum(s, 2, state->sums + 2));
  PetscCall(GpufmtCopyToHost(s->own->backend, head, state, bytes));
  head->rz = head->sums[2];
  if (!s->keep || !(head->rz * head->rz_before > 0.0)) head->iteration = 0;
  s->base       = head->iteration;
  head->most    = s->base + PetscMin(left, own->most ? own->most : MOST_INNER);
  s->inner_norm = (PetscReal)sqrt(head->norm == GPUFMT_NORM_NATURAL ? fabs(head->rz) : head->sums[3]);
  if (!own->most) head->limit = Drop(s) * s->inner_norm;
  PetscCall(GpufmtCopyToBackend(s->own->backend, state, head, bytes));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* How many inner iterations to queue next, with `ahead` whose outcome is not known: half of those that seem to be left, and not many more than the last time.
   Several ranks have to queue as many, also where one has failed and its state is another. */
static PetscInt Ahead(const GpufmtMixed *s, PetscInt ahead, PetscInt before)
{
  const PetscInt  done = (PetscInt)(s->inner.iteration - s->base), left = (PetscInt)(s->inner.most - s->base) - s->queued;
  const PetscReal norm = done ? (PetscReal)GpufmtMixedLast(s)->norm : s->inner_norm;
  PetscInt        n    = before ? PetscMin(2 * before, LARGEST_BATCH) : FIRST_BATCH;

  if (s->own->check) n = s->own->check;
  else if (s->own->backend != GPUFMT_BACKEND_CUDA) n = 1;
  else if (s->nranks > 1) n = BATCH_OF_RANKS;
  else n = GpufmtKspHalfway(n, done, s->inner_norm, norm, (PetscReal)s->inner.limit, ahead);
  return PetscMin(ahead ? n : PetscMax(1, n), left);
}

/* the loop of inner iterations, where they can be one; *why_not: they cannot, on this rank */
static PetscErrorCode LoopGet(GpufmtMixed *s, const char **why_not)
{
  const void *keys[GPUFMT_GRAPH_KEYS] = {s->d ? ArrayOf(s, GPUFMT_MIXED_ARRAY_D) : NULL};
  PetscInt    unit;

  PetscFunctionBegin;
  PetscCall(GpufmtLowRecordKeys(s->A, s->own->backend, keys + 1, &unit));
  if (!s->own->graphs) *why_not = "-ksp_mixedcg_graph is not set";
  else if (s->own->check) *why_not = "-ksp_mixedcg_check is set";
  else if (!unit) *why_not = "entries of x on other ranks are messages";
  else {
    PetscCall(GpufmtKspLoopGet(s->own, keys, Iterate, s, unit, &StateOf(s)->stop));
    if (!GpufmtGraphLoops(s->own->graph)) *why_not = "graphs have no loops here";
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Whether inner iterations are one launch of a loop, on all ranks, which is recorded unless it has been. Collective. */
PetscErrorCode GpufmtMixedLoopGet(GpufmtMixed *s)
{
  const char    *why_not = NULL;
  PetscErrorCode ierr    = PETSC_SUCCESS;
  int            missing;

  PetscFunctionBegin;
  if (s->nranks > 1 && !GpufmtKspSumsAreLaunched(s->own)) why_not = "sums over ranks are messages";
  else ierr = LoopGet(s, &why_not);
  missing = !!why_not;
  PetscCall(GpufmtAgree((PetscObject)s->ksp, "The record of iterations in single precision", ierr, 1, &missing));
  s->loops = (PetscBool)!missing;
  if (missing) PetscCall(PetscInfo(s->ksp, "inner iterations are launched in batches, because %s\n", why_not ? why_not : "another rank has no loop"));
  else PetscCall(PetscInfo(s->ksp, "inner iterations are one launch of a loop\n"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Inner iterations until they stop, in one launch: after as many on all ranks, whose sums have the same bits. */
static PetscErrorCode RunLoop(GpufmtMixed *s)
{
  const int backend = s->own->backend;
  void     *stream  = NULL;

  PetscFunctionBegin;
  if (backend == GPUFMT_BACKEND_CUDA) PetscCall(GpufmtDeviceGet(NULL, &stream));
  PetscCall(GpufmtGraphLaunch(s->own->graph, stream));
  PetscCall(GpufmtKspStateQueue(s->own, StateOf(s)));
  PetscCall(GpufmtKspStateTake(s->own, &s->inner));
  PetscCall(GpufmtKspKeep(s->ksp, s->own,
                          GpufmtLowLaunched(s->A, backend, (PetscInt)(s->inner.iteration - s->base) + (s->inner.stop == GPUFMT_STOP_CURVATURE))));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Inner iterations until they stop, some of them queued while what came of others is on its way. They stop on all ranks, where one has failed as well: sums are
   no numbers then. */
static PetscErrorCode RunBatches(GpufmtMixed *s)
{
  const int on_device = s->own->backend == GPUFMT_BACKEND_CUDA, most = on_device || s->own->check ? 2 : 1;
  PetscInt  queued[2] = {0, 0}, last = 0, n;            /* of the batches on their way, the oldest first */
  PetscBool told[2] = {PETSC_FALSE, PETSC_FALSE}, over; /* in such a batch, so that all ranks stop there */

  PetscFunctionBegin;
  s->queued = 0;
  do {
    for (int k = queued[0] ? 1 : 0; k < most && (n = Ahead(s, queued[0], last)) > 0; k++) {
      for (PetscInt i = 0; i < n; i++) PetscCall(Iterate(s));
      told[k]   = s->told;
      queued[k] = last = n;
      s->queued += n;
      PetscCall(GpufmtKspStateQueue(s->own, StateOf(s)));
    }
    PetscCheck(queued[0], PETSC_COMM_SELF, PETSC_ERR_PLIB, "Iterations in single precision did not stop after %" PetscInt64_FMT, s->inner.iteration);
    PetscCall(GpufmtKspStateTake(s->own, &s->inner));
    over      = (PetscBool)(s->inner.stop || told[0]);
    queued[0] = queued[1];
    told[0]   = told[1];
    queued[1] = 0;
  } while (!over);
  PetscCall(GpufmtKspStatesDrop(s->own));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtMixedRun(GpufmtMixed *s)
{
  PetscInt done;

  PetscFunctionBegin;
  if (s->loops) PetscCall(RunLoop(s));
  else PetscCall(RunBatches(s));
  done = (PetscInt)(s->inner.iteration - s->base);
  s->ksp->its += done;
  PetscCall(GpufmtLogFlops(s->own->backend, 12.0 * done * s->own->nrows));
  PetscFunctionReturn(PETSC_SUCCESS);
}
