/* The planner at work: it is asked for plans, and given back what it made. */
#include "runtime/runtime.h"
#include <stdatomic.h>
#include <unistd.h>

PetscLogEvent GPUFMT_Plan = 0;

PetscLogEvent GPUFMT_Compile = -1; /* the types are not registered */

static GpufmtPlanner planner;
static atomic_bool   planner_set  = false; /* by the thread of start.c, it may be: what that wrote before is seen by whoever sees this */
static atomic_bool   python_ended = false;

/* called by petsc_gpufmt.planner; returns the version that this library speaks, the caller compares */
PETSC_EXTERN int GpufmtSetPlanner(const GpufmtPlanner *p)
{
  if (p->abi_version == GPUFMT_ABI_VERSION) {
    planner = *p;
    atomic_store(&python_ended, false);
    atomic_store(&planner_set, true);
  }
  return GPUFMT_ABI_VERSION;
}

PetscBool GpufmtPlannerPresent(void)
{
  return (PetscBool)(planner_set || python_ended);
}

/* For the thread of start.c. No interrupt is taken away as below, since a Python that handles interrupts has no such thread. */
bool GpufmtPlannerPrepare(const GpufmtPlace *place, const char format[])
{
  return planner_set && planner.prepare && planner.prepare(place, format);
}

void GpufmtPlannerEnd(void)
{
  atomic_store(&planner_set, false);
  atomic_store(&python_ended, true);
}

/* An interrupt that waits would be raised before the first line of a callback, where nothing catches it: it waits until the callback is over. */
#define CallPlanner(call) \
  do { \
    const PetscBool interrupted_ = GpufmtPythonTakeInterrupt(); \
    call; \
    if (interrupted_) GpufmtPythonInterrupt(); \
  } while (0)

/* the same of one that is over soon, and does not tell of interrupts */
#define CallPlannerToItsEnd(call) \
  do { \
    GpufmtPythonHoldInterrupts(); \
    CallPlanner(call); \
    GpufmtPythonHearInterrupts(); \
  } while (0)

/* The planner names the files of kernels that plans may need at a place, those of the format first. */
void GpufmtPlannerNameKernels(const GpufmtPlace *place, const char format[], int64_t block_size)
{
  if (planner_set && planner.name_kernels) CallPlannerToItsEnd(planner.name_kernels(place, format, block_size));
}

/* For petsc_gpufmt/planning/planner.py: from here on an interrupt is caught, also one that has come since the plan was asked for. */
PETSC_EXTERN void GpufmtPlanEntered(GpufmtOutcome *answer)
{
  if (!answer->entering) return;
  answer->entering = 0;
  GpufmtPythonHearInterrupts();
}

static pid_t compiling = 0; /* the process whose threads compile; a child has none of them */

/* The program ends without PetscFinalize(): a thread that is in the compiler would crash once its library is closed, which is next. */
static void StopCompiling(void)
{
  if (!planner_set || compiling != getpid()) return;
  gpufmt_generation++;
  CallPlannerToItsEnd(planner.release_all());
}

