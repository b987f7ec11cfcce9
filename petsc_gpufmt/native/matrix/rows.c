/* Sequential matrices with given arrays. MatCreateSeqAIJWithArrays() and the assembly in it go over all rows several times, which takes longer
   than a sparse product on the device. So PETSc makes a matrix without rows, and they are added here. What it keeps of them lies in a structure
   of no public header, whose beginning is mirrored; where a small matrix of PETSc's does not look like that, PETSc adds the rows. */
#include "matrix/matrix.h"
#include <pthread.h>

enum {
  MOST_THREADS  = 4,
  ROWS_A_THREAD = 1 << 17 /* at least: about as long as to start it */
};

/* the beginning of PETSc's structure, in the order of its members */
typedef struct {
  PetscBool         roworiented;
  PetscInt          nonew, nounused, maxnz;
  PetscInt         *imax, *ilen; /* lengths of rows, that there is room for, and that are there */
  PetscInt         *ipre;
  PetscBool         free_imax_ilen;
  PetscInt          reallocs;
  PetscInt          rmax; /* length of the longest row */
  PetscBool         keepnonzeropattern, ignorezeroentries, free_ij, free_a;
  Mat_CompressedRow compressedrow;
  PetscInt          nz;
  PetscInt         *i, *j, *diag;
  PetscObjectState  diagNonzeroState;
  PetscBool         diagDense;
  PetscInt          nonzerorowcnt; /* rows with entries */
} Rows;

typedef enum { ROWS_NOT_LOOKED_AT, ROWS_KNOWN, ROWS_UNKNOWN } RowsLayout;

static RowsLayout layout = ROWS_NOT_LOOKED_AT;

/* For tests: whether rows were added here. From now on PETSc adds them if `unknown`, as where it has another structure. */
PETSC_EXTERN int GpufmtRowsForget(int unknown)
{
  const int known = layout == ROWS_KNOWN;

  layout = unknown ? ROWS_UNKNOWN : ROWS_NOT_LOOKED_AT;
  return known;
}

static PetscBool LooksAsExpected(const Rows *rows, const PetscInt rowptr[], const PetscInt colidx[], PetscInt nrows)
{
  if (PETSC_VERSION_LT(3, 25, 0)) return PETSC_FALSE; /* there PETSc reads `diag` of a matrix without a look whether it is there */
  if (rows->i != rowptr || rows->j != colidx || rows->nz != rowptr[nrows] || rows->nonzerorowcnt != 2 || rows->rmax != 3) return PETSC_FALSE;
  if (rows->nonew != -1 || rows->free_ij || rows->free_a || rows->ipre || rows->compressedrow.use || !rows->imax || !rows->ilen) return PETSC_FALSE;
  for (PetscInt r = 0; r < nrows; r++)
    if (rows->imax[r] != rowptr[r + 1] - rowptr[r] || rows->ilen[r] != rows->imax[r]) return PETSC_FALSE;
  return PETSC_TRUE;
}

