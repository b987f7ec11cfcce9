/* Python starts beside the application: a thread does, in steps, what the first plan of the process would have to do first. It calls nothing of
   PETSc or MPI. A step that fails is done again by the first plan, which says why. Kernels are loaded beside that. In a Python program the last step
   is left: modules that later plans need are imported while PETSc starts its device. */
#define _GNU_SOURCE /* pthread_timedjoin_np() */
#include "runtime/driver.h"
#include <fenv.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

PetscLogEvent GPUFMT_Start = 0;

static const size_t stack_bytes    = (size_t)16 << 20; /* as a main thread has: a compiler may run there */
static const time_t seconds_at_end = 1;

static struct {
  GpufmtPlace place;
  const char *format;
  PetscInt    block_size;
  void       *context; /* of the device; NULL: not made so far */
} wanted;

static pthread_t          thread;
static atomic_bool        runs        = false;                     /* it has been made, and is not joined */
static int                first_step  = 0;                         /* with which it begins */
static atomic_int         nsteps      = 0;                         /* that it is to do */
static pthread_mutex_t    step_lock   = PTHREAD_MUTEX_INITIALIZER; /* held by the thread during a step: between two, it holds nothing else either */
static pthread_mutex_t    wanted_lock = PTHREAD_MUTEX_INITIALIZER; /* held by PETSc's thread until it knows its device */
static _Thread_local bool here = false, locked = false;
static PetscBool          asked = PETSC_FALSE, begun = PETSC_FALSE;

static bool StartPython(void)
{
  GpufmtMessage message;

  return !GpufmtPythonRun(message);
}

static bool ImportNumpy(void)
{
  GpufmtMessage message;

  return !GpufmtPythonImport("numpy", message);
}

static bool ImportPackage(void)
{
  GpufmtMessage message;

  return !GpufmtPythonImport("petsc_gpufmt", message);
}

static void LoadKernels(void)
{
  GpufmtPlannerNameKernels(&wanted.place, wanted.format, wanted.block_size);
  GpufmtKernelsStart(wanted.place.device, wanted.context);
}

static bool PrepareFirst(void)
{
  if (wanted.place.backend == GPUFMT_BACKEND_CUDA) {
    LoadKernels();
    if (!GpufmtDeviceEnter(wanted.place.device, wanted.context)) return false;
  }
  (void)GpufmtPlannerPrepare(&wanted.place, wanted.format);
  return true;
}

/* after what every first plan needs: it may upload nothing large */
static bool PrepareUploads(void)
{
  if (wanted.place.backend == GPUFMT_BACKEND_CUDA) GpufmtStagingMake();
  return true;
}

/* in short steps, as the first plan waits for one in progress */
static bool PrepareLater(void)
{
  return GpufmtPlannerPrepare(&wanted.place, NULL);
}

static bool (*const steps[])(void) = {StartPython, ImportNumpy, ImportPackage, PrepareFirst, PrepareUploads, PrepareLater};
enum {
  LAST_STEP           = PETSC_STATIC_ARRAY_LENGTH(steps) - 1,
  STEPS_OF_FIRST_PLAN = LAST_STEP - 1,
  FIRST_WANTED        = STEPS_OF_FIRST_PLAN - 1,
  ALL_STEPS           = 1 << 20
}; /* the last until nothing is left */

/* The process ends without PetscFinalize(): libraries that the thread may be in are closed next. A step that takes longer is left alone. */
static void AtExit(void)
{
  struct timespec until;
  void           *python;

  if (here || !runs) return;
  atomic_store(&nsteps, 0);
  python = GpufmtPythonPause();
  (void)clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += seconds_at_end;
  (void)pthread_timedjoin_np(thread, NULL, &until);
  atomic_store(&runs, false);
  GpufmtPythonGoOn(python);
}

static void *Run(void *unused)
{
  bool done = true;

  here = true;
  (void)fesetenv(FE_DFL_ENV); /* with -fp_trap, NumPy would trap while it is imported */
  for (int k = first_step; done && k < atomic_load(&nsteps); k++) {
    if (k == FIRST_WANTED) { /* not during the step: a fork() would wait for it */
      (void)pthread_mutex_lock(&wanted_lock);
      (void)pthread_mutex_unlock(&wanted_lock);
      if (k >= atomic_load(&nsteps)) break;
    }
    (void)pthread_mutex_lock(&step_lock);
    done = steps[k < LAST_STEP ? k : LAST_STEP]();
    (void)pthread_mutex_unlock(&step_lock);
    if (k <= LAST_STEP) (void)atexit(AtExit); /* once more, to come before what the libraries of this step do at the end */
  }
  return NULL;
}

/* A fork() waits for the step in progress. The child has no such thread, and its first plan does the other steps. */
static void BeforeFork(void)
{
  void *python;

  locked = !here && runs;
  if (!locked) return;
  python = GpufmtPythonPause();
  (void)pthread_mutex_lock(&step_lock);
  GpufmtPythonGoOn(python);
}

static void AfterForkInParent(void)
{
  if (locked) (void)pthread_mutex_unlock(&step_lock);
}

static void AfterForkInChild(void)
{
  if (locked) (void)pthread_mutex_unlock(&step_lock);
  atomic_store(&runs, false);
}

