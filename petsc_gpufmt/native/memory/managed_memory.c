/* Blocks of managed memory, each with host memory for a row pointer. To take one from the driver with all its pages, and to give it back, takes
   longer than a sparse product: some that no matrix uses any more are kept for the next. */
#include "memory/memory.h"
#include "runtime/driver.h"

enum { MOST_KEPT = 32 };

static GpufmtBlock kept[MOST_KEPT]; /* the one that came back first is first */
static int         nkept      = 0;
static size_t      kept_bytes = 0, most_bytes = (size_t)1 << 30; /* a part of the device's memory, once that is known */
static int         nplaced  = 0;                                 /* blocks that have memory and are not kept */
static PetscBool   simulate = PETSC_FALSE;                       /* ordinary memory takes the place of managed one */

#if PetscDefined(HAVE_CUDA)
  /* What must be free besides: where the driver finds nothing for a page, kernels that touch it end with an illegal address. 4 MB are too few on
   an H200, 16 MB are enough. */
  #define SPARE_BYTES ((size_t)32 << 20)
  #define KEPT_PART   16 /* of the device's memory is kept at most */

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
PetscErrorCode GpufmtBlockPrefetch(void *array, size_t bytes, void *stream)
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
  PetscCall(GpufmtBlockPrefetch(array, bytes, stream));
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
    PetscCall(GpufmtBlocksForget());
    GpufmtPlannerFreePool();
    CallDriver("cuMemGetInfo", gpufmt_driver.MemGetInfo(&available, &total));
  }
  PetscCheck(available >= bytes + SPARE_BYTES, PETSC_COMM_SELF, PETSC_ERR_MEM,
             "Out of device memory: %zu bytes needed, %zu of %zu free; use more ranks and GPUs, or -mat_bind_below to keep small matrices on the host",
             bytes + SPARE_BYTES, available, total);
  most_bytes = total / KEPT_PART;
  CallDriver("cuMemAllocManaged", gpufmt_driver.MemAllocManaged(&p, bytes, CUDA_MEM_ATTACH_GLOBAL));
  *array = (void *)p;
  CallDriver("cuMemAdvise", gpufmt_driver.MemAdvise(p, bytes, CUDA_ADVISE_PREFERRED_LOCATION, device));
  PetscCall(GpufmtBlockPrefetch(*array, bytes, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Free(void *array)
{
  PetscFunctionBegin;
  if (simulate) PetscCall(PetscFree(array));
  else CallDriver("cuMemFree", gpufmt_driver.MemFree((DevicePointer)array)); /* synchronize! */
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtBlockCopyFromHost(void *to, const void *from, size_t bytes)
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

PetscErrorCode GpufmtBlockPrefetch(void *array, size_t bytes, void *stream)
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

PetscErrorCode GpufmtBlockCopyFromHost(void *to, const void *from, size_t bytes)
{
  return PetscMemcpy(to, from, bytes);
}
#endif

/* whether what is made on this backend can have managed arrays and has a use for them */
PetscBool GpufmtManagedPossible(int backend)
{
  return (PetscBool)((backend == GPUFMT_BACKEND_CUDA || simulate) && ManagedUsable());
}

/* whether a block serves so many bytes without a waste of more than a third */
static PetscBool Fits(const GpufmtBlock *block, size_t bytes)
{
  static const size_t small = (size_t)1 << 16;

  return (PetscBool)(block->capacity >= bytes && block->capacity <= bytes + bytes / 3 + small);
}

/* Memory for a row pointer of so many rows, with a block that is kept for at least so many bytes if there is one; else GpufmtBlockPlace() takes
   it. Of several it is the smallest, and of these the one that was used last. */
PetscErrorCode GpufmtBlockFind(size_t bytes, PetscInt nrows, GpufmtBlock *block)
{
  int best = -1;

  PetscFunctionBegin;
  for (int k = 0; k < nkept; k++)
    if (Fits(&kept[k], bytes) && (best < 0 || kept[k].capacity <= kept[best].capacity)) best = k;
  *block = (GpufmtBlock){NULL};
  if (best >= 0) {
    *block = kept[best];
    kept_bytes -= block->capacity;
    nkept--;
    nplaced++;
    for (int k = best; k < nkept; k++) kept[k] = kept[k + 1];
  }
  if (block->rowptr && block->nrows >= nrows) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscFree(block->rowptr));
  PetscCall(PetscMalloc1(nrows + 1, &block->rowptr));
  block->nrows = nrows;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the block's pages come to the device, with memory for `bytes` if it has none; nothing is known of what is there */
PetscErrorCode GpufmtBlockPlace(GpufmtBlock *block, size_t bytes)
{
  PetscFunctionBegin;
  if (block->array) PetscCall(PrefetchWithoutContents(block->array, bytes));
  else {
    PetscCall(Allocate(bytes, &block->array));
    block->capacity = bytes;
    nplaced++;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the managed memory goes, the row pointer stays */
PetscErrorCode GpufmtBlockVacate(GpufmtBlock *block)
{
  void *array = block->array;

  PetscFunctionBegin;
  block->array    = NULL;
  block->capacity = 0;
  if (!array) PetscFunctionReturn(PETSC_SUCCESS);
  nplaced--;
  PetscCall(Free(array));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtBlockFree(GpufmtBlock *block)
{
  PetscFunctionBegin;
  PetscCall(GpufmtBlockVacate(block));
  PetscCall(PetscFree(block->rowptr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode FreeOldest(void)
{
  GpufmtBlock oldest = kept[0];

  PetscFunctionBegin;
  kept_bytes -= oldest.capacity;
  nkept--;
  nplaced++;
  for (int k = 0; k < nkept; k++) kept[k] = kept[k + 1];
  PetscCall(GpufmtBlockFree(&oldest));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Nobody uses the block any more: it is for the next, and older ones go where there are too many. What is queued on PETSc's stream comes before
   its next use there. */
PetscErrorCode GpufmtBlockKeep(GpufmtBlock *block)
{
  PetscFunctionBegin;
  if (!block->array || block->capacity > most_bytes) {
    PetscCall(GpufmtBlockFree(block));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(GpufmtDeviceSettle());
  while (nkept == MOST_KEPT || kept_bytes + block->capacity > most_bytes) PetscCall(FreeOldest());
  kept[nkept++] = *block;
  kept_bytes += block->capacity;
  nplaced--;
  *block = (GpufmtBlock){NULL};
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* what is kept goes back to the driver */
PetscErrorCode GpufmtBlocksForget(void)
{
  PetscFunctionBegin;
  while (nkept) PetscCall(FreeOldest());
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* For petsc_gpufmt/backends/native_library.py, when memory runs out; PETSc may have ended, when nothing is kept. */
PETSC_EXTERN PetscErrorCode GpufmtManagedTrim(void)
{
  return nkept ? GpufmtBlocksForget() : PETSC_SUCCESS;
}

/* bytes that are kept; for tests */
PETSC_EXTERN size_t GpufmtManagedKept(void)
{
  return kept_bytes;
}

/* For tests of all that does not depend on where pages lie. Returns whether it is as asked for: nothing changes while a matrix has managed
   arrays, nor where there is a device. */
PETSC_EXTERN int GpufmtManagedSimulate(int on)
{
  if (!nplaced && !GpufmtDeviceUsable() && !GpufmtManagedTrim()) simulate = on ? PETSC_TRUE : PETSC_FALSE;
  return simulate == (on ? PETSC_TRUE : PETSC_FALSE);
}
