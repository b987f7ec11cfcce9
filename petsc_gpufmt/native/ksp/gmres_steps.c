/* The steps of a cycle of GMRES. Iterations are queued some at a time; what they found is then read as a whole, and taken over into the arrays of PETSc's
   context one after the other. So monitors, solutions on the way and estimates of eigenvalues are PETSc's. */
#include "ksp/ksp.h"

/* ---- the state, and what follows it on the backend ---- */

static size_t Each(const GpufmtGmres *s)
{
  return (size_t)s->gmres->max_k + 1;
}

static GpufmtGmresState *StateOf(const GpufmtGmres *s)
{
  return (GpufmtGmresState *)s->own->plans.state;
}

static GpufmtGmresColumn *ColumnOf(const GpufmtGmres *s, const GpufmtGmresState *state, PetscInt iteration)
{
  return (GpufmtGmresColumn *)((char *)(state + 1) + (size_t)iteration * (sizeof(GpufmtGmresColumn) + 2 * Each(s) * sizeof(double)));
}

/* The sums; after them the addresses of the basis, the weights, the addresses of terms */
static double *SumsOf(const GpufmtGmres *s)
{
  return (double *)ColumnOf(s, StateOf(s), s->gmres->max_k);
}

/* Iterations that a cycle can have: an estimator takes a few, and nobody is asked in between who could allow more. */
static PetscInt MostIterations(const GpufmtGmres *s)
{
  const PetscInt restart = s->gmres->max_k;

  return s->own->estimates && !s->own->watched ? PetscMin(restart, PetscMax(1, s->ksp->max_it)) : restart;
}

/* up to the last of their columns */
static size_t ReadBytes(const GpufmtGmres *s)
{
  return (size_t)((char *)ColumnOf(s, StateOf(s), MostIterations(s)) - (char *)StateOf(s));
}

/* ---- the basis ---- */

/* From a vector on they are where plans look for them; nothing is in them yet. Those that no cycle comes to take no memory of a device so far, and are left
   so. */
static PetscErrorCode TellAddresses(GpufmtGmres *s, PetscInt first, PetscInt nvectors)
{
  const int      backend = s->own->backend;
  const PetscInt n       = PetscMax(0, PetscMin(nvectors, MostIterations(s) + 1 - first));
  int64_t       *addresses;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1(n, &addresses));
  for (PetscInt k = 0; k < n; k++) {
    PetscScalar *array;

    PetscCall(GpufmtKspArrayPlace(backend, GpufmtGmresVector(s, first + k), &array));
    addresses[k] = (int64_t)(intptr_t)array;
  }
  PetscCall(GpufmtCopyToBackend(backend, (int64_t *)SumsOf(s) + Each(s) + first, addresses, (size_t)n * sizeof(*addresses)));
  PetscCall(PetscFree(addresses));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* As PETSc does, a portion of vectors where the one of an iteration is not there */
