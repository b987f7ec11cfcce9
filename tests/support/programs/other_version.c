/* Preloaded, it makes PETSc say that it is of a minor release to come. */
#include <petscsys.h>

PetscErrorCode PetscGetVersionNumber(PetscInt *major, PetscInt *minor, PetscInt *subminor, PetscInt *release)
{
  *major    = PETSC_VERSION_MAJOR;
  *minor    = PETSC_VERSION_MINOR + 1;
  *subminor = 0;
  if (release) *release = 1;
  return PETSC_SUCCESS;
}
