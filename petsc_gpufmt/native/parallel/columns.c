/* Lengths and columns of rows that go from rank to rank: read where they are, and columns are numbered where they arrive. */
#include "parallel/parallel.h"

/* ---- read ---- */

/* The row pointer of A from that of row `first` to that of row `last`: where the host has it, or in *copy, which the caller frees. Pages of a managed one
   stay on the device. */
PetscErrorCode GpufmtRowptrRead(Mat A, int backend, PetscInt first, PetscInt last, const PetscInt **rowptr, PetscInt **copy)
{
  const PetscInt *whole;
  GpufmtManaged  *managed;

  PetscFunctionBegin;
  PetscCall(GpufmtManagedOf(A, &managed));
  if (managed && (managed->internal || managed->lengths[0])) {
    const PetscInt *current = managed->internal ? managed->copied_rowptr : managed->rowptr; /* MatEliminateZeros() changes that alone */
    const PetscInt  count   = last - first + 1;

    PetscCall(PetscMalloc1(count, copy));
    *rowptr = *copy;
    PetscCall(GpufmtCopyToHost(backend, *copy, current + first, (size_t)count * sizeof(PetscInt)));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(GpufmtPatternGet(A, &whole, NULL));
  *rowptr = whole + first;
  PetscCall(GpufmtPatternRestore(A, &whole, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The columns of entries first, first + 1, ..., of A, or of those that are listed. Managed arrays are not read on the host: pages would leave the
   device, all of them where the rows of a face of a grid are wanted. For listed entries *scattered gets the columns of all, on the device. */
PetscErrorCode GpufmtColumnsRead(Mat A, int backend, PetscInt n, PetscInt first, const PetscInt entries[], PetscInt columns[],
                                 const PetscInt **scattered)
{
  const PetscInt *rowptr, *colidx;
  GpufmtManaged  *managed;

  PetscFunctionBegin;
  *scattered = NULL;
  PetscCall(GpufmtManagedOf(A, &managed));
  if (managed && entries) *scattered = managed->colidx;
  else if (managed) PetscCall(GpufmtCopyToHost(backend, columns, managed->colidx + first, (size_t)n * sizeof(PetscInt)));
  else {
    PetscCall(GpufmtPatternGet(A, &rowptr, &colidx));
    for (PetscInt k = 0; k < n; k++) columns[k] = colidx[entries ? entries[k] : first + k];
    PetscCall(GpufmtPatternRestore(A, &rowptr, &colidx));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---- numbered ---- */

typedef struct {
  PetscInt column, entry;
} Numbered;

enum { DIGIT_BITS = 11 };

/* by column, and where columns are alike, as they were; *sorted is one of the two arrays */
static void SortByColumn(PetscInt n, PetscInt smallest, PetscInt largest, Numbered *from, Numbered *to, Numbered **sorted)
{
  const PetscInt64 range = n ? (PetscInt64)largest - smallest : 0;

  for (int shift = 0; shift < 63 && range >> shift; shift += DIGIT_BITS) {
    PetscInt  begins[(1 << DIGIT_BITS) + 1] = {0};
    const int mask                          = (1 << DIGIT_BITS) - 1;
    Numbered *swap                          = from;

    for (PetscInt k = 0; k < n; k++) begins[(((PetscInt64)from[k].column - smallest) >> shift & mask) + 1]++;
    for (int d = 0; d < mask; d++) begins[d + 1] += begins[d];
    for (PetscInt k = 0; k < n; k++) to[begins[((PetscInt64)from[k].column - smallest) >> shift & mask]++] = from[k];
    from = to;
    to   = swap;
  }
  *sorted = from;
}

/* by sorting, whatever columns there may be */
static PetscErrorCode CompactSorted(PetscInt nnz, PetscInt colidx[], PetscInt smallest, PetscInt largest, PetscInt *ncols, PetscInt **columns)
{
  PetscInt       n = 0;
  Numbered      *numbered, *more, *sorted;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(PetscMalloc2(nnz, &numbered, nnz, &more));
  for (PetscInt k = 0; k < nnz; k++) numbered[k] = (Numbered){colidx[k], k};
  SortByColumn(nnz, smallest, largest, numbered, more, &sorted);
  for (PetscInt k = 0; k < nnz; k++) n += !k || sorted[k].column != sorted[k - 1].column;
  ierr   = PetscMalloc1(n, columns);
  *ncols = n;
  n      = 0;
  for (PetscInt k = 0; k < nnz && !ierr; k++) {
    if (!k || sorted[k].column != sorted[k - 1].column) (*columns)[n++] = sorted[k].column;
    colidx[sorted[k].entry] = n - 1;
  }
  PetscCall(PetscFree2(numbered, more));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* by a table of `ntable` columns, from the smallest on */
static PetscErrorCode CompactInTable(PetscInt nnz, PetscInt colidx[], PetscInt smallest, PetscInt ntable, PetscInt *ncols, PetscInt **columns)
{
  PetscInt       n = 0, *number;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(PetscCalloc1(ntable, &number));
  for (PetscInt k = 0; k < nnz; k++) number[colidx[k] - smallest] = 1;
  for (PetscInt c = 0; c < ntable; c++) n += number[c];
  ierr   = PetscMalloc1(n, columns);
  *ncols = n;
  n      = 0;
  for (PetscInt c = 0; c < ntable && !ierr; c++)
    if (number[c]) {
      (*columns)[n] = smallest + c;
      number[c]     = n++;
    }
  for (PetscInt k = 0; k < nnz && !ierr; k++) colidx[k] = number[colidx[k] - smallest];
  PetscCall(PetscFree(number));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Columns of the parallel matrix become their places among those that occur, `columns` [ncols]. */
PetscErrorCode GpufmtColumnsCompact(PetscInt nnz, PetscInt colidx[], PetscInt *ncols, PetscInt **columns)
{
  PetscInt smallest = PETSC_INT_MAX, largest = 0;

  PetscFunctionBegin;
  for (PetscInt k = 0; k < nnz; k++) {
    smallest = PetscMin(smallest, colidx[k]);
    largest  = PetscMax(largest, colidx[k]);
  }
  if (nnz && largest - smallest < nnz) /* a larger table is no quicker */
    PetscCall(CompactInTable(nnz, colidx, smallest, largest - smallest + 1, ncols, columns));
  else PetscCall(CompactSorted(nnz, colidx, smallest, largest, ncols, columns));
  PetscFunctionReturn(PETSC_SUCCESS);
}