/* For petsc_gpufmt/backends/native_library.py: what is compiled in the thread of start.c, nobody waits for. */
PETSC_EXTERN PetscErrorCode GpufmtLogCompile(int begins)
{
  static atomic_flag registered = ATOMIC_FLAG_INIT; /* what stops them */

  compiling = getpid();
  if (!begins && !atomic_flag_test_and_set(&registered))
    (void)atexit(StopCompiling); /* after the compiler has begun, and so before what it does at the end */
  if (GpufmtStartIsHere()) return PETSC_SUCCESS;
  PetscFunctionBegin;
  if (GPUFMT_Compile >= 0 && begins) PetscCall(PetscLogEventBegin(GPUFMT_Compile, 0, 0, 0, 0));
  if (GPUFMT_Compile >= 0 && !begins) PetscCall(PetscLogEventEnd(GPUFMT_Compile, 0, 0, 0, 0));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* waits for what start.c has begun, and does what is not done */
static PetscErrorCode PlannerStart(Mat A)
{
  PetscErrorCode ierr = PETSC_SUCCESS;

  PetscFunctionBegin;
  PetscCall(PetscLogEventBegin(GPUFMT_Start, A, 0, 0, 0));
  GpufmtStartJoin();
  if (!planner_set && !python_ended) ierr = GpufmtPythonStart();
  PetscCall(PetscLogEventEnd(GPUFMT_Start, A, 0, 0, 0));
  PetscCall(ierr);
  PetscCheck(!python_ended, PETSC_COMM_SELF, PETSC_ERR_ORDER,
             "This product needs a plan, but Python, which makes the plans, has ended in this process: multiply before the interpreter exits");
  PetscCheck(
    planner_set, PETSC_COMM_SELF, PETSC_ERR_SUP,
    "Python imported petsc_gpufmt, but it uses another copy of libpetscgpufmt.so than this program: load the one that `python -m petsc_gpufmt options` names");
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Ask(int ask, int backend, PetscLogEvent event, Mat A, GpufmtPlace *request, GpufmtOutcome *answer)
{
  int device = 0;

  PetscFunctionBegin;
  if (!planner_set || GpufmtStartRuns()) PetscCall(PlannerStart(A));
  *request = (GpufmtPlace){.backend      = backend,
                           .index_bytes  = sizeof(PetscInt),
                           .scalar_bytes = request->scalar_bytes ? request->scalar_bytes : (int32_t)sizeof(PetscScalar),
                           .is_complex   = PetscDefined(USE_COMPLEX)};
  if (backend == GPUFMT_BACKEND_CUDA) PetscCall(GpufmtDeviceGet(&device, &request->stream));
  request->device = device;
  *answer         = (GpufmtOutcome){
    .error    = PETSC_ERR_LIB,
    .entering = 1,
    .message =
      "A plan was not made, because Python failed before it could answer, and has printed the exception: if it is a MemoryError, use more ranks"};
  if (event >= 0)
    PetscCall(PetscLogEventBegin(event, A, 0, 0, 0)); /* after all that may fail: an event that does not end is in the way of the next plan */
  GpufmtPythonHoldInterrupts();
  CallPlanner(planner.plan(ask, request, answer));
  GpufmtPlanEntered(answer); /* if Python failed before it said so */
  if (event >= 0) PetscCall(PetscLogEventEnd(event, A, 0, 0, 0));
  if (answer->interrupted) GpufmtPythonInterrupt();
  if (!answer->token && !answer->error) answer->error = PETSC_ERR_LIB;
  PetscCheck(!answer->error, PETSC_COMM_SELF, (PetscErrorCode)answer->error, "%s", answer->message);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Asks for plans, during `event` of A if it is not negative. Request and answer are the heads of the structures of GPUFMT_ASK_...; the place is
   filled in here, but for the bytes of a scalar if they are not 0. What the lease held goes before, and after a failure it holds nothing. The first plan on a backend starts Python and
   loads kernels: PETSc's log leaves such initialisation out of the events in progress. */
PetscErrorCode GpufmtPlannerAsk(int ask, int backend, PetscLogEvent event, Mat A, GpufmtPlace *request, GpufmtOutcome *answer, GpufmtLease *lease)
{
  static PetscBool started[GPUFMT_NUM_BACKENDS] = {PETSC_FALSE, PETSC_FALSE};
  const PetscBool  is_first                     = (PetscBool)!started[backend]; /* a plan within this one may be over before it */
  PetscErrorCode   ierr;

  PetscFunctionBegin;
  PetscCall(GpufmtLeaseDrop(lease));
  if (is_first) PetscCall(GpufmtEventsPause());
  ierr = Ask(ask, backend, event, A, request, answer);
  if (is_first) PetscCall(GpufmtEventsResume());
  PetscCall(ierr);
  started[backend] = PETSC_TRUE;
  GpufmtLeaseTake(lease, answer->token);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtPlannerRelease(int64_t token)
{
  PetscFunctionBegin;
  if (!planner_set) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtDeviceSettle());
  CallPlannerToItsEnd(planner.release(token));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtPlannerReleaseAll(void)
{
  PetscFunctionBegin;
  if (!planner_set) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtDeviceSettle());
  CallPlannerToItsEnd(planner.release_all());
  PetscFunctionReturn(PETSC_SUCCESS);
}

void GpufmtPlannerFreePool(void)
{
  if (planner_set && !GpufmtStartRuns()) CallPlannerToItsEnd(planner.free_pool());
}
