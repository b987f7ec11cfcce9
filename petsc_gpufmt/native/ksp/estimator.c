/* Solvers that estimate eigenvalues, for smoothers and prolongators: a few steps of PETSc's KSPGMRES or KSPCG. Where vectors are on a device it gets our
   solve, and keeps its type, by which options and views name it. All steps are queued before the host looks at what came out. Estimators come and go with
   the set-ups of a PCGAMG: what one has made for its solves goes to the next of its kind. */
#include "ksp/ksp.h"

enum { MOST_KEPT = 32 };

/* of a solver that has ended */
typedef struct {
  MPI_Comm           comm;
  int                method, backend, number;
  PetscInt           nrows, restart;
  GpufmtLease        lease;
  GpufmtKrylovAnswer plans;
  GpufmtSums         sums;
} Kept;

static Kept kept[MOST_KEPT]; /* the first `nkept`, the oldest first */
static int  nkept = 0;

static PetscErrorCode Drop(int k)
{
  Kept dropped = kept[k];

  PetscFunctionBegin;
  for (nkept--; k < nkept; k++) kept[k] = kept[k + 1];
  PetscCall(GpufmtSumsDestroy(&dropped.sums));
  PetscCall(GpufmtLeaseDrop(&dropped.lease));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* nobody is left to use what is kept */
PetscErrorCode GpufmtKspEstimatorsForget(void)
{
  PetscFunctionBegin;
  while (nkept) PetscCall(Drop(nkept - 1));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What an estimator has made is kept for the next, unless a solve has failed: it has nothing then. */
PetscErrorCode GpufmtKspEstimatorKeep(GpufmtKsp *own)
{
  PetscFunctionBegin;
  if (own->failed || !GpufmtLeaseHolds(&own->lease)) PetscFunctionReturn(PETSC_SUCCESS);
  if (nkept == MOST_KEPT) PetscCall(Drop(0));
  kept[nkept] = (Kept){.comm    = own->comm,
                       .method  = own->method,
                       .backend = own->backend,
                       .number  = own->number,
                       .nrows   = own->nrows,
                       .restart = own->restart,
                       .plans   = own->plans,
                       .sums    = own->sums};
  GpufmtLeaseMove(&own->lease, &kept[nkept++].lease);
  own->sums = NULL;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* An estimator without plans gets those that are kept of one of its kind, if there are some. Ranks may find those of different ones, which their numbers
   tell. */
PetscErrorCode GpufmtKspEstimatorFind(GpufmtKsp *own, int backend, PetscInt nrows)
{
  PetscFunctionBegin;
  for (int k = nkept - 1; k >= 0; k--) {
    Kept *found = &kept[k];

    if (!GpufmtLeaseHolds(&found->lease)) {
      PetscCall(Drop(k));
      continue;
    }
    if (found->comm != own->comm || found->method != own->method || found->backend != backend || found->nrows != nrows ||
        found->restart != own->restart)
      continue;
    GpufmtLeaseMove(&found->lease, &own->lease);
    own->plans   = found->plans;
    own->sums    = found->sums;
    own->backend = backend;
    own->number  = found->number;
    own->nrows   = nrows;
    found->sums  = NULL;
    PetscCall(Drop(k));
    break;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A KSP of type KSPGMRES or KSPCG, which is about to estimate eigenvalues of A with options of its own, gets our solve. Nothing is done for other types,
   for complex numbers, or where A is not ours on the device of each rank. Collective. */
PetscErrorCode GpufmtKspEstimatorTake(KSP ksp, Mat A)
{
  GpufmtKsp *own;
  PetscBool  is_gmres, is_cg, on_device;

  PetscFunctionBegin;
  PetscCall(PetscObjectTypeCompare((PetscObject)ksp, KSPGMRES, &is_gmres));
  PetscCall(PetscObjectTypeCompare((PetscObject)ksp, KSPCG, &is_cg));
  PetscCall(GpufmtKspGet(ksp, &own));
  if (own || !(is_gmres || is_cg) || PetscDefined(USE_COMPLEX)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtKspOnDevice(A, &on_device));
  if (!on_device) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtKspTake(ksp, is_gmres ? KSPSolve_GPUGMRES : KSPSolve_GPUCG, ksp->ops->setfromoptions));
  PetscCall(GpufmtKspGet(ksp, &own));
  own->estimates = PETSC_TRUE;
  own->comm      = PetscObjectComm((PetscObject)ksp);
  own->check     = GPUFMT_KRYLOV_RECORDS;
  own->graphs    = PETSC_FALSE; /* to record so few steps takes longer than to launch them */
  PetscFunctionReturn(PETSC_SUCCESS);
}
