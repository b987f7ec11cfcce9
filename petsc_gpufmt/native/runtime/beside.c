/* Copies beside PETSc's stream, by a thread that is not PETSc's. */
#include "runtime/driver.h"

#if PetscDefined(HAVE_CUDA)

/* What is queued there comes before what is queued on PETSc's stream, where the device has room for one of them. */
PetscErrorCode GpufmtBesideCreate(GpufmtBeside *b)
{
  int least, greatest;

  PetscFunctionBegin;
  CallDriver("cuCtxGetStreamPriorityRange", gpufmt_driver.CtxGetStreamPriorityRange(&least, &greatest));
  CallDriver("cuCtxGetCurrent", gpufmt_driver.CtxGetCurrent(&b->context));
  CallDriver("cuStreamCreate", gpufmt_driver.StreamCreateWithPriority(&b->stream, CUDA_STREAM_NON_BLOCKING, greatest));
  CallDriver("cuEventCreate", gpufmt_driver.EventCreate(&b->before, CUDA_EVENT_DISABLE_TIMING));
  CallDriver("cuEventCreate", gpufmt_driver.EventCreate(&b->after, CUDA_EVENT_DISABLE_TIMING));
  for (int k = 0; k < 2; k++) CallDriver("cuEventCreate", gpufmt_driver.EventCreate(&b->copied[k], CUDA_EVENT_DISABLE_TIMING));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtBesideDestroy(GpufmtBeside *b)
{
  PetscFunctionBegin;
  for (int k = 0; k < 2; k++)
    if (b->copied[k]) CallDriver("cuEventDestroy", gpufmt_driver.EventDestroy(b->copied[k]));
  if (b->after) CallDriver("cuEventDestroy", gpufmt_driver.EventDestroy(b->after));
  if (b->before) CallDriver("cuEventDestroy", gpufmt_driver.EventDestroy(b->before));
  if (b->stream) CallDriver("cuStreamDestroy", gpufmt_driver.StreamDestroy(b->stream));
  *b = (GpufmtBeside){0};
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* what is queued on PETSc's stream so far comes before GpufmtBesideEnter() */
PetscErrorCode GpufmtBesideBegin(GpufmtBeside *b, void *stream)
{
  PetscFunctionBegin;
  CallDriver("cuEventRecord", gpufmt_driver.EventRecord(b->before, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* what is queued on PETSc's stream from now on comes after the last upload */
PetscErrorCode GpufmtBesideEnd(GpufmtBeside *b, void *stream)
{
  PetscFunctionBegin;
  CallDriver("cuStreamWaitEvent", gpufmt_driver.StreamWaitEvent(stream, b->after, 0));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* what is queued on the stream beside PETSc's from now on comes after what is queued on PETSc's so far */
PetscErrorCode GpufmtBesideFollow(GpufmtBeside *b, void *stream)
{
  PetscFunctionBegin;
  PetscCall(GpufmtBesideBegin(b, stream));
  CallDriver("cuStreamWaitEvent", gpufmt_driver.StreamWaitEvent(b->stream, b->before, 0));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* and what is queued on PETSc's after what is queued beside it */
PetscErrorCode GpufmtBesideJoin(GpufmtBeside *b, void *stream)
{
  PetscFunctionBegin;
  CallDriver("cuEventRecord", gpufmt_driver.EventRecord(b->after, b->stream));
  PetscCall(GpufmtBesideEnd(b, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* By the other thread, as the following; they return codes of CUDA. */
int GpufmtBesideEnter(const GpufmtBeside *b)
{
  CudaResult code = gpufmt_driver.CtxSetCurrent(b->context);

  return code ? code : gpufmt_driver.EventSynchronize(b->before); /* synchronize! of this thread alone */
}

/* begins download `number`; the one before last was waited for */
int GpufmtBesideDownload(const GpufmtBeside *b, int number, void *host, const void *dev, size_t bytes)
{
  CudaResult code = gpufmt_driver.MemcpyDtoHAsync(host, (DevicePointer)dev, bytes, b->stream);

  return code ? code : gpufmt_driver.EventRecord(b->copied[number & 1], b->stream);
}

int GpufmtBesideAwait(const GpufmtBeside *b, int number)
{
  return gpufmt_driver.EventSynchronize(b->copied[number & 1]); /* synchronize! of this thread alone */
}

int GpufmtBesideUpload(const GpufmtBeside *b, void *dev, const void *host, size_t bytes)
{
  CudaResult code = gpufmt_driver.MemcpyHtoDAsync((DevicePointer)dev, host, bytes, b->stream);

  return code ? code : gpufmt_driver.EventRecord(b->after, b->stream);
}

PetscErrorCode GpufmtPinnedTake(size_t bytes, void **host)
{
  CudaResult code;

  PetscFunctionBegin;
  if (!bytes) PetscFunctionReturn(PETSC_SUCCESS);
  code = gpufmt_driver.MemAllocHost(host, bytes);
  PetscCheck(code != CUDA_OUT_OF_MEMORY, PETSC_COMM_SELF, PETSC_ERR_MEM, "Out of pinned host memory: %zu bytes needed", bytes);
  CallDriver("cuMemAllocHost", code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtPinnedReturn(void **host)
{
  PetscFunctionBegin;
  if (*host) CallDriver("cuMemFreeHost", gpufmt_driver.MemFreeHost(*host));
  *host = NULL;
  PetscFunctionReturn(PETSC_SUCCESS);
}

#else

PetscErrorCode GpufmtBesideCreate(GpufmtBeside *b)
{
  return GpufmtNoDevice();
}

PetscErrorCode GpufmtBesideDestroy(GpufmtBeside *b)
{
  return PETSC_SUCCESS; /* there is none */
}

PetscErrorCode GpufmtBesideBegin(GpufmtBeside *b, void *stream)
{
  return GpufmtNoDevice();
}

PetscErrorCode GpufmtBesideEnd(GpufmtBeside *b, void *stream)
{
  return GpufmtNoDevice();
}

PetscErrorCode GpufmtBesideFollow(GpufmtBeside *b, void *stream)
{
  return GpufmtNoDevice();
}

PetscErrorCode GpufmtBesideJoin(GpufmtBeside *b, void *stream)
{
  return GpufmtNoDevice();
}

int GpufmtBesideEnter(const GpufmtBeside *b)
{
  return 0;
}

int GpufmtBesideDownload(const GpufmtBeside *b, int number, void *host, const void *dev, size_t bytes)
{
  return 0;
}

int GpufmtBesideAwait(const GpufmtBeside *b, int number)
{
  return 0;
}

int GpufmtBesideUpload(const GpufmtBeside *b, void *dev, const void *host, size_t bytes)
{
  return 0;
}

PetscErrorCode GpufmtPinnedTake(size_t bytes, void **host)
{
  return GpufmtNoDevice();
}

PetscErrorCode GpufmtPinnedReturn(void **host)
{
  return PETSC_SUCCESS; /* there is none */
}

#endif
