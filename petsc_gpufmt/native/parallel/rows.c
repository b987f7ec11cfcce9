/* The rows of a parallel matrix that a parallel product reads or makes on one rank, as sequential matrices. */
#include "parallel/parallel.h"

static PetscErrorCode CreateMatrix(MatType type, PetscInt nrows, PetscInt ncols, const PetscInt rowptr[], PetscInt colidx[], PetscInt row_block,
                                   PetscInt col_block, PetscBool inodes, Mat *A)
{
  PetscInt      *lengths, none = 0;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1(nrows, &lengths));
  for (PetscInt i = 0; i < nrows; i++) lengths[i] = rowptr[i + 1] - rowptr[i];
  ierr = GpufmtBlockCreate(type, nrows, ncols, row_block, col_block, A);
  if (!ierr) ierr = MatSeqAIJSetPreallocation(*A, 0, lengths);
  PetscCall(PetscFree(lengths));
  PetscCall(ierr);
  PetscCall(MatSeqAIJSetColumnIndices(*A, colidx ? colidx : &none)); /* a debugging PETSc refuses NULL, of a matrix without entries too */
  if (!inodes) PetscCall(MatSetOption(*A, MAT_USE_INODES, PETSC_FALSE));
  PetscCall(MatAssemblyBegin(*A, MAT_FINAL_ASSEMBLY));
  PetscCall(MatAssemblyEnd(*A, MAT_FINAL_ASSEMBLY));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* an assembled matrix with this pattern and zeros */
PetscErrorCode GpufmtCreateFromPattern(MatType type, PetscInt nrows, PetscInt ncols, const PetscInt rowptr[], PetscInt colidx[], PetscInt row_block,
                                       PetscInt col_block, Mat *A)
{
  return CreateMatrix(type, nrows, ncols, rowptr, colidx, row_block, col_block, PETSC_TRUE, A);
}

