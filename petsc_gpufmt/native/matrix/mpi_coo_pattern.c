/* The pattern of a parallel matrix from coordinates. PETSc sorts them on the host, with one core. Here it gets only those outside of the diagonal
   block, few as a rule, and exchanges what belongs to other ranks. Those in the diagonal block, with what other ranks have there, are sorted by the
   planner, and PETSc's note is completed by their sums: all functions that read it find what PETSc would have left. */
#include "matrix/matrix.h"

/* coordinates that PETSc gets, and their numbers among all */
typedef struct {
  PetscCount  n;
  PetscInt   *rows, *columns;
  PetscCount *numbers;
} Outside;

/* rows and columns of the diagonal block */
typedef struct {
  PetscInt row_begin, row_end, column_begin, column_end;
} Block;

static inline Block BlockOf(Mat A)
{
  return (Block){.row_begin = A->rmap->rstart, .row_end = A->rmap->rend, .column_begin = A->cmap->rstart, .column_end = A->cmap->rend};
}

static inline PetscBool IsInside(Block block, PetscInt row, PetscInt column)
{
  return (PetscBool)(row >= block.row_begin && row < block.row_end && column >= block.column_begin && column < block.column_end);
}

static PetscErrorCode OutsideFind(Mat A, PetscCount n, const PetscInt rows[], const PetscInt columns[], Outside *outside)
{
  const Block block = BlockOf(A);
  PetscCount  m     = 0;

  PetscFunctionBegin;
  for (PetscCount k = 0; k < n; k++) m += rows[k] >= 0 && columns[k] >= 0 && !IsInside(block, rows[k], columns[k]);
  PetscCall(PetscMalloc3(m, &outside->rows, m, &outside->columns, m, &outside->numbers));
  m = 0;
  for (PetscCount k = 0; k < n; k++) {
    if (rows[k] < 0 || columns[k] < 0 || IsInside(block, rows[k], columns[k])) continue;
    outside->rows[m]      = rows[k];
    outside->columns[m]   = columns[k];
    outside->numbers[m++] = k;
  }
  outside->n = m;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* All coordinates in the diagonal block, others negative: own ones in their order, then those that other ranks sent in theirs. PETSc's block has the
   pattern of the latter alone. */
static PetscErrorCode InsideList(Mat A, PetscCount n, const PetscInt rows[], const PetscInt columns[], const GpufmtParallelCoordinates *note,
                                 PetscInt inside_rows[], PetscInt inside_columns[])
{
  const PetscCount *nonzeros = note->received[0][0], *begins = note->received[0][1], *places = note->received[0][2];
  const Block       block = BlockOf(A);
  const PetscInt   *rowptr, *colidx;
  PetscInt          row = 0;
  Mat               diag;

  PetscFunctionBegin;
  PetscCall(MatMPIAIJGetSeqAIJ(A, &diag, NULL, NULL));
  PetscCall(GpufmtPatternGet(diag, &rowptr, &colidx));
  for (PetscCount k = 0; k < n; k++) {
    const PetscBool inside = IsInside(block, rows[k], columns[k]);

    inside_rows[k]    = inside ? rows[k] - block.row_begin : -1;
    inside_columns[k] = inside ? columns[k] - block.column_begin : -1;
  }
  for (PetscInt k = 0; k < note->nreceived; k++) inside_rows[n + k] = inside_columns[n + k] = -1;
  for (PetscCount t = 0; t < note->nreceived_nnz[0]; t++) {
    while (rowptr[row + 1] <= nonzeros[t]) row++;
    for (PetscCount k = begins[t]; k < begins[t + 1]; k++) {
      inside_rows[n + places[k]]    = row;
      inside_columns[n + places[k]] = colidx[nonzeros[t]];
    }
  }
  PetscCall(GpufmtPatternRestore(diag, &rowptr, &colidx));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The sums of the diagonal block become those of the note, which takes both arrays: sum t is of places[begins[t]], ..., of which those from n on are of
   received values. As many of these are there as PETSc has found. */
static PetscErrorCode NoteInside(GpufmtParallelCoordinates *note, PetscCount n, PetscCount nsums, PetscCount begins[], PetscCount places[])
{
  PetscCount *nonzeros = note->received[0][0], *received_begins = note->received[0][1], *received = note->received[0][2];
  PetscCount  nown = 0, nreceived = 0, ntargets = 0;

  PetscFunctionBegin;
  for (PetscCount t = 0, k = 0; t < nsums; t++) {
    const PetscCount end = begins[t + 1];

    begins[t] = nown; /* own ones close up */
    for (; k < end; k++)
      if (places[k] < n) places[nown++] = places[k];
      else received[nreceived++] = places[k] - n;
    if (nreceived == received_begins[ntargets]) continue;
    nonzeros[ntargets]          = t;
    received_begins[++ntargets] = nreceived;
  }
  begins[nsums] = nown;
  for (int k = 0; k < 2; k++) PetscCall(PetscFree(note->own[0][k]));
  note->own[0][0]      = begins;
  note->own[0][1]      = places;
  note->nnz[0]         = nsums;
  note->diag_nterms[0] = nown;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* what PETSc has noted of values that it was told of counts among all */
static void NoteOutside(GpufmtParallelCoordinates *note, PetscCount n, const Outside *outside)
{
  note->count = n;
  for (PetscCount k = 0; k < note->offdiag_nterms[0]; k++) note->own[1][1][k] = outside->numbers[note->own[1][1][k]];
  for (PetscInt k = 0; k < note->nsent; k++) note->sent[k] = outside->numbers[note->sent[k]];
}

/* the diagonal block, after PETSc has made the other one and the exchange */
static PetscErrorCode SortInside(Mat A, int backend, PetscCount n, const PetscInt rows[], const PetscInt columns[], const Outside *outside)
{
  GpufmtParallelCoordinates *note;
  PetscInt                  *inside_rows, *inside_columns;
  PetscCount                *begins = NULL, *places = NULL, all;
  PetscObjectId              id;
  PetscErrorCode             ierr;
  Mat                        diag;

  PetscFunctionBegin;
  PetscCall(GpufmtCooFind(A, (void *)&note, &id));
  PetscCall(GpufmtBlocksConvert(A));
  PetscCall(MatMPIAIJGetSeqAIJ(A, &diag, NULL, NULL));
  GpufmtSeqData(diag)->options = ((Mat_Gpufmt *)A->spptr)->options; /* which the new arrays get */

  all = n + note->nreceived;
  PetscCall(PetscMalloc2(all, &inside_rows, all, &inside_columns));
  ierr = InsideList(A, n, rows, columns, note, inside_rows, inside_columns);
  if (!ierr) ierr = GpufmtCooSortBlock(diag, backend, id, all, n, inside_rows, inside_columns, &begins, &places);
  PetscCall(PetscFree2(inside_rows, inside_columns));
  if (ierr) {
    PetscCall(PetscFree(begins));
    PetscCall(PetscFree(places));
  } else {
    ((Mat_Gpufmt *)A->spptr)->managed_blocks = PETSC_TRUE;
    NoteOutside(note, n, outside);
    PetscCall(NoteInside(note, n, GpufmtSeqData(diag)->coo.ntargets, begins, places));
  }
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* MatSetPreallocationCOO() with coordinates on the host; which of them go to `parent` is the affair of each rank. Collective. */
PetscErrorCode GpufmtParallelCooAssemble(Mat A, PetscCount n, PetscInt rows[], PetscInt columns[], GpufmtCooFunction parent)
{
  Outside        outside = {0};
  PetscErrorCode ierr;
  PetscBool      ours;
  int            backend;

  PetscFunctionBegin;
  PetscCall(GpufmtCooSortPlace(A, n, &backend, &ours));
  ierr = GpufmtAgree((PetscObject)A, "Assembly from coordinates", ours ? OutsideFind(A, n, rows, columns, &outside) : PETSC_SUCCESS, 0, NULL);
  if (!ierr) ierr = ours ? (*parent)(A, outside.n, outside.rows, outside.columns) : (*parent)(A, n, rows, columns);
  if (!ierr) {
    ierr = GpufmtAgree((PetscObject)A, "Assembly from coordinates", ours ? SortInside(A, backend, n, rows, columns, &outside) : PETSC_SUCCESS, 0,
                       NULL);
    if (ierr) PetscCall(GpufmtCooForget(A)); /* it is not complete on all ranks */
  }
  PetscCall(PetscFree3(outside.rows, outside.columns, outside.numbers));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}
