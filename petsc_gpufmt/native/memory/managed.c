/* Column indices and values of a sequential matrix in managed memory: a page lies on the device until something on the host touches it, so
   that the result of a sparse product stays on the device, and yet whatever reads it on the host finds it, past PETSc's getters too.

   A matrix gets such arrays by MatCreateSeqAIJWithArrays() and MatHeaderMerge(). What may insert a nonzero, and so free arrays that are not
   PETSc's, gives the matrix ordinary ones first: see matrix/managed_arrays.c. */
#include "memory/memory.h"

static const size_t columns_alignment = 16;

/* Of as many rows, to touch the pages of their pointer and lengths on the host takes longer than to leave these on the device, and to call back the
   pages at their ends. */
static PetscInt many_rows = (PetscInt)1 << 16;

static GpufmtManaged *all = NULL;

/* What binds sequential matrices of ours to the host, by which they are known: MatCreateSubMatrices() gives its matrices another function to destroy
   them, and users set those to view and to load by MatSetOperation(). Handed down by GpufmtMatrixSetUp(). */
PetscErrorCode (*gpufmt_seq_bind)(Mat, PetscBool) = NULL;

/* how many matrices have managed arrays; for tests */
PETSC_EXTERN int GpufmtManagedCount(void)
{
  int count = 0;

  for (const GpufmtManaged *m = all; m; m = m->next) count++;
  return count;
}

/* For tests: from now on so many rows are many. Returns how many were. */
PETSC_EXTERN int GpufmtManagedManyRows(int nrows)
{
  const int before = (int)many_rows;

  many_rows = nrows;
  return before;
}

/* ---- arrays ---- */