/* One with this pattern that no user sees. On the device its values are nowhere else, and have their memory from the beginning. */
PetscErrorCode GpufmtCreateInternal(MatType type, int backend, PetscInt nrows, PetscInt ncols, const PetscInt rowptr[], PetscInt colidx[], Mat *A)
{
  void *array;

  PetscFunctionBegin;
  PetscCall(CreateMatrix(type, nrows, ncols, rowptr, colidx, 1, 1, PETSC_FALSE, A));
  if (backend == GPUFMT_BACKEND_CUDA) PetscCall(GpufmtDeviceValuesWrite(GpufmtDeviceValuesOf(*A, NULL), *A, rowptr[nrows], &array));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* one with managed arrays of the pattern of part k of a planned union; `internal`: no user sees it */
PetscErrorCode GpufmtCreateManaged(MatType type, int backend, const GpufmtUnion *u, int k, PetscInt ncols, PetscInt row_block, PetscInt col_block,
                                   PetscBool internal, Mat *A)
{
  GpufmtManaged *managed = NULL;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  ierr = GpufmtUnionManaged(backend, u, k, internal, &managed);
  if (!ierr) ierr = GpufmtBlockCreate(type, u->nrows, ncols, row_block, col_block, A);
  if (!ierr) ierr = GpufmtManagedAdopt(*A, managed);
  PetscCall(GpufmtManagedRelease(&managed)); /* A has its own reference */
  PetscCall(ierr);
  GpufmtPatternHold(*A, backend, u->answer.parts[k].held);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode RowsFromUnion(MatType type, int backend, GpufmtUnion *u, GpufmtRows *rows)
{
  PetscFunctionBegin;
  if (u->planned) PetscCall(GpufmtCreateManaged(type, backend, u, 0, u->ncols, 1, 1, PETSC_TRUE, &rows->matrix));
  else PetscCall(GpufmtCreateInternal(type, backend, u->nrows, u->ncols, u->parts[0].rowptr, u->parts[0].colidx, &rows->matrix));
  PetscCall(GpufmtEntrySumCreate(backend, u, 0, &rows->sum));
  GpufmtLeaseMove(&u->lease, &rows->pattern);
  rows->columns     = u->columns;
  u->columns.others = NULL;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* `nrows` rows, each the sum of rows of the summands */
PetscErrorCode GpufmtRowsAddUp(MatType type, int backend, PetscInt nrows, PetscLayout columns, PetscInt nsummands, const GpufmtSummand summands[],
                               GpufmtRows *rows)
{
  GpufmtUnion    u;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(GpufmtUnionCreate(backend, GpufmtManagedPossible(backend), nrows, columns, PETSC_FALSE, nsummands, summands, &u));
  ierr = RowsFromUnion(type, backend, &u, rows); /* it may fail for want of memory, some of which the union has */
  PetscCall(GpufmtUnionDestroy(&u));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A matrix of ours without off-diagonal entries on this rank is not copied: its diagonal block has all rows. */
static PetscErrorCode IsDiagonalBlock(Mat diag, Mat offdiag, PetscBool *is)
{
  PetscInt noff;

  PetscFunctionBegin;
  PetscCall(MatGetLocalSize(offdiag, NULL, &noff));
  *is = (PetscBool)(!noff && GpufmtSeqData(diag));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the rows of this rank, both blocks together */
PetscErrorCode GpufmtRowsGetLocal(Mat parallel, MatType type, int backend, GpufmtRows *rows)
{
  const PetscInt  nrows     = parallel->rmap->n;
  GpufmtSummand   blocks[2] = {{.last_row = nrows}, {.last_row = nrows}};
  const PetscInt *garray;
  PetscBool       whole = PETSC_FALSE;

  PetscFunctionBegin;
  PetscCall(MatMPIAIJGetSeqAIJ(parallel, &blocks[0].matrix, &blocks[1].matrix, &garray));
  blocks[0].columns = (GpufmtColumns){.first = parallel->cmap->rstart, .nown = parallel->cmap->n};
  blocks[1].columns = (GpufmtColumns){.nothers = blocks[1].matrix->cmap->n, .others = (PetscInt *)garray};
  PetscCall(IsDiagonalBlock(blocks[0].matrix, blocks[1].matrix, &whole));
  if (!whole) {
    PetscCall(GpufmtRowsAddUp(type, backend, nrows, parallel->cmap, blocks[1].matrix->cmap->n ? 2 : 1, blocks, rows));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  rows->columns = blocks[0].columns;
  PetscCall(PetscObjectReference((PetscObject)blocks[0].matrix));
  rows->matrix = blocks[0].matrix;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the values of this rank's rows, once those of the parallel matrix are new, or it is another one */
PetscErrorCode GpufmtRowsUpdateLocal(Mat parallel, GpufmtRows *rows)
{
  Mat blocks[GPUFMT_MAX_SUMMANDS];

  PetscFunctionBegin;
  PetscCall(MatMPIAIJGetSeqAIJ(parallel, &blocks[0], &blocks[1], NULL));
  if (rows->sum) PetscCall(GpufmtEntrySumRun(rows->sum, blocks, rows->matrix, PETSC_TRUE));
  else {
    PetscCall(PetscObjectReference((PetscObject)blocks[0]));
    PetscCall(MatDestroy(&rows->matrix));
    rows->matrix = blocks[0];
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtRowsDestroy(GpufmtRows *rows)
{
  PetscFunctionBegin;
  PetscCall(MatDestroy(&rows->matrix));
  PetscCall(PetscFree(rows->columns.others));
  PetscCall(PetscFree(rows->rows));
  PetscCall(GpufmtLeaseDrop(&rows->pattern));
  PetscCall(GpufmtEntrySumDestroy(&rows->sum));
  PetscCall(GpufmtValuesDestroy(&rows->exchange));
  PetscFunctionReturn(PETSC_SUCCESS);
}
