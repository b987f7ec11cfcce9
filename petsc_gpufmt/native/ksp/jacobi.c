/* PCJACOBI where the matrix is: PETSc looks for zeros on the diagonal on the host, to which the vector goes and from which it comes in each set-up. Where a look
   on the device finds that all entries are positive, that is left out; complex ones have no sign. Reciprocals, and products by them, are made by plans of the
   planner. One plan serves vectors of any length, so the process has one on each backend, as long as there is a PCGAMG or a solver of ours. */
#include "ksp/ksp.h"

static PetscErrorCode (*parent_setup)(PC)           = NULL;
static PetscErrorCode (*parent_apply)(PC, Vec, Vec) = NULL;

/* ---- plans ---- */

static struct {
  GpufmtLease        lease;
  GpufmtJacobiAnswer answer;
} plans[GPUFMT_NUM_BACKENDS];

static int nusers = 0; /* each a PCGAMG, or a KSP of ours */

void GpufmtJacobiUse(void)
{
  nusers++;
}

/* with the last user, what is kept for others goes as well */
PetscErrorCode GpufmtJacobiLeave(void)
{
  PetscFunctionBegin;
  nusers--;
  for (int backend = 0; !nusers && backend < GPUFMT_NUM_BACKENDS; backend++) PetscCall(GpufmtLeaseDrop(&plans[backend].lease));
  if (!nusers) PetscCall(GpufmtKspEstimatorsForget());
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* makes the plan on a backend if it is not there; a rank may fail alone */
static PetscErrorCode PlanGet(int backend)
{
  GpufmtJacobiRequest request = {0};

  PetscFunctionBegin;
  if (!GpufmtLeaseHolds(&plans[backend].lease))
    PetscCall(GpufmtPlannerAsk(GPUFMT_ASK_JACOBI, backend, -1, NULL, &request.place, &plans[backend].answer.outcome, &plans[backend].lease));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Run(int backend, const GpufmtPlan *plan, PetscInt nrows, const PetscScalar *d, const PetscScalar *x, PetscScalar *z)
{
  void *slots[GPUFMT_NUM_SLOTS] = {NULL}, *stream = NULL;

  PetscFunctionBegin;
  slots[GPUFMT_SLOT_ALPHA] = (void *)(intptr_t)nrows;
  slots[GPUFMT_SLOT_D]     = (void *)d;
  slots[GPUFMT_SLOT_X]     = (void *)x;
  slots[GPUFMT_SLOT_Z]     = z;
  if (backend == GPUFMT_BACKEND_CUDA) PetscCall(GpufmtDeviceGet(NULL, &stream));
  PetscCall(GpufmtReplay(plan, backend, slots, stream));
  PetscCall(GpufmtLogFlops(backend, (PetscLogDouble)nrows));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Where an array of this type is, if what is made of it is ours: on the host where tests have arrays as on a device. Else negative. */
static int BackendOf(PetscMemType memtype)
{
  if (PetscDefined(USE_COMPLEX)) return -1;
  if (PetscMemTypeDevice(memtype)) return GPUFMT_BACKEND_CUDA;
  return GpufmtManagedPossible(GPUFMT_BACKEND_HOST) ? GPUFMT_BACKEND_HOST : -1;
}

/* The entries of this rank become their reciprocals, and zeros stay; whether all were positive, false where that was not looked at. A rank may fail alone. */
PetscErrorCode GpufmtVectorReciprocals(Vec x, PetscBool *positive)
{
  PetscScalar    count = 0.0, *array;
  PetscMemType   memtype;
  PetscErrorCode ierr = PETSC_SUCCESS;
  int            backend;

  PetscFunctionBegin;
  *positive = PETSC_FALSE;
  PetscCall(VecGetArrayAndMemType(x, &array, &memtype));
  backend = BackendOf(memtype);
  if (backend >= 0) {
    ierr = PlanGet(backend);
    if (!ierr && x->map->n) ierr = Run(backend, &plans[backend].answer.reciprocals, x->map->n, NULL, array, array);
    if (!ierr && x->map->n) ierr = GpufmtCopyToHost(backend, &count, plans[backend].answer.not_positive, sizeof(count));
    *positive = (PetscBool)(count == 0.0);
  }
  PetscCall(VecRestoreArrayAndMemType(x, &array));
  PetscCall(ierr);
  if (backend < 0) PetscCall(VecReciprocal(x));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---- the preconditioner ---- */

/* Whether the matrix is ours, and its vectors are on the device, on all ranks. On the host the same happens where tests have arrays as on a device.
   Collective. */
PetscErrorCode GpufmtKspOnDevice(Mat A, PetscBool *on_device)
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

/* The matrix is multiplied next, so the store of its own columns is made before: the diagonal comes from there. A rank may fail alone. */
static PetscErrorCode DiagonalGet(Mat A, Vec diagonal)
{
  Mat          own = A;
  PetscBool    parallel;
  GpufmtStore *store;

  PetscFunctionBegin;
  PetscCall(PetscStrbeginswith(((PetscObject)A)->type_name, MATMPIAIJ, &parallel));
  if (parallel) PetscCall(MatMPIAIJGetSeqAIJ(A, &own, NULL, NULL));
  if (GpufmtSeqData(own) && GpufmtDeviceUsable()) PetscCall(GpufmtStoreGet(own, GpufmtSeqData(own), GPUFMT_BACKEND_CUDA, PETSC_FALSE, &store));
  PetscCall(MatGetDiagonal(A, diagonal));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The vector that PETSc multiplies by, which it locks, gets the reciprocals of the diagonal. Whether all of that was positive, on all ranks. */
static PetscErrorCode SetUpPositive(PC pc, PetscBool *positive)
{
  GpufmtJacobiContext *jacobi = (GpufmtJacobiContext *)pc->data;
  PetscErrorCode       ierr;
  int                  left;

  PetscFunctionBegin;
  if (!jacobi->diagonal) PetscCall(MatCreateVecs(pc->pmat, &jacobi->diagonal, NULL));
  else PetscCall(VecLockReadPop(jacobi->diagonal));
  *positive = PETSC_FALSE;
  ierr      = DiagonalGet(pc->pmat, jacobi->diagonal);
  if (!ierr) ierr = GpufmtVectorReciprocals(jacobi->diagonal, positive);
  PetscCall(VecLockReadPush(jacobi->diagonal));
  left = !*positive;
  PetscCall(GpufmtAgree((PetscObject)pc, "The diagonal of PCJACOBI", ierr, 1, &left));
  *positive = (PetscBool)!left;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCSetUp_JacobiGpufmt(PC pc)
{
  PCJacobiType type;
  PetscBool    replaces, on_device, positive = PETSC_FALSE;

  PetscFunctionBegin;
  PetscCall(PCJacobiGetType(pc, &type));
  PetscCall(PCJacobiGetFixDiagonal(pc, &replaces));
  PetscCall(GpufmtKspOnDevice(pc->pmat, &on_device));
  if (replaces && on_device && type == PC_JACOBI_DIAGONAL && !((GpufmtJacobiContext *)pc->data)->root) PetscCall(SetUpPositive(pc, &positive));
  if (!positive) PetscCall((*parent_setup)(pc)); /* with the diagonal once more */
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCApply_JacobiGpufmt(PC pc, Vec x, Vec z)
{
  const Vec          d = ((GpufmtJacobiContext *)pc->data)->diagonal;
  const PetscScalar *given[2];
  PetscScalar       *made;
  PetscMemType       types[3];
  int                backend = -1;
  PetscErrorCode     ierr    = PETSC_SUCCESS;

  PetscFunctionBegin;
  if (d && x != z) {
    PetscCall(VecGetArrayReadAndMemType(d, &given[0], &types[0]));
    PetscCall(VecGetArrayReadAndMemType(x, &given[1], &types[1]));
    PetscCall(VecGetArrayWriteAndMemType(z, &made, &types[2]));
    backend = BackendOf(types[0]);
    if (backend != BackendOf(types[1]) || backend != BackendOf(types[2]) || (backend >= 0 && !GpufmtLeaseHolds(&plans[backend].lease))) backend = -1;
    if (backend >= 0 && x->map->n) ierr = Run(backend, &plans[backend].answer.products, x->map->n, given[0], given[1], made);
    PetscCall(VecRestoreArrayWriteAndMemType(z, &made));
    PetscCall(VecRestoreArrayReadAndMemType(x, &given[1]));
    PetscCall(VecRestoreArrayReadAndMemType(d, &given[0]));
  }
  PetscCall(ierr);
  if (backend < 0) PetscCall((*parent_apply)(pc, x, z));
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
  parent_apply   = pc->ops->apply;
  pc->ops->setup = PCSetUp_JacobiGpufmt;
  pc->ops->apply = PCApply_JacobiGpufmt;
  if (pc->setupcalled && !pc->reusepreconditioner) PetscCall(PCSetUp_JacobiGpufmt(pc));
  PetscFunctionReturn(PETSC_SUCCESS);
}