static PetscErrorCode LookAtLayout(void)
{
  PetscInt    rowptr[] = {0, 1, 1, 4}, colidx[] = {2, 0, 1, 3};
  PetscScalar values[4] = {0.0};
  Mat         A;

  PetscFunctionBegin;
  if (layout != ROWS_NOT_LOOKED_AT) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(MatCreateSeqAIJWithArrays(PETSC_COMM_SELF, 3, 4, rowptr, colidx, values, &A));
  layout = LooksAsExpected((const Rows *)A->data, rowptr, colidx, 3) ? ROWS_KNOWN : ROWS_UNKNOWN;
  PetscCall(MatDestroy(&A));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* whether rows are added here: else PETSc reads row pointers */
PetscErrorCode GpufmtRowsKnown(PetscBool *known)
{
  PetscFunctionBegin;
  PetscCall(LookAtLayout());
  *known = (PetscBool)(layout == ROWS_KNOWN);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* some rows, whose lengths one thread writes */
typedef struct {
  const PetscInt *rowptr;
  PetscInt       *imax, *ilen;
  PetscInt        first, last, longest, nonzero;
} Part;

static void *FillPart(void *argument)
{
  Part *const     part   = (Part *)argument;
  const PetscInt *rowptr = part->rowptr;
  PetscInt *const imax = part->imax, *const ilen = part->ilen;
  PetscInt longest = 0, nonzero = 0;

  for (PetscInt r = part->first; r < part->last; r++) {
    const PetscInt length = rowptr[r + 1] - rowptr[r];

    imax[r] = ilen[r] = length;
    longest           = PetscMax(longest, length);
    nonzero += length > 0;
  }
  part->longest = longest;
  part->nonzero = nonzero;
  return NULL;
}

/* Most of the time goes into the first touch of pages, which threads share. What finds no thread is done here. */
static void FillParts(int nparts, Part parts[])
{
  pthread_t threads[MOST_THREADS];
  int       nthreads = 1;

  while (nthreads < nparts && !pthread_create(&threads[nthreads], NULL, FillPart, &parts[nthreads])) nthreads++;
  (void)FillPart(&parts[0]);
  for (int k = nthreads; k < nparts; k++) (void)FillPart(&parts[k]);
  for (int k = 1; k < nthreads; k++) (void)pthread_join(threads[k], NULL);
}

static PetscErrorCode FillLengths(PetscInt nrows, Rows *rows)
{
  const int    nparts = (int)PetscMin(MOST_THREADS, nrows / ROWS_A_THREAD + 1);
  Part         parts[MOST_THREADS];
  GpufmtMemory room, present;

  PetscFunctionBegin;
  PetscCall(GpufmtManagedTakeRows((size_t)nrows, &room));
  rows->imax = (PetscInt *)room.address;
  PetscCall(GpufmtManagedTakeRows((size_t)nrows, &present));
  rows->ilen = (PetscInt *)present.address;
  for (int k = 0; k < nparts; k++)
    parts[k] = (Part){.rowptr = rows->i,
                      .imax   = rows->imax,
                      .ilen   = rows->ilen,
                      .first  = (PetscInt)((PetscInt64)nrows * k / nparts),
                      .last   = (PetscInt)((PetscInt64)nrows * (k + 1) / nparts)};
  FillParts(nparts, parts);
  rows->rmax = rows->nonzerorowcnt = 0;
  for (int k = 0; k < nparts; k++) {
    rows->rmax = PetscMax(rows->rmax, parts[k].longest);
    rows->nonzerorowcnt += parts[k].nonzero;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Adds rows to a matrix that has the arrays, and none yet. Rows without entries are not left out: see GpufmtRowsCompress(). */
static PetscErrorCode AddRows(Mat A, PetscInt nrows, PetscBool internal)
{
  Rows *rows = (Rows *)A->data;

  PetscFunctionBegin;
  PetscCall(PetscLayoutDestroy(&A->rmap));
  PetscCall(PetscLayoutCreateFromSizes(PetscObjectComm((PetscObject)A), nrows, nrows, 1, &A->rmap));
  PetscCall(PetscFree2(rows->compressedrow.i, rows->compressedrow.rindex));
  rows->compressedrow.use   = PETSC_FALSE;
  rows->compressedrow.nrows = 0;
  rows->nz                  = rows->i[nrows];
  if (!internal) PetscCall(FillLengths(nrows, rows));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* An assembled matrix of type seqaij with these arrays, which stay the caller's. Inodes, found by reading the columns on the host, are switched off,
   which before the assembly in there can only be done by an option. `internal`: no user sees it, and nothing of PETSc's reads lengths of its rows. */
PetscErrorCode GpufmtCreateWithArrays(MPI_Comm comm, PetscInt nrows, PetscInt ncols, PetscInt rowptr[], PetscInt colidx[], PetscScalar values[],
                                      PetscBool internal, Mat *A)
{
  PetscOptions   without_inodes;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(LookAtLayout());
  PetscCall(PetscOptionsCreate(&without_inodes));
  PetscCall(PetscOptionsSetValue(without_inodes, "-mat_no_inode", "true"));
  PetscCall(PetscOptionsPush(without_inodes));
  ierr = MatCreateSeqAIJWithArrays(comm, layout == ROWS_KNOWN ? 0 : nrows, ncols, rowptr, colidx, values, A);
  PetscCall(PetscOptionsPop());
  PetscCall(PetscOptionsDestroy(&without_inodes));
  PetscCall(ierr);
  if (layout == ROWS_KNOWN) ierr = AddRows(*A, nrows, internal);
  if (ierr) PetscCall(MatDestroy(A));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A, whose rows were added here, goes: PETSc would free their lengths, and the next would touch new pages. */
PetscErrorCode GpufmtRowsKeep(Mat A)
{
  Rows          *rows      = (Rows *)A->data;
  PetscInt     **lengths[] = {&rows->imax, &rows->ilen};
  const PetscInt few       = 1 << 14; /* rows: their pages are kept by the C library */

  PetscFunctionBegin;
  if (layout != ROWS_KNOWN || A->rmap->n < few) PetscFunctionReturn(PETSC_SUCCESS);
  for (int k = 0; k < 2; k++) {
    GpufmtMemory memory = {.address = *lengths[k], .capacity = (size_t)A->rmap->n * sizeof(PetscInt)};

    *lengths[k] = NULL;
    PetscCall(GpufmtManagedReturnRows(&memory));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A has arrays of PETSc's own again, and entries in `nonzero` rows: products of PETSc's leave out the others, where most are such. */
PetscErrorCode GpufmtRowsCompress(Mat A, PetscInt nonzero)
{
  static const PetscReal empty = 0.6; /* of all rows, as in PETSc's assembly */
  Rows                  *rows  = (Rows *)A->data;

  PetscFunctionBegin;
  if (layout == ROWS_KNOWN) PetscCall(MatCheckCompressedRow(A, nonzero, &rows->compressedrow, rows->i, A->rmap->n, empty));
  PetscFunctionReturn(PETSC_SUCCESS);
}
