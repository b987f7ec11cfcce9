/* Replays a plan: fills the slots and launches. No allocation, no synchronisation, no Python. */
#include "runtime/runtime.h"

PetscErrorCode GpufmtReplay(const GpufmtPlan *plan, int backend, void *const slots[GPUFMT_NUM_SLOTS], void *stream)
{
  PetscFunctionBegin;
  if (backend == GPUFMT_BACKEND_CUDA) PetscCall(PetscLogGpuTimeBegin());
  for (int64_t k = 0; k < plan->nlaunches; k++) {
    GpufmtLaunch *launch = &plan->launches[k];

    for (int32_t i = 0; i < launch->nwords; i++)
      if (launch->slots[i] >= 0) launch->words[i] = (uint64_t)(uintptr_t)slots[launch->slots[i]];
    if (backend == GPUFMT_BACKEND_CUDA) PetscCall(GpufmtDeviceLaunch(launch, stream));
    else ((GpufmtHostFunction)(uintptr_t)launch->function)(launch->grid, launch->block, launch->params);
  }
  if (backend == GPUFMT_BACKEND_CUDA) PetscCall(PetscLogGpuTimeEnd());
  PetscFunctionReturn(PETSC_SUCCESS);
}