/* ordinary memory of the device is there sooner than managed memory, which needs its pages */
static PetscErrorCode TakeMemory(size_t bytes, GpufmtManaged *m)
{
  PetscFunctionBegin;
  if (m->on_device) PetscCall(GpufmtDeviceReserve(bytes, &m->memory.address, &m->memory.capacity));
  else PetscCall(GpufmtManagedTake(bytes, &m->memory));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode ReturnMemory(GpufmtManaged *m)
{
  PetscFunctionBegin;
  if (m->on_device) PetscCall(GpufmtDeviceFree(&m->memory.address, &m->memory.capacity));
  else PetscCall(GpufmtManagedReturn(&m->memory));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Of a long array of which two entries are written, two pages are taken. A matrix is made of its first row on, which PETSc looks at with its checks. */
static PetscErrorCode TakeRows(const PetscInt rowptr[], PetscBool on_device, PetscBool known, GpufmtManaged *m)
{
  const size_t count = (size_t)m->nrows + 1;

  PetscFunctionBegin;
  if (known && !m->internal && m->nrows >= many_rows) {
    PetscCall(GpufmtManagedTake(3 * count * sizeof(PetscInt), &m->rows));
    m->rowptr     = (PetscInt *)m->rows.address;
    m->lengths[0] = m->rowptr + count;
    m->lengths[1] = m->lengths[0] + count;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(PetscMalloc1(count, &m->rowptr));
  if (m->internal) {
    m->rowptr[0]        = 0;
    m->rowptr[m->nrows] = (PetscInt)m->nnz;
  } else PetscCall(GpufmtCopyToHost(on_device ? GPUFMT_BACKEND_CUDA : GPUFMT_BACKEND_HOST, m->rowptr, rowptr, count * sizeof(PetscInt)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode ReturnRows(GpufmtManaged *m)
{
  PetscFunctionBegin;
  if (m->lengths[0]) PetscCall(GpufmtManagedReturn(&m->rows));
  else PetscCall(PetscFree(m->rowptr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The row pointer once more, beside the columns: plans of the matrix take it from there. Of few rows it is not sent to the device for that. What is
   managed of many rows is made of it. */
static PetscErrorCode CopyRowptr(GpufmtManaged *m, const PetscInt rowptr[], PetscBool on_device)
{
  const size_t bytes   = ((size_t)m->nrows + 1) * sizeof(PetscInt);
  const int    backend = GpufmtDeviceUsable() ? GPUFMT_BACKEND_CUDA : GPUFMT_BACKEND_HOST;
  PetscInt     seen[2];

  PetscFunctionBegin;
  if (!on_device && backend == GPUFMT_BACKEND_CUDA && !m->lengths[0]) PetscFunctionReturn(PETSC_SUCCESS);
  m->copied_rowptr = m->colidx + m->nnz;
  if (on_device) PetscCall(GpufmtBufferCopy(&(GpufmtBuffer){.backend = backend, .array = m->copied_rowptr}, rowptr, bytes));
  else PetscCall(GpufmtCopyToBackend(backend, m->copied_rowptr, rowptr, bytes));
  if (!m->lengths[0]) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtBufferCopy(&(GpufmtBuffer){.backend = backend, .array = m->rowptr}, m->copied_rowptr, bytes));
  PetscCall(GpufmtRowLengths(backend, m->nrows, m->copied_rowptr, m->lengths, seen));
  m->longest  = seen[0];
  m->nonempty = seen[1];
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Room for the columns and values of a pattern of `nnz` entries, and a copy of its row pointer, from the device or the host. That of few rows comes to
   the host before the pages, for which it would wait. `internal`: for a matrix that no user sees, and of which nothing on the host reads more than its
   sizes. */
PetscErrorCode GpufmtManagedCreate(PetscInt nrows, PetscCount nnz, const PetscInt rowptr[], PetscBool on_device, PetscBool internal,
                                   GpufmtManaged **out)
{
  GpufmtManaged *m;
  PetscErrorCode ierr;
  PetscBool      known;
  const size_t   columns = ((size_t)nnz * sizeof(PetscScalar) / columns_alignment + 1) * columns_alignment; /* where they begin */
  const size_t   bytes   = columns + ((size_t)nnz + (size_t)nrows + 1) * sizeof(PetscInt);

  PetscFunctionBegin;
  PetscCall(GpufmtRowsKnown(&known));
  PetscCall(PetscNew(&m));
  m->nrows     = nrows;
  m->nnz       = nnz;
  m->internal  = (PetscBool)(internal && known);
  m->on_device = (PetscBool)(m->internal && on_device);
  ierr         = TakeRows(rowptr, on_device, known, m);
  if (!ierr) ierr = TakeMemory(bytes, m);
  if (ierr) { /* there may not be the memory */
    PetscCall(ReturnRows(m));
    PetscCall(PetscFree(m));
  }
  PetscCall(ierr);
  m->values     = (PetscScalar *)m->memory.address;
  m->colidx     = (PetscInt *)((char *)m->memory.address + columns);
  m->references = 1;
  m->next       = all;
  if (all) all->previous = m;
  all  = m;
  *out = m;
  ierr = CopyRowptr(m, rowptr, on_device);
  if (ierr) PetscCall(GpufmtManagedRelease(out));
  PetscCall(ierr);
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
  PetscCall(ReturnMemory(m));
  PetscCall(ReturnRows(m));
  PetscCall(PetscFree(m));
  if (!all) PetscCall(GpufmtRowLengthsForget());
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* PETSc ends: the memory of matrices that the user leaked must go while the device context lives; row pointers on the host stay */
PetscErrorCode GpufmtManagedForget(void)
{
  PetscFunctionBegin;
  for (GpufmtManaged *m = all; m; m = m->next) {
    PetscCall(ReturnMemory(m));
    if (m->lengths[0]) PetscCall(ReturnRows(m));
    m->values        = NULL;
    m->colidx        = NULL;
    m->copied_rowptr = NULL;
  }
  PetscCall(GpufmtManagedForgetKept());
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscBool LiesIn(const void *address, const GpufmtMemory *memory)
{
  const char *first = (const char *)memory->address;

  return (PetscBool)(first && (const char *)address >= first && (const char *)address < first + memory->capacity);
}

/* whether an address lies in managed arrays: what is there is not to be read on the host without need */
PetscBool GpufmtManagedContains(const void *address)
{
  for (const GpufmtManaged *m = all; m; m = m->next)
    if (LiesIn(address, &m->memory) || LiesIn(address, &m->rows)) return PETSC_TRUE;
  return PETSC_FALSE;
}

/* the copy of a row pointer of the host; NULL: there is none, or MatEliminateZeros() has changed the one on the host */
const void *GpufmtManagedRowptr(const void *host, size_t bytes)
{
  const GpufmtManaged *m = all;

  while (m && m->rowptr != host) m = m->next;
  return m && bytes == ((size_t)m->nrows + 1) * sizeof(PetscInt) && m->rowptr[m->nrows] == m->nnz ? m->copied_rowptr : NULL;
}

/* for tests */
PETSC_EXTERN const void *GpufmtManagedCopiedRowptr(const void *host, size_t bytes)
{
  return GpufmtManagedRowptr(host, bytes);
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
  } else PetscCall(GpufmtManagedCopyFromHost(m->colidx, colidx, bytes));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The values become zeros. Likewise. */
PetscErrorCode GpufmtManagedZeroValues(GpufmtManaged *m)
{
  PetscFunctionBegin;
  if (m->nnz) PetscCall(GpufmtManagedClear(m->values, (size_t)m->nnz * sizeof(PetscScalar)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* synchronize! the host may read the columns and the values, and `colidx` may go */
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
  if (m->nnz && !m->on_device) PetscCall(GpufmtManagedPrefetch(m->values, (size_t)m->nnz * sizeof(PetscScalar), stream));
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
  else {
    PetscCall(GpufmtRowsLeave(A, arrays->managed, PETSC_TRUE));
    PetscCall(GpufmtManagedRelease(&arrays->managed));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