static PetscErrorCode MoreVectors(GpufmtGmres *s, PetscInt first)
{
  GpufmtGmresContext *g  = s->gmres;
  const PetscInt portion = g->nwork_alloc, n = PetscMin(PetscMin(s->ksp->max_it, g->delta_allocate), g->vecs_allocated - first - GPUFMT_GMRES_BASIS);

  PetscFunctionBegin;
  PetscCall(KSPCreateVecs(s->ksp, n, &g->user_work[portion], 0, NULL));
  for (PetscInt k = 0; k < n; k++) g->vecs[GPUFMT_GMRES_BASIS + first + k] = g->user_work[portion][k];
  if (s->flexible) {
    PetscCall(KSPCreateVecs(s->ksp, n, &s->flexible->prevecs_user_work[portion], 0, NULL));
    for (PetscInt k = 0; k < n; k++) s->flexible->prevecs[first + k] = s->flexible->prevecs_user_work[portion][k];
  }
  g->mwork_alloc[portion] = n;
  g->vv_allocated += n;
  g->nwork_alloc++;
  PetscCall(TellAddresses(s, first, n));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A failure of what reads vectors of ours, at most two of them: they are not locked any more. */
PetscErrorCode GpufmtGmresKeep(GpufmtGmres *s, PetscErrorCode ierr, Vec first, Vec second)
{
  PetscFunctionBegin;
  if (ierr) {
    PetscCall(GpufmtKspUnlock(first, 0));
    PetscCall(GpufmtKspUnlock(second, 0));
  }
  PetscCall(GpufmtKspKeep(s->ksp, s->own, ierr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The first vector of the basis is there, of a norm by which it is still to be divided. */
PetscErrorCode GpufmtGmresBeginCycle(GpufmtGmres *s, PetscReal norm)
{
  const KSP       ksp  = s->ksp;
  const PetscBool test = (PetscBool)(ksp->normtype != KSP_NORM_NONE && ksp->converged == KSPConvergedDefault);

  PetscFunctionBegin;
  PetscCall(GpufmtKspStatesDrop(s->own)); /* of the cycle before */
  *s->read = (GpufmtGmresState){.limit      = test ? ksp->ttol : -1.0,
                                .divergence = test ? ksp->divtol * ksp->rnorm0 : PETSC_INFINITY,
                                .haptol     = s->gmres->haptol,
                                .norm       = norm,
                                .next       = norm,
                                .most       = PetscMin(s->gmres->max_k, ksp->max_it - ksp->its),
                                .alone      = s->nranks == 1,
                                .flexible   = s->flexible != NULL};
  if (s->own->backend == GPUFMT_BACKEND_CUDA)
    PetscCall(GpufmtKspKeep(ksp, s->own, GpufmtCopyToBackend(GPUFMT_BACKEND_CUDA, StateOf(s), s->read, sizeof(*s->read))));
  s->next         = 0;
  s->queue.queued = 0;
  s->queue.nlooks = 0;
  s->queue.before = ksp->its;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---- an iteration ---- */

/* what follows the product, which has made the newest vector: n are the sums of its dots */
static PetscErrorCode Orthogonalize(GpufmtGmres *s, Vec newest, PetscInt n)
{
  GpufmtKsp *const      own    = s->own;
  const GpufmtKspVector looked = GpufmtReads(GPUFMT_SLOT_W, newest), changed = GpufmtChanges(GPUFMT_SLOT_W, newest);

  PetscFunctionBegin;
  PetscCall(GpufmtKspStep(s->ksp, own, GPUFMT_GMRES_DOTS, 1, &looked));
  if (s->nranks > 1) PetscCall(GpufmtKspSum(s->ksp, own, (PetscMPIInt)n, SumsOf(s)));
  if (s->nranks > 1 && GpufmtKspSumsAreLaunched(own)) {
    PetscCall(GpufmtKspStepOfRanks(s->ksp, own, &own->plans.steps[GPUFMT_GMRES_UPDATE_OF_RANKS], &own->lease, 1, &changed));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(GpufmtKspStep(s->ksp, own, GPUFMT_GMRES_UPDATE, 1, &changed));
  if (s->nranks > 1) {
    PetscCall(GpufmtKspSum(s->ksp, own, 1, &StateOf(s)->square));
    PetscCall(GpufmtKspStep(s->ksp, own, GPUFMT_GMRES_END, 0, NULL));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode QueueNext(void *method)
{
  GpufmtGmres *const s         = (GpufmtGmres *)method;
  const PetscInt     iteration = s->next++, n = iteration + 1; /* vectors of the basis */

  PetscFunctionBegin;
  if (s->gmres->vv_allocated <= n + GPUFMT_GMRES_BASIS)
    PetscCall(GpufmtAgree((PetscObject)s->ksp, "More vectors of a basis", MoreVectors(s, n), 0, NULL));
  {
    const GpufmtKspVector scaled = GpufmtChanges(GPUFMT_SLOT_W, GpufmtGmresVector(s, iteration));

    PetscCall(GpufmtKspStep(s->ksp, s->own, GPUFMT_GMRES_SCALE, 1, &scaled));
  }
  PetscCall((*s->product)(s, iteration));
  PetscCall(Orthogonalize(s, GpufmtGmresVector(s, n), n));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* makes an iteration, or takes what was found in one that was queued before, over into PETSc's arrays */
PetscErrorCode GpufmtGmresIterate(GpufmtGmres *s, PetscInt iteration, const GpufmtGmresColumn **column)
{
  GpufmtGmresContext *g   = s->gmres;
  PetscScalar        *hh  = g->hh_origin + iteration * (g->max_k + 2);
  PetscScalar        *hes = g->hes_origin + iteration * (g->max_k + 1);
  const double       *dots, *rotated, flops = (4.0 * (double)iteration + 7.0) * (double)s->own->nrows;

  PetscFunctionBegin;
  if (s->read->stop && s->read->iteration <= iteration) s->next = iteration;
  s->queue.i = iteration;
  PetscCall(GpufmtKspFetch(&s->queue));
  PetscCall(GpufmtLogFlops(s->own->backend, flops));
  *column = ColumnOf(s, s->read, iteration);
  dots    = (const double *)(*column + 1);
  rotated = dots + Each(s);
  for (PetscInt k = 0; k <= iteration; k++) {
    hes[k] = (PetscScalar)dots[k];
    hh[k]  = (PetscScalar)rotated[k];
  }
  hes[iteration + 1] = hh[iteration + 1] = (PetscScalar)(*column)->norm;
  g->cc_origin[iteration]                = (PetscScalar)(*column)->cosine;
  g->ss_origin[iteration]                = (PetscScalar)(*column)->sine;
  g->rs_origin[iteration]                = (PetscScalar)(*column)->entry;
  g->rs_origin[iteration + 1]            = (PetscScalar)(*column)->next;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* products with the basis that are no numbers end the solve, as where PETSc makes them */
PetscErrorCode GpufmtGmresCheckDots(GpufmtGmres *s, PetscInt iteration)
{
  const PetscScalar *hes = s->gmres->hes_origin + iteration * (s->gmres->max_k + 1);

  PetscFunctionBegin;
  for (PetscInt k = 0; k <= iteration; k++) KSPCheckDot(s->ksp, hes[k]);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---- a solve ---- */

/* the state of the last look, and where the basis is; nothing has been written to that */
static PetscErrorCode Prepare(GpufmtGmres *s)
{
  PetscFunctionBegin;
  if (s->own->backend == GPUFMT_BACKEND_CUDA) PetscCall(PetscMalloc(ReadBytes(s), &s->read));
  else s->read = StateOf(s);
  PetscCall(TellAddresses(s, 0, s->gmres->vv_allocated - GPUFMT_GMRES_BASIS));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Plans for vectors of this rank. Collective. */
static PetscErrorCode Begin(GpufmtGmres *s, int backend)
{
  const PetscInt restart = s->gmres->max_k;

  PetscFunctionBegin;
  if (s->own->restart != restart) PetscCall(GpufmtLeaseDrop(&s->own->lease));
  s->own->restart = restart;
  PetscCall(GpufmtKspPlansGet(s->ksp, s->own, GPUFMT_KRYLOV_GMRES, backend));
  PetscCallMPI(MPI_Comm_size(PetscObjectComm((PetscObject)s->ksp), &s->nranks));
  PetscCall(GpufmtAgree((PetscObject)s->ksp, "The basis of a Krylov method", Prepare(s), 0, NULL));
  if (s->read != StateOf(s)) PetscCall(GpufmtKspStatesReserve(s->ksp, s->own, ReadBytes(s)));
  s->queue = (GpufmtKspQueue){.ksp       = s->ksp,
                              .own       = s->own,
                              .iterate   = QueueNext,
                              .method    = s,
                              .cycle     = restart,
                              .state     = s->read,
                              .iteration = &s->read->iteration,
                              .stop      = &s->read->stop,
                              .ahead     = 1};
  PetscCall(PetscSNPrintf(s->own->last, sizeof(s->own->last), "Hessenberg matrix on the %s", backend == GPUFMT_BACKEND_CUDA ? "device" : "host"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A solve of a KSP, which PETSc's own method does where these steps cannot. Collective. */
PetscErrorCode GpufmtGmresSolve(GpufmtGmres *s)
{
  int            backend;
  const char    *why_not;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(GpufmtKspGet(s->ksp, &s->own));
  PetscCall(GpufmtGmresWhyNot(s->ksp, &backend, &why_not));
  if (why_not) {
    PetscCall(GpufmtKspLeave(s->ksp, s->own, why_not));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  s->ksp->its = 0;
  PetscCall(Begin(s, backend));
  ierr = (*s->solve)(s);
  if (s->own->backend == GPUFMT_BACKEND_CUDA) PetscCall(PetscFree(s->read));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---- the solution ---- */

/* where they are, and their weights: what PETSc's array of the right-hand side has by now */
static PetscErrorCode TellTerms(GpufmtGmres *s, PetscInt n, const Vec terms[])
{
  const int     backend = s->own->backend;
  const size_t  each    = Each(s);
  const int64_t nterms  = n;
  double       *weights;
  int64_t      *addresses;

  PetscFunctionBegin;
  PetscCall(PetscMalloc2(n, &weights, n, &addresses));
  for (PetscInt k = 0; k < n; k++) {
    const PetscScalar *array;

    PetscCall(GpufmtKspArrayLook(backend, terms[k], &array));
    addresses[k] = (int64_t)(intptr_t)array;
    weights[k]   = (double)s->gmres->rs_origin[k];
  }
  PetscCall(GpufmtCopyToBackend(backend, &StateOf(s)->nterms, &nterms, sizeof(nterms)));
  PetscCall(GpufmtCopyToBackend(backend, SumsOf(s) + 2 * each, weights, (size_t)n * sizeof(*weights)));
  PetscCall(GpufmtCopyToBackend(backend, SumsOf(s) + 3 * each, addresses, (size_t)n * sizeof(*addresses)));
  PetscCall(PetscFree2(weights, addresses));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* GPUFMT_GMRES_ADD or _SET: the sum of so many vectors is added to `result`, or replaces it */
PetscErrorCode GpufmtGmresCombine(GpufmtGmres *s, int step, PetscInt n, const Vec terms[], Vec result)
{
  const GpufmtKspVector x     = step == GPUFMT_GMRES_ADD ? GpufmtChanges(GPUFMT_SLOT_X, result) : GpufmtWrites(GPUFMT_SLOT_X, result);
  const double          flops = 2.0 * (double)n * (double)s->own->nrows;

  PetscFunctionBegin;
  PetscCall(GpufmtKspKeep(s->ksp, s->own, TellTerms(s, n, terms)));
  if (s->own->failed) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtKspStep(s->ksp, s->own, step, 1, &x));
  PetscCall(GpufmtLogFlops(s->own->backend, flops));
  PetscFunctionReturn(PETSC_SUCCESS);
}
