/* Column indices and values of a sequential matrix in managed memory: a page lies on the device until something on the host touches it, so
   that the result of a sparse product stays on the device, and yet whatever reads it on the host finds it, past PETSc's getters too.

   A matrix gets such arrays by MatCreateSeqAIJWithArrays() and MatHeaderMerge(). What may insert a nonzero, and so free arrays that are not
   PETSc's, gives the matrix ordinary ones first: see matrix/managed_arrays.c. */
#include "memory/memory.h"
#include "runtime/driver.h"

static const size_t columns_alignment = 16;

static GpufmtManaged *all      = NULL;
static PetscBool      simulate = PETSC_FALSE; /* ordinary memory takes the place of managed one */

/* the destroy function of sequential matrices of ours, by which they are known; handed down by GpufmtMatrixSetUp() */
PetscErrorCode (*gpufmt_seq_destroy)(Mat) = NULL;

/* ---- memory ---- */

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

/* moves the array to the device where it is not there */
static PetscErrorCode Prefetch(void *array, size_t bytes, void *stream)
{
  int device;

  PetscFunctionBegin;
  if (simulate) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtDeviceGet(&device, NULL));
  CallDriver("cuMemPrefetchAsync", gpufmt_driver.MemPrefetchAsync((DevicePointer)array, bytes, device, stream));
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
    GpufmtPlannerFreePool();
    CallDriver("cuMemGetInfo", gpufmt_driver.MemGetInfo(&available, &total));
  }
  PetscCheck(available >= bytes + SPARE_BYTES, PETSC_COMM_SELF, PETSC_ERR_MEM,
             "Out of device memory: %zu bytes needed, %zu of %zu free; use more ranks and GPUs, or -mat_bind_below to keep small matrices on the host",
             bytes + SPARE_BYTES, available, total);
  CallDriver("cuMemAllocManaged", gpufmt_driver.MemAllocManaged(&p, bytes, CUDA_MEM_ATTACH_GLOBAL));
  *array = (void *)p;
  CallDriver("cuMemAdvise", gpufmt_driver.MemAdvise(p, bytes, CUDA_ADVISE_PREFERRED_LOCATION, device));
  PetscCall(Prefetch(*array, bytes, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Free(void *array)
{
  PetscFunctionBegin;
  if (simulate) PetscCall(PetscFree(array));
  else CallDriver("cuMemFree", gpufmt_driver.MemFree((DevicePointer)array)); /* synchronize! */
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode CopyFromHost(void *to, const void *from, size_t bytes)
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

static PetscErrorCode Prefetch(void *array, size_t bytes, void *stream)
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

static PetscErrorCode CopyFromHost(void *to, const void *from, size_t bytes)
{
  return PetscMemcpy(to, from, bytes);
}
#endif

/* For tests of all that does not depend on where pages lie. Returns whether it is as asked for: nothing changes while a matrix has managed
   arrays, nor where there is a device. */
PETSC_EXTERN int GpufmtManagedSimulate(int on)
{
  if (!all && !GpufmtDeviceUsable()) simulate = on ? PETSC_TRUE : PETSC_FALSE;
  return simulate == (on ? PETSC_TRUE : PETSC_FALSE);
}

/* how many matrices have managed arrays; for tests */
PETSC_EXTERN int GpufmtManagedCount(void)
{
  int count = 0;

  for (const GpufmtManaged *m = all; m; m = m->next) count++;
  return count;
}

/* ---- arrays ---- */

/* `count` indices from a backend to the host */
static PetscErrorCode ToHost(PetscInt to[], const PetscInt from[], PetscCount count, PetscBool on_device)
{
  void *stream;

  PetscFunctionBegin;
  if (on_device) {
    PetscCall(GpufmtDeviceGet(NULL, &stream));
    PetscCall(GpufmtDeviceDownload(to, from, (size_t)count * sizeof(PetscInt), stream));
  } else PetscCall(PetscArraycpy(to, from, count));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Room for the columns and values of a pattern of `nnz` entries, and a copy of its row pointer, from the device or the host. That copy comes
   first: after the allocation it would wait until all pages are there. */
PetscErrorCode GpufmtManagedCreate(PetscInt nrows, PetscCount nnz, const PetscInt rowptr[], PetscBool on_device, GpufmtManaged **out)
{
  GpufmtManaged *m;
  PetscErrorCode ierr;
  void          *array;
  const size_t   columns = ((size_t)nnz * sizeof(PetscScalar) / columns_alignment + 1) * columns_alignment; /* where they begin */
  const size_t   bytes   = columns + (size_t)nnz * sizeof(PetscInt);

  PetscFunctionBegin;
  PetscCall(PetscNew(&m));
  PetscCall(PetscMalloc1(nrows + 1, &m->rowptr));
  ierr = ToHost(m->rowptr, rowptr, (PetscCount)nrows + 1, on_device);
  if (!ierr) ierr = Allocate(bytes, &array);
  if (ierr) { /* there may not be the memory */
    PetscCall(PetscFree(m->rowptr));
    PetscCall(PetscFree(m));
  }
  PetscCall(ierr);
  m->nrows      = nrows;
  m->nnz        = nnz;
  m->values     = (PetscScalar *)array;
  m->colidx     = (PetscInt *)((char *)array + columns);
  m->bytes      = bytes;
  m->references = 1;
  m->next       = all;
  if (all) all->previous = m;
  all  = m;
  *out = m;
  PetscFunctionReturn(PETSC_SUCCESS);
}

GpufmtManaged *GpufmtManagedReference(GpufmtManaged *m)
{
  if (m) m->references++;
  return m;
}

PetscErrorCode GpufmtManagedRelease(GpufmtManaged **out)
{
  GpufmtManaged *m = *out;

  PetscFunctionBegin;
  *out = NULL;
  if (!m || --m->references) PetscFunctionReturn(PETSC_SUCCESS);
  if (m->previous) m->previous->next = m->next;
  else all = m->next;
  if (m->next) m->next->previous = m->previous;
  if (m->values) PetscCall(Free(m->values));
  PetscCall(PetscFree(m->rowptr));
  PetscCall(PetscFree(m));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* PETSc ends: the memory of matrices that the user leaked must go while the device context lives */
PetscErrorCode GpufmtManagedForget(void)
{
  PetscFunctionBegin;
  for (GpufmtManaged *m = all; m; m = m->next) {
    if (m->values) PetscCall(Free(m->values));
    m->values = NULL;
    m->colidx = NULL;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* whether an address lies in managed arrays: what is there is not to be read on the host without need */
PetscBool GpufmtManagedContains(const void *address)
{
  for (const GpufmtManaged *m = all; m; m = m->next) {
    const char *first = (const char *)m->values;

    if (first && (const char *)address >= first && (const char *)address < first + m->bytes) return PETSC_TRUE;
  }
  return PETSC_FALSE;
}

/* A copy of `colidx`, on the device or the host, becomes the columns. The device may copy on after the call: GpufmtManagedSettle() waits for it. */
PetscErrorCode GpufmtManagedSetColumns(GpufmtManaged *m, const PetscInt colidx[], PetscBool on_device)
{
  const size_t bytes = (size_t)m->nnz * sizeof(PetscInt);
  void        *stream;

  PetscFunctionBegin;
  if (on_device) {
    PetscCall(GpufmtDeviceGet(NULL, &stream));
    PetscCall(GpufmtDeviceCopy(m->colidx, colidx, bytes, stream));
  } else PetscCall(CopyFromHost(m->colidx, colidx, bytes));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* synchronize! the host may read the columns, and `colidx` may go */
PetscErrorCode GpufmtManagedSettle(PetscBool on_device)
{
  void *stream;

  PetscFunctionBegin;
  if (!on_device) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtDeviceGet(NULL, &stream));
  PetscCall(GpufmtDeviceSynchronize(stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* before a launch that reads or writes the values, where the host may have touched them */
PetscErrorCode GpufmtManagedPrefetchValues(const GpufmtManaged *m, void *stream)
{
  PetscFunctionBegin;
  if (m->nnz) PetscCall(Prefetch(m->values, (size_t)m->nnz * sizeof(PetscScalar), stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the digest of the columns after that of the row pointer; reads them on the host */
PetscErrorCode GpufmtManagedDigest(const GpufmtManaged *m, uint64_t *digest)
{
  PetscFunctionBegin;
  *digest = 0;
  PetscCall(GpufmtDigest(m->rowptr, (size_t)(m->nrows + 1) * sizeof(PetscInt), digest));
  PetscCall(GpufmtDigest(m->colidx, (size_t)m->nnz * sizeof(PetscInt), digest));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---- matrices ---- */

/* the managed arrays of a matrix; NULL if it has none, or has been given others by a new preallocation */
PetscErrorCode GpufmtManagedOf(Mat A, GpufmtManaged **out)
{
  GpufmtArrays   *arrays = GpufmtArraysOf(A);
  const PetscInt *rowptr;

  PetscFunctionBegin;
  *out = NULL;
  if (!arrays || !arrays->managed) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(MatSeqAIJGetCSRAndMemType(A, &rowptr, NULL, NULL, NULL));
  if (rowptr == arrays->managed->rowptr) *out = arrays->managed;
  else PetscCall(GpufmtManagedRelease(&arrays->managed));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* whether what is made on this backend can have managed arrays and has a use for them */
PetscBool GpufmtManagedPossible(int backend)
{
  return (PetscBool)((backend == GPUFMT_BACKEND_CUDA || simulate) && ManagedUsable());
}
