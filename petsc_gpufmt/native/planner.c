/* The planner at work, and who ends first: Python (it tells us to forget) or PETSc (we give everything back). */
#include "gpufmt_impl.h"

static GpufmtPlanner planner;
static PetscBool     planner_set = PETSC_FALSE, python_ended = PETSC_FALSE;

/* called by petsc_gpufmt.planner; returns the version that this library speaks, the caller compares */
int GpufmtSetPlanner(const GpufmtPlanner *p)
{
  if (p->abi_version == GPUFMT_ABI_VERSION) {
    planner      = *p;
    planner_set  = PETSC_TRUE;
    python_ended = PETSC_FALSE;
  }
  return GPUFMT_ABI_VERSION;
}

void GpufmtPlannerEnd(void)
{
  planner_set  = PETSC_FALSE;
  python_ended = PETSC_TRUE;
}

PetscErrorCode GpufmtPlannerGet(const GpufmtPlanner **out)
{
  PetscFunctionBegin;
  PetscCheck(!python_ended, PETSC_COMM_SELF, PETSC_ERR_ORDER, "This product needs a plan, but Python, which makes the plans, has ended in this process: multiply before the interpreter exits");
  if (!planner_set) PetscCall(GpufmtPythonStart());
  PetscCheck(planner_set, PETSC_COMM_SELF, PETSC_ERR_SUP, "Python imported petsc_gpufmt, but it uses another copy of libpetscgpufmt.so than this program: load the one that `python -m petsc_gpufmt options` names");
  *out = &planner;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Calls the planner; what came of it is in the outcome, whatever Python raised. An interrupt that waits would be raised before the first line
   of the callback, where nothing catches it: it waits until the callback is over. */
void GpufmtPlannerAsk(GpufmtAsk ask, const void *request, GpufmtOutcome *outcome)
{
  const PetscBool interrupted = GpufmtPythonTakeInterrupt();

  *outcome = (GpufmtOutcome){.error = PETSC_ERR_LIB, .message = "A plan was not made, because Python failed before it could answer, and has printed the exception: if it is a MemoryError, use more ranks"};
  ask(request, outcome);
  if (!outcome->token && !outcome->error) outcome->error = PETSC_ERR_LIB;
  if (interrupted || outcome->interrupted) GpufmtPythonInterrupt();
}

PetscErrorCode GpufmtPlannerRelease(int64_t token)
{
  PetscBool interrupted;

  PetscFunctionBegin;
  if (!planner_set) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtDeviceSettle());
  interrupted = GpufmtPythonTakeInterrupt(); /* as in GpufmtPlannerAsk() */
  planner.release(token);
  if (interrupted) GpufmtPythonInterrupt();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The first plan on a backend starts Python or CuPy and loads kernels: PETSc's log leaves such initialisation out of the events in progress.
   GpufmtFirstPlanEnd() hands on the error code of the plan. */
static PetscBool started[GPUFMT_NUM_BACKENDS] = {PETSC_FALSE, PETSC_FALSE};

PetscErrorCode GpufmtFirstPlanBegin(int backend)
{
  PetscErrorCode ierr = PETSC_SUCCESS;

  PetscFunctionBegin;
  if (started[backend]) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscLogEventsPause());
  if (backend == GPUFMT_BACKEND_CUDA) ierr = GpufmtUploadInitialize();
  if (ierr) PetscCall(PetscLogEventsResume());
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtFirstPlanEnd(int backend, PetscErrorCode ierr)
{
  PetscFunctionBegin;
  if (!started[backend]) PetscCall(PetscLogEventsResume());
  PetscCall(ierr);
  started[backend] = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

void GpufmtPlannerFreePool(void)
{
  PetscBool interrupted;

  if (!planner_set) return;
  interrupted = GpufmtPythonTakeInterrupt(); /* as in GpufmtPlannerAsk() */
  planner.free_pool();
  if (interrupted) GpufmtPythonInterrupt();
}
