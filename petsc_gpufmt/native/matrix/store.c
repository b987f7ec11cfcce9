/* The stores of one sequential block: made on first use, refreshed when the values changed, replanned when the pattern changed. */
#include "matrix/matrix.h"
#include <inttypes.h>

PetscLogEvent GPUFMT_Refresh = 0;

PetscErrorCode Mat_GpufmtCreate(const GpufmtFormat *format, Mat_Gpufmt **out)
{
  Mat_Gpufmt *gpufmt;

  PetscFunctionBegin;
  PetscCall(PetscNew(&gpufmt));
  gpufmt->arrays.mark = &gpufmt_seq_bind;
  gpufmt->format      = format;
  gpufmt->converted   = -1;
  *out                = gpufmt;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* options prefix of the matrix that the user sees; may be NULL */
static const char *Prefix(Mat A, const Mat_Gpufmt *gpufmt)
{
  return gpufmt->parent_prefix ? gpufmt->parent_prefix : ((PetscObject)A)->prefix;
}

static PetscErrorCode StoresDrop(Mat_Gpufmt *gpufmt)
{
  PetscFunctionBegin;
  for (int b = 0; b < GPUFMT_NUM_BACKENDS; b++) {
    for (int t = 0; t < 2; t++) {
      PetscCall(GpufmtFusedDrop(&gpufmt->stores[b][t]));
      PetscCall(GpufmtLeaseDrop(&gpufmt->stores[b][t].lease));
    }
    PetscCall(GpufmtFusedDrop(&gpufmt->low.stores[b]));
    PetscCall(GpufmtLeaseDrop(&gpufmt->low.stores[b].lease));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* what is stored goes; what belongs to the CSR arrays stays */
PetscErrorCode Mat_GpufmtSetFormat(Mat_Gpufmt *gpufmt, const GpufmtFormat *format)
{
  PetscFunctionBegin;
  PetscCall(StoresDrop(gpufmt));
  gpufmt->format    = format;
  gpufmt->converted = -1;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode Mat_GpufmtDestroy(Mat_Gpufmt **out)
{
  Mat_Gpufmt *gpufmt = *out;

  PetscFunctionBegin;
  if (!gpufmt) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(StoresDrop(gpufmt));
  for (int kind = 0; kind < GPUFMT_NUM_SCALE_AND_ADD; kind++) PetscCall(GpufmtLeaseDrop(&gpufmt->scale_and_add[kind].lease));
  PetscCall(GpufmtCooDrop(&gpufmt->coo));
  for (int b = 0; b < GPUFMT_NUM_BACKENDS; b++) {
    PetscCall(GpufmtBufferFree(&gpufmt->low.ghosts[b]));
    PetscCall(VecDestroy(&gpufmt->low.scaling[b]));
  }
  PetscCall(GpufmtHaloDestroy(&gpufmt->low.halo));
  PetscCall(GpufmtHaloDestroy(&gpufmt->halo));
  for (int s = 0; s < GPUFMT_NUM_SLOTS; s++) PetscCall(GpufmtDeviceFree(&gpufmt->scratch[s], &gpufmt->scratch_bytes[s]));
  PetscCall(GpufmtDeviceValuesDestroy(&gpufmt->arrays.values));
  PetscCall(GpufmtManagedRelease(&gpufmt->arrays.managed));
  PetscCall(PetscFree(gpufmt->parent_prefix));
  PetscCall(PetscFree(*out));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Plans a store of the pattern of A whose values and vectors have so many bytes a scalar; what was stored before goes. */
PetscErrorCode GpufmtStorePlan(Mat A, int backend, PetscBool transposed, size_t scalar_bytes, GpufmtStore *store)
{
  Mat_Gpufmt        *gpufmt = (Mat_Gpufmt *)A->spptr;
  const PetscInt    *rowptr, *colidx;
  GpufmtStoreRequest request = {0};
  GpufmtStoreAnswer *answer  = &store->answer;
  char               options[2048];
  PetscInt           row_block, col_block;

  PetscFunctionBegin;
  PetscCall(MatSeqAIJGetCSRAndMemType(A, &rowptr, &colidx, NULL, NULL));
  PetscCall(GpufmtOptionsCollect(gpufmt->format, ((PetscObject)A)->options, Prefix(A, gpufmt), sizeof(options), options));
  PetscCall(MatGetBlockSizes(A, &row_block, &col_block));
  request.format     = gpufmt->format->name;
  request.options    = options;
  request.transposed = transposed;
  request.nrows      = A->rmap->n;
  request.ncols      = A->cmap->n;
  request.nnz        = rowptr[A->rmap->n];
  request.rowptr     = rowptr;
  request.colidx     = colidx;
  request.held       = GpufmtPatternHeld(A, backend);
  request.row_block  = row_block;
  request.col_block  = col_block;
  request.mults      = store->mults;

  request.place.scalar_bytes = (int32_t)scalar_bytes;
  PetscCall(GpufmtFusedDrop(store)); /* they have the arrays that go now */
  PetscCall(PetscMemzero(answer, sizeof(*answer)));
  PetscCall(GpufmtPlannerAsk(GPUFMT_ASK_STORE, backend, GPUFMT_Plan, A, &request.place, &answer->outcome, &store->lease));
  PetscCall(PetscInfo(A, "%s on %s%s%s: %s, %" PRId64 " nonzeros in %" PRId64 " stored, %" PRId64 " bytes\n", gpufmt->format->name,
                      backend == GPUFMT_BACKEND_CUDA ? "the device" : "the host", transposed ? ", transposed" : "",
                      scalar_bytes < sizeof(PetscScalar) ? ", copy in single precision" : "", answer->summary, request.nnz, answer->nstored,
                      answer->bytes_held));
  if (answer->detail[0]) PetscCall(PetscInfo(A, "%s:\n%s\n", gpufmt->format->name, answer->detail));
  PetscCall(MatGetNonzeroState(A, &store->pattern_state));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode ValuesOnDevice(Mat A, GpufmtCsrValues *values)
{
  const PetscInt *rowptr;
  void           *stream;

  PetscFunctionBegin;
  PetscCall(GpufmtDeviceGet(NULL, &stream));
  PetscCall(MatSeqAIJGetCSRAndMemType(A, &rowptr, NULL, NULL, NULL));
  PetscCall(GpufmtDeviceValuesUpdate(values->kept ? values->kept : &values->passing, A, rowptr[A->rmap->n], stream));
  values->array = values->kept ? values->kept->array : values->passing.array;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The CSR values of A on a backend, for plans that read them, until they are given back. Those on the device are as large as a store, so they are
   kept only where sparse products want them as well, or they are the matrix's own. */
PetscErrorCode GpufmtCsrValuesGet(Mat A, int backend, GpufmtCsrValues *values)
{
  GpufmtArrays      *arrays = GpufmtArraysOf(A);
  const PetscScalar *array;
  PetscErrorCode     ierr;

  PetscFunctionBegin;
  *values = (GpufmtCsrValues){.backend = backend};
  if (backend == GPUFMT_BACKEND_CUDA) {
    if (arrays->values.array || arrays->managed) values->kept = &arrays->values;
    ierr = ValuesOnDevice(A, values); /* what it has sent goes, if it fails */
    if (ierr) PetscCall(GpufmtDeviceValuesDestroy(&values->passing));
    PetscCall(ierr);
  } else {
    PetscCall(MatSeqAIJGetArrayRead(A, &array));
    values->array = (void *)array;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtCsrValuesRestore(Mat A, GpufmtCsrValues *values)
{
  const PetscScalar *array = (const PetscScalar *)values->array;
  void              *stream;

  PetscFunctionBegin;
  if (values->backend == GPUFMT_BACKEND_CUDA) {
    if (values->kept && values->kept->managed) {
      PetscCall(GpufmtDeviceGet(NULL, &stream));
      PetscCall(GpufmtDeviceSynchronize(stream)); /* synchronize! the host may write them next */
    }
    PetscCall(GpufmtDeviceValuesDestroy(&values->passing));
  } else PetscCall(MatSeqAIJRestoreArrayRead(A, &array));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* fills a store from an array of values of its own precision, which are on its backend */
PetscErrorCode GpufmtStoreFill(const GpufmtStore *store, int backend, void *values)
{
  void *slots[GPUFMT_NUM_SLOTS] = {NULL}, *stream = NULL;

  PetscFunctionBegin;
  if (backend == GPUFMT_BACKEND_CUDA) PetscCall(GpufmtDeviceGet(NULL, &stream));
  slots[GPUFMT_SLOT_VALUES] = values;
  PetscCall(GpufmtReplay(&store->answer.plans[GPUFMT_PLAN_REFRESH], backend, slots, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode StoreRefresh(Mat A, int backend, GpufmtStore *store)
{
  GpufmtCsrValues values;
  PetscErrorCode  ierr;

  PetscFunctionBegin;
  PetscCall(PetscLogEventBegin(GPUFMT_Refresh, A, 0, 0, 0));
  PetscCall(GpufmtCsrValuesGet(A, backend, &values));
  ierr = GpufmtStoreFill(store, backend, values.array);
  PetscCall(GpufmtCsrValuesRestore(A, &values));
  PetscCall(ierr);
  PetscCall(PetscLogEventEnd(GPUFMT_Refresh, A, 0, 0, 0));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the planner wanted to see how often the matrix is multiplied before it decides for good */
static PetscBool PlanIsDue(const GpufmtStore *store)
{
  return (PetscBool)(store->answer.replan_after && store->mults >= store->answer.replan_after);
}

/* a store whose pattern and values are those of A */
PetscErrorCode GpufmtStoreGet(Mat A, Mat_Gpufmt *gpufmt, int backend, PetscBool transposed, GpufmtStore **out)
{
  GpufmtStore     *store = &gpufmt->stores[backend][transposed];
  PetscObjectState pattern;
  PetscBool        other; /* than what is stored */

  PetscFunctionBegin;
  *out = store;
  if (PetscLikely(GpufmtLeaseHolds(&store->lease) && GpufmtVersionIsOf(&store->values, A) && !PlanIsDue(store))) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(MatGetNonzeroState(A, &pattern));
  other = (PetscBool)(!GpufmtLeaseHolds(&store->lease) || store->pattern_state != pattern);
  if (other) store->mults = 0;
  if (other || PlanIsDue(store)) PetscCall(GpufmtStorePlan(A, backend, transposed, sizeof(PetscScalar), store));
  store->values = (GpufmtVersion){0}; /* of no matrix, if the refresh fails */
  PetscCall(StoreRefresh(A, backend, store));
  store->values = GpufmtVersionOf(A);
  PetscFunctionReturn(PETSC_SUCCESS);
}
