/* Uploads beside the thread that asks for them, on a stream of their own: it goes on meanwhile, on the host and on the device. */
#include "memory/memory.h"
#include "runtime/driver.h"

#if PetscDefined(HAVE_CUDA)
  #include <pthread.h>

static struct {
  pthread_t       thread;
  PetscBool       runs; /* is to be joined */
  GpufmtUploadJob jobs[GPUFMT_MAX_UPLOADS];
  bool            staged[GPUFMT_MAX_UPLOADS]; /* by GpufmtStagingUpload() */
  int             njobs;
  GpufmtBeside    device;
  CudaResult      result;
} beside;

static const size_t worth_a_thread = (size_t)1 << 19; /* which begins after some 40 us */

static void *Run(void *unused)
{
  void *const stream = beside.device.stream;

  beside.result = gpufmt_driver.CtxSetCurrent(beside.device.context);
  for (int k = 0; k < beside.njobs && !beside.result; k++) {
    const GpufmtUploadJob *job = &beside.jobs[k];

    beside.result = GpufmtUploadPageable(job->dev, job->host, job->bytes, beside.staged[k], stream);
  }
  return NULL;
}

/* the thread has what it needs: what was queued on PETSc's stream comes before what it sends */
static PetscErrorCode Start(void *stream)
{
  PetscFunctionBegin;
  if (!beside.device.stream) PetscCall(GpufmtBesideCreate(&beside.device));
  PetscCall(GpufmtBesideFollow(&beside.device, stream));
  for (int k = 0; k < beside.njobs; k++) beside.staged[k] = GpufmtStagingServesUpload(beside.jobs[k].bytes);
  CallDriver("an upload", GpufmtStagingLend());
  beside.runs = (PetscBool)!GpufmtThreadCreate(&beside.thread, NULL, Run, NULL);
  if (!beside.runs) GpufmtStagingTakeBack();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Begins at most GPUFMT_MAX_UPLOADS uploads; what does not take long is done here. Until GpufmtUploadsEnd() the host arrays must stay as they are, and
   nothing on the device may use where they go. Other uploads go on meanwhile, with one thread each. */
PetscErrorCode GpufmtUploadsBegin(int n, const GpufmtUploadJob jobs[], void *stream)
{
  PetscFunctionBegin;
  PetscCall(GpufmtUploadsEnd());
  beside.njobs = 0;
  for (int k = 0; k < n; k++) {
    PetscBool pageable;

    PetscCall(GpufmtUploadPrepare(jobs[k].host, jobs[k].bytes, &pageable));
    if (pageable && jobs[k].bytes >= worth_a_thread) beside.jobs[beside.njobs++] = jobs[k];
    else PetscCall(GpufmtDeviceUpload(jobs[k].dev, jobs[k].host, jobs[k].bytes, stream));
  }
  if (!beside.njobs) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(Start(stream));
  for (int k = 0; k < beside.njobs && !beside.runs; k++) /* there are no more threads */
    PetscCall(GpufmtDeviceUpload(beside.jobs[k].dev, beside.jobs[k].host, beside.jobs[k].bytes, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The host arrays may change, and what follows on PETSc's stream finds them on the device. */
PetscErrorCode GpufmtUploadsEnd(void)
{
  void *stream;

  PetscFunctionBegin;
  if (!beside.runs) PetscFunctionReturn(PETSC_SUCCESS);
  (void)pthread_join(beside.thread, NULL);
  beside.runs = PETSC_FALSE;
  GpufmtStagingTakeBack();
  PetscCall(GpufmtDeviceGet(NULL, &stream));
  PetscCall(GpufmtBesideJoin(&beside.device, stream));
  CallDriver("upload", beside.result);
  for (int k = 0; k < beside.njobs; k++) PetscCall(PetscLogCpuToGpu((PetscLogDouble)beside.jobs[k].bytes));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtUploadsFinalize(void)
{
  PetscFunctionBegin;
  PetscCall(GpufmtUploadsEnd());
  PetscCall(GpufmtBesideDestroy(&beside.device));
  PetscFunctionReturn(PETSC_SUCCESS);
}

#else

PetscErrorCode GpufmtUploadsBegin(int n, const GpufmtUploadJob jobs[], void *stream)
{
  return GpufmtNoDevice();
}

PetscErrorCode GpufmtUploadsEnd(void)
{
  return PETSC_SUCCESS;
}
#endif
