/* Interpolations of a DMDA whose matrices are of ours. PETSc makes them of type aij unless the name of the matrix type begins with that, and of
   type maij for several unknowns a point. The latter it converts for cuSPARSE and Kokkos alone; else it multiplies on the host, with the vectors
   of a device on their way there and back in each cycle of multigrid. */
#include <petsc/private/dmimpl.h>
#include "matrix/matrix.h"

static PetscErrorCode (*parent_create)(DM)                          = NULL;
static PetscErrorCode (*parent_interpolation)(DM, DM, Mat *, Vec *) = NULL;

/* of the named format, where products run on a device, or where the user asks for it */
static PetscErrorCode Convert(DM coarse, const GpufmtFormat *format, Mat *P)
{
  PetscBool   wanted = GpufmtDeviceUsable(), expanded, is_seq, bound = PETSC_FALSE;
  PetscMPIInt size;

  PetscFunctionBegin;
  PetscCall(PetscOptionsGetBool(((PetscObject)coarse)->options, ((PetscObject)coarse)->prefix, "-gpufmt_interpolation", &wanted, NULL));
  if (!wanted) PetscFunctionReturn(PETSC_SUCCESS);
#if PetscDefined(HAVE_DEVICE)
  bound = (PetscBool)((*P)->boundtocpu && (*P)->bindingpropagates); /* as the fine grid on this rank, by -dm_bind_below */
#endif
  PetscCallMPI(MPI_Comm_size(PetscObjectComm((PetscObject)*P), &size));
  is_seq = (PetscBool)(size == 1);
  PetscCall(PetscObjectTypeCompareAny((PetscObject)*P, &expanded, MATSEQMAIJ, MATMPIMAIJ, ""));
  if (expanded) PetscCall(MatConvert(*P, is_seq ? MATSEQAIJ : MATMPIAIJ, MAT_INPLACE_MATRIX, P));
  PetscCall(MatConvert(*P, is_seq ? format->seq_type : format->mpi_type, MAT_INPLACE_MATRIX, P));
  if (bound) { /* which conversions forget */
    PetscCall(MatSetBindingPropagates(*P, PETSC_TRUE));
    PetscCall(MatBindToCPU(*P, PETSC_TRUE));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode DMCreateInterpolation_DAGpufmt(DM coarse, DM fine, Mat *P, Vec *scale)
{
  const GpufmtFormat *format;
  MatType             type;

  PetscFunctionBegin;
  PetscCall((*parent_interpolation)(coarse, fine, P, scale));
  PetscCall(DMGetMatType(coarse, &type));
  format = GpufmtFormatFind(type);
  if (format) PetscCall(Convert(coarse, format, P));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode DMCreate_DAGpufmt(DM dm)
{
  PetscFunctionBegin;
  PetscCall((*parent_create)(dm));
  parent_interpolation         = dm->ops->createinterpolation;
  dm->ops->createinterpolation = DMCreateInterpolation_DAGpufmt;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* once for each PetscInitialize(), which makes PETSc's list of types */
PetscErrorCode GpufmtInterpolationSetUp(void)
{
  PetscFunctionBegin;
  PetscCall(DMInitializePackage());
  PetscCall(DMRegisterAll());
  PetscCall(PetscFunctionListFind(DMList, DMDA, &parent_create));
  if (parent_create) PetscCall(DMRegister(DMDA, DMCreate_DAGpufmt));
  PetscFunctionReturn(PETSC_SUCCESS);
}
