/* Memory of a device that other processes of the same host map. That something cannot be shared is no error: the functions that try return why
   not, or NULL. */
#include "runtime/driver.h"

#if PetscDefined(HAVE_CUDA)

/* of the device that this rank uses: the same for two ranks if they share one */
PetscErrorCode GpufmtDeviceIdentity(char identity[GPUFMT_IDENTITY_BYTES])
{
  int device;

  PetscFunctionBegin;
  CallDriver("cuCtxGetDevice", gpufmt_driver.CtxGetDevice(&device));
  CallDriver("cuDeviceGetUuid", gpufmt_driver.DeviceGetUuid(identity, device));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* of the clock that kernels read, at its highest rate; to ask for that takes the driver half a millisecond */
PetscErrorCode GpufmtDeviceTicks(double seconds, int64_t *ticks)
{
  static int kilohertz = 0;
  int        device;

  PetscFunctionBegin;
  if (!kilohertz) {
    CallDriver("cuCtxGetDevice", gpufmt_driver.CtxGetDevice(&device));
    CallDriver("cuDeviceGetAttribute", gpufmt_driver.DeviceGetAttribute(&kilohertz, CUDA_CLOCK_RATE, device));
  }
  *ticks = (int64_t)PetscMin(1e3 * kilohertz * seconds, 4e18);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* zeros are there when this returns, for other processes, too */
PetscErrorCode GpufmtDeviceClear(void *address, size_t bytes, void *stream)
{
  PetscFunctionBegin;
  CallDriver("cuMemsetD8", gpufmt_driver.MemsetD8Async((DevicePointer)address, 0, bytes, stream));
  PetscCall(GpufmtDeviceSynchronize(stream)); /* synchronize! */
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The allocation is one of its own: a handle is of a whole allocation. Those of pools and managed ones have none. */
const char *GpufmtSharedMake(size_t bytes, void **address, char handle[GPUFMT_HANDLE_BYTES])
{
  DevicePointer made = 0;
  CudaIpcHandle exported;
  CudaResult    code = gpufmt_driver.MemAlloc(&made, bytes);

  *address = NULL;
  if (code) return GpufmtDriverMessage(code);
  code = gpufmt_driver.IpcGetMemHandle(&exported, made);
  if (code) {
    (void)gpufmt_driver.MemFree(made); /* synchronize! */
    return GpufmtDriverMessage(code);
  }
  memcpy(handle, exported.bytes, GPUFMT_HANDLE_BYTES);
  *address = (void *)made;
  return NULL;
}

/* of another process */
const char *GpufmtSharedOpen(const char handle[GPUFMT_HANDLE_BYTES], void **address)
{
  DevicePointer opened = 0;
  CudaIpcHandle imported;
  CudaResult    code;

  memcpy(imported.bytes, handle, GPUFMT_HANDLE_BYTES);
  code     = gpufmt_driver.IpcOpenMemHandle(&opened, imported, CUDA_IPC_LAZY_PEER_ACCESS);
  *address = code ? NULL : (void *)opened;
  return code ? GpufmtDriverMessage(code) : NULL;
}

/* what this process writes there is written when this returns */
void GpufmtSharedClose(void *address)
{
  if (!address) return;
  (void)gpufmt_driver.CtxSynchronize(); /* synchronize! */
  (void)gpufmt_driver.IpcCloseMemHandle((DevicePointer)address);
}

/* after all others have closed it */
void GpufmtSharedFree(void *address)
{
  if (address) (void)gpufmt_driver.MemFree((DevicePointer)address); /* synchronize! */
}

#else

static const char no_device[] = "this PETSc was configured without CUDA";

PetscErrorCode GpufmtDeviceIdentity(char identity[GPUFMT_IDENTITY_BYTES])
{
  return GpufmtNoDevice();
}

PetscErrorCode GpufmtDeviceTicks(double seconds, int64_t *ticks)
{
  return GpufmtNoDevice();
}

PetscErrorCode GpufmtDeviceClear(void *address, size_t bytes, void *stream)
{
  return GpufmtNoDevice();
}

const char *GpufmtSharedMake(size_t bytes, void **address, char handle[GPUFMT_HANDLE_BYTES])
{
  return no_device;
}

const char *GpufmtSharedOpen(const char handle[GPUFMT_HANDLE_BYTES], void **address)
{
  return no_device;
}

void GpufmtSharedClose(void *address) { }

void GpufmtSharedFree(void *address) { }
#endif
