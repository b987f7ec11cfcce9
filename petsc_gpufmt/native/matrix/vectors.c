/* The vectors of a matrix: on the device where it is. Those of several ranks have no array on the host until somebody wants one: MatCreateVecs()
   takes pinned memory there and fills it with zeros, 17 ms for 4 million entries, and GAMG has a dozen such vectors on its finest level. */
#include "matrix/matrix.h"

/* makes vectors of a matrix live on the device, or on the host again; a type that the user has set stays */
PetscErrorCode GpufmtVecTypeOn(Mat A, PetscBool on)
{
  PetscFunctionBegin;
#if PetscDefined(HAVE_CUDA)
  {
    VecType   type;
    PetscBool same;

    PetscCall(MatGetVecType(A, &type));
    PetscCall(PetscStrcmp(type, on ? VECSTANDARD : VECCUDA, &same));
    if (same) PetscCall(MatSetVecType(A, on ? VECCUDA : VECSTANDARD));
  }
#endif
  PetscFunctionReturn(PETSC_SUCCESS);
}

#if PetscDefined(HAVE_CUDA)
/* a vector of zeros, bound to the CPU as MatCreateVecs() does it */
static PetscErrorCode CreateOnDevice(Mat A, PetscLayout map, Vec *v)
{
  PetscFunctionBegin;
  PetscCall(PetscLayoutSetUp(map));
  PetscCall(VecCreateMPICUDAWithArrays(map->comm, map->bs, map->n, map->N, NULL, NULL, v));
  PetscCall(PetscLayoutReference(map, &(*v)->map)); /* as all vectors of the matrix have it */
  PetscCall(VecSet(*v, 0.0));
  if (!A->boundtocpu || !A->bindingpropagates) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(VecSetBindingPropagates(*v, PETSC_TRUE));
  PetscCall(VecBindToCPU(*v, PETSC_TRUE));
  PetscFunctionReturn(PETSC_SUCCESS);
}
#endif

/* Whether this file makes the vectors: the same on all ranks, since it takes another collective call than PETSc's own way. */
static PetscErrorCode AreOnDevice(Mat A, PetscBool *on_device)
{
  PetscMPIInt nranks;

  PetscFunctionBegin;
  *on_device = PETSC_FALSE;
  PetscCallMPI(MPI_Comm_size(PetscObjectComm((PetscObject)A), &nranks));
#if PetscDefined(HAVE_CUDA)
  if (nranks > 1) PetscCall(PetscStrcmpAny(A->defaultvectype, on_device, VECCUDA, VECMPICUDA, ""));
#endif
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatCreateVecs_MPIAIJGpufmt(Mat A, Vec *right, Vec *left)
{
  PetscBool      on_device;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(AreOnDevice(A, &on_device));
  if (!on_device) { /* PETSc's own way is not a function of the type */
    A->ops->getvecs = NULL;
    ierr            = MatCreateVecs(A, right, left);
    A->ops->getvecs = MatCreateVecs_MPIAIJGpufmt;
    PetscCall(ierr);
  }
#if PetscDefined(HAVE_CUDA)
  if (on_device && right) PetscCall(CreateOnDevice(A, A->cmap, right));
  if (on_device && left) PetscCall(CreateOnDevice(A, A->rmap, left));
#endif
  PetscFunctionReturn(PETSC_SUCCESS);
}
