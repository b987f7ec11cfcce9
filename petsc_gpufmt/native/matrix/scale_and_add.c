/* Scaling, adding and zeros where the values of a matrix are in managed memory: plans are replayed there, where PETSc's loops would bring all pages to
   the host. Other matrices are left to PETSc: ordinary arrays would have to come back afterwards, which takes longer than the loop. */
#include "matrix/matrix.h"

/* Where the values of A are to be changed; `ours` is false if PETSc's functions are to do it. Where ordinary memory takes the place of managed
   one, the same happens on the host. */
PetscErrorCode GpufmtValuesPlace(Mat A, int *backend, PetscBool *ours)
{
  GpufmtManaged *managed;

  PetscFunctionBegin;
  *backend = GpufmtDeviceUsable() ? GPUFMT_BACKEND_CUDA : GPUFMT_BACKEND_HOST;
  PetscCall(GpufmtManagedOf(A, &managed));
  *ours = (PetscBool)(managed && (*backend == GPUFMT_BACKEND_HOST || !GpufmtBoundToCPU(A)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscLogDouble GpufmtEntries(Mat A)
{
  const PetscInt *rowptr;

  if (MatSeqAIJGetCSRAndMemType(A, &rowptr, NULL, NULL, NULL)) return 0.0;
  return (PetscLogDouble)rowptr[A->rmap->n];
}

static PetscErrorCode Describe(Mat A, GpufmtOperand *operand)
{
  const PetscInt *rowptr, *colidx;

  PetscFunctionBegin;
  PetscCall(MatSeqAIJGetCSRAndMemType(A, &rowptr, &colidx, NULL, NULL));
  operand->nrows  = A->rmap->n;
  operand->ncols  = A->cmap->n;
  operand->nnz    = rowptr[A->rmap->n];
  operand->rowptr = rowptr;
  operand->colidx = colidx;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode ScaleAndAddPlan(Mat A, int kind, Mat added, const PetscInt columns[], GpufmtScaleAndAdd *scale_and_add)
{
  GpufmtScaleAndAddRequest request = {0};
  GpufmtScaleAndAddAnswer  answer  = {0};

  PetscFunctionBegin;
  request.scale_and_add = kind;
  request.columns       = columns;
  PetscCall(Describe(A, &request.target));
  if (added) PetscCall(Describe(added, &request.added));
  PetscCall(
    GpufmtPlannerAsk(GPUFMT_ASK_SCALE_AND_ADD, scale_and_add->backend, GPUFMT_Plan, A, &request.place, &answer.outcome, &scale_and_add->lease));
  scale_and_add->plan        = answer.scale_and_add;
  scale_and_add->applies     = (PetscBool)answer.applies;
  scale_and_add->no_diagonal = (const char *)answer.no_diagonal;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the plan of an update, kept with A while its pattern and that of `added` (or NULL) stay as they are */
PetscErrorCode GpufmtScaleAndAddGet(Mat A, int backend, int kind, Mat added, const PetscInt columns[], const GpufmtScaleAndAdd **out)
{
  GpufmtScaleAndAdd *scale_and_add = &((Mat_Gpufmt *)A->spptr)->scale_and_add[kind];
  PetscObjectState   pattern, added_pattern = 0;
  PetscObjectId      added_id = 0;

  PetscFunctionBegin;
  *out = scale_and_add;
  PetscCall(MatGetNonzeroState(A, &pattern));
  if (added) {
    PetscCall(PetscObjectGetId((PetscObject)added, &added_id));
    PetscCall(MatGetNonzeroState(added, &added_pattern));
  }
  if (GpufmtLeaseHolds(&scale_and_add->lease) && scale_and_add->backend == backend && scale_and_add->pattern_state == pattern &&
      scale_and_add->added_id == added_id && scale_and_add->added_pattern_state == added_pattern)
    PetscFunctionReturn(PETSC_SUCCESS);
  scale_and_add->backend             = backend;
  scale_and_add->pattern_state       = pattern;
  scale_and_add->added_id            = added_id;
  scale_and_add->added_pattern_state = added_pattern;
  PetscCall(ScaleAndAddPlan(A, kind, added, columns, scale_and_add));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The array is taken and given back for the state of A, as PETSc's functions raise it. Slot Y stands for the array too, or is NULL. */
PetscErrorCode GpufmtScaleAndAddRun(Mat A, const GpufmtScaleAndAdd *scale_and_add, void *slots[GPUFMT_NUM_SLOTS], PetscLogDouble flops)
{
  GpufmtDeviceValues *values    = &((Mat_Gpufmt *)A->spptr)->arrays.values;
  const PetscBool     on_device = (PetscBool)(scale_and_add->backend == GPUFMT_BACKEND_CUDA);
  PetscScalar        *array;
  void               *stream = NULL;

  PetscFunctionBegin;
  if (on_device) {
    PetscCall(GpufmtDeviceGet(NULL, &stream));
    PetscCall(GpufmtDeviceValuesUpdate(values, A, (PetscCount)GpufmtEntries(A), stream));
  }
  PetscCall(MatSeqAIJGetArray(A, &array));
  slots[GPUFMT_SLOT_RESULT] = array;
  if (slots[GPUFMT_SLOT_Y]) slots[GPUFMT_SLOT_Y] = array;
  PetscCall(GpufmtReplay(&scale_and_add->plan, scale_and_add->backend, slots, stream));
  PetscCall(GpufmtLogFlops(scale_and_add->backend, flops));
  if (on_device) PetscCall(GpufmtDeviceSynchronize(stream)); /* synchronize! the host may read or write next */
  PetscCall(MatSeqAIJRestoreArray(A, &array));
  if (on_device) values->version = GpufmtVersionOf(A);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* a real scalar of at most 8 bytes as the word of an argument */
void *GpufmtScalarWord(PetscScalar alpha)
{
  const PetscReal real = PetscRealPart(alpha);
  void           *word = NULL;

  memcpy(&word, &real, PetscMin(sizeof(real), sizeof(word)));
  return word;
}

/* any scalar of at most 16 bytes as that of a plan: complex ones in double precision are two words */
void GpufmtAlphaSet(void *slots[GPUFMT_NUM_SLOTS], PetscScalar alpha)
{
  void *words[2] = {NULL};

  memcpy(words, &alpha, PetscMin(sizeof(alpha), sizeof(words)));
  slots[GPUFMT_SLOT_ALPHA]      = words[0];
  slots[GPUFMT_SLOT_ALPHA_IMAG] = words[1];
}

PetscErrorCode MatScale_SeqAIJGpufmt(Mat A, PetscScalar alpha)
{
  void                    *slots[GPUFMT_NUM_SLOTS] = {NULL};
  const GpufmtScaleAndAdd *scale_and_add;
  PetscBool                ours = PETSC_FALSE;
  int                      backend;

  PetscFunctionBegin;
  PetscCall(GpufmtValuesPlace(A, &backend, &ours));
  if (!ours) {
    PetscCall((*gpufmt_seq_parent->scale)(A, alpha));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(GpufmtScaleAndAddGet(A, backend, GPUFMT_SCALE, NULL, NULL, &scale_and_add));
  GpufmtAlphaSet(slots, alpha);
  PetscCall(GpufmtScaleAndAddRun(A, scale_and_add, slots, GpufmtEntries(A)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* replays a plan with `v` in slot X, which may live on the host or on the device, and belong to a parallel vector */
PetscErrorCode GpufmtScaleAndAddRunWith(Mat A, Vec v, const GpufmtScaleAndAdd *scale_and_add, void *slots[GPUFMT_NUM_SLOTS], PetscLogDouble flops)
{
  Mat_Gpufmt        *gpufmt  = (Mat_Gpufmt *)A->spptr;
  const PetscBool    on_host = (PetscBool)(scale_and_add->backend == GPUFMT_BACKEND_HOST);
  const size_t       bytes   = (size_t)v->map->n * sizeof(PetscScalar);
  const PetscScalar *array;
  PetscMemType       memtype = PETSC_MEMTYPE_HOST;
  PetscErrorCode     ierr;
  void              *stream;

  PetscFunctionBegin;
  if (on_host) PetscCall(VecGetArrayRead(v, &array));
  else PetscCall(VecGetArrayReadAndMemType(v, &array, &memtype));
  slots[GPUFMT_SLOT_X] = (void *)array;
  if (!on_host && PetscMemTypeHost(memtype)) {
    PetscCall(GpufmtDeviceGet(NULL, &stream));
    PetscCall(GpufmtDeviceReserve(bytes, &gpufmt->scratch[GPUFMT_SLOT_X], &gpufmt->scratch_bytes[GPUFMT_SLOT_X]));
    PetscCall(GpufmtDeviceUpload(gpufmt->scratch[GPUFMT_SLOT_X], array, bytes, stream));
    slots[GPUFMT_SLOT_X] = gpufmt->scratch[GPUFMT_SLOT_X];
  }
  ierr = GpufmtScaleAndAddRun(A, scale_and_add, slots, flops); /* a failure leaves the vector usable */
  if (on_host) PetscCall(VecRestoreArrayRead(v, &array));
  else PetscCall(VecRestoreArrayReadAndMemType(v, &array));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* multiplies each row, or each column, by its entry of `factors` */
static PetscErrorCode ScaleBy(Mat A, int backend, int kind, Vec factors)
{
  void                    *slots[GPUFMT_NUM_SLOTS] = {NULL};
  const PetscInt           n                       = kind == GPUFMT_SCALE_ROWS ? A->rmap->n : A->cmap->n;
  const GpufmtScaleAndAdd *scale_and_add;

  PetscFunctionBegin;
  PetscCheck(factors->map->n == n, PETSC_COMM_SELF, PETSC_ERR_ARG_SIZ,
             "%s scaling vector has %" PetscInt_FMT " entries here, the matrix %" PetscInt_FMT " %s", kind == GPUFMT_SCALE_ROWS ? "Left" : "Right",
             factors->map->n, n, kind == GPUFMT_SCALE_ROWS ? "rows" : "columns");
  PetscCall(GpufmtScaleAndAddGet(A, backend, kind, NULL, NULL, &scale_and_add));
  PetscCall(GpufmtScaleAndAddRunWith(A, factors, scale_and_add, slots, GpufmtEntries(A)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatDiagonalScale_SeqAIJGpufmt(Mat A, Vec left, Vec right)
{
  PetscBool ours = PETSC_FALSE;
  int       backend;

  PetscFunctionBegin;
  PetscCall(GpufmtValuesPlace(A, &backend, &ours));
  if (!ours) {
    PetscCall((*gpufmt_seq_parent->diagonalscale)(A, left, right));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (left) PetscCall(ScaleBy(A, backend, GPUFMT_SCALE_ROWS, left));
  if (right) PetscCall(ScaleBy(A, backend, GPUFMT_SCALE_COLUMNS, right));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The plan of Y += a X with sequential matrices, NULL if PETSc is to do it; `columns`: the number of each column of X in Y, -1: none, NULL: the
   same. Nothing is changed. */
PetscErrorCode GpufmtAddPlan(Mat Y, Mat X, MatStructure structure, const PetscInt columns[], const GpufmtScaleAndAdd **out)
{
  const GpufmtScaleAndAdd *scale_and_add;
  PetscBool                ours = PETSC_FALSE;
  int                      backend;

  PetscFunctionBegin;
  *out = NULL;
  PetscCall(GpufmtValuesPlace(Y, &backend, &ours));
  if (!ours || !GpufmtSeqData(X) || (backend == GPUFMT_BACKEND_CUDA && GpufmtBoundToCPU(X))) PetscFunctionReturn(PETSC_SUCCESS);
  if (structure == SAME_NONZERO_PATTERN)
    PetscCheck(GpufmtEntries(X) == GpufmtEntries(Y), PETSC_COMM_SELF, PETSC_ERR_ARG_WRONG,
               "MatStructure is not SAME_NONZERO_PATTERN: the matrices have %g and %g nonzeros", GpufmtEntries(X), GpufmtEntries(Y));
  if (structure == UNKNOWN_NONZERO_PATTERN ? GpufmtEntries(X) != GpufmtEntries(Y) : GpufmtEntries(X) > GpufmtEntries(Y))
    PetscFunctionReturn(PETSC_SUCCESS);
  if (structure == SAME_NONZERO_PATTERN) PetscCall(GpufmtScaleAndAddGet(Y, backend, GPUFMT_ADD, NULL, NULL, &scale_and_add));
  else PetscCall(GpufmtScaleAndAddGet(Y, backend, GPUFMT_ADD_SUBSET, X, columns, &scale_and_add));
  if (scale_and_add->applies) *out = scale_and_add;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* PETSc counts the additions of MatSetValues() alone where it makes Y by that */
PetscErrorCode GpufmtAddRun(Mat Y, PetscScalar a, Mat X, MatStructure structure, const GpufmtScaleAndAdd *scale_and_add)
{
  const PetscLogDouble added = GpufmtEntries(X), flops = structure == SUBSET_NONZERO_PATTERN ? added : 2.0 * added;
  void                *slots[GPUFMT_NUM_SLOTS] = {NULL}, *stream;
  const PetscScalar   *array;

  PetscFunctionBegin;
  GpufmtAlphaSet(slots, a);
  if (scale_and_add->backend == GPUFMT_BACKEND_CUDA) {
    GpufmtDeviceValues *values = &((Mat_Gpufmt *)X->spptr)->arrays.values;

    PetscCall(GpufmtDeviceGet(NULL, &stream));
    PetscCall(GpufmtDeviceValuesUpdate(values, X, (PetscCount)added, stream));
    slots[GPUFMT_SLOT_A_VALUES] = values->array;
    PetscCall(GpufmtScaleAndAddRun(Y, scale_and_add, slots, flops));
  } else {
    PetscCall(MatSeqAIJGetArrayRead(X, &array));
    slots[GPUFMT_SLOT_A_VALUES] = (void *)array;
    PetscCall(GpufmtScaleAndAddRun(Y, scale_and_add, slots, flops));
    PetscCall(MatSeqAIJRestoreArrayRead(X, &array));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatAXPY_SeqAIJGpufmt(Mat Y, PetscScalar a, Mat X, MatStructure structure)
{
  const GpufmtScaleAndAdd *scale_and_add;

  PetscFunctionBegin;
  if (structure == DIFFERENT_NONZERO_PATTERN) structure = UNKNOWN_NONZERO_PATTERN; /* if they are the same, no new matrix is made */
  PetscCall(GpufmtAddPlan(Y, X, structure, NULL, &scale_and_add));
  if (scale_and_add) PetscCall(GpufmtAddRun(Y, a, X, structure, scale_and_add));
  else {
    PetscCall((*gpufmt_seq_parent->axpy)(Y, a, X, structure));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The plan of changes of the diagonal of a sequential matrix, NULL if PETSc is to do them. Nothing is changed. */
PetscErrorCode GpufmtDiagonalPlan(Mat A, const GpufmtScaleAndAdd **out)
{
  const GpufmtScaleAndAdd *scale_and_add;
  PetscBool                ours = PETSC_FALSE;
  int                      backend;

  PetscFunctionBegin;
  *out = NULL;
  PetscCall(GpufmtValuesPlace(A, &backend, &ours));
  if (!ours || A->rmap->n != A->cmap->n) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtScaleAndAddGet(A, backend, GPUFMT_SET_DIAGONAL, NULL, NULL, &scale_and_add));
  if (scale_and_add->applies) *out = scale_and_add;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtDiagonalShift(Mat A, PetscScalar shift, const GpufmtScaleAndAdd *scale_and_add)
{
  void *slots[GPUFMT_NUM_SLOTS] = {NULL};

  PetscFunctionBegin;
  GpufmtAlphaSet(slots, shift);
  slots[GPUFMT_SLOT_Y] = A; /* what is there is added */
  PetscCall(GpufmtScaleAndAddRun(A, scale_and_add, slots, 0.0));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatShift_SeqAIJGpufmt(Mat A, PetscScalar shift)
{
  const GpufmtScaleAndAdd *scale_and_add;

  PetscFunctionBegin;
  PetscCall(GpufmtDiagonalPlan(A, &scale_and_add));
  if (scale_and_add) PetscCall(GpufmtDiagonalShift(A, shift, scale_and_add));
  else {
    PetscCall(GpufmtManagedLeave(A)); /* PETSc's goes on to read arrays that it has taken out of the matrix */
    PetscCall((*gpufmt_seq_parent->shift)(A, shift));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatDiagonalSet_SeqAIJGpufmt(Mat A, Vec diagonal, InsertMode mode)
{
  void                    *slots[GPUFMT_NUM_SLOTS] = {NULL};
  const GpufmtScaleAndAdd *scale_and_add           = NULL;

  PetscFunctionBegin;
  if (A->assembled) PetscCall(GpufmtDiagonalPlan(A, &scale_and_add));
  slots[GPUFMT_SLOT_Y] = mode == INSERT_VALUES ? NULL : A;
  if (scale_and_add) PetscCall(GpufmtScaleAndAddRunWith(A, diagonal, scale_and_add, slots, 0.0));
  else PetscCall((*gpufmt_seq_parent->diagonalset)(A, diagonal, mode));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatZeroEntries_SeqAIJGpufmt(Mat A)
{
  GpufmtManaged *managed;
  PetscScalar   *array;
  PetscBool      ours = PETSC_FALSE;
  int            backend;

  PetscFunctionBegin;
  PetscCall(GpufmtValuesPlace(A, &backend, &ours));
  if (!ours) {
    PetscCall((*gpufmt_seq_parent->zeroentries)(A));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(MatSeqAIJGetArrayWrite(A, &array));
  PetscCall(GpufmtManagedOf(A, &managed));
  PetscCall(GpufmtManagedZeroValues(managed));
  PetscCall(GpufmtManagedSettle((PetscBool)(backend == GPUFMT_BACKEND_CUDA)));
  PetscCall(MatSeqAIJRestoreArrayWrite(A, &array));
  PetscFunctionReturn(PETSC_SUCCESS);
}
