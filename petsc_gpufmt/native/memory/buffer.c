/* Memory on the host or on the device, whichever a plan computes on. */
#include "memory/memory.h"

/* Grows a buffer to at least `bytes`; its contents are lost. One that is new is {0}. */
PetscErrorCode GpufmtBufferReserve(int backend, size_t bytes, GpufmtBuffer *buffer)
{
  PetscFunctionBegin;
  if (buffer->array && (buffer->backend != backend || buffer->capacity < bytes)) PetscCall(GpufmtBufferFree(buffer));
  buffer->backend = backend;
  if (backend == GPUFMT_BACKEND_CUDA) PetscCall(GpufmtDeviceReserve(bytes, &buffer->array, &buffer->capacity));
  else if (!buffer->array && bytes) {
    PetscCall(PetscMalloc(bytes, &buffer->array));
    buffer->capacity = bytes;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtBufferClear(const GpufmtBuffer *buffer, size_t bytes)
{
  void *stream;

  PetscFunctionBegin;
  if (buffer->backend == GPUFMT_BACKEND_CUDA) {
    PetscCall(GpufmtDeviceGet(NULL, &stream));
    PetscCall(GpufmtDeviceClear(buffer->array, bytes, stream));
  } else PetscCall(PetscMemzero(buffer->array, bytes));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* from an array on the same backend */
PetscErrorCode GpufmtBufferCopy(const GpufmtBuffer *buffer, const void *from, size_t bytes)
{
  void *stream;

  PetscFunctionBegin;
  if (buffer->backend == GPUFMT_BACKEND_CUDA) {
    PetscCall(GpufmtDeviceGet(NULL, &stream));
    PetscCall(GpufmtDeviceCopy(buffer->array, from, bytes, stream));
  } else PetscCall(PetscMemcpy(buffer->array, from, bytes));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtBufferFromHost(const GpufmtBuffer *buffer, const void *from, size_t bytes)
{
  return GpufmtCopyToBackend(buffer->backend, buffer->array, from, bytes);
}

PetscErrorCode GpufmtBufferToHost(const GpufmtBuffer *buffer, size_t bytes, void *to)
{
  return GpufmtCopyToHost(buffer->backend, to, buffer->array, bytes);
}

PetscErrorCode GpufmtBufferFree(GpufmtBuffer *buffer)
{
  PetscFunctionBegin;
  if (buffer->backend == GPUFMT_BACKEND_CUDA) PetscCall(GpufmtDeviceFree(&buffer->array, &buffer->capacity));
  else PetscCall(PetscFree(buffer->array));
  *buffer = (GpufmtBuffer){0};
  PetscFunctionReturn(PETSC_SUCCESS);
}
