/* Host memory for row pointers and lengths of rows of matrices with managed arrays. To take it with all its pages takes longer than a sparse product: what no
   matrix uses any more is kept for the next, and where it is known that much will be wanted, its pages are made ahead. */
#include "memory/memory.h"

static PetscErrorCode FreeOnHost(void *);

static GpufmtKept kept_rows = {.free = FreeOnHost, .most = (size_t)1 << 28};

static struct {
  size_t least; /* rows of a matrix: of fewer, pages are made sooner than a thread */
  size_t bytes; /* of each array that is prepared */
  int    nleft; /* of these, that nobody has taken */
  int    nprepared, ntaken /* since the beginning, for tests */;
} ahead = {.least = (size_t)1 << 20};

static PetscErrorCode FreeOnHost(void *array)
{
  return PetscFree(array);
}

/* one that was prepared, if there is one and it serves so many bytes */
static GpufmtMemory TakeAhead(size_t bytes)
{
  GpufmtMemory rows = {NULL, ahead.bytes};

  if (!ahead.nleft || !GpufmtKeptFits(&rows, bytes)) return (GpufmtMemory){NULL, 0};
  rows.address = GpufmtPagesAheadTake();
  ahead.nleft--;
  return rows;
}

/* memory of PetscMalloc() on the host, for a row pointer or the lengths of rows of that many entries */
PetscErrorCode GpufmtManagedTakeRows(size_t count, GpufmtMemory *rows)
{
  const size_t bytes = count * sizeof(PetscInt);

  PetscFunctionBegin;
  *rows = GpufmtKeptTake(&kept_rows, bytes);
  if (rows->address) PetscFunctionReturn(PETSC_SUCCESS);
  *rows = TakeAhead(bytes);
  ahead.ntaken += rows->address != NULL;
  if (rows->address) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscMalloc(bytes, &rows->address));
  GpufmtPagesMayBeLarge(rows->address, bytes);
  rows->capacity = bytes;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtManagedReturnRows(GpufmtMemory *rows)
{
  return GpufmtKeptAdd(&kept_rows, rows);
}

/* how many arrays there will be too few for matrices of so many rows: each takes a row pointer, and lengths of rows twice */
static int Missing(size_t nrows, int nmatrices)
{
  const int pointers = nmatrices - GpufmtKeptCount(&kept_rows, (nrows + 1) * sizeof(PetscInt));
  const int all      = 3 * nmatrices - GpufmtKeptCount(&kept_rows, nrows * sizeof(PetscInt));

  return PetscMax(0, PetscMax(pointers, all));
}

/* Matrices of so many rows will get managed arrays: what they take here is prepared, if it pays. There are no errors: who lacks memory now may have it
   then. GpufmtManagedRowsAheadEnd() follows. */
void GpufmtManagedRowsAhead(size_t nrows, int nmatrices)
{
  const size_t bytes    = (nrows + 1) * sizeof(PetscInt); /* serves lengths as well */
  const int    nmissing = PetscMin(GPUFMT_MOST_AHEAD, Missing(nrows, nmatrices));
  void        *arrays[GPUFMT_MOST_AHEAD];
  int          n = 0;

  if (nrows < ahead.least || ahead.bytes || !nmissing || PetscPushErrorHandler(PetscReturnErrorHandler, NULL)) return;
  while (n < nmissing && !PetscMalloc(bytes, &arrays[n])) n++;
  (void)PetscPopErrorHandler();
  for (int k = 0; k < n; k++) GpufmtPagesMayBeLarge(arrays[k], bytes);
  GpufmtPagesAheadBegin(n, arrays, bytes);
  ahead.bytes = bytes;
  ahead.nleft = n;
  ahead.nprepared += n;
}

/* The matrices are there, or will not be: what they have not taken is kept. */
PetscErrorCode GpufmtManagedRowsAheadEnd(void)
{
  PetscErrorCode ierr = PETSC_SUCCESS;

  while (ahead.nleft) {
    GpufmtMemory rows = TakeAhead(ahead.bytes);

    if (!ierr) ierr = GpufmtKeptAdd(&kept_rows, &rows);
  }
  GpufmtPagesAheadEnd();
  ahead.bytes = 0;
  return ierr;
}

/* what is kept goes back to the system; PETSc may have ended, when nothing is */
PetscErrorCode GpufmtManagedForgetRows(void)
{
  const PetscErrorCode ierr = GpufmtManagedRowsAheadEnd();

  return ierr || !kept_rows.count ? ierr : GpufmtKeptForget(&kept_rows);
}

/* bytes that are kept; for tests */
PETSC_EXTERN size_t GpufmtManagedKeptRows(void)
{
  return kept_rows.bytes;
}

/* For tests, too: from now on arrays are prepared for matrices of so many rows and more. Returns what it was. */
PETSC_EXTERN size_t GpufmtManagedRowsAheadFrom(size_t nrows)
{
  const size_t before = ahead.least;

  ahead.least = nrows;
  return before;
}

/* Likewise: arrays that were prepared so far, and those of them that a matrix has taken. */
PETSC_EXTERN void GpufmtManagedRowsAheadCount(int *nprepared, int *ntaken)
{
  *nprepared = ahead.nprepared;
  *ntaken    = ahead.ntaken;
}
