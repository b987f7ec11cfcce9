/* Operations on numbers, as PETSc counts them for -log_view. */
#include "runtime/runtime.h"

PetscErrorCode GpufmtLogFlops(int backend, PetscLogDouble flops)
{
  PetscFunctionBegin;
  if (backend == GPUFMT_BACKEND_CUDA) PetscCall(PetscLogGpuFlops(flops));
  else PetscCall(PetscLogFlops(flops));
  PetscFunctionReturn(PETSC_SUCCESS);
}
