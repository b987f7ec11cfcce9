/* The rows of a parallel matrix that a parallel product reads: those of this rank with both blocks merged, and those of other ranks. */
#include "mpirows.h"

/* an assembled matrix with this pattern and zeros */
static PetscErrorCode CreateFromPattern(MatType type, PetscInt nrows, PetscInt ncols, const PetscInt rowptr[], PetscInt colidx[], Mat *A)
{
  PetscInt *lengths;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1(nrows, &lengths));
  for (PetscInt i = 0; i < nrows; i++) lengths[i] = rowptr[i + 1] - rowptr[i];
  PetscCall(MatCreate(PETSC_COMM_SELF, A));
  PetscCall(MatSetSizes(*A, nrows, ncols, nrows, ncols));
  PetscCall(MatSetType(*A, type));
  PetscCall(MatSeqAIJSetPreallocation(*A, 0, lengths));
  PetscCall(MatSeqAIJSetColumnIndices(*A, colidx));
  PetscCall(MatSetOption(*A, MAT_USE_INODES, PETSC_FALSE));
  PetscCall(MatAssemblyBegin(*A, MAT_FINAL_ASSEMBLY));
  PetscCall(MatAssemblyEnd(*A, MAT_FINAL_ASSEMBLY));
  PetscCall(PetscFree(lengths));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* entries before `nlow` in a sorted row */
static inline PetscInt CountLow(const PetscInt *columns, PetscInt length, PetscInt nlow)
{
  PetscInt count = 0;

  while (count < length && columns[count] < nlow) count++;
  return count;
}

