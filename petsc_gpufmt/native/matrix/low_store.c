/* The copy of a sequential block in single precision: a store whose values and vectors are float. It is filled from values in double, as they are or
   times factors of rows and columns, by way of an array in single precision that goes afterwards. */
#include "matrix/matrix.h"

/* what is there while a copy is filled */
typedef struct {
  GpufmtBuffer factors, scaled, narrowed, outside;
} Passing;

/* the store of a block if it has the values of this, else NULL */
const GpufmtStore *GpufmtLowStoreCurrent(Mat block, int backend)
{
  const Mat_Gpufmt  *gpufmt = GpufmtSeqData(block);
  const GpufmtStore *store  = gpufmt ? &gpufmt->low.stores[backend] : NULL;

  return store && GpufmtLeaseHolds(&store->lease) && GpufmtVersionIsOf(&store->values, block) ? store : NULL;
}

/* multiplies an array of the values of A by the factors of their rows or columns; the plan for columns has as many indices as A, and is wanted seldom */
static PetscErrorCode Scale(Mat A, int backend, int kind, Vec factors, void *values, GpufmtBuffer *buffer)
{
  const size_t             bytes                   = (size_t)factors->map->n * sizeof(PetscScalar);
  void                    *slots[GPUFMT_NUM_SLOTS] = {NULL}, *stream = NULL;
  const GpufmtScaleAndAdd *plan;
  const PetscScalar       *array;

  PetscFunctionBegin;
  if (backend == GPUFMT_BACKEND_CUDA) PetscCall(GpufmtDeviceGet(NULL, &stream));
  PetscCall(GpufmtBufferReserve(backend, bytes, buffer));
  PetscCall(VecGetArrayRead(factors, &array));
  PetscCall(GpufmtBufferFromHost(buffer, array, bytes));
  PetscCall(VecRestoreArrayRead(factors, &array));
  PetscCall(GpufmtScaleAndAddGet(A, backend, kind, NULL, NULL, &plan));
  slots[GPUFMT_SLOT_X]      = buffer->array;
  slots[GPUFMT_SLOT_RESULT] = values;
  PetscCall(GpufmtReplay(&plan->plan, backend, slots, stream));
  PetscCall(GpufmtLeaseDrop(&((Mat_Gpufmt *)A->spptr)->scale_and_add[kind].lease));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the values of A in passing->narrowed, and how many leave the range */
static PetscErrorCode Narrow(Mat A, int backend, Vec rows, Vec columns, void *values, Passing *passing, int64_t outside[GPUFMT_NUM_OUTSIDE])
{
  const size_t             count = (size_t)GpufmtEntries(A), outside_bytes = GPUFMT_NUM_OUTSIDE * sizeof(outside[0]);
  void                    *slots[GPUFMT_NUM_SLOTS] = {NULL}, *stream = NULL;
  const GpufmtScaleAndAdd *plan;

  PetscFunctionBegin;
  if (backend == GPUFMT_BACKEND_CUDA) PetscCall(GpufmtDeviceGet(NULL, &stream));
  if (rows) {
    PetscCall(GpufmtBufferReserve(backend, count * sizeof(PetscScalar), &passing->scaled));
    PetscCall(GpufmtBufferCopy(&passing->scaled, values, count * sizeof(PetscScalar)));
    values = passing->scaled.array;
    PetscCall(Scale(A, backend, GPUFMT_SCALE_ROWS, rows, values, &passing->factors));
    PetscCall(Scale(A, backend, GPUFMT_SCALE_COLUMNS, columns, values, &passing->factors));
  }
  PetscCall(GpufmtBufferReserve(backend, count * sizeof(float), &passing->narrowed));
  PetscCall(GpufmtBufferReserve(backend, outside_bytes, &passing->outside));
  PetscCall(GpufmtBufferClear(&passing->outside, outside_bytes));
  PetscCall(GpufmtScaleAndAddGet(A, backend, GPUFMT_NARROW, NULL, NULL, &plan));
  slots[GPUFMT_SLOT_A_VALUES] = values;
  slots[GPUFMT_SLOT_RESULT]   = passing->narrowed.array;
  slots[GPUFMT_SLOT_Z]        = passing->outside.array;
  PetscCall(GpufmtReplay(&plan->plan, backend, slots, stream));
  PetscCall(GpufmtBufferToHost(&passing->outside, outside_bytes, outside));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Fill(Mat A, int backend, Vec rows, Vec columns, Passing *passing, int64_t outside[GPUFMT_NUM_OUTSIDE])
{
  GpufmtCsrValues values;
  PetscErrorCode  ierr;

  PetscFunctionBegin;
  PetscCall(GpufmtCsrValuesGet(A, backend, &values));
  ierr = Narrow(A, backend, rows, columns, values.array, passing, outside);
  PetscCall(GpufmtCsrValuesRestore(A, &values));
  PetscCall(ierr);
  PetscCall(GpufmtStoreFill(&((Mat_Gpufmt *)A->spptr)->low.stores[backend], backend, passing->narrowed.array));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Plans the copy of a block if its pattern is new, and fills it: with the values of the block, or with `rows` those times their factors, which are
   the local entries of vectors. It is current once GpufmtLowStoreAccept() says so. */
PetscErrorCode GpufmtLowStoreFill(Mat block, int backend, Vec rows, Vec columns, int64_t outside[GPUFMT_NUM_OUTSIDE])
{
  GpufmtStore     *store;
  Passing          passing = {.factors = {0}};
  PetscObjectState pattern;
  PetscErrorCode   ierr;

  PetscFunctionBegin;
  PetscCheck(GpufmtSeqData(block), PETSC_COMM_SELF, PETSC_ERR_SUP,
             "A block of type %s has no copy in single precision: only those of petsc_gpufmt have", ((PetscObject)block)->type_name);
  store         = &((Mat_Gpufmt *)block->spptr)->low.stores[backend];
  store->values = (GpufmtVersion){0}; /* of no matrix, until they are accepted */
  PetscCall(MatGetNonzeroState(block, &pattern));
  if (!GpufmtLeaseHolds(&store->lease) || store->pattern_state != pattern)
    PetscCall(GpufmtStorePlan(block, backend, PETSC_FALSE, sizeof(float), store));
  PetscCall(PetscLogEventBegin(GPUFMT_Refresh, block, 0, 0, 0));
  ierr = Fill(block, backend, rows, columns, &passing, outside); /* what it took goes, whether it fails or not */
  PetscCall(GpufmtBufferFree(&passing.factors));
  PetscCall(GpufmtBufferFree(&passing.scaled));
  PetscCall(GpufmtBufferFree(&passing.narrowed));
  PetscCall(GpufmtBufferFree(&passing.outside));
  PetscCall(ierr);
  PetscCall(PetscLogEventEnd(GPUFMT_Refresh, block, 0, 0, 0));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* what it was filled with are the values of the block as they are now */
void GpufmtLowStoreAccept(Mat block, int backend)
{
  ((Mat_Gpufmt *)block->spptr)->low.stores[backend].values = GpufmtVersionOf(block);
}
