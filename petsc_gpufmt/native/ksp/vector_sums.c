/* Sums over vectors where these are, by plans of the planner: dot products for estimates of eigenvalues, and a look at signs. One plan serves vectors
   of any length, so the process has one on each backend, as long as there is a PCGAMG or a solver of ours. They are for real numbers: complex vectors
   keep PETSc's. */
#include "ksp/ksp.h"
#include "gpufmt_plan_multigrid.h"

static struct {
  GpufmtLease            lease;
  GpufmtVectorSumsAnswer answer;
} plans[GPUFMT_NUM_BACKENDS];

static int nusers = 0; /* each a PCGAMG, or a KSP of ours */

void GpufmtVectorSumsUse(void)
{
  nusers++;
}

PetscErrorCode GpufmtVectorSumsLeave(void)
{
  PetscFunctionBegin;
  nusers--;
  for (int backend = 0; !nusers && backend < GPUFMT_NUM_BACKENDS; backend++) PetscCall(GpufmtLeaseDrop(&plans[backend].lease));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* makes the plan on a backend if it is not there; a rank may fail alone */
PetscErrorCode GpufmtVectorSumsPlan(int backend)
{
  GpufmtVectorSumsRequest request = {0};

  PetscFunctionBegin;
  if (!GpufmtLeaseHolds(&plans[backend].lease) && !PetscDefined(USE_COMPLEX))
    PetscCall(GpufmtPlannerAsk(GPUFMT_ASK_VECTOR_SUMS, backend, -1, NULL, &request.place, &plans[backend].answer.outcome, &plans[backend].lease));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The backend where an array of a vector is, if sums over it are made there: on the host where tests have arrays as on a device. Else negative. */
static int BackendOf(PetscMemType memtype)
{
  const int backend = PetscMemTypeDevice(memtype) ? GPUFMT_BACKEND_CUDA : GPUFMT_BACKEND_HOST;

  return GpufmtManagedPossible(backend) && GpufmtLeaseHolds(&plans[backend].lease) ? backend : -1;
}

/* replays a plan for an array of so many rows, and takes `n` sums to the host */
static PetscErrorCode Run(int backend, const GpufmtPlan *plan, PetscInt nrows, const PetscScalar *x, PetscInt n, PetscScalar sums[])
{
  void *slots[GPUFMT_NUM_SLOTS] = {NULL}, *stream = NULL;

  PetscFunctionBegin;
  slots[GPUFMT_SLOT_ALPHA] = (void *)(intptr_t)nrows;
  slots[GPUFMT_SLOT_X]     = (void *)x;
  if (backend == GPUFMT_BACKEND_CUDA) PetscCall(GpufmtDeviceGet(NULL, &stream));
  PetscCall(GpufmtReplay(plan, backend, slots, stream));
  PetscCall(GpufmtCopyToHost(backend, sums, plans[backend].answer.sums, (size_t)n * sizeof(*sums)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* sums[k] = x . vectors[k], of the rows of this rank; *done: false where it is left to PETSc */
static PetscErrorCode OwnDots(Vec x, PetscInt n, const Vec vectors[], PetscScalar sums[], PetscBool *done)
{
  int64_t            words[1 + GPUFMT_MOST_DOTS] = {n};
  const PetscScalar *arrays[1 + GPUFMT_MOST_DOTS];
  const PetscInt     nrows = x->map->n;
  int                backend;
  PetscMemType       memtype;

  PetscFunctionBegin;
  *done = PETSC_FALSE;
  if (n > GPUFMT_MOST_DOTS || !nrows) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(VecGetArrayReadAndMemType(x, &arrays[0], &memtype));
  backend = BackendOf(memtype);
  for (PetscInt k = 0; k < n; k++) {
    PetscCall(VecGetArrayReadAndMemType(vectors[k], &arrays[1 + k], &memtype));
    words[1 + k] = (int64_t)(intptr_t)arrays[1 + k];
    if (backend != BackendOf(memtype)) backend = -1;
  }
  if (backend >= 0) {
    PetscCall(GpufmtCopyToBackend(backend, plans[backend].answer.vectors, words, (size_t)(1 + n) * sizeof(*words)));
    PetscCall(Run(backend, &plans[backend].answer.dots, nrows, arrays[0], n, sums));
    PetscCall(PetscLogGpuFlops(2.0 * n * nrows));
  }
  for (PetscInt k = 0; k < n; k++) PetscCall(VecRestoreArrayReadAndMemType(vectors[k], &arrays[1 + k]));
  PetscCall(VecRestoreArrayReadAndMemType(x, &arrays[0]));
  *done = (PetscBool)(backend >= 0);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The same of all ranks: a rank may leave its own to PETSc, and takes part in the sum. PETSc's take a few blocks of the device for vectors of any
   length, and streams of their own where there are many. */
static PetscErrorCode VecMDot_Gpufmt(Vec x, PetscInt n, const Vec vectors[], PetscScalar sums[])
{
  PetscBool   done;
  PetscMPIInt count, nranks;

  PetscFunctionBegin;
  PetscCall(PetscMPIIntCast(n, &count));
  PetscCall(OwnDots(x, n, vectors, sums, &done));
  if (!done) PetscUseTypeMethod(x, mdot_local, n, vectors, sums);
  PetscCallMPI(MPI_Comm_size(PetscObjectComm((PetscObject)x), &nranks));
  if (nranks > 1) PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, sums, count, MPIU_SCALAR, MPIU_SUM, PetscObjectComm((PetscObject)x)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A vector, and what is made by VecDuplicate() of it from now on, has our dot products, until GpufmtVectorDotsGiveBack(): the basis that a KSP makes
   for an estimate is made of its solution. */
PetscErrorCode GpufmtVectorDotsTake(Vec vector, GpufmtVectorDots *dots)
{
  PetscFunctionBegin;
  if (!vector->ops->mdot_local || vector->ops->mdot == VecMDot_Gpufmt || PetscDefined(USE_COMPLEX)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscObjectReference((PetscObject)vector));
  *dots             = (GpufmtVectorDots){.vector = vector, .dots = vector->ops->mdot};
  vector->ops->mdot = VecMDot_Gpufmt;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtVectorDotsGiveBack(GpufmtVectorDots *dots)
{
  PetscFunctionBegin;
  if (dots->vector && dots->vector->ops->mdot == VecMDot_Gpufmt) dots->vector->ops->mdot = dots->dots;
  PetscCall(VecDestroy(&dots->vector));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* whether all entries of this rank are above 0 */
PetscErrorCode GpufmtVectorIsPositive(Vec x, PetscBool *positive)
{
  PetscScalar        count = 0.0;
  PetscMemType       memtype;
  const PetscScalar *array;
  int                backend;

  PetscFunctionBegin;
  PetscCall(VecGetArrayReadAndMemType(x, &array, &memtype));
  backend = PetscMemTypeDevice(memtype) ? GPUFMT_BACKEND_CUDA : GPUFMT_BACKEND_HOST;
  PetscCall(GpufmtVectorSumsPlan(backend));
  if (x->map->n) PetscCall(Run(backend, &plans[backend].answer.not_positive, x->map->n, array, 1, &count));
  PetscCall(VecRestoreArrayReadAndMemType(x, &array));
  *positive = (PetscBool)(count == 0.0);
  PetscFunctionReturn(PETSC_SUCCESS);
}
