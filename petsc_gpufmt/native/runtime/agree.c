/* What all ranks of a communicator agree on before any of them acts. */
#include "runtime/runtime.h"

enum { MOST_FLAGS = 4 };

/* What fails on one rank fails on all, with a message that names it, `what`; and flags become the largest of all ranks. Collective. */
PetscErrorCode GpufmtAgreeOn(MPI_Comm comm, const char what[], PetscErrorCode own, int n, int flags[])
{
  int worst[1 + MOST_FLAGS] = {(int)own};

  PetscFunctionBegin;
  for (int k = 0; k < n; k++) worst[1 + k] = flags[k];
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, worst, 1 + n, MPI_INT, MPI_MAX, comm));
  PetscCall(own);
  PetscCheck(!worst[0], PETSC_COMM_SELF, (PetscErrorCode)worst[0], "%s failed on another rank, which says why", what);
  for (int k = 0; k < n; k++) flags[k] = worst[1 + k];
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the same of the ranks of an object */
PetscErrorCode GpufmtAgree(PetscObject object, const char what[], PetscErrorCode own, int n, int flags[])
{
  return GpufmtAgreeOn(PetscObjectComm(object), what, own, n, flags);
}
