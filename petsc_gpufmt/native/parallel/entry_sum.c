/* The values of a sum of sequential matrices: a plan of the planner's, which is replayed on the host or on the device. */
#include "parallel/parallel.h"

PetscErrorCode GpufmtEntrySumDestroy(GpufmtEntrySum **out)
{
  GpufmtEntrySum *sum = *out;

  PetscFunctionBegin;
  if (!sum) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtLeaseDrop(&sum->lease));
  for (int k = 0; k <= GPUFMT_MAX_SUMMANDS; k++) PetscCall(GpufmtDeviceValuesDestroy(&sum->own[k]));
  PetscCall(PetscFree(*out));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode EntrySumPlan(const GpufmtUnionPart *part, GpufmtEntrySum *sum)
{
  GpufmtEntrySumRequest request = {0};
  GpufmtEntrySumAnswer  answer  = {0};

  PetscFunctionBegin;
  request.ntargets = sum->ntargets;
  request.nterms   = sum->nterms;
  request.begins   = sum->ntargets == sum->nterms ? NULL : part->begins; /* no entry has no term */
  request.index    = part->index;
  for (int k = 0; k < GPUFMT_MAX_SUMMANDS; k++) request.sizes[k] = sum->sizes[k];
  PetscCall(GpufmtPlannerAsk(GPUFMT_ASK_ENTRY_SUM, sum->backend, -1, NULL, &request.place, &answer.outcome, &sum->lease));
  sum->plan = answer.sum;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* plans the values of part k of a sum; the union is not needed afterwards */
PetscErrorCode GpufmtEntrySumCreate(int backend, GpufmtUnion *u, int k, GpufmtEntrySum **out)
{
  const GpufmtUnionPart       *part    = &u->parts[k];
  const GpufmtUnionPartAnswer *planned = &u->answer.parts[k];
  GpufmtEntrySum              *sum;

  PetscFunctionBegin;
  PetscCall(PetscNew(&sum));
  *out         = sum;
  sum->backend = backend;
  PetscCall(PetscArraycpy(sum->sizes, u->sizes, GPUFMT_MAX_SUMMANDS));
  if (u->planned) {
    sum->ntargets = (PetscInt)planned->nnz; /* at most `nterms` of GpufmtUnionCreate() */
    sum->nterms   = (PetscInt)planned->nterms;
    sum->plan     = planned->sum;
    GpufmtLeaseMove(&u->plans[k], &sum->lease);
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  sum->ntargets = part->rowptr[u->nrows];
  sum->nterms   = part->begins ? part->begins[sum->ntargets] : sum->ntargets;
  PetscCall(EntrySumPlan(part, sum));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode RunOnDevice(GpufmtEntrySum *sum, const Mat summands[], Mat result, PetscBool internal)
{
  GpufmtDeviceValues *values                  = GpufmtDeviceValuesOf(result, &sum->own[GPUFMT_MAX_SUMMANDS]);
  void               *slots[GPUFMT_NUM_SLOTS] = {NULL}, *stream;

  PetscFunctionBegin;
  PetscCall(GpufmtDeviceGet(NULL, &stream));
  for (int k = 0; k < GPUFMT_MAX_SUMMANDS; k++) {
    GpufmtDeviceValues *source;

    if (!sum->sizes[k]) continue;
    source = GpufmtDeviceValuesOf(summands[k], &sum->own[k]);
    PetscCall(GpufmtDeviceValuesUpdate(source, summands[k], sum->sizes[k], stream));
    slots[GPUFMT_SLOT_A_VALUES + k] = source->array;
  }
  PetscCall(GpufmtDeviceValuesWrite(values, result, sum->ntargets, &slots[GPUFMT_SLOT_RESULT]));
  PetscCall(GpufmtReplay(&sum->plan, GPUFMT_BACKEND_CUDA, slots, stream));
  PetscCall(PetscLogGpuFlops((PetscLogDouble)(sum->nterms - sum->ntargets)));
  if (internal) PetscCall(GpufmtDeviceValuesStay(values, result));
  else PetscCall(GpufmtDeviceValuesComputed(values, result, sum->ntargets, stream)); /* the assembly of the parallel matrix raises its state */
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode RunOnHost(GpufmtEntrySum *sum, const Mat summands[], Mat result)
{
  const PetscScalar *values[GPUFMT_MAX_SUMMANDS];
  PetscScalar       *array;
  void              *slots[GPUFMT_NUM_SLOTS] = {NULL};

  PetscFunctionBegin;
  for (int k = 0; k < GPUFMT_MAX_SUMMANDS; k++) {
    if (!sum->sizes[k]) continue;
    PetscCall(MatSeqAIJGetArrayRead(summands[k], &values[k]));
    slots[GPUFMT_SLOT_A_VALUES + k] = (void *)values[k];
  }
  PetscCall(MatSeqAIJGetArrayWrite(result, &array));
  slots[GPUFMT_SLOT_RESULT] = array;
  PetscCall(GpufmtReplay(&sum->plan, GPUFMT_BACKEND_HOST, slots, NULL));
  PetscCall(PetscLogFlops((PetscLogDouble)(sum->nterms - sum->ntargets)));
  PetscCall(MatSeqAIJRestoreArrayWrite(result, &array));
  PetscCall(PetscObjectStateIncrease((PetscObject)result));
  for (int k = 0; k < GPUFMT_MAX_SUMMANDS; k++)
    if (sum->sizes[k]) PetscCall(MatSeqAIJRestoreArrayRead(summands[k], &values[k]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode CheckLease(const GpufmtEntrySum *sum)
{
  PetscFunctionBegin;
  PetscCheck(GpufmtLeaseHolds(&sum->lease), PETSC_COMM_SELF, PETSC_ERR_ORDER,
             "Parallel sparse product: its plan is gone, because Python, which made it, has ended; make the product anew with MAT_INITIAL_MATRIX");
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* an error unless there is a plan, and memory of the device for the result, whose values stay */
PetscErrorCode GpufmtEntrySumReserve(GpufmtEntrySum *sum, Mat result)
{
  void *array;

  PetscFunctionBegin;
  PetscCall(CheckLease(sum));
  if (sum->backend == GPUFMT_BACKEND_CUDA)
    PetscCall(GpufmtDeviceValuesWrite(GpufmtDeviceValuesOf(result, &sum->own[GPUFMT_MAX_SUMMANDS]), result, sum->ntargets, &array));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the values of the result from those of the summands as they are now; `internal`: those on the device will do */
PetscErrorCode GpufmtEntrySumRun(GpufmtEntrySum *sum, const Mat summands[], Mat result, PetscBool internal)
{
  PetscFunctionBegin;
  PetscCall(CheckLease(sum));
  if (sum->backend == GPUFMT_BACKEND_CUDA) PetscCall(RunOnDevice(sum, summands, result, internal));
  else PetscCall(RunOnHost(sum, summands, result));
  PetscFunctionReturn(PETSC_SUCCESS);
}
