/* Copies between the host and a backend, in the order of what is queued there; on the host both sides are the host's. */
#include "memory/memory.h"

/* synchronize! returns when the copy is there */
PetscErrorCode GpufmtCopyToHost(int backend, void *to, const void *from, size_t bytes)
{
  void *stream;

  PetscFunctionBegin;
  if (!bytes) PetscFunctionReturn(PETSC_SUCCESS);
  if (backend == GPUFMT_BACKEND_CUDA) {
    PetscCall(GpufmtDeviceGet(NULL, &stream));
    PetscCall(GpufmtDeviceDownload(to, from, bytes, stream)); /* synchronize! */
  } else PetscCall(PetscMemcpy(to, from, bytes));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* returns when what is copied may be changed */
PetscErrorCode GpufmtCopyToBackend(int backend, void *to, const void *from, size_t bytes)
{
  void *stream;

  PetscFunctionBegin;
  if (!bytes) PetscFunctionReturn(PETSC_SUCCESS);
  if (backend == GPUFMT_BACKEND_CUDA) {
    PetscCall(GpufmtDeviceGet(NULL, &stream));
    PetscCall(GpufmtDeviceUpload(to, from, bytes, stream));
  } else PetscCall(PetscMemcpy(to, from, bytes));
  PetscFunctionReturn(PETSC_SUCCESS);
}
