/* The CUDA driver, opened at run time so that this library loads on nodes without one. The context is PETSc's (the primary one). */
#include "gpufmt_impl.h"

#if PetscDefined(HAVE_CUDA)
  #include <dlfcn.h>

/* declared here with an untyped stream so that the CUDA headers are not needed to build; a cudaStream_t is a CUstream */
PETSC_EXTERN PetscErrorCode PetscGetCurrentCUDAStream(void **);

typedef int       CudaResult;
typedef uintptr_t DevicePointer;

static struct {
  PetscBool tried, loaded;
  CudaResult (*Init)(unsigned);
  CudaResult (*DeviceGetCount)(int *);
  CudaResult (*CtxGetDevice)(int *);
  CudaResult (*GetErrorString)(CudaResult, const char **);
  CudaResult (*LaunchKernel)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
  CudaResult (*MemAlloc)(DevicePointer *, size_t);
  CudaResult (*MemFree)(DevicePointer);
  CudaResult (*MemGetInfo)(size_t *, size_t *);
  CudaResult (*MemcpyHtoDAsync)(DevicePointer, const void *, size_t, void *);
  CudaResult (*MemcpyDtoHAsync)(void *, DevicePointer, size_t, void *);
  CudaResult (*StreamSynchronize)(void *);
} driver;

enum {
  OUT_OF_MEMORY = 2
};

