/* Public interface of libpetscgpufmt for compiled applications.

   C:        #include <petsc_gpufmt.h>
             PetscCall(PetscGpuFmtInitialize());       after PetscInitialize()
   Fortran:  call petscgpufmtinitialize(ierr)          after PetscInitialize()

   Not needed with -dll_append, PETSC_OPTIONS or `import petsc_gpufmt`. */
#pragma once
#include <petscsys.h>

/* Registers the matrix types with PETSc. Collective in the sense that every rank calls it; calling it again is harmless. */
PETSC_EXTERN PetscErrorCode PetscGpuFmtInitialize(void);
