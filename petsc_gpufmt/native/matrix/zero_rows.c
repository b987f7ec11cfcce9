/* Rows, or rows and columns, that become zeros where the values of a matrix are, if these are in managed memory. Where entries are to go, or are to
   be inserted, PETSc's functions do it on the host. */
#include "matrix/matrix.h"

/* whether MatZeroRows() leaves zeros where there are entries; PETSc keeps it beside the arrays, which know of no other options than these if they are managed */
static PetscBool KeepsPattern(Mat A)
{
  const GpufmtOptionsSet *set = &GpufmtSeqData(A)->options;

  for (int k = 0; k < set->count; k++)
    if (set->options[k] == MAT_KEEP_NONZERO_PATTERN) return set->flags[k];
  return PETSC_FALSE;
}

/* The plan of zeros, GPUFMT_ZERO_ROWS or GPUFMT_ZERO_ROWS_OFFDIAG, NULL if PETSc is to make them; `removes`: by MatZeroRows(), which takes entries
   away unless it is told not to. Nothing is changed. */
PetscErrorCode GpufmtZeroPlan(Mat A, int kind, PetscBool removes, const GpufmtScaleAndAdd **out)
{
  PetscBool ours = PETSC_FALSE;
  int       backend;

  PetscFunctionBegin;
  *out = NULL;
  PetscCall(GpufmtValuesPlace(A, &backend, &ours));
  if (!ours) PetscFunctionReturn(PETSC_SUCCESS);
  if (removes && !KeepsPattern(A)) {
    PetscCall(PetscInfo(A, "MatZeroRows() takes entries away, on the host: with MAT_KEEP_NONZERO_PATTERN they would become zeros where they are\n"));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(GpufmtScaleAndAddGet(A, backend, kind, NULL, NULL, out));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the first of `rows` that has a column of its number and no entry there, -1: none; `rows` has a byte for each, not 0: it is one */
PetscInt GpufmtZeroWithoutDiagonal(Mat A, const GpufmtScaleAndAdd *plan, const char rows[])
{
  const PetscInt n = PetscMin(A->rmap->n, A->cmap->n);

  for (PetscInt i = 0; i < n && plan->no_diagonal; i++)
    if (rows[i] && plan->no_diagonal[i]) return i;
  return -1;
}

/* marks of rows or columns to where the values are */
static PetscErrorCode Bring(Mat A, int backend, int slot, const char marks[], PetscInt n, void *slots[GPUFMT_NUM_SLOTS])
{
  Mat_Gpufmt *gpufmt = (Mat_Gpufmt *)A->spptr;
  void       *stream;

  PetscFunctionBegin;
  slots[slot] = (void *)marks;
  if (backend == GPUFMT_BACKEND_HOST || !marks) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtDeviceGet(NULL, &stream));
  PetscCall(GpufmtDeviceReserve(PetscMax((size_t)n, 1), &gpufmt->scratch[slot], &gpufmt->scratch_bytes[slot])); /* no columns: not NULL even so */
  PetscCall(GpufmtDeviceUpload(gpufmt->scratch[slot], marks, (size_t)n, stream));
  slots[slot] = gpufmt->scratch[slot];
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* an error unless vectors, which may be parallel ones, have entries where A has columns and rows; either may be NULL */
PetscErrorCode GpufmtZeroCheckVectors(Mat A, Vec x, Vec b)
{
  PetscFunctionBegin;
  PetscCheck((!x || x->map->n == A->cmap->n) && (!b || b->map->n == A->rmap->n), PETSC_COMM_SELF, PETSC_ERR_ARG_SIZ,
             "Zeroing rows: the vectors have %" PetscInt_FMT " and %" PetscInt_FMT " entries here, the matrix %" PetscInt_FMT
             " columns and %" PetscInt_FMT " rows",
             x ? x->map->n : 0, b ? b->map->n : 0, A->cmap->n, A->rmap->n);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* replays a plan with `b` in slot Z, which is read and written where it is, or a copy of it is */
static PetscErrorCode RunWith(Mat A, Vec x, Vec b, const GpufmtScaleAndAdd *plan, void *slots[GPUFMT_NUM_SLOTS])
{
  Mat_Gpufmt     *gpufmt  = (Mat_Gpufmt *)A->spptr;
  const PetscBool on_host = (PetscBool)(plan->backend == GPUFMT_BACKEND_HOST);
  const size_t    bytes   = (size_t)b->map->n * sizeof(PetscScalar);
  PetscBool       copied  = PETSC_FALSE;
  PetscScalar    *array;
  PetscMemType    memtype = PETSC_MEMTYPE_HOST;
  PetscErrorCode  ierr    = PETSC_SUCCESS;
  void           *stream  = NULL;

  PetscFunctionBegin;
  PetscCall(GpufmtZeroCheckVectors(A, x, b));
  if (on_host) PetscCall(VecGetArray(b, &array));
  else PetscCall(VecGetArrayAndMemType(b, &array, &memtype));
  slots[GPUFMT_SLOT_Z] = array;
  if (!on_host && PetscMemTypeHost(memtype)) {
    ierr = GpufmtDeviceGet(NULL, &stream);
    if (!ierr) ierr = GpufmtDeviceReserve(bytes, &gpufmt->scratch[GPUFMT_SLOT_Z], &gpufmt->scratch_bytes[GPUFMT_SLOT_Z]);
    if (!ierr) ierr = GpufmtDeviceUpload(gpufmt->scratch[GPUFMT_SLOT_Z], array, bytes, stream);
    slots[GPUFMT_SLOT_Z] = gpufmt->scratch[GPUFMT_SLOT_Z];
    copied               = PETSC_TRUE;
  }
  if (!ierr) ierr = GpufmtScaleAndAddRunWith(A, x, plan, slots, 0.0);
  if (!ierr && copied) ierr = GpufmtDeviceDownload(array, slots[GPUFMT_SLOT_Z], bytes, stream);
  if (on_host) PetscCall(VecRestoreArray(b, &array)); /* a failure leaves the vector usable */
  else PetscCall(VecRestoreArrayAndMemType(b, &array));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Zeros in rows, and in columns unless `columns` is NULL: a byte for each, not 0: it is meant. `x` and `b` as in MatZeroRows(), or NULL. */
PetscErrorCode GpufmtZeroRun(Mat A, const GpufmtScaleAndAdd *plan, const char rows[], const char columns[], PetscScalar diagonal, Vec x, Vec b)
{
  void          *slots[GPUFMT_NUM_SLOTS] = {NULL};
  GpufmtManaged *managed;

  PetscFunctionBegin;
  PetscCall(GpufmtManagedOf(A, &managed));
  slots[GPUFMT_SLOT_COLIDX] = managed->colidx;
  GpufmtAlphaSet(slots, diagonal);
  PetscCall(Bring(A, plan->backend, GPUFMT_SLOT_ROWS, rows, A->rmap->n, slots));
  PetscCall(Bring(A, plan->backend, GPUFMT_SLOT_COLUMNS, columns, A->cmap->n, slots));
  if (x && b) PetscCall(RunWith(A, x, b, plan, slots));
  else PetscCall(GpufmtScaleAndAddRun(A, plan, slots, 0.0));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* a byte for each row, and for each column where these are more */
static PetscErrorCode Mark(Mat A, PetscInt n, const PetscInt rows[], char **out)
{
  char *marks;

  PetscFunctionBegin;
  for (PetscInt k = 0; k < n; k++)
    PetscCheck(rows[k] >= 0 && rows[k] < A->rmap->n, PETSC_COMM_SELF, PETSC_ERR_ARG_OUTOFRANGE,
               "Row %" PetscInt_FMT " is to become zeros, and the matrix has %" PetscInt_FMT, rows[k], A->rmap->n);
  PetscCall(PetscCalloc1(PetscMax(A->rmap->n, A->cmap->n), &marks));
  for (PetscInt k = 0; k < n; k++) marks[rows[k]] = 1;
  *out = marks;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatZeroRows_SeqAIJGpufmt(Mat A, PetscInt n, const PetscInt rows[], PetscScalar diagonal, Vec x, Vec b)
{
  const GpufmtScaleAndAdd *plan;
  PetscErrorCode           ierr;
  PetscInt                 without = -1;
  char                    *marks;

  PetscFunctionBegin;
  PetscCall(GpufmtZeroPlan(A, GPUFMT_ZERO_ROWS, PETSC_TRUE, &plan));
  if (!plan) {
    PetscCall(GpufmtManagedLeave(A));
    PetscCall(PetscObjectStateIncrease((PetscObject)A)); /* it may fail after it has written values */
    PetscCall((*gpufmt_seq_parent->zerorows)(A, n, rows, diagonal, x, b));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(Mark(A, n, rows, &marks));
  if (diagonal != 0.0) without = GpufmtZeroWithoutDiagonal(A, plan, marks);
  ierr = without < 0 ? GpufmtZeroRun(A, plan, marks, NULL, diagonal, x, b) : PETSC_SUCCESS;
  PetscCall(PetscFree(marks));
  PetscCheck(without < 0, PETSC_COMM_SELF, PETSC_ERR_ARG_WRONGSTATE, "Matrix is missing diagonal entry in the zeroed row %" PetscInt_FMT, without);
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatZeroRowsColumns_SeqAIJGpufmt(Mat A, PetscInt n, const PetscInt rows[], PetscScalar diagonal, Vec x, Vec b)
{
  const GpufmtScaleAndAdd *plan = NULL;
  PetscErrorCode           ierr = PETSC_SUCCESS;
  char                    *marks;

  PetscFunctionBegin;
  if (A->rmap->n == A->cmap->n) PetscCall(GpufmtZeroPlan(A, GPUFMT_ZERO_ROWS, PETSC_FALSE, &plan));
  if (plan) {
    PetscCall(Mark(A, n, rows, &marks));
    if (diagonal != 0.0 && GpufmtZeroWithoutDiagonal(A, plan, marks) >= 0) plan = NULL; /* PETSc inserts it */
    else ierr = GpufmtZeroRun(A, plan, marks, marks, diagonal, x, b);
    PetscCall(PetscFree(marks));
    PetscCall(ierr);
  }
  if (!plan) {
    PetscCall(GpufmtManagedLeave(A));
    PetscCall(PetscObjectStateIncrease((PetscObject)A)); /* it may fail after it has written values */
    PetscCall((*gpufmt_seq_parent->zerorowscolumns)(A, n, rows, diagonal, x, b));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