static PetscBool DriverLoad(void)
{
  void *handle;

  if (driver.tried) return driver.loaded;
  driver.tried = PETSC_TRUE;
  handle       = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (!handle) return PETSC_FALSE;
  #define LOAD(field, symbol) \
    do { \
      *(void **)&driver.field = dlsym(handle, symbol); \
      if (!driver.field) return PETSC_FALSE; \
    } while (0)
  LOAD(Init, "cuInit");
  LOAD(DeviceGetCount, "cuDeviceGetCount");
  LOAD(CtxGetDevice, "cuCtxGetDevice");
  LOAD(GetErrorString, "cuGetErrorString");
  LOAD(LaunchKernel, "cuLaunchKernel");
  LOAD(MemAlloc, "cuMemAlloc_v2");
  LOAD(MemFree, "cuMemFree_v2");
  LOAD(MemGetInfo, "cuMemGetInfo_v2");
  LOAD(MemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2");
  LOAD(MemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2");
  LOAD(StreamSynchronize, "cuStreamSynchronize");
  #undef LOAD
  driver.loaded = PETSC_TRUE;
  return PETSC_TRUE;
}

static const char *DriverMessage(CudaResult code)
{
  const char *text = NULL;

  if (driver.GetErrorString(code, &text) || !text) text = "unknown error";
  return text;
}

  #define CallDriver(what, call) \
    do { \
      CudaResult code_ = (call); \
      PetscCheck(!code_, PETSC_COMM_SELF, PETSC_ERR_GPU, "CUDA error %d in %s: %s", code_, what, DriverMessage(code_)); \
    } while (0)

/* a driver, a device, and a user who has not said -device_enable none */
PetscBool GpufmtDeviceUsable(void)
{
  static PetscBool known = PETSC_FALSE, usable = PETSC_FALSE;
  char             enable[16];
  PetscBool        set = PETSC_FALSE;
  int              count = 0;

  if (known) return usable;
  known = PETSC_TRUE;
  if (PetscOptionsGetString(NULL, NULL, "-device_enable", enable, sizeof(enable), &set)) return PETSC_FALSE;
  if (set && !strcmp(enable, "none")) return PETSC_FALSE;
  usable = (PetscBool)(DriverLoad() && !driver.Init(0) && !driver.DeviceGetCount(&count) && count > 0);
  return usable;
}

PetscErrorCode GpufmtDeviceGet(int *device, void **stream)
{
  PetscFunctionBegin;
  PetscCall(PetscGetCurrentCUDAStream(stream));
  if (device) CallDriver("cuCtxGetDevice", driver.CtxGetDevice(device));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtDeviceLaunch(const GpufmtLaunch *l, void *stream)
{
  PetscFunctionBegin;
  CallDriver("cuLaunchKernel", driver.LaunchKernel(l->function, l->grid[0], l->grid[1], l->grid[2], l->block[0], l->block[1], l->block[2], l->shared_bytes, stream, l->params, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* grows a buffer to at least `bytes`; its contents are lost. Out of memory: gives cached memory back and tries once more. */
PetscErrorCode GpufmtDeviceReserve(size_t bytes, void **buffer, size_t *capacity)
{
  DevicePointer p = 0;
  CudaResult    code;
  size_t        available = 0, total = 0;

  PetscFunctionBegin;
  if (*buffer && *capacity >= bytes) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtDeviceFree(buffer, capacity));
  if (!bytes) PetscFunctionReturn(PETSC_SUCCESS);
  code = driver.MemAlloc(&p, bytes);
  if (code == OUT_OF_MEMORY) {
    GpufmtPlannerFreePool();
    code = driver.MemAlloc(&p, bytes);
  }
  if (code == OUT_OF_MEMORY) (void)driver.MemGetInfo(&available, &total);
  PetscCheck(code != OUT_OF_MEMORY, PETSC_COMM_SELF, PETSC_ERR_MEM, "Out of device memory: %zu bytes needed, %zu of %zu free; use more ranks and GPUs, or -mat_bind_below to keep small matrices on the host", bytes, available, total);
  CallDriver("cuMemAlloc", code);
  *buffer   = (void *)p;
  *capacity = bytes;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtDeviceFree(void **buffer, size_t *capacity)
{
  PetscFunctionBegin;
  if (*buffer) CallDriver("cuMemFree", driver.MemFree((DevicePointer)*buffer)); /* synchronize! */
  *buffer   = NULL;
  *capacity = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtDeviceUpload(void *dev, const void *host, size_t bytes, void *stream)
{
  PetscFunctionBegin;
  if (!bytes) PetscFunctionReturn(PETSC_SUCCESS);
  CallDriver("cuMemcpyHtoD", driver.MemcpyHtoDAsync((DevicePointer)dev, host, bytes, stream)); /* synchronize! pageable memory */
  PetscCall(PetscLogCpuToGpu((PetscLogDouble)bytes));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtDeviceDownload(void *host, const void *dev, size_t bytes, void *stream)
{
  PetscFunctionBegin;
  if (!bytes) PetscFunctionReturn(PETSC_SUCCESS);
  CallDriver("cuMemcpyDtoH", driver.MemcpyDtoHAsync(host, (DevicePointer)dev, bytes, stream));
  CallDriver("cuStreamSynchronize", driver.StreamSynchronize(stream)); /* synchronize! the host reads next */
  PetscCall(PetscLogGpuToCpu((PetscLogDouble)bytes));
  PetscFunctionReturn(PETSC_SUCCESS);
}

#else

PetscBool GpufmtDeviceUsable(void)
{
  return PETSC_FALSE;
}

static PetscErrorCode NoDevice(void)
{
  PetscFunctionBegin;
  SETERRQ(PETSC_COMM_SELF, PETSC_ERR_SUP, "This PETSc was configured without CUDA");
}

PetscErrorCode GpufmtDeviceGet(int *device, void **stream)
{
  return NoDevice();
}

PetscErrorCode GpufmtDeviceLaunch(const GpufmtLaunch *l, void *stream)
{
  return NoDevice();
}

PetscErrorCode GpufmtDeviceReserve(size_t bytes, void **buffer, size_t *capacity)
{
  return NoDevice();
}

PetscErrorCode GpufmtDeviceFree(void **buffer, size_t *capacity)
{
  return PETSC_SUCCESS; /* nothing was ever reserved */
}

PetscErrorCode GpufmtDeviceUpload(void *dev, const void *host, size_t bytes, void *stream)
{
  return NoDevice();
}

PetscErrorCode GpufmtDeviceDownload(void *host, const void *dev, size_t bytes, void *stream)
{
  return NoDevice();
}
#endif