static PetscErrorCode Begin(int first)
{
  pthread_attr_t attributes;

  PetscFunctionBegin;
  if (!begun) {
    (void)atexit(AtExit);
    (void)pthread_atfork(BeforeFork, AfterForkInParent, AfterForkInChild);
  }
  begun      = PETSC_TRUE;
  first_step = first;
  atomic_store(&nsteps, ALL_STEPS);
  (void)pthread_attr_init(&attributes);
  (void)pthread_attr_setstacksize(&attributes, stack_bytes);
  atomic_store(&runs, true);
  if (GpufmtThreadCreate(&thread, &attributes, Run, NULL)) atomic_store(&runs, false); /* no more threads: the first plan does it all */
  (void)pthread_attr_destroy(&attributes);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* whether -mat_bind_below keeps the matrix on the host, which is about to read that option */
static PetscErrorCode StaysBelow(Mat A, PetscBool *stays)
{
  PetscOptions options;
  const char  *prefix;
  PetscInt     nrows, below = 0;

  PetscFunctionBegin;
  PetscCall(PetscObjectGetOptions((PetscObject)A, &options));
  PetscCall(MatGetOptionsPrefix(A, &prefix));
  PetscCall(MatGetLocalSize(A, &nrows, NULL));
  PetscCall(PetscOptionsGetInt(options, prefix, "-mat_bind_below", &below, NULL));
  *stays = (PetscBool)(nrows >= 0 && nrows < below);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Python belongs to someone else: the program has its library already, or PETSc's types `python` are asked for, which want to start it themselves */
static PetscErrorCode LeftToOthers(PetscBool *left)
{
  char *options;

  PetscFunctionBegin;
  *left = (PetscBool)(!begun && GpufmtPythonPresent());
  PetscCall(PetscOptionsGetAll(NULL, &options));
  if (strstr(options, "_type python")) *left = PETSC_TRUE;
  PetscCall(PetscFree(options));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* waits for the steps before the last one, or for that in progress */
static void Join(int last)
{
  void *python;

  if (!runs) return;
  atomic_store(&nsteps, last);
  python = GpufmtPythonPause();
  (void)pthread_join(thread, NULL);
  atomic_store(&runs, false);
  GpufmtPythonGoOn(python);
  GpufmtPythonStay();
}

/* the device that matrices will be on is known from here on */
static PetscErrorCode FindPlace(void)
{
  int device;

  PetscFunctionBegin;
  if (!GpufmtDeviceUsable()) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtDeviceKnown(&device, &wanted.context));
  if (device < 0) PetscFunctionReturn(PETSC_SUCCESS);
  wanted.place.backend = GPUFMT_BACKEND_CUDA;
  wanted.place.device  = device;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Python starts while PETSc starts its device */
static PetscErrorCode StartBeside(void)
{
  PetscErrorCode ierr;

  PetscFunctionBegin;
  (void)pthread_mutex_lock(&wanted_lock);
  PetscCall(Begin(0));
  ierr = FindPlace();
  (void)pthread_mutex_unlock(&wanted_lock);
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Python is here. Where PETSc has to start one of several devices now, which takes longer than to import what is left, the caller lets go of Python for that
   time, and waits for the module in progress alone. Else it would wait for nothing but these modules, of which it may want few. */
static PetscErrorCode ImportBeside(void)
{
  const PetscBool beside = (PetscBool)(GpufmtDeviceToChoose() && GpufmtPythonFind());
  void           *python = NULL;
  PetscErrorCode  ierr;

  PetscFunctionBegin;
  if (beside) {
    python = GpufmtPythonPause();
    PetscCall(Begin(LAST_STEP));
  }
  ierr = FindPlace();
  if (beside) {
    Join(0);
    GpufmtPythonGoOn(python);
  }
  PetscCall(ierr);
  if (wanted.place.backend == GPUFMT_BACKEND_CUDA) LoadKernels();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Called for every matrix that gets a type of ours, of the named format; begins once, if the matrix will be on a device. */
PetscErrorCode GpufmtStartEarly(Mat A, const char format[])
{
  PetscBool early, stays = PETSC_FALSE, left = PETSC_FALSE, python;

  PetscFunctionBegin;
  if (asked) PetscFunctionReturn(PETSC_SUCCESS);
  early = GpufmtDeviceUsable();
  PetscCall(PetscOptionsGetBool(NULL, NULL, "-gpufmt_start_early", &early, NULL));
  if (early) PetscCall(StaysBelow(A, &stays));
  if (stays) PetscFunctionReturn(PETSC_SUCCESS); /* another matrix may be larger */
  asked  = PETSC_TRUE;
  python = GpufmtPlannerPresent();
  if (early && !python) PetscCall(LeftToOthers(&left));
  if (!early || left) PetscFunctionReturn(PETSC_SUCCESS);
  wanted.place  = (GpufmtPlace){.backend      = GPUFMT_BACKEND_HOST,
                                .index_bytes  = sizeof(PetscInt),
                                .scalar_bytes = sizeof(PetscScalar),
                                .is_complex   = PetscDefined(USE_COMPLEX)};
  wanted.format = format;
  PetscCall(MatGetBlockSize(A, &wanted.block_size));
  if (python) PetscCall(ImportBeside());
  else PetscCall(StartBeside());
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* whether it is the thread of this file that asks */
PetscBool GpufmtStartIsHere(void)
{
  return (PetscBool)here;
}

PetscBool GpufmtStartRuns(void)
{
  return (PetscBool)runs;
}

/* waits for what the first plan needs */
void GpufmtStartJoin(void)
{
  Join(STEPS_OF_FIRST_PLAN);
}

/* PETSc ends: waits for the step in progress alone */
void GpufmtStartEnd(void)
{
  Join(0);
  asked = PETSC_FALSE;
}
