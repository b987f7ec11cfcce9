/* The steps of a method, which share a state on the backend. */
#include "ksp/ksp.h"

PetscErrorCode GpufmtKspStep(KSP ksp, GpufmtKsp *own, int step, PetscInt n, const GpufmtKspVector vectors[])
{
  PetscFunctionBegin;
  PetscCheck(GpufmtLeaseHolds(&own->lease), PETSC_COMM_SELF, PETSC_ERR_ORDER,
             "The plans of type %s are gone, since Python has ended in this process: solve before the interpreter exits",
             ((PetscObject)ksp)->type_name);
  PetscCall(
    GpufmtKspKeep(ksp, own, GpufmtKspRun(own->backend, &own->plans.steps[step], n, vectors, own->recording ? own->graph : NULL, &own->lease)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MultRecord(GpufmtKsp *own, Mat A, Vec x, Vec w, double *dots)
{
  const PetscScalar *from, *to;

  PetscFunctionBegin;
  PetscCall(GpufmtKspArrayLook(own->backend, x, &from));
  PetscCall(GpufmtKspArrayLook(own->backend, w, &to));
  PetscCall(GpufmtRecordMult(A, own->backend, own->nrecorded++, from, (PetscScalar *)to, dots, own->graph));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* w = A x; and with `dots`, two numbers of the state, those whose sum over all ranks is x . w, if *done says so: that is where both are recorded. */
PetscErrorCode GpufmtKspMultDot(KSP ksp, GpufmtKsp *own, Mat A, Vec x, Vec w, double *dots, PetscBool *done)
{
  PetscErrorCode ierr;
  PetscInt       locks;

  PetscFunctionBegin;
  *done = (PetscBool)(own->recording && own->record_dots && dots);
  PetscCall(VecLockGet(x, &locks));
  ierr = own->recording ? MultRecord(own, A, x, w, *done ? dots : NULL) : KSP_MatMult(ksp, A, x, w);
  if (ierr) PetscCall(GpufmtKspUnlock(x, locks));
  PetscCall(GpufmtKspKeep(ksp, own, ierr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* w = A x */
PetscErrorCode GpufmtKspMult(KSP ksp, GpufmtKsp *own, Mat A, Vec x, Vec w)
{
  PetscBool done;

  PetscFunctionBegin;
  PetscCall(GpufmtKspMultDot(ksp, own, A, x, w, NULL, &done));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* z is what the preconditioner makes of r */
PetscErrorCode GpufmtKspPCApply(KSP ksp, GpufmtKsp *own, Vec r, Vec z)
{
  PetscErrorCode ierr;
  PetscInt       locks;

  PetscFunctionBegin;
  PetscCall(VecLockGet(r, &locks));
  ierr = KSP_PCApply(ksp, r, z);
  if (ierr) PetscCall(GpufmtKspUnlock(r, locks));
  PetscCall(GpufmtKspKeep(ksp, own, ierr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---- sums over ranks ---- */

/* On devices they go through memory of other ranks, where there is such. Kernels add up numbers of PETSc's type, which those of states are in double
   precision. Collective. */
static PetscErrorCode SumsGet(KSP ksp, GpufmtKsp *own)
{
  Mat         A;
  const char *why_not;
  PetscMPIInt nranks;
  int         elsewhere;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_size(PetscObjectComm((PetscObject)ksp), &nranks));
  PetscCall(PCGetOperators(ksp->pc, &A, NULL));
  if (nranks == 1 || !PetscDefined(USE_REAL_DOUBLE) || !GpufmtFormatFind(((PetscObject)A)->type_name)) PetscFunctionReturn(PETSC_SUCCESS);
  elsewhere = GpufmtBackendOf(A) != own->backend; /* it may be bound to the host on some ranks */
  PetscCall(GpufmtAgree((PetscObject)ksp, "The set-up of sums over ranks", PETSC_SUCCESS, 1, &elsewhere));
  if (elsewhere) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtSumsCreate(A, &own->sums, &why_not));
  if (why_not) PetscCall(PetscInfo(ksp, "sums over ranks are messages, because %s\n", why_not));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* whether a sum over ranks is a launch, which can be recorded */
PetscBool GpufmtKspSumsAreLaunched(const GpufmtKsp *own)
{
  return (PetscBool)(own->sums && GpufmtSumsAreLaunched(own->sums));
}

/* what a rank that has failed adds */
static PetscErrorCode Spoil(GpufmtKsp *own, PetscMPIInt n, double sums[])
{
  double spoilt[GPUFMT_MOST_KRYLOV_SUMS];

  PetscFunctionBegin;
  for (PetscMPIInt k = 0; k < n; k++) spoilt[k] = NAN;
  PetscCall(GpufmtCopyToBackend(own->backend, sums, spoilt, (size_t)n * sizeof(*sums)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* by launches, a few at a time */
static PetscErrorCode SumThroughMemory(KSP ksp, GpufmtKsp *own, PetscMPIInt n, double sums[])
{
  void *stream = NULL;

  PetscFunctionBegin;
  if (own->failed) PetscCall(Spoil(own, n, sums));
  if (own->backend == GPUFMT_BACKEND_CUDA) PetscCall(GpufmtDeviceGet(NULL, &stream));
  PetscCall(GpufmtKspKeep(ksp, own, GpufmtSumsRun(own->sums, n, (PetscScalar *)sums, stream)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode SumByMessages(KSP ksp, GpufmtKsp *own, PetscMPIInt n, double sums[])
{
  const PetscBool passes = (PetscBool)(own->backend != GPUFMT_BACKEND_HOST);
  double         *host   = sums;

  PetscFunctionBegin;
  if (passes) {
    PetscCall(PetscMalloc1(n, &host));
    PetscCall(GpufmtKspKeep(ksp, own, GpufmtCopyToHost(own->backend, host, sums, (size_t)n * sizeof(*sums))));
  }
  for (PetscMPIInt k = 0; own->failed && k < n; k++) host[k] = NAN;
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, host, n, MPI_DOUBLE, MPI_SUM, PetscObjectComm((PetscObject)ksp)));
  if (passes) {
    PetscCall(GpufmtKspKeep(ksp, own, GpufmtCopyToBackend(own->backend, sums, host, (size_t)n * sizeof(*sums))));
    PetscCall(PetscFree(host));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Sums of this rank, in the state, become those of all: no numbers, if one of them has failed. Collective. */
PetscErrorCode GpufmtKspSum(KSP ksp, GpufmtKsp *own, PetscMPIInt n, double sums[])
{
  void              *slots[GPUFMT_NUM_SLOTS] = {NULL};
  const GpufmtPlan  *plan;
  const GpufmtLease *lease;

  PetscFunctionBegin;
  if (own->recording) {
    PetscCall(GpufmtSumsPlan(own->sums, n, (PetscScalar *)sums, &plan, slots, &lease));
    PetscCall(GpufmtGraphAdd(own->graph, plan, slots, lease));
  } else if (own->sums) {
    for (PetscMPIInt first = 0; first < n; first += GPUFMT_MOST_KRYLOV_SUMS)
      PetscCall(SumThroughMemory(ksp, own, PetscMin(n - first, GPUFMT_MOST_KRYLOV_SUMS), sums + first));
  } else PetscCall(SumByMessages(ksp, own, n, sums));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A step that sums over ranks by itself, where these are several and GpufmtKspSumsAreLaunched(). A rank that has failed has it send what is no number, and gives
   it no vectors. Collective. */
PetscErrorCode GpufmtKspStepOfRanks(KSP ksp, GpufmtKsp *own, const GpufmtPlan *step, const GpufmtLease *lease, PetscInt n,
                                    const GpufmtKspVector vectors[])
{
  GpufmtKspVector all[GPUFMT_NUM_SLOTS] = {{.slot = GPUFMT_SLOT_MESSAGES}, {.slot = GPUFMT_SLOT_ARRIVALS}, {.slot = GPUFMT_SLOT_ALPHA}};
  const PetscInt  nothers               = 3;

  PetscFunctionBegin;
  GpufmtSumsTables(own->sums, &all[0].word, &all[1].word);
  PetscCall(PetscArraycpy(all + nothers, vectors, n));
  if (own->recording) {
    PetscCall(GpufmtKspRun(own->backend, step, nothers + n, all, own->graph, lease));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(GpufmtKspKeep(ksp, own, GpufmtSumsCheck(own->sums)));
  if (!own->failed) PetscCall(GpufmtKspKeep(ksp, own, GpufmtKspRun(own->backend, step, nothers + n, all, NULL, lease)));
  if (own->failed) {
    all[2].word = (void *)(intptr_t)1;
    PetscCall(GpufmtKspKeep(ksp, own, GpufmtKspRun(own->backend, step, nothers, all, NULL, lease)));
  }
  if (own->backend == GPUFMT_BACKEND_HOST) PetscCall(GpufmtKspKeep(ksp, own, GpufmtSumsCheck(own->sums)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---- plans ---- */

/* whether iterations one after the other are to be looked at: with the solution as it is then */
static int Watched(KSP ksp)
{
  return ksp->numbermonitors || (ksp->converged != KSPConvergedDefault && ksp->converged != KSPConvergedSkip);
}

/* Plans for the vectors of this rank, on all ranks or on none; what has failed so far on one fails on all. Collective. */
PetscErrorCode GpufmtKspPlansGet(KSP ksp, GpufmtKsp *own, int method, int backend)
{
  GpufmtKrylovRequest request = {.method = method, .restart = own->restart, .point_block = own->point_block};
  Mat                 A;
  PetscErrorCode      ierr;
  static int          last = 0;
  int                 flags[4], number;

  PetscFunctionBegin;
  PetscCall(PCGetOperators(ksp->pc, &A, NULL));
  request.nrows = A->rmap->n;
  own->method   = method;
  if (own->estimates && !GpufmtLeaseHolds(&own->lease)) PetscCall(GpufmtKspEstimatorFind(own, backend, request.nrows));
  flags[0] = !(GpufmtLeaseHolds(&own->lease) && own->backend == backend && own->nrows == request.nrows);
  flags[1] = Watched(ksp);
  flags[2] = own->number;
  flags[3] = -own->number;
  PetscCall(GpufmtAgree((PetscObject)ksp, "The beginning of a solve", own->failed, PETSC_STATIC_ARRAY_LENGTH(flags), flags));
  own->watched = (PetscBool)flags[1];
  if (!flags[0] && flags[2] == -flags[3]) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtKspQueueClear(own));
  ierr   = GpufmtPlannerAsk(GPUFMT_ASK_KRYLOV, backend, GPUFMT_Plan, NULL, &request.place, &own->plans.outcome, &own->lease);
  number = last + 1;
  PetscCall(GpufmtAgree((PetscObject)ksp, "The plan of a Krylov method", ierr, 1, &number));
  last         = number; /* larger than those of before on each of these ranks */
  own->number  = number;
  own->backend = backend;
  own->nrows   = A->rmap->n;
  if (own->plans.state) PetscCall(SumsGet(ksp, own)); /* which are in there */
  PetscFunctionReturn(PETSC_SUCCESS);
}