static PetscErrorCode MergePatterns(Mat diag, Mat offdiag, PetscInt nlow, MatType type, Mat *merged)
{
  const PetscInt *drow, *dcol, *orow, *ocol;
  const PetscInt  nrows = diag->rmap->n, ndiag = diag->cmap->n;
  PetscInt       *rowptr, *colidx;
  PetscInt64      nnz;

  PetscFunctionBegin;
  PetscCall(GpufmtPatternGet(diag, &drow, &dcol));
  PetscCall(GpufmtPatternGet(offdiag, &orow, &ocol));
  nnz = (PetscInt64)drow[nrows] + orow[nrows];
  PetscCheck(nnz <= PETSC_INT_MAX, PETSC_COMM_SELF, PETSC_ERR_SUP, "A parallel product needs %" PetscInt64_FMT " entries of one operand on this rank in one matrix, PetscInt counts to %" PetscInt_FMT ": use more ranks or configure PETSc with --with-64-bit-indices",
             nnz, PETSC_INT_MAX);
  PetscCall(PetscMalloc2(nrows + 1, &rowptr, (PetscInt)nnz, &colidx));
  rowptr[0] = 0;
  for (PetscInt i = 0; i < nrows; i++) {
    const PetscInt length = orow[i + 1] - orow[i], low = CountLow(ocol + orow[i], length, nlow);
    PetscInt      *out = colidx + rowptr[i];

    for (PetscInt k = 0; k < low; k++) *out++ = ocol[orow[i] + k];
    for (PetscInt k = drow[i]; k < drow[i + 1]; k++) *out++ = nlow + dcol[k];
    for (PetscInt k = low; k < length; k++) *out++ = ndiag + ocol[orow[i] + k];
    rowptr[i + 1] = (PetscInt)(out - colidx);
  }
  PetscCall(CreateFromPattern(type, nrows, ndiag + offdiag->cmap->n, rowptr, colidx, merged));
  PetscCall(PetscFree2(rowptr, colidx));
  PetscCall(GpufmtPatternRestore(diag, &drow, &dcol));
  PetscCall(GpufmtPatternRestore(offdiag, &orow, &ocol));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The rows of this rank. A matrix without off-diagonal entries on this rank is not copied: its diagonal block has them all. */
PetscErrorCode GpufmtRowsGetLocal(Mat parallel, MatType type, GpufmtRows *rows)
{
  const PetscInt *garray;
  const PetscInt  first = parallel->cmap->rstart;
  Mat             diag, offdiag;
  PetscInt        ndiag, noff;

  PetscFunctionBegin;
  PetscCall(MatMPIAIJGetSeqAIJ(parallel, &diag, &offdiag, &garray));
  PetscCall(MatGetLocalSize(diag, NULL, &ndiag));
  PetscCall(MatGetLocalSize(offdiag, NULL, &noff));
  rows->exchange = NULL;
  rows->nlow     = garray ? CountLow(garray, noff, first) : 0;
  PetscCall(PetscMalloc1(ndiag + noff, &rows->columns));
  for (PetscInt k = 0; k < rows->nlow; k++) rows->columns[k] = garray[k];
  for (PetscInt k = 0; k < ndiag; k++) rows->columns[rows->nlow + k] = first + k;
  for (PetscInt k = rows->nlow; k < noff; k++) rows->columns[ndiag + k] = garray[k];
  if (noff) PetscCall(MergePatterns(diag, offdiag, rows->nlow, type, &rows->matrix));
  else {
    PetscCall(PetscObjectReference((PetscObject)diag));
    rows->matrix = diag;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the values of this rank's rows, once those of the parallel matrix are new, or it is another one */
PetscErrorCode GpufmtRowsUpdateLocal(Mat parallel, GpufmtRows *rows)
{
  const PetscScalar *dval, *oval;
  const PetscInt    *drow, *orow, *ocol;
  PetscScalar       *out;
  PetscInt           noff;
  Mat                diag, offdiag;

  PetscFunctionBegin;
  PetscCall(MatMPIAIJGetSeqAIJ(parallel, &diag, &offdiag, NULL));
  PetscCall(MatGetLocalSize(offdiag, NULL, &noff));
  if (!noff) {
    PetscCall(PetscObjectReference((PetscObject)diag));
    PetscCall(MatDestroy(&rows->matrix));
    rows->matrix = diag;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(GpufmtPatternGet(diag, &drow, NULL));
  PetscCall(GpufmtPatternGet(offdiag, &orow, &ocol));
  PetscCall(MatSeqAIJGetArrayRead(diag, &dval));
  PetscCall(MatSeqAIJGetArrayRead(offdiag, &oval));
  PetscCall(MatSeqAIJGetArrayWrite(rows->matrix, &out));
  for (PetscInt i = 0; i < diag->rmap->n; i++) {
    const PetscInt low = orow[i] + CountLow(ocol + orow[i], orow[i + 1] - orow[i], rows->nlow);

    for (PetscInt k = orow[i]; k < low; k++) *out++ = oval[k];
    for (PetscInt k = drow[i]; k < drow[i + 1]; k++) *out++ = dval[k];
    for (PetscInt k = low; k < orow[i + 1]; k++) *out++ = oval[k];
  }
  PetscCall(MatSeqAIJRestoreArrayWrite(rows->matrix, &out));
  PetscCall(MatSeqAIJRestoreArrayRead(offdiag, &oval));
  PetscCall(MatSeqAIJRestoreArrayRead(diag, &dval));
  PetscCall(GpufmtPatternRestore(offdiag, &orow, &ocol));
  PetscCall(GpufmtPatternRestore(diag, &drow, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

typedef struct {
  PetscInt first, length; /* in the entries of the owner's rows */
} Segment;

/* where the entries of the asked rows lie on their owners */
static PetscErrorCode GetSegments(Mat parallel, PetscInt count, const PetscInt rows[], const PetscInt local_rowptr[], Segment **segments, PetscMPIInt **owners)
{
  const PetscInt     nlocal = parallel->rmap->n;
  const PetscSFNode *remote;
  Segment           *own;
  PetscSF            sf;

  PetscFunctionBegin;
  PetscCall(PetscSFCreate(PetscObjectComm((PetscObject)parallel), &sf));
  PetscCall(PetscSFSetGraphLayout(sf, parallel->rmap, count, NULL, PETSC_OWN_POINTER, rows));
  PetscCall(PetscMalloc1(nlocal, &own));
  for (PetscInt i = 0; i < nlocal; i++) own[i] = (Segment){local_rowptr[i], local_rowptr[i + 1] - local_rowptr[i]};
  PetscCall(PetscMalloc1(count, segments));
  PetscCall(PetscSFBcastBegin(sf, MPIU_2INT, own, *segments, MPI_REPLACE));
  PetscCall(PetscSFBcastEnd(sf, MPIU_2INT, own, *segments, MPI_REPLACE));
  PetscCall(PetscFree(own));
  PetscCall(PetscSFGetGraph(sf, NULL, NULL, NULL, &remote));
  PetscCall(PetscMalloc1(count, owners));
  for (PetscInt k = 0; k < count; k++) (*owners)[k] = (PetscMPIInt)remote[k].rank;
  PetscCall(PetscSFDestroy(&sf));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* one leaf for each entry of the asked rows; *rowptr are the rows that they make */
static PetscErrorCode CreateExchange(Mat parallel, PetscInt count, const Segment segments[], const PetscMPIInt owners[], PetscInt nroots, PetscInt **rowptr, PetscSF *exchange)
{
  PetscSFNode *remote;
  PetscInt64   nnz = 0;

  PetscFunctionBegin;
  for (PetscInt k = 0; k < count; k++) nnz += segments[k].length;
  PetscCheck(nnz <= PETSC_INT_MAX, PETSC_COMM_SELF, PETSC_ERR_SUP, "A parallel product needs rows of other ranks with %" PetscInt64_FMT " entries, PetscInt counts to %" PetscInt_FMT ": use more ranks or configure PETSc with --with-64-bit-indices", nnz, PETSC_INT_MAX);
  PetscCall(PetscMalloc1(count + 1, rowptr));
  PetscCall(PetscMalloc1((PetscInt)nnz, &remote));
  (*rowptr)[0] = 0;
  for (PetscInt k = 0; k < count; k++) {
    for (PetscInt j = 0; j < segments[k].length; j++) {
      remote[(*rowptr)[k] + j].rank  = owners[k];
      remote[(*rowptr)[k] + j].index = segments[k].first + j;
    }
    (*rowptr)[k + 1] = (*rowptr)[k] + segments[k].length;
  }
  PetscCall(PetscSFCreate(PetscObjectComm((PetscObject)parallel), exchange));
  PetscCall(PetscSFSetGraph(*exchange, nroots, (PetscInt)nnz, NULL, PETSC_OWN_POINTER, remote, PETSC_OWN_POINTER));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* columns of the parallel matrix by their places among those that occur */
static PetscErrorCode CompactColumns(PetscInt nnz, PetscInt colidx[], PetscInt *ncols, PetscInt **columns)
{
  PetscFunctionBegin;
  *ncols = nnz;
  PetscCall(PetscMalloc1(nnz, columns));
  PetscCall(PetscArraycpy(*columns, colidx, nnz));
  PetscCall(PetscSortRemoveDupsInt(ncols, *columns));
  for (PetscInt k = 0; k < nnz; k++) PetscCall(PetscFindInt(colidx[k], *ncols, *columns, &colidx[k]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The given rows, of any ranks. Collective; `local` are the rows of this rank, from which the others take what they asked for. */
PetscErrorCode GpufmtRowsGetRemote(Mat parallel, PetscInt count, const PetscInt rows[], const GpufmtRows *local, MatType type, GpufmtRows *remote)
{
  const PetscInt *local_rowptr, *local_colidx;
  PetscInt       *rowptr, *colidx, *own_columns, nlocal, ncols;
  PetscMPIInt    *owners;
  Segment        *segments;

  PetscFunctionBegin;
  PetscCall(GpufmtPatternGet(local->matrix, &local_rowptr, &local_colidx));
  nlocal = local_rowptr[local->matrix->rmap->n];
  PetscCall(GetSegments(parallel, count, rows, local_rowptr, &segments, &owners));
  PetscCall(CreateExchange(parallel, count, segments, owners, nlocal, &rowptr, &remote->exchange));
  PetscCall(PetscFree(segments));
  PetscCall(PetscFree(owners));
  PetscCall(PetscMalloc1(nlocal, &own_columns));
  for (PetscInt k = 0; k < nlocal; k++) own_columns[k] = local->columns[local_colidx[k]];
  PetscCall(GpufmtPatternRestore(local->matrix, &local_rowptr, &local_colidx));
  PetscCall(PetscMalloc1(rowptr[count], &colidx));
  PetscCall(PetscSFBcastBegin(remote->exchange, MPIU_INT, own_columns, colidx, MPI_REPLACE));
  PetscCall(PetscSFBcastEnd(remote->exchange, MPIU_INT, own_columns, colidx, MPI_REPLACE));
  PetscCall(PetscFree(own_columns));
  PetscCall(CompactColumns(rowptr[count], colidx, &ncols, &remote->columns));
  remote->nlow = 0;
  PetscCall(CreateFromPattern(type, count, ncols, rowptr, colidx, &remote->matrix));
  PetscCall(PetscFree(rowptr));
  PetscCall(PetscFree(colidx));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the values of other ranks' rows; collective */
PetscErrorCode GpufmtRowsUpdateRemote(const GpufmtRows *local, GpufmtRows *remote)
{
  const PetscScalar *own;
  PetscScalar       *received;

  PetscFunctionBegin;
  PetscCall(MatSeqAIJGetArrayRead(local->matrix, &own));
  PetscCall(MatSeqAIJGetArrayWrite(remote->matrix, &received));
  PetscCall(PetscSFBcastBegin(remote->exchange, MPIU_SCALAR, own, received, MPI_REPLACE));
  PetscCall(PetscSFBcastEnd(remote->exchange, MPIU_SCALAR, own, received, MPI_REPLACE));
  PetscCall(MatSeqAIJRestoreArrayWrite(remote->matrix, &received));
  PetscCall(MatSeqAIJRestoreArrayRead(local->matrix, &own));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtRowsDestroy(GpufmtRows *rows)
{
  PetscFunctionBegin;
  PetscCall(MatDestroy(&rows->matrix));
  PetscCall(PetscFree(rows->columns));
  PetscCall(PetscSFDestroy(&rows->exchange));
  PetscFunctionReturn(PETSC_SUCCESS);
}
