/* The CUDA driver, opened at run time so that this library loads on nodes without one. The context is PETSc's (the primary one). */
#include "runtime/driver.h"

#if PetscDefined(HAVE_CUDA)
  #include <dlfcn.h>
  #include <petscdevice.h>
  #include <pthread.h>

/* declared here with an untyped stream so that the CUDA headers are not needed to build; a cudaStream_t is a CUstream */
PETSC_EXTERN PetscErrorCode PetscGetCurrentCUDAStream(void **);

GpufmtDriver gpufmt_driver;

static PetscBool several_streams = PETSC_FALSE; /* PETSc's current stream has changed */

static PetscBool DriverLoad(void)
{
  void *handle;

  if (gpufmt_driver.tried) return gpufmt_driver.loaded;
  gpufmt_driver.tried = PETSC_TRUE;
  handle              = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (!handle) return PETSC_FALSE;
  #define LOAD(field, symbol) \
    do { \
      *(void **)&gpufmt_driver.field = dlsym(handle, symbol); \
      if (!gpufmt_driver.field) return PETSC_FALSE; \
    } while (0)
  LOAD(Init, "cuInit");
  LOAD(DeviceGetCount, "cuDeviceGetCount");
  LOAD(DeviceGet, "cuDeviceGet");
  LOAD(DevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
  LOAD(CtxGetDevice, "cuCtxGetDevice");
  LOAD(CtxGetCurrent, "cuCtxGetCurrent");
  LOAD(CtxSetCurrent, "cuCtxSetCurrent");
  LOAD(CtxSynchronize, "cuCtxSynchronize");
  LOAD(ThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode");
  LOAD(GetErrorString, "cuGetErrorString");
  LOAD(ModuleLoadData, "cuModuleLoadData");
  LOAD(ModuleGetFunction, "cuModuleGetFunction");
  LOAD(LaunchKernel, "cuLaunchKernel");
  LOAD(MemAlloc, "cuMemAlloc_v2");
  LOAD(MemFree, "cuMemFree_v2");
  LOAD(MemGetInfo, "cuMemGetInfo_v2");
  LOAD(MemAllocHost, "cuMemAllocHost_v2");
  LOAD(MemFreeHost, "cuMemFreeHost");
  LOAD(MemsetD8Async, "cuMemsetD8Async");
  LOAD(MemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2");
  LOAD(MemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2");
  LOAD(CtxGetStreamPriorityRange, "cuCtxGetStreamPriorityRange");
  LOAD(StreamCreateWithPriority, "cuStreamCreateWithPriority");
  LOAD(StreamDestroy, "cuStreamDestroy_v2");
  LOAD(StreamSynchronize, "cuStreamSynchronize");
  LOAD(StreamWaitEvent, "cuStreamWaitEvent");
  LOAD(EventCreate, "cuEventCreate");
  LOAD(EventRecord, "cuEventRecord");
  LOAD(EventQuery, "cuEventQuery");
  LOAD(EventSynchronize, "cuEventSynchronize");
  LOAD(EventDestroy, "cuEventDestroy_v2");
  LOAD(DeviceGetAttribute, "cuDeviceGetAttribute");
  LOAD(MemAllocManaged, "cuMemAllocManaged");
  LOAD(MemAdvise, "cuMemAdvise");
  LOAD(MemPrefetchAsync, "cuMemPrefetchAsync");
  LOAD(MemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2");
  LOAD(PointerGetAttributes, "cuPointerGetAttributes");
  LOAD(DeviceGetUuid, "cuDeviceGetUuid_v2");
  LOAD(IpcGetMemHandle, "cuIpcGetMemHandle");
  LOAD(IpcOpenMemHandle, "cuIpcOpenMemHandle_v2");
  LOAD(IpcCloseMemHandle, "cuIpcCloseMemHandle");
  LOAD(GraphCreate, "cuGraphCreate");
  LOAD(GraphAddKernelNode, "cuGraphAddKernelNode_v2");
  LOAD(GraphInstantiate, "cuGraphInstantiateWithFlags");
  LOAD(GraphUpload, "cuGraphUpload");
  LOAD(GraphLaunch, "cuGraphLaunch");
  LOAD(GraphDestroy, "cuGraphDestroy");
  LOAD(GraphExecDestroy, "cuGraphExecDestroy");
  #undef LOAD
  *(void **)&gpufmt_driver.MemDiscardAndPrefetchBatchAsync = dlsym(handle, "cuMemDiscardAndPrefetchBatchAsync");
  *(void **)&gpufmt_driver.GraphConditionalHandleCreate    = dlsym(handle, "cuGraphConditionalHandleCreate");
  *(void **)&gpufmt_driver.GraphAddNode                    = dlsym(handle, "cuGraphAddNode_v2");
  gpufmt_driver.loaded                                     = PETSC_TRUE;
  return PETSC_TRUE;
}

const char *GpufmtDriverMessage(CudaResult code)
{
  const char *text = NULL;

  if (gpufmt_driver.GetErrorString(code, &text) || !text) text = "unknown error";
  return text;
}

/* the kind of memory that an array lies in, 0: none that CUDA knows */
static unsigned MemoryType(const void *array)
{
  int      attribute = CUDA_POINTER_MEMORY_TYPE;
  unsigned type      = 0; /* stays so for an address that CUDA does not know, which is no error for this function */
  void    *answer    = &type;

  return gpufmt_driver.PointerGetAttributes(1, &attribute, &answer, (DevicePointer)array) ? 0 : type;
}

/* whether CUDA has pinned the array, or made it: a copy of such a one goes on after the call, that of others has left the array by then */
bool GpufmtDriverKnows(const void *host)
{
  return MemoryType(host);
}

/* a driver, a device, and a user who has not said -device_enable none */
PetscBool GpufmtDeviceUsable(void)
{
  static PetscBool known = PETSC_FALSE, usable = PETSC_FALSE;
  char             enable[16];
  PetscBool        set   = PETSC_FALSE;
  int              count = 0;

  if (known) return usable;
  known = PETSC_TRUE;
  if (PetscOptionsGetString(NULL, NULL, "-device_enable", enable, sizeof(enable), &set)) return PETSC_FALSE;
  if (set && !strcmp(enable, "none")) return PETSC_FALSE;
  usable = (PetscBool)(DriverLoad() && !gpufmt_driver.Init(0) && !gpufmt_driver.DeviceGetCount(&count) && count > 0);
  return usable;
}

PetscErrorCode GpufmtDeviceGet(int *device, void **stream)
{
  static PetscBool known = PETSC_FALSE;
  static void     *last  = NULL;

  PetscFunctionBegin;
  if (stream) {
    PetscCall(PetscGetCurrentCUDAStream(stream));
    if (known && *stream != last) {
      CallDriver("an upload", GpufmtStagingSettle()); /* synchronize! the new stream may read it */
      if (!several_streams) {
        several_streams = PETSC_TRUE;
        PetscCall(GpufmtDeviceSettle()); /* synchronize! memory that is kept may be taken for work on another stream than so far */
      }
    }
    known = PETSC_TRUE;
    last  = *stream;
  }
  if (device) CallDriver("cuCtxGetDevice", gpufmt_driver.CtxGetDevice(device));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* whether an array of a caller lies on the device, or in managed memory; PetscGetMemType() knows that only once PETSc has begun with the device */
PetscBool GpufmtDeviceHas(const void *array)
{
  return (PetscBool)(array && GpufmtDeviceUsable() && MemoryType(array) == CUDA_MEMORY_DEVICE);
}

/* whether there are several devices, of which PETSc has not taken one so far */
PetscBool GpufmtDeviceToChoose(void)
{
  int count = 0;

  return (PetscBool)(GpufmtDeviceUsable() && !gpufmt_driver.DeviceGetCount(&count) && count > 1 && !PetscDeviceInitialized(PETSC_DEVICE_CUDA));
}

/* PETSc's device, which matrices of ours will need, and its context. If there is one GPU alone, the context may be NULL: PETSc has not made it
   yet, which takes a tenth of a second, and another thread can. If there are several, PETSc chooses, now. Device -1: there is no context. */
PetscErrorCode GpufmtDeviceKnown(int *device, void **context)
{
  int count = 0;

  PetscFunctionBegin;
  *device  = -1;
  *context = NULL;
  CallDriver("cuDeviceGetCount", gpufmt_driver.DeviceGetCount(&count));
  if (count == 1) *device = 0;
  else PetscCall(PetscDeviceInitialize(PETSC_DEVICE_CUDA));
  if (PetscDeviceInitialized(PETSC_DEVICE_CUDA)) CallDriver("cuCtxGetCurrent", gpufmt_driver.CtxGetCurrent(context));
  if (*context) CallDriver("cuCtxGetDevice", gpufmt_driver.CtxGetDevice(device));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Makes the context of a device that of this thread, which is none of PETSc's. A context that is made here stays for the life of the process: kernels
   that are loaded in it do, too. */
bool GpufmtDeviceEnter(int device, void *context)
{
  static pthread_mutex_t making   = PTHREAD_MUTEX_INITIALIZER;
  static void           *retained = NULL;
  int                    handle;

  if (!context) {
    (void)pthread_mutex_lock(&making);
    if (!retained && !gpufmt_driver.DeviceGet(&handle, device) && gpufmt_driver.DevicePrimaryCtxRetain(&retained, handle)) retained = NULL;
    context = retained;
    (void)pthread_mutex_unlock(&making);
  }
  return context && !gpufmt_driver.CtxSetCurrent(context);
}

/* Before the memory of a plan is given back: it is handed out again for work on the stream on which the plan was made, and the plan may still
   run on another, which may even be destroyed by now. */
PetscErrorCode GpufmtDeviceSettle(void)
{
  PetscFunctionBegin;
  if (several_streams) CallDriver("cuCtxSynchronize", gpufmt_driver.CtxSynchronize()); /* synchronize! */
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtDeviceLaunch(const GpufmtLaunch *l, void *stream)
{
  PetscFunctionBegin;
  CallDriver("cuLaunchKernel", gpufmt_driver.LaunchKernel(l->function, l->grid[0], l->grid[1], l->grid[2], l->block[0], l->block[1], l->block[2],
                                                          l->shared_bytes, stream, l->params, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Free(void *address)
{
  PetscFunctionBegin;
  CallDriver("cuMemFree", gpufmt_driver.MemFree((DevicePointer)address)); /* synchronize! */
  PetscFunctionReturn(PETSC_SUCCESS);
}

static GpufmtKept kept = {.free = Free}; /* buffers */

/* Grows a buffer to at least `bytes`; its contents are lost. Out of memory: gives cached memory back and tries once more. */
PetscErrorCode GpufmtDeviceReserve(size_t bytes, void **buffer, size_t *capacity)
{
  GpufmtMemory  memory;
  DevicePointer p = 0;
  CudaResult    code;
  size_t        available = 0, total = 0;

  PetscFunctionBegin;
  if (*buffer && *capacity >= bytes) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtDeviceFree(buffer, capacity));
  if (!bytes) PetscFunctionReturn(PETSC_SUCCESS);
  memory = GpufmtKeptTake(&kept, bytes);
  if (!memory.address) {
    CallDriver("cuMemGetInfo", gpufmt_driver.MemGetInfo(&available, &total));
    GpufmtKeptLimit(&kept, available, total);
    code = gpufmt_driver.MemAlloc(&p, bytes);
    if (code == CUDA_OUT_OF_MEMORY) {
      PetscCall(GpufmtKeptForget(&kept));
      GpufmtPlannerFreePool();
      code = gpufmt_driver.MemAlloc(&p, bytes);
    }
    if (code == CUDA_OUT_OF_MEMORY) (void)gpufmt_driver.MemGetInfo(&available, &total);
    PetscCheck(
      code != CUDA_OUT_OF_MEMORY, PETSC_COMM_SELF, PETSC_ERR_MEM,
      "Out of device memory: %zu bytes needed, %zu of %zu free; use more ranks and GPUs, or -mat_bind_below to keep small matrices on the host",
      bytes, available, total);
    CallDriver("cuMemAlloc", code);
    memory = (GpufmtMemory){.address = (void *)p, .capacity = bytes};
  }
  *buffer   = memory.address;
  *capacity = memory.capacity;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The buffer is for the next, whose use comes after what is queued on PETSc's stream. */
PetscErrorCode GpufmtDeviceFree(void **buffer, size_t *capacity)
{
  GpufmtMemory memory = {.address = *buffer, .capacity = *capacity};

  PetscFunctionBegin;
  *buffer   = NULL;
  *capacity = 0;
  if (!memory.address) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtDeviceSettle());
  PetscCall(GpufmtKeptAdd(&kept, &memory));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* synchronize! buffers that are kept go back to the driver; there are none once PETSc has ended */
PetscErrorCode GpufmtDeviceTrim(void)
{
  return kept.count ? GpufmtKeptForget(&kept) : PETSC_SUCCESS;
}

PetscErrorCode GpufmtDeviceDownload(void *host, const void *dev, size_t bytes, void *stream)
{
  PetscFunctionBegin;
  if (!bytes) PetscFunctionReturn(PETSC_SUCCESS);
  if (GpufmtStagingServesDownload(bytes) && !GpufmtDriverKnows(host)) { /* synchronize! */
    CallDriver("a download", GpufmtStagingDownload(host, (DevicePointer)dev, bytes, stream));
  } else {
    CallDriver("cuMemcpyDtoH", gpufmt_driver.MemcpyDtoHAsync(host, (DevicePointer)dev, bytes, stream));
    CallDriver("cuStreamSynchronize", gpufmt_driver.StreamSynchronize(stream)); /* synchronize! the host reads next */
  }
  PetscCall(PetscLogGpuToCpu((PetscLogDouble)bytes));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* between arrays on the device or in managed memory; in the order of launches, which the caller waits for */
PetscErrorCode GpufmtDeviceCopy(void *to, const void *from, size_t bytes, void *stream)
{
  PetscFunctionBegin;
  if (!bytes) PetscFunctionReturn(PETSC_SUCCESS);
  CallDriver("cuMemcpyDtoD", gpufmt_driver.MemcpyDtoDAsync((DevicePointer)to, (DevicePointer)from, bytes, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* scalars become what is not a number, in the order of launches */
PetscErrorCode GpufmtDeviceSpoil(void *array, size_t bytes, void *stream)
{
  PetscFunctionBegin;
  if (bytes) CallDriver("cuMemsetD8", gpufmt_driver.MemsetD8Async((DevicePointer)array, 0xff, bytes, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtDeviceSynchronize(void *stream)
{
  PetscFunctionBegin;
  CallDriver("cuStreamSynchronize", gpufmt_driver.StreamSynchronize(stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

#else

PetscBool GpufmtDeviceUsable(void)
{
  return PETSC_FALSE;
}

PetscErrorCode GpufmtNoDevice(void)
{
  PetscFunctionBegin;
  SETERRQ(PETSC_COMM_SELF, PETSC_ERR_SUP, "This PETSc was configured without CUDA");
}

PetscErrorCode GpufmtDeviceGet(int *device, void **stream)
{
  return GpufmtNoDevice();
}

PetscBool GpufmtDeviceHas(const void *array)
{
  return PETSC_FALSE;
}

PetscBool GpufmtDeviceToChoose(void)
{
  return PETSC_FALSE;
}

PetscErrorCode GpufmtDeviceKnown(int *device, void **context)
{
  return GpufmtNoDevice();
}

bool GpufmtDeviceEnter(int device, void *context)
{
  return false;
}

PetscErrorCode GpufmtDeviceSettle(void)
{
  return PETSC_SUCCESS;
}

PetscErrorCode GpufmtDeviceLaunch(const GpufmtLaunch *l, void *stream)
{
  return GpufmtNoDevice();
}

PetscErrorCode GpufmtDeviceReserve(size_t bytes, void **buffer, size_t *capacity)
{
  return GpufmtNoDevice();
}

PetscErrorCode GpufmtDeviceFree(void **buffer, size_t *capacity)
{
  return PETSC_SUCCESS; /* nothing was ever reserved */
}

PetscErrorCode GpufmtDeviceTrim(void)
{
  return PETSC_SUCCESS;
}

PetscErrorCode GpufmtDeviceDownload(void *host, const void *dev, size_t bytes, void *stream)
{
  return GpufmtNoDevice();
}

PetscErrorCode GpufmtDeviceCopy(void *to, const void *from, size_t bytes, void *stream)
{
  return GpufmtNoDevice();
}

PetscErrorCode GpufmtDeviceSpoil(void *array, size_t bytes, void *stream)
{
  return GpufmtNoDevice();
}

PetscErrorCode GpufmtDeviceSynchronize(void *stream)
{
  return GpufmtNoDevice();
}
#endif
