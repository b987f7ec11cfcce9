/* PCJACOBI looks for zeros on its diagonal on the host, and the vector goes there and back in each set-up. Where a look on the device finds that all
   entries are positive, it is told not to; complex ones have no sign. */
#include "ksp/ksp.h"

static const char work[] = "petsc_gpufmt_diagonal";

static PetscErrorCode (*parent_setup)(PC) = NULL;

/* Whether the matrix is ours, and its vectors are on the device, on all ranks. On the host the same happens where tests have arrays as on a device. */
static PetscErrorCode OnDevice(Mat A, PetscBool *on_device)
{
  int all;

  PetscFunctionBegin;
  *on_device = GpufmtManagedPossible(GPUFMT_BACKEND_HOST);
#if PetscDefined(HAVE_CUDA)
  if (!A->boundtocpu && GpufmtDeviceUsable()) PetscCall(PetscStrcmpAny(A->defaultvectype, on_device, VECCUDA, VECSEQCUDA, VECMPICUDA, ""));
#endif
  all = *on_device && GpufmtFormatFind(((PetscObject)A)->type_name);
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, PetscObjectComm((PetscObject)A)));
  *on_device = (PetscBool)all;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* a vector for the diagonal of the matrix, kept with the PC */
static PetscErrorCode WorkGet(PC pc, Vec *diagonal)
{
  PetscBool fits = PETSC_FALSE;

  PetscFunctionBegin;
  PetscCall(PetscObjectQuery((PetscObject)pc, work, (PetscObject *)diagonal));
  if (*diagonal) PetscCall(PetscLayoutCompare((*diagonal)->map, pc->pmat->cmap, &fits));
  if (fits) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(MatCreateVecs(pc->pmat, diagonal, NULL));
  PetscCall(PetscObjectCompose((PetscObject)pc, work, (PetscObject)*diagonal));
  PetscCall(PetscObjectDereference((PetscObject)*diagonal)); /* the PC has one */
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The matrix is multiplied next, so the store of its own columns is made before: the diagonal comes from there. Whether it is positive on this rank,
   which may fail alone. */
static PetscErrorCode DiagonalGet(Mat A, Vec diagonal, PetscBool *positive)
{
  Mat          own = A;
  PetscBool    parallel;
  GpufmtStore *store;

  PetscFunctionBegin;
  PetscCall(PetscStrbeginswith(((PetscObject)A)->type_name, MATMPIAIJ, &parallel));
  if (parallel) PetscCall(MatMPIAIJGetSeqAIJ(A, &own, NULL, NULL));
  if (GpufmtSeqData(own) && GpufmtDeviceUsable()) PetscCall(GpufmtStoreGet(own, GpufmtSeqData(own), GPUFMT_BACKEND_CUDA, PETSC_FALSE, &store));
  PetscCall(MatGetDiagonal(A, diagonal));
  PetscCall(GpufmtVectorIsPositive(diagonal, positive));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* whether all entries of the diagonal are positive */
static PetscErrorCode IsPositive(Mat A, Vec diagonal, PetscBool *positive)
{
  PetscErrorCode ierr;
  int            replaced;

  PetscFunctionBegin;
  *positive = PETSC_FALSE;
  ierr      = DiagonalGet(A, diagonal, positive);
  replaced  = !*positive;
  PetscCall(GpufmtAgree((PetscObject)A, "The diagonal of PCJACOBI", ierr, 1, &replaced));
  *positive = (PetscBool)!replaced;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* PETSc's set-up with no zeros to replace. It takes the diagonal when it is first applied, so it is: `diagonal` is overwritten. */
static PetscErrorCode SetUpPositive(PC pc, Vec diagonal)
{
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(PCJacobiSetFixDiagonal(pc, PETSC_FALSE));
  ierr = (*parent_setup)(pc);
  if (!ierr) ierr = (*pc->ops->apply)(pc, diagonal, diagonal);
  PetscCall(PCJacobiSetFixDiagonal(pc, PETSC_TRUE));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCSetUp_JacobiGpufmt(PC pc)
{
  PCJacobiType type;
  PetscBool    replaces, on_device, positive = PETSC_FALSE;
  Vec          diagonal = NULL;

  PetscFunctionBegin;
  PetscCall(PCJacobiGetType(pc, &type));
  PetscCall(PCJacobiGetFixDiagonal(pc, &replaces));
  PetscCall(OnDevice(pc->pmat, &on_device));
  if (replaces && on_device && type == PC_JACOBI_DIAGONAL) {
    PetscCall(WorkGet(pc, &diagonal));
    PetscCall(IsPositive(pc->pmat, diagonal, &positive));
  }
  if (positive) PetscCall(SetUpPositive(pc, diagonal));
  else PetscCall((*parent_setup)(pc));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The set-up of a PC becomes that above if it is PCJACOBI, and is made so where it has been made already, unless that is to stay. */
PetscErrorCode GpufmtKspJacobiTake(PC pc)
{
  PetscBool is_jacobi;

  PetscFunctionBegin;
  PetscCall(PetscObjectTypeCompare((PetscObject)pc, PCJACOBI, &is_jacobi));
  if (!is_jacobi || pc->ops->setup == PCSetUp_JacobiGpufmt || PetscDefined(USE_COMPLEX)) PetscFunctionReturn(PETSC_SUCCESS);
  parent_setup   = pc->ops->setup;
  pc->ops->setup = PCSetUp_JacobiGpufmt;
  if (pc->setupcalled && !pc->reusepreconditioner) PetscCall(PCSetUp_JacobiGpufmt(pc));
  PetscFunctionReturn(PETSC_SUCCESS);
}
