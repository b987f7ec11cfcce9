/* Who may use what the planner has made. Python owns it under a token; a lease holds the token and gives it back once. When Python or PETSc ends,
   all of it goes at once, wherever the leases are: they are of an earlier generation from then on. */
#include "runtime/runtime.h"

int64_t gpufmt_generation = 1;

void GpufmtLeaseTake(GpufmtLease *lease, int64_t token)
{
  *lease = (GpufmtLease){.token = token, .generation = gpufmt_generation};
}

void GpufmtLeaseMove(GpufmtLease *from, GpufmtLease *to)
{
  *to   = *from;
  *from = (GpufmtLease){0};
}

PetscErrorCode GpufmtLeaseDrop(GpufmtLease *lease)
{
  const GpufmtLease dropped = *lease;

  PetscFunctionBegin;
  *lease = (GpufmtLease){0};
  if (GpufmtLeaseHolds(&dropped)) {
    GpufmtGraphsForget(dropped.token);
    PetscCall(GpufmtPlannerRelease(dropped.token));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ends all leases: with `release` because PETSc ends and Python may free its arrays, without because Python has freed them itself */
PetscErrorCode GpufmtLeasesForget(PetscBool release)
{
  PetscFunctionBegin;
  gpufmt_generation++;
  if (release) PetscCall(GpufmtPlannerReleaseAll());
  PetscFunctionReturn(PETSC_SUCCESS);
}
