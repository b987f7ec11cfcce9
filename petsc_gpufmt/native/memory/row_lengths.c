/* Lengths of many rows, made where the row pointer is. One plan serves patterns of any number of rows: the process has one on each backend, as long as
   there are managed arrays. */
#include "memory/memory.h"

static struct {
  GpufmtLease         lease;
  GpufmtLengthsAnswer answer;
} plans[GPUFMT_NUM_BACKENDS];

/* synchronize! Both arrays get the lengths of the rows; *seen: the longest, and how many are not 0. A rank may fail alone. */
PetscErrorCode GpufmtRowLengths(int backend, PetscInt nrows, const PetscInt rowptr[], PetscInt *const lengths[2], PetscInt seen[2])
{
  GpufmtLengthsAnswer *answer                  = &plans[backend].answer;
  GpufmtLengthsRequest request                 = {0};
  void                *slots[GPUFMT_NUM_SLOTS] = {NULL}, *stream = NULL;

  PetscFunctionBegin;
  if (!GpufmtLeaseHolds(&plans[backend].lease))
    PetscCall(GpufmtPlannerAsk(GPUFMT_ASK_LENGTHS, backend, -1, NULL, &request.place, &answer->outcome, &plans[backend].lease));
  slots[GPUFMT_SLOT_ALPHA] = (void *)(intptr_t)nrows;
  slots[GPUFMT_SLOT_X]     = (void *)rowptr;
  slots[GPUFMT_SLOT_Y]     = lengths[0];
  slots[GPUFMT_SLOT_Z]     = lengths[1];
  if (backend == GPUFMT_BACKEND_CUDA) PetscCall(GpufmtDeviceGet(NULL, &stream));
  PetscCall(GpufmtReplay(&answer->lengths, backend, slots, stream));
  PetscCall(GpufmtCopyToHost(backend, seen, answer->seen, 2 * sizeof(*seen)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* nobody needs the plans any more */
PetscErrorCode GpufmtRowLengthsForget(void)
{
  PetscFunctionBegin;
  for (int backend = 0; backend < GPUFMT_NUM_BACKENDS; backend++) PetscCall(GpufmtLeaseDrop(&plans[backend].lease));
  PetscFunctionReturn(PETSC_SUCCESS);
}
