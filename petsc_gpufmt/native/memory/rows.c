/* Sequential matrices with given arrays. MatCreateSeqAIJWithArrays() and the assembly in it go over all rows several times, which takes longer
   than a sparse product on the device. So PETSc makes a matrix without rows, and they are added here. What it keeps of them lies in a structure
   of no public header, whose beginning is mirrored; where a small matrix of PETSc's does not look like that, PETSc adds the rows. */
#include "memory/memory.h"

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

/* lengths of rows that are on the host, and what PETSc notes of them */
static PetscErrorCode FillLengths(PetscInt nrows, Rows *rows)
{
  PetscFunctionBegin;
  PetscCall(PetscMalloc1(nrows, &rows->imax));
  PetscCall(PetscMalloc1(nrows, &rows->ilen));
  rows->rmax = rows->nonzerorowcnt = 0;
  for (PetscInt r = 0; r < nrows; r++) {
    const PetscInt length = rows->i[r + 1] - rows->i[r];

    rows->imax[r] = rows->ilen[r] = length;
    rows->rmax                    = PetscMax(rows->rmax, length);
    rows->nonzerorowcnt += length > 0;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Adds rows to a matrix that has the arrays, and none yet. Rows without entries are not left out: see GpufmtRowsCompress(). */
static PetscErrorCode AddRows(Mat A, const GpufmtManaged *m)
{
  Rows       *rows = (Rows *)A->data;
  PetscLayout layout_of_rows;

  PetscFunctionBegin;
  PetscCall(PetscLayoutCreateFromSizes(PetscObjectComm((PetscObject)A), m->nrows, m->nrows, 1, &layout_of_rows));
  PetscCall(PetscLayoutDestroy(&A->rmap));
  A->rmap = layout_of_rows;
  PetscCall(PetscFree2(rows->compressedrow.i, rows->compressedrow.rindex));
  rows->compressedrow.use   = PETSC_FALSE;
  rows->compressedrow.nrows = 0;
  rows->nz                  = (PetscInt)m->nnz;
  if (m->lengths[0]) {
    PetscCall(PetscFree(rows->imax)); /* of no rows */
    PetscCall(PetscFree(rows->ilen));
    rows->imax          = m->lengths[0];
    rows->ilen          = m->lengths[1];
    rows->rmax          = m->longest;
    rows->nonzerorowcnt = m->nonempty;
  } else if (!m->internal) PetscCall(FillLengths(m->nrows, rows));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* An assembled matrix of type seqaij with these arrays. Inodes, found by reading the columns on the host, are switched off, which before the assembly in
   there can only be done by an option. Nothing of PETSc's reads lengths of rows of a matrix that no user sees. */
PetscErrorCode GpufmtCreateWithArrays(MPI_Comm comm, PetscInt ncols, const GpufmtManaged *m, Mat *A)
{
  PetscOptions   without_inodes;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(LookAtLayout());
  PetscCall(PetscOptionsCreate(&without_inodes));
  PetscCall(PetscOptionsSetValue(without_inodes, "-mat_no_inode", "true"));
  PetscCall(PetscOptionsPush(without_inodes));
  ierr = MatCreateSeqAIJWithArrays(comm, layout == ROWS_KNOWN ? 0 : m->nrows, ncols, m->rowptr, m->colidx, m->values, A);
  PetscCall(PetscOptionsPop());
  PetscCall(PetscOptionsDestroy(&without_inodes));
  PetscCall(ierr);
  if (layout == ROWS_KNOWN) ierr = AddRows(*A, m);
  if (ierr) PetscCall(MatDestroy(A));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A, which has these arrays, is about to lose them: PETSc would free the lengths of rows, or write others there. With `copied` it has got other arrays
   already, by a preallocation, and lengths of its own are made of what was written. */
PetscErrorCode GpufmtRowsLeave(Mat A, const GpufmtManaged *m, PetscBool copied)
{
  Rows      *rows      = (Rows *)A->data;
  PetscInt **lengths[] = {&rows->imax, &rows->ilen};

  PetscFunctionBegin;
  for (int k = 0; m->lengths[0] && k < 2; k++) {
    if (*lengths[k] != m->lengths[k]) continue;
    *lengths[k] = NULL;
    if (!copied) continue;
    PetscCall(PetscMalloc1(m->nrows, lengths[k]));
    PetscCall(PetscArraycpy(*lengths[k], m->lengths[k], m->nrows));
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
