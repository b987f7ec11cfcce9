/* Rows, or rows and columns, of a parallel matrix that become zeros in its blocks, where these are: any rank may name any row, and an off-diagonal
   block is told which of its columns are meant. */
#include "matrix/matrix.h"
#include <petscsf.h>

/* what becomes zeros on this rank */
typedef struct {
  Mat                      blocks[2];
  const PetscInt          *ghosts; /* the columns of the off-diagonal block */
  const GpufmtScaleAndAdd *plans[2];
  char                    *rows, *columns; /* a byte for each own row, and for each ghost column, not 0: it does */
  char                    *ones;           /* a byte for each row that this rank names */
  PetscSF                  exchange;       /* from the owners of ghost columns */
  Vec                      ghost_values;   /* of x */
} Zeros;

/* all that may fail on one rank alone, and whether the blocks can be changed where they are */
static PetscErrorCode Prepare(Mat A, PetscInt n, const PetscInt rows[], Vec x, Vec b, PetscBool columns, Zeros *zeros)
{
  PetscFunctionBegin;
  PetscCall(GpufmtZeroCheckVectors(A, x, b));
  for (PetscInt k = 0; k < n; k++) {
    PetscCheck(rows[k] >= 0 && rows[k] < A->rmap->N, PETSC_COMM_SELF, PETSC_ERR_ARG_OUTOFRANGE,
               "Row %" PetscInt_FMT " is to become zeros, and the matrix has %" PetscInt_FMT, rows[k], A->rmap->N);
    PetscCheck(!A->nooffproczerorows || (rows[k] >= A->rmap->rstart && rows[k] < A->rmap->rend), PETSC_COMM_SELF, PETSC_ERR_ARG_OUTOFRANGE,
               "Row %" PetscInt_FMT " is to become zeros, and is of another rank, which MAT_NO_OFF_PROC_ZERO_ROWS excludes", rows[k]);
  }
  PetscCall(MatMPIAIJGetSeqAIJ(A, &zeros->blocks[0], &zeros->blocks[1], &zeros->ghosts));
  PetscCall(GpufmtZeroPlan(zeros->blocks[0], GPUFMT_ZERO_ROWS, (PetscBool)!columns, &zeros->plans[0]));
  if (zeros->plans[0]) PetscCall(GpufmtZeroPlan(zeros->blocks[1], GPUFMT_ZERO_ROWS_OFFDIAG, (PetscBool)!columns, &zeros->plans[1]));
  PetscCall(PetscMalloc3(A->rmap->n, &zeros->rows, zeros->blocks[1]->cmap->n, &zeros->columns, n, &zeros->ones));
  PetscCall(PetscArrayzero(zeros->rows, A->rmap->n));
  for (PetscInt k = 0; k < n; k++) zeros->ones[k] = 1;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* marks own rows that any rank names; collective */
static PetscErrorCode MarkRows(Mat A, PetscInt n, const PetscInt rows[], const char ones[], char marks[])
{
  PetscSF named;

  PetscFunctionBegin;
  if (A->nooffproczerorows) {
    for (PetscInt k = 0; k < n; k++) marks[rows[k] - A->rmap->rstart] = 1;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(PetscSFCreate(PetscObjectComm((PetscObject)A), &named));
  PetscCall(PetscSFSetGraphLayout(named, A->rmap, n, NULL, PETSC_OWN_POINTER, rows));
  PetscCall(PetscSFReduceBegin(named, MPI_CHAR, ones, marks, MPI_REPLACE));
  PetscCall(PetscSFReduceEnd(named, MPI_CHAR, ones, marks, MPI_REPLACE));
  PetscCall(PetscSFDestroy(&named));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* marks the ghost columns whose rows are marked where they are owned, and fetches x there; collective */
static PetscErrorCode FetchGhosts(Mat A, Vec x, Zeros *zeros)
{
  const PetscScalar *owned;
  PetscScalar       *ghosts;
  PetscMemType       owned_memtype, ghosts_memtype;

  PetscFunctionBegin;
  PetscCall(PetscSFCreate(PetscObjectComm((PetscObject)A), &zeros->exchange));
  PetscCall(PetscSFSetGraphLayout(zeros->exchange, A->cmap, zeros->blocks[1]->cmap->n, NULL, PETSC_OWN_POINTER, zeros->ghosts));
  PetscCall(PetscSFBcastBegin(zeros->exchange, MPI_CHAR, zeros->rows, zeros->columns, MPI_REPLACE));
  PetscCall(PetscSFBcastEnd(zeros->exchange, MPI_CHAR, zeros->rows, zeros->columns, MPI_REPLACE));
  if (!x) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(MatCreateVecs(zeros->blocks[1], &zeros->ghost_values, NULL));
  PetscCall(VecGetArrayReadAndMemType(x, &owned, &owned_memtype));
  PetscCall(VecGetArrayWriteAndMemType(zeros->ghost_values, &ghosts, &ghosts_memtype));
  PetscCall(PetscSFBcastWithMemTypeBegin(zeros->exchange, MPIU_SCALAR, owned_memtype, owned, ghosts_memtype, ghosts, MPI_REPLACE));
  PetscCall(PetscSFBcastEnd(zeros->exchange, MPIU_SCALAR, owned, ghosts, MPI_REPLACE));
  PetscCall(VecRestoreArrayWriteAndMemType(zeros->ghost_values, &ghosts));
  PetscCall(VecRestoreArrayReadAndMemType(x, &owned));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode CheckRow(Mat A, PetscInt without)
{
  PetscFunctionBegin;
  PetscCheck(without < 0, PETSC_COMM_SELF, PETSC_ERR_ARG_WRONGSTATE, "Matrix is missing diagonal entry in the zeroed row %" PetscInt_FMT,
             A->rmap->rstart + without);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* rows without an entry on the diagonal: an error, or PETSc inserts them; collective */
static PetscErrorCode CheckDiagonals(Mat A, PetscBool columns, const Zeros *zeros, int *petscs)
{
  const PetscInt without = GpufmtZeroWithoutDiagonal(zeros->blocks[0], zeros->plans[0], zeros->rows);

  PetscFunctionBegin;
  *petscs = columns && without >= 0;
  PetscCall(GpufmtAgree((PetscObject)A, "MatZeroRows()", columns ? PETSC_SUCCESS : CheckRow(A, without), 1, petscs));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Zero(Mat A, PetscInt n, const PetscInt rows[], PetscScalar diagonal, Vec x, Vec b, PetscBool columns, Zeros *zeros,
                           PetscBool *done)
{
  const PetscBool vectors = (PetscBool)(x && b);
  PetscErrorCode  ierr;
  int             flags[2]; /* PETSc has to do it; a row of the matrix has no entry on the diagonal */

  PetscFunctionBegin;
  ierr     = Prepare(A, n, rows, x, b, columns, zeros);
  flags[0] = !zeros->plans[0] || !zeros->plans[1];
  flags[1] = zeros->plans[0] && zeros->plans[0]->no_diagonal && diagonal != 0.0;
  PetscCall(GpufmtAgree((PetscObject)A, columns ? "MatZeroRowsColumns()" : "MatZeroRows()", ierr, 2, flags));
  if (flags[0]) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(MarkRows(A, n, rows, zeros->ones, zeros->rows));
  if (flags[1]) PetscCall(CheckDiagonals(A, columns, zeros, &flags[0]));
  if (flags[0]) PetscFunctionReturn(PETSC_SUCCESS);
  if (columns) PetscCall(FetchGhosts(A, vectors ? x : NULL, zeros));
  PetscCall(GpufmtZeroRun(zeros->blocks[0], zeros->plans[0], zeros->rows, columns ? zeros->rows : NULL, diagonal, x, b));
  PetscCall(GpufmtZeroRun(zeros->blocks[1], zeros->plans[1], zeros->rows, columns ? zeros->columns : NULL, 0.0, zeros->ghost_values,
                          zeros->ghost_values ? b : NULL));
  *done = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* MatZeroRows(), or MatZeroRowsColumns(), in the blocks, if all ranks can; else nothing is changed. Collective. */
PetscErrorCode GpufmtParallelZero(Mat A, PetscInt n, const PetscInt rows[], PetscScalar diagonal, Vec x, Vec b, PetscBool columns, PetscBool *done)
{
  Zeros          zeros = {0};
  PetscBool      congruent;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  *done = PETSC_FALSE;
  PetscCall(MatHasCongruentLayouts(A, &congruent));
  if (!congruent) PetscFunctionReturn(PETSC_SUCCESS);
  ierr = Zero(A, n, rows, diagonal, x, b, columns, &zeros, done);
  PetscCall(VecDestroy(&zeros.ghost_values));
  PetscCall(PetscSFDestroy(&zeros.exchange));
  PetscCall(PetscFree3(zeros.rows, zeros.columns, zeros.ones));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}
