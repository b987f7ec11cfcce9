/* Managed memory. To take it with all its pages, and to give it back, takes longer than a sparse product: what no matrix uses any more is kept for the
   next. */
#include "memory/memory.h"
#include "runtime/driver.h"

static PetscErrorCode Free(void *);

static GpufmtKept kept     = {.free = Free, .most = (size_t)1 << 30}; /* `most` is a part of the device's memory, once that is known */
static int        nplaced  = 0;                                       /* pieces of managed memory that are not kept */
static PetscBool  simulate = PETSC_FALSE;                             /* ordinary memory takes the place of managed one */

#if PetscDefined(HAVE_CUDA)
  /* What must be free besides: where the driver finds nothing for a page, kernels that touch it end with an illegal address. 4 MB are too few on
   an H200, 16 MB are enough. */
  #define SPARE_BYTES ((size_t)32 << 20)

/* Values written on the host must be found by a copy on the device, and those written there by the host: drivers that are forwarded from
   elsewhere announce managed memory and have faults with it. */
static PetscBool Works(int device, void *stream)
{
  DevicePointer p = 0, q = 0;
  PetscBool     works;

  if (gpufmt_driver.MemAllocManaged(&p, sizeof(int), CUDA_MEM_ATTACH_GLOBAL)) return PETSC_FALSE;
  works = (PetscBool)!gpufmt_driver.MemAllocManaged(&q, sizeof(int), CUDA_MEM_ATTACH_GLOBAL);
  if (works) {
    *(int *)p = 12345;
    *(int *)q = 0;
    works     = (PetscBool)(!gpufmt_driver.MemAdvise(p, sizeof(int), CUDA_ADVISE_PREFERRED_LOCATION, device) &&
                            !gpufmt_driver.MemPrefetchAsync(p, sizeof(int), device, stream) &&
                            !gpufmt_driver.MemcpyDtoDAsync(q, p, sizeof(int), stream) && !gpufmt_driver.StreamSynchronize(stream) &&
                            *(volatile int *)q == 12345);
    (void)gpufmt_driver.MemFree(q);
  }
  (void)gpufmt_driver.MemFree(p);
  return works;
}

static PetscBool ManagedUsable(void)
{
  static PetscBool known = PETSC_FALSE, usable = PETSC_FALSE;
  int              device, concurrent          = 0;
  size_t           available, total;
  void            *stream;

  if (simulate) return PETSC_TRUE;
  if (known || !GpufmtDeviceUsable()) return usable;
  if (GpufmtDeviceGet(&device, &stream) || gpufmt_driver.MemGetInfo(&available, &total) || available < SPARE_BYTES) return PETSC_FALSE;
  known = PETSC_TRUE;
  if (gpufmt_driver.DeviceGetAttribute(&concurrent, CUDA_CONCURRENT_MANAGED_ACCESS, device) || !concurrent) return PETSC_FALSE;
  usable = Works(device, stream);
  return usable;
}

