/* Preloaded, it makes PETSc say that it was configured with CUDA where it was not, and the other way round. */
#include <petscsys.h>

PetscErrorCode PetscHasExternalPackage(const char package[], PetscBool *has)
{
  *has = (PetscBool)!PetscDefined(HAVE_CUDA);
  return PETSC_SUCCESS;
}
