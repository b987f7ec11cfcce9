/* Uploads beside the thread that asks for them, which does something else on the host meanwhile: nothing else goes to the device before they have
   ended. */
#include "memory/memory.h"
#include "runtime/driver.h"

#if PetscDefined(HAVE_CUDA)
  #include <pthread.h>

static struct {
  pthread_t       thread;
  PetscBool       runs; /* is to be joined */
  GpufmtUploadJob jobs[GPUFMT_MAX_UPLOADS];
  int             njobs;
  void           *context, *stream;
  int             result; /* of the driver */
} beside;

static const size_t worth_a_thread = (size_t)1 << 19; /* which begins after some 40 us */

static void *Run(void *unused)
{
  beside.result = gpufmt_driver.CtxSetCurrent(beside.context);
  for (int k = 0; k < beside.njobs && !beside.result; k++)
    beside.result = GpufmtUploadPageable(beside.jobs[k].dev, beside.jobs[k].host, beside.jobs[k].bytes, beside.stream);
  return NULL;
}

/* Begins at most GPUFMT_MAX_UPLOADS uploads; what does not take long is done here. The host arrays must stay as they are, and nothing may be
   queued on the stream that reads them on the device, until GpufmtUploadsEnd(). */
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
  beside.stream = stream;
  CallDriver("cuCtxGetCurrent", gpufmt_driver.CtxGetCurrent(&beside.context));
  if (pthread_create(&beside.thread, NULL, Run, NULL)) {
    for (int k = 0; k < beside.njobs; k++) PetscCall(GpufmtDeviceUpload(beside.jobs[k].dev, beside.jobs[k].host, beside.jobs[k].bytes, stream));
  } else beside.runs = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the host arrays may change */
PetscErrorCode GpufmtUploadsEnd(void)
{
  PetscFunctionBegin;
  if (!beside.runs) PetscFunctionReturn(PETSC_SUCCESS);
  (void)pthread_join(beside.thread, NULL);
  beside.runs = PETSC_FALSE;
  CallDriver("upload", beside.result);
  for (int k = 0; k < beside.njobs; k++) PetscCall(PetscLogCpuToGpu((PetscLogDouble)beside.jobs[k].bytes));
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
