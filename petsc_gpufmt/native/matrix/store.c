/* The stores of one sequential block: made on first use, refreshed when the values changed, replanned when the pattern changed. */
#include "matrix/matrix.h"
#include <inttypes.h>

PetscLogEvent GPUFMT_Refresh = 0;

PetscErrorCode Mat_GpufmtCreate(const GpufmtFormat *format, Mat_Gpufmt **out)
{
  Mat_Gpufmt *gpufmt;

  PetscFunctionBegin;
  PetscCall(PetscNew(&gpufmt));
  gpufmt->format = format;
  *out           = gpufmt;
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
  for (int b = 0; b < GPUFMT_NUM_BACKENDS; b++)
    for (int t = 0; t < 2; t++) PetscCall(GpufmtLeaseDrop(&gpufmt->stores[b][t].lease));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* what is stored goes; what belongs to the CSR arrays stays */
PetscErrorCode Mat_GpufmtSetFormat(Mat_Gpufmt *gpufmt, const GpufmtFormat *format)
{
  PetscFunctionBegin;
  PetscCall(StoresDrop(gpufmt));
  gpufmt->format = format;
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
  PetscCall(GpufmtHaloDestroy(&gpufmt->halo));
  for (int s = 0; s < GPUFMT_NUM_SLOTS; s++) PetscCall(GpufmtDeviceFree(&gpufmt->scratch[s], &gpufmt->scratch_bytes[s]));
  PetscCall(GpufmtDeviceValuesDestroy(&gpufmt->arrays.values));
  PetscCall(GpufmtManagedRelease(&gpufmt->arrays.managed));
  PetscCall(PetscFree(gpufmt->parent_prefix));
  PetscCall(PetscFree(*out));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode StorePlan(Mat A, Mat_Gpufmt *gpufmt, int backend, PetscBool transposed, PetscObjectState pattern, GpufmtStore *store)
{
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
  PetscCall(PetscMemzero(answer, sizeof(*answer)));
  PetscCall(GpufmtPlannerAsk(GPUFMT_ASK_STORE, backend, GPUFMT_Plan, A, &request.place, &answer->outcome, &store->lease));
  PetscCall(PetscInfo(A, "%s on %s%s: %s, %" PRId64 " nonzeros in %" PRId64 " stored, %" PRId64 " bytes\n", gpufmt->format->name,
                      backend == GPUFMT_BACKEND_CUDA ? "the device" : "the host", transposed ? ", transposed" : "", answer->summary, request.nnz,
                      answer->nstored, answer->bytes_held));
  if (answer->detail[0]) PetscCall(PetscInfo(A, "%s:\n%s\n", gpufmt->format->name, answer->detail));
  store->pattern_state = pattern;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode StoreRefreshOnHost(Mat A, GpufmtStore *store)
{
  const PetscScalar *values;
  void              *slots[GPUFMT_NUM_SLOTS] = {NULL};

  PetscFunctionBegin;
  PetscCall(MatSeqAIJGetArrayRead(A, &values));
  slots[GPUFMT_SLOT_VALUES] = (void *)values;
  PetscCall(GpufmtReplay(&store->answer.plans[GPUFMT_PLAN_REFRESH], GPUFMT_BACKEND_HOST, slots, NULL));
  PetscCall(MatSeqAIJRestoreArrayRead(A, &values));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode StoreRefreshFrom(GpufmtDeviceValues *values, Mat A, GpufmtStore *store)
{
  const PetscInt *rowptr;
  void           *slots[GPUFMT_NUM_SLOTS] = {NULL}, *stream;

  PetscFunctionBegin;
  PetscCall(GpufmtDeviceGet(NULL, &stream));
  PetscCall(MatSeqAIJGetCSRAndMemType(A, &rowptr, NULL, NULL, NULL));
  PetscCall(GpufmtDeviceValuesUpdate(values, A, rowptr[A->rmap->n], stream));
  slots[GPUFMT_SLOT_VALUES] = values->array;
  PetscCall(GpufmtReplay(&store->answer.plans[GPUFMT_PLAN_REFRESH], GPUFMT_BACKEND_CUDA, slots, stream));
  if (values->managed) PetscCall(GpufmtDeviceSynchronize(stream)); /* synchronize! the host may write them next */
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The CSR values on the device are as large as the store, so they are kept only where sparse products want them as well, or they are the
   matrix's own. */
static PetscErrorCode StoreRefreshOnDevice(Mat A, Mat_Gpufmt *gpufmt, GpufmtStore *store)
{
  GpufmtDeviceValues passing = {0}, *values = gpufmt->arrays.values.array || gpufmt->arrays.managed ? &gpufmt->arrays.values : &passing;
  PetscErrorCode     ierr;

  PetscFunctionBegin;
  ierr = StoreRefreshFrom(values, A, store); /* what it sent goes, whether it fails or not */
  PetscCall(GpufmtDeviceValuesDestroy(&passing));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode StoreRefresh(Mat A, Mat_Gpufmt *gpufmt, int backend, GpufmtStore *store)
{
  PetscFunctionBegin;
  PetscCall(PetscLogEventBegin(GPUFMT_Refresh, A, 0, 0, 0));
  if (backend == GPUFMT_BACKEND_CUDA) PetscCall(StoreRefreshOnDevice(A, gpufmt, store));
  else PetscCall(StoreRefreshOnHost(A, store));
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
  if (other || PlanIsDue(store)) PetscCall(StorePlan(A, gpufmt, backend, transposed, pattern, store));
  store->values = (GpufmtVersion){0}; /* of no matrix, if the refresh fails */
  PetscCall(StoreRefresh(A, gpufmt, backend, store));
  store->values = GpufmtVersionOf(A);
  PetscFunctionReturn(PETSC_SUCCESS);
}
