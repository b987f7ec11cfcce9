/* The stores of one sequential block: made on first use, refreshed when the values changed, replanned when the pattern changed. */
#include "gpufmt_impl.h"
#include <inttypes.h>

PetscErrorCode GpufmtBlockCreate(const GpufmtFormat *format, GpufmtBlock **out)
{
  GpufmtBlock *block;

  PetscFunctionBegin;
  PetscCall(PetscNew(&block));
  block->format = format;
  *out          = block;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* options prefix of the matrix that the user sees; may be NULL */
static const char *Prefix(Mat A, const GpufmtBlock *block)
{
  return block->parent_prefix ? block->parent_prefix : ((PetscObject)A)->prefix;
}

static PetscErrorCode StoresDrop(GpufmtBlock *block)
{
  PetscFunctionBegin;
  for (int b = 0; b < GPUFMT_NUM_BACKENDS; b++)
    for (int t = 0; t < 2; t++) PetscCall(GpufmtLeaseDrop(&block->stores[b][t].lease));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* what is stored goes; what belongs to the CSR arrays stays */
PetscErrorCode GpufmtBlockSetFormat(GpufmtBlock *block, const GpufmtFormat *format)
{
  PetscFunctionBegin;
  PetscCall(StoresDrop(block));
  block->format = format;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtBlockDestroy(GpufmtBlock **pblock)
{
  GpufmtBlock *block = *pblock;

  PetscFunctionBegin;
  if (!block) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(StoresDrop(block));
  for (int kind = 0; kind < GPUFMT_NUM_UPDATES; kind++) PetscCall(GpufmtLeaseDrop(&block->updates[kind].lease));
  for (int s = 0; s < GPUFMT_NUM_SLOTS; s++) PetscCall(GpufmtDeviceFree(&block->scratch[s], &block->scratch_bytes[s]));
  PetscCall(GpufmtDeviceValuesDestroy(&block->values));
  PetscCall(GpufmtManagedRelease(&block->managed));
  PetscCall(PetscFree(block->parent_prefix));
  PetscCall(PetscFree(*pblock));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode StorePlan(Mat A, GpufmtBlock *block, int backend, PetscBool transposed, PetscObjectState pattern, GpufmtStore *store)
{
  const PetscInt    *rowptr, *colidx;
  GpufmtStoreRequest request = {0};
  GpufmtStoreAnswer *answer  = &store->answer;
  char               options[2048];
  PetscInt           row_block, col_block;

  PetscFunctionBegin;
  PetscCall(MatSeqAIJGetCSRAndMemType(A, &rowptr, &colidx, NULL, NULL));
  PetscCall(GpufmtOptionsCollect(block->format, ((PetscObject)A)->options, Prefix(A, block), sizeof(options), options));
  PetscCall(MatGetBlockSizes(A, &row_block, &col_block));
  request.format     = block->format->name;
  request.options    = options;
  request.transposed = transposed;
  request.nrows      = A->rmap->n;
  request.ncols      = A->cmap->n;
  request.nnz        = rowptr[A->rmap->n];
  request.rowptr     = rowptr;
  request.colidx     = colidx;
  request.row_block  = row_block;
  request.col_block  = col_block;
  request.products   = store->products;
  PetscCall(PetscMemzero(answer, sizeof(*answer)));
  PetscCall(GpufmtPlannerAsk(GPUFMT_ASK_STORE, backend, GPUFMT_Plan, A, &request.place, &answer->outcome, &store->lease));
  PetscCall(PetscInfo(A, "%s on %s%s: %s, %" PRId64 " nonzeros in %" PRId64 " stored, %" PRId64 " bytes\n", block->format->name, backend == GPUFMT_BACKEND_CUDA ? "the device" : "the host", transposed ? ", transposed" : "", answer->summary,
                      request.nnz, answer->nstored, answer->bytes_held));
  if (answer->detail[0]) PetscCall(PetscInfo(A, "%s:\n%s\n", block->format->name, answer->detail));
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

/* The CSR values on the device are as large as the store, so they are kept only where sparse products want them as well, or they are the
   matrix's own. */
static PetscErrorCode StoreRefreshOnDevice(Mat A, GpufmtBlock *block, GpufmtStore *store)
{
  GpufmtDeviceValues passing = {0}, *values = block->values.array || block->managed ? &block->values : &passing;
  const PetscInt    *rowptr;
  void              *slots[GPUFMT_NUM_SLOTS] = {NULL}, *stream;

  PetscFunctionBegin;
  PetscCall(GpufmtDeviceGet(NULL, &stream));
  PetscCall(MatSeqAIJGetCSRAndMemType(A, &rowptr, NULL, NULL, NULL));
  PetscCall(GpufmtDeviceValuesUpdate(values, A, rowptr[A->rmap->n], stream));
  slots[GPUFMT_SLOT_VALUES] = values->array;
  PetscCall(GpufmtReplay(&store->answer.plans[GPUFMT_PLAN_REFRESH], GPUFMT_BACKEND_CUDA, slots, stream));
  if (values->managed) PetscCall(GpufmtDeviceSynchronize(stream)); /* synchronize! the host may write them next */
  PetscCall(GpufmtDeviceValuesDestroy(&passing));                  /* synchronize! */
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode StoreRefresh(Mat A, GpufmtBlock *block, int backend, GpufmtStore *store)
{
  PetscFunctionBegin;
  PetscCall(PetscLogEventBegin(GPUFMT_Refresh, A, 0, 0, 0));
  if (backend == GPUFMT_BACKEND_CUDA) PetscCall(StoreRefreshOnDevice(A, block, store));
  else PetscCall(StoreRefreshOnHost(A, store));
  PetscCall(PetscLogEventEnd(GPUFMT_Refresh, A, 0, 0, 0));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the planner wanted to see how often the matrix is multiplied before it decides for good */
static PetscBool PlanIsDue(const GpufmtStore *store)
{
  return (PetscBool)(store->answer.replan_after && store->products >= store->answer.replan_after);
}

/* a store whose pattern and values are those of A */
PetscErrorCode GpufmtBlockGetStore(Mat A, GpufmtBlock *block, int backend, PetscBool transposed, GpufmtStore **out)
{
  GpufmtStore     *store = &block->stores[backend][transposed];
  PetscObjectState pattern;

  PetscFunctionBegin;
  *out = store;
  if (PetscLikely(GpufmtLeaseHolds(&store->lease) && GpufmtVersionIsOf(&store->values, A) && !PlanIsDue(store))) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(MatGetNonzeroState(A, &pattern));
  if (!GpufmtLeaseHolds(&store->lease) || store->pattern_state != pattern) {
    store->products = 0;
    PetscCall(StorePlan(A, block, backend, transposed, pattern, store));
  } else if (PlanIsDue(store)) PetscCall(StorePlan(A, block, backend, transposed, pattern, store));
  store->values = (GpufmtVersion){0}; /* of no matrix, if the refresh fails */
  PetscCall(StoreRefresh(A, block, backend, store));
  store->values = GpufmtVersionOf(A);
  PetscFunctionReturn(PETSC_SUCCESS);
}
