/* Uploads: which way an array goes to the device. */
#include "memory/memory.h"
#include "runtime/driver.h"

#if PetscDefined(HAVE_CUDA)

/* The driver copies pageable memory by one core, at some 10 GB/s. Threads and pinned memory take some 3 ms to make, which is what they gain in
   32 MB: who has uploaded half of that goes on so, most likely. Arrays that they would not serve do not count. */
static const size_t counted_from = (size_t)1 << 19, worth_making = (size_t)1 << 24;

static size_t not_staged = 0; /* bytes that have gone by the driver's way */

/* Whether the threads of runtime/staging.c do it. As PETSc's own start of CUDA, making them is left out of the events in progress. */
static PetscErrorCode IsStaged(size_t bytes, PetscBool *staged)
{
  PetscFunctionBegin;
  *staged = (PetscBool)GpufmtStagingServes(bytes);
  if (*staged || bytes < counted_from || (not_staged += bytes) < worth_making) PetscFunctionReturn(PETSC_SUCCESS);
  not_staged = 0;
  PetscCall(PetscLogEventsPause());
  GpufmtStagingMake();
  PetscCall(PetscLogEventsResume());
  *staged = (PetscBool)GpufmtStagingServes(bytes);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* whether an array of the host is one that several threads send, and they can */
PetscErrorCode GpufmtUploadHasThreads(const void *host, size_t bytes, PetscBool *has)
{
  PetscFunctionBegin;
  *has = PETSC_FALSE;
  if (!GpufmtManagedContains(host) && !GpufmtDriverKnows(host)) PetscCall(IsStaged(bytes, has));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Sends an array that GpufmtUploadHasThreads(); without PETSc, any thread of the context may call it, one at a time. */
int GpufmtUploadByThreads(void *dev, const void *host, size_t bytes, void *stream)
{
  return GpufmtStagingUpload((DevicePointer)dev, host, bytes, stream);
}

/* synchronize! returns when the host array may be changed; what follows on the stream finds it on the device */
PetscErrorCode GpufmtDeviceUpload(void *dev, const void *host, size_t bytes, void *stream)
{
  PetscBool threads;

  PetscFunctionBegin;
  if (!bytes) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtUploadsEnd());
  if (GpufmtManagedContains(host)) { /* on the device, most likely: reading it here would bring it to the host */
    PetscCall(GpufmtDeviceCopy(dev, host, bytes, stream));
    PetscCall(GpufmtDeviceSynchronize(stream)); /* synchronize! the caller may free or change what was copied */
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(GpufmtUploadHasThreads(host, bytes, &threads));
  if (threads) CallDriver("an upload", GpufmtUploadByThreads(dev, host, bytes, stream));
  else {
    CallDriver("cuMemcpyHtoD", gpufmt_driver.MemcpyHtoDAsync((DevicePointer)dev, host, bytes, stream));
    if (GpufmtDriverKnows(host)) PetscCall(GpufmtDeviceSynchronize(stream)); /* synchronize! */
  }
  PetscCall(PetscLogCpuToGpu((PetscLogDouble)bytes));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtUploadFinalize(void)
{
  PetscFunctionBegin;
  PetscCall(GpufmtUploadsEnd());
  CallDriver("the end of uploads", GpufmtStagingEnd());
  not_staged = 0;
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