/* moves an array to the device where it is not there */
PetscErrorCode GpufmtManagedPrefetch(void *array, size_t bytes, void *stream)
{
  int device;

  PetscFunctionBegin;
  if (simulate) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtDeviceGet(&device, NULL));
  CallDriver("cuMemPrefetchAsync", gpufmt_driver.MemPrefetchAsync((DevicePointer)array, bytes, device, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The same of an array whose contents nobody needs: pages that the host has touched are not sent, where the driver knows how (CUDA 13). */
static PetscErrorCode PrefetchWithoutContents(void *array, size_t bytes)
{
  DevicePointer p        = (DevicePointer)array;
  size_t        first    = 0;
  CudaLocation  location = {.type = CUDA_LOCATION_DEVICE};
  void         *stream;

  PetscFunctionBegin;
  if (simulate) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtDeviceGet(&location.id, &stream));
  if (stream && gpufmt_driver.MemDiscardAndPrefetchBatchAsync && /* not on the null stream */
      !gpufmt_driver.MemDiscardAndPrefetchBatchAsync(&p, &bytes, 1, &location, &first, 1, 0, stream))
    PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtManagedPrefetch(array, bytes, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Its pages lie on the device. The driver would hand out more memory than the device has and move pages to and fro: an error instead. */
static PetscErrorCode Allocate(size_t bytes, void **array)
{
  DevicePointer p;
  void         *stream;
  int           device;
  size_t        available, total;

  PetscFunctionBegin;
  if (simulate) {
    PetscCall(PetscMalloc(bytes, array));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(GpufmtDeviceGet(&device, &stream));
  CallDriver("cuMemGetInfo", gpufmt_driver.MemGetInfo(&available, &total));
  if (available < bytes + SPARE_BYTES) {
    PetscCall(GpufmtKeptForget(&kept));
    GpufmtPlannerFreePool();
    CallDriver("cuMemGetInfo", gpufmt_driver.MemGetInfo(&available, &total));
  }
  PetscCheck(available >= bytes + SPARE_BYTES, PETSC_COMM_SELF, PETSC_ERR_MEM,
             "Out of device memory: %zu bytes needed, %zu of %zu free; use more ranks and GPUs, or -mat_bind_below to keep small matrices on the host",
             bytes + SPARE_BYTES, available, total);
  GpufmtKeptLimit(&kept, available, total);
  CallDriver("cuMemAllocManaged", gpufmt_driver.MemAllocManaged(&p, bytes, CUDA_MEM_ATTACH_GLOBAL));
  *array = (void *)p;
  CallDriver("cuMemAdvise", gpufmt_driver.MemAdvise(p, bytes, CUDA_ADVISE_PREFERRED_LOCATION, device));
  PetscCall(GpufmtManagedPrefetch(*array, bytes, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Free(void *array)
{
  PetscFunctionBegin;
  if (simulate) PetscCall(PetscFree(array));
  else CallDriver("cuMemFree", gpufmt_driver.MemFree((DevicePointer)array)); /* synchronize! */
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Memory that was kept may lie on the host: where the device may have no room for it, it goes, and other memory is asked for. */
static PetscErrorCode FreeWithoutRoom(GpufmtMemory *memory)
{
  size_t available, total;

  PetscFunctionBegin;
  if (simulate || !memory->address) PetscFunctionReturn(PETSC_SUCCESS);
  CallDriver("cuMemGetInfo", gpufmt_driver.MemGetInfo(&available, &total));
  if (available >= memory->capacity + SPARE_BYTES) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(Free(memory->address));
  *memory = (GpufmtMemory){0};
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* fills an array with zeros, in the order of launches */
PetscErrorCode GpufmtManagedClear(void *array, size_t bytes)
{
  void *stream;

  PetscFunctionBegin;
  if (simulate) PetscCall(PetscMemzero(array, bytes));
  else {
    PetscCall(GpufmtDeviceGet(NULL, &stream));
    CallDriver("cuMemsetD8Async", gpufmt_driver.MemsetD8Async((DevicePointer)array, 0, bytes, stream));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtManagedCopyFromHost(void *to, const void *from, size_t bytes)
{
  void *stream;

  PetscFunctionBegin;
  if (simulate) PetscCall(PetscMemcpy(to, from, bytes));
  else {
    PetscCall(GpufmtDeviceGet(NULL, &stream));
    PetscCall(GpufmtDeviceUpload(to, from, bytes, stream));
    PetscCall(GpufmtDeviceSynchronize(stream)); /* synchronize! the host may read it next */
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

#else

static PetscBool ManagedUsable(void)
{
  return simulate;
}

PetscErrorCode GpufmtManagedPrefetch(void *array, size_t bytes, void *stream)
{
  return PETSC_SUCCESS;
}

static PetscErrorCode PrefetchWithoutContents(void *array, size_t bytes)
{
  return PETSC_SUCCESS;
}

static PetscErrorCode Allocate(size_t bytes, void **array)
{
  return PetscMalloc(bytes, array);
}

static PetscErrorCode Free(void *array)
{
  return PetscFree(array);
}

static PetscErrorCode FreeWithoutRoom(GpufmtMemory *memory)
{
  return PETSC_SUCCESS;
}

PetscErrorCode GpufmtManagedClear(void *array, size_t bytes)
{
  return PetscMemzero(array, bytes);
}

PetscErrorCode GpufmtManagedCopyFromHost(void *to, const void *from, size_t bytes)
{
  return PetscMemcpy(to, from, bytes);
}
#endif

/* whether what is made on this backend can have managed arrays and has a use for them */
PetscBool GpufmtManagedPossible(int backend)
{
  return (PetscBool)((backend == GPUFMT_BACKEND_CUDA || simulate) && ManagedUsable());
}

/* managed memory whose pages come to the device; nothing is known of what is there */
PetscErrorCode GpufmtManagedTake(size_t bytes, GpufmtMemory *memory)
{
  PetscFunctionBegin;
  *memory = GpufmtKeptTake(&kept, bytes);
  PetscCall(FreeWithoutRoom(memory));
  if (memory->address) PetscCall(PrefetchWithoutContents(memory->address, bytes));
  else {
    PetscCall(Allocate(bytes, &memory->address));
    memory->capacity = bytes;
  }
  nplaced++;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Nobody uses the memory any more. What is queued on PETSc's stream comes before its next use there. */
PetscErrorCode GpufmtManagedReturn(GpufmtMemory *memory)
{
  PetscFunctionBegin;
  if (!memory->address) PetscFunctionReturn(PETSC_SUCCESS);
  nplaced--;
  PetscCall(GpufmtDeviceSettle());
  PetscCall(GpufmtKeptAdd(&kept, memory));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* what is kept goes back to the driver */
PetscErrorCode GpufmtManagedForgetKept(void)
{
  return GpufmtKeptForget(&kept);
}

/* For petsc_gpufmt/backends/native_library.py, when memory of the device runs out; PETSc may have ended, when nothing is kept. */
PETSC_EXTERN PetscErrorCode GpufmtTrim(void)
{
  if (kept.count) PetscCall(GpufmtKeptForget(&kept));
  return GpufmtDeviceTrim();
}

/* bytes that are kept; for tests */
PETSC_EXTERN size_t GpufmtManagedKept(void)
{
  return kept.bytes;
}

/* For tests of all that does not depend on where pages lie. Returns whether it is as asked for: nothing changes while a matrix has managed
   arrays, nor where there is a device. */
PETSC_EXTERN int GpufmtManagedSimulate(int on)
{
  if (!nplaced && !GpufmtDeviceUsable() && !GpufmtTrim()) simulate = on ? PETSC_TRUE : PETSC_FALSE;
  return simulate == (on ? PETSC_TRUE : PETSC_FALSE);
}
