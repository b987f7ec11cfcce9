/* What is begun once and for all is left out of the events in progress, as PETSc does when it starts a device. */
#include "runtime/runtime.h"

/* PETSc pauses events by their numbers and not as they are nested, which is an error to -log_view_memory: there they go on. */
static PetscBool EventsCanPause(void)
{
#if PetscDefined(USE_LOG)
  return (PetscBool)!PetscLogMemory;
#else
  return PETSC_TRUE;
#endif
}

PetscErrorCode GpufmtEventsPause(void)
{
  PetscFunctionBegin;
  if (EventsCanPause()) PetscCall(PetscLogEventsPause());
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtEventsResume(void)
{
  PetscFunctionBegin;
  if (EventsCanPause()) PetscCall(PetscLogEventsResume());
  PetscFunctionReturn(PETSC_SUCCESS);
}
