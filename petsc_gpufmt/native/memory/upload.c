/* Uploads: which way an array goes to the device. */
#include "memory/memory.h"
#include "runtime/driver.h"

#if PetscDefined(HAVE_CUDA)

/* Whether an array is in ordinary memory of the host, which the driver cannot send as it is. What sends a large one is made here: as PETSc's own start
   of CUDA, it is left out of the events in progress. */
PetscErrorCode GpufmtUploadPrepare(const void *host, size_t bytes, PetscBool *pageable)
{
  PetscFunctionBegin;
  *pageable = (PetscBool) !(GpufmtManagedContains(host) || GpufmtDriverKnows(host));
  if (!*pageable || !GpufmtStagingWanted(bytes)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtEventsPause());
  GpufmtStagingMake();
  PetscCall(GpufmtEventsResume());
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Sends such an array, which may change when this returns, with or without ring and threads; without PETSc, any thread of the context may call it. */
int GpufmtUploadPageable(void *dev, const void *host, size_t bytes, bool staged, void *stream)
{
  if (staged) return GpufmtStagingUpload((DevicePointer)dev, host, bytes, stream);
  return gpufmt_driver.MemcpyHtoDAsync((DevicePointer)dev, host, bytes, stream);
}

/* synchronize! returns when the host array may be changed; what follows on the stream finds it on the device */
PetscErrorCode GpufmtDeviceUpload(void *dev, const void *host, size_t bytes, void *stream)
{
  const void *there = GpufmtManagedRowptr(host, bytes);
  PetscBool   pageable;

  PetscFunctionBegin;
  if (!bytes) PetscFunctionReturn(PETSC_SUCCESS);
  if (there) { /* nobody changes it */
    PetscCall(GpufmtDeviceCopy(dev, there, bytes, stream));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (GpufmtManagedContains(host)) { /* on the device, most likely: reading it here would bring it to the host */
    PetscCall(GpufmtDeviceCopy(dev, host, bytes, stream));
    PetscCall(GpufmtDeviceSynchronize(stream)); /* synchronize! the caller may free or change what was copied */
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(GpufmtUploadPrepare(host, bytes, &pageable));
  if (pageable) CallDriver("an upload", GpufmtUploadPageable(dev, host, bytes, GpufmtStagingServesUpload(bytes), stream));
  else {
    CallDriver("cuMemcpyHtoD", gpufmt_driver.MemcpyHtoDAsync((DevicePointer)dev, host, bytes, stream));
    PetscCall(GpufmtDeviceSynchronize(stream)); /* synchronize! the driver sends pinned memory later */
  }
  PetscCall(PetscLogCpuToGpu((PetscLogDouble)bytes));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtUploadFinalize(void)
{
  PetscFunctionBegin;
  PetscCall(GpufmtUploadsFinalize());
  CallDriver("the end of uploads", GpufmtStagingEnd());
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* for petsc_gpufmt/backends/native_library.py */
PETSC_EXTERN PetscErrorCode GpufmtUpload(void *dev, const void *host, size_t bytes, void *stream)
{
  void *current;

  PetscFunctionBegin;
  PetscCheck(GpufmtDeviceUsable(), PETSC_COMM_SELF, PETSC_ERR_SUP, "No usable CUDA device: is the driver loaded, and -device_enable not none?");
  PetscCall(GpufmtDeviceGet(NULL, &current)); /* makes the context */
  PetscCall(GpufmtDeviceUpload(dev, host, bytes, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

#else

PETSC_EXTERN PetscErrorCode GpufmtUpload(void *dev, const void *host, size_t bytes, void *stream)
{
  return GpufmtNoDevice();
}

PetscErrorCode GpufmtDeviceUpload(void *dev, const void *host, size_t bytes, void *stream)
{
  return GpufmtNoDevice();
}

PetscErrorCode GpufmtUploadFinalize(void)
{
  return PETSC_SUCCESS;
}
#endif
