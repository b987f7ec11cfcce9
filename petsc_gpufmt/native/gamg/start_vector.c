/* The vector with which PETSc begins to estimate eigenvalues, made where the matrix is: PETSc makes it on the host. */
#include "gamg/gamg.h"

static PetscErrorCode Plan(GpufmtGamgStart *start, int backend, Mat A, Vec v)
{
  GpufmtStartVectorRequest request = {0};
  GpufmtStartVectorAnswer  answer  = {0};
  PetscInt                 first;

  PetscFunctionBegin;
  PetscCall(VecGetOwnershipRange(v, &first, NULL));
  if (GpufmtLeaseHolds(&start->lease) && start->backend == backend && start->nrows == v->map->n && start->first == first)
    PetscFunctionReturn(PETSC_SUCCESS);
  request.nrows = v->map->n;
  request.first = first;
  PetscCall(GpufmtPlannerAsk(GPUFMT_ASK_START_VECTOR, backend, -1, A, &request.place, &answer.outcome, &start->lease));
  start->backend = backend;
  start->nrows   = v->map->n;
  start->first   = first;
  start->fill    = answer.fill;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the entries of this rank */
static PetscErrorCode Fill(GpufmtGamgStart *start, Mat A, Vec v)
{
  void          *slots[GPUFMT_NUM_SLOTS] = {NULL}, *stream = NULL;
  PetscScalar   *array;
  PetscMemType   memtype;
  int            backend;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(VecGetArrayWriteAndMemType(v, &array, &memtype));
  backend = PetscMemTypeDevice(memtype) ? GPUFMT_BACKEND_CUDA : GPUFMT_BACKEND_HOST;
  ierr    = Plan(start, backend, A, v);
  if (!ierr && backend == GPUFMT_BACKEND_CUDA) ierr = GpufmtDeviceGet(NULL, &stream);
  slots[GPUFMT_SLOT_RESULT] = array;
  if (!ierr) ierr = GpufmtReplay(&start->fill, backend, slots, stream); /* a failure leaves the vector usable */
  PetscCall(VecRestoreArrayWriteAndMemType(v, &array));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* `v` becomes what KSPSetNoisy_Private() makes of it, on all ranks or on none. The plan is kept for the level. */
PetscErrorCode GpufmtGamgStartVector(GpufmtGamg *gamg, PetscInt level, Mat A, Vec v)
{
  MatNullSpace space;

  PetscFunctionBegin;
  PetscCall(GpufmtAgree((PetscObject)A, "The start of an estimate of eigenvalues", Fill(&gamg->starts[level], A, v), 0, NULL));
  PetscCall(MatGetNullSpace(A, &space));
  if (space) PetscCall(MatNullSpaceRemove(space, v));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---- estimates by the smoothers ---- */

/* Whether a smoother is Chebyshev's, with a start vector of PETSc's: the user has not said that it is the right-hand side. */
static PetscErrorCode StartsByNoise(KSP smoother, PetscBool *noisy)
{
  const char *prefix;
  PetscBool   is_chebyshev, set;

  PetscFunctionBegin;
  PetscCall(PetscObjectTypeCompareAny((PetscObject)smoother, &is_chebyshev, KSPCHEBYSHEV, KSPGPUCHEBYSHEV, ""));
  PetscCall(KSPGetOptionsPrefix(smoother, &prefix));
  PetscCall(PetscOptionsHasName(((PetscObject)smoother)->options, prefix, "-ksp_chebyshev_esteig_noisy", &set));
  *noisy = (PetscBool)(is_chebyshev && !set);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Where a further set-up keeps the interpolations, Chebyshev's smoothers estimate eigenvalues anew. They begin with the right-hand side, if they
   are told to: it is our start vector, in the vector of the level's residual, until GpufmtGamgStartsEnd(). */
PetscErrorCode GpufmtGamgStartsBegin(PC pc, GpufmtGamg *gamg)
{
  const PC_MG *mg = (PC_MG *)pc->data;

  PetscFunctionBegin;
  for (PetscInt k = mg->nlevels - 1; k > 0; k--) {
    const PC_MG_Levels *level    = mg->levels[k];
    KSP                 smoother = level->smoothd;
    GpufmtGamgBegun    *begun;
    Mat                 A;
    PetscBool           noisy = PETSC_FALSE;

    PetscCall(StartsByNoise(smoother, &noisy));
    PetscCall(KSPGetOperators(smoother, &A, NULL));
    if (!noisy || !level->r || !GpufmtFormatFind(((PetscObject)A)->type_name)) continue;
    PetscCall(GpufmtGamgStartVector(gamg, mg->nlevels - 1 - k, A, level->r));
    PetscCall(KSPChebyshevEstEigSetUseNoisy(smoother, PETSC_FALSE));
    PetscCall(PetscObjectReference((PetscObject)level->r));
    PetscCall(PetscObjectReference((PetscObject)smoother));
    begun             = &gamg->begun[gamg->nbegun++];
    *begun            = (GpufmtGamgBegun){.smoother = smoother, .right_hand_side = smoother->vec_rhs};
    smoother->vec_rhs = level->r;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* what GpufmtGamgStartsBegin() has changed is as it was */
PetscErrorCode GpufmtGamgStartsEnd(GpufmtGamg *gamg)
{
  PetscFunctionBegin;
  while (gamg->nbegun) {
    GpufmtGamgBegun *begun = &gamg->begun[--gamg->nbegun];

    PetscCall(VecDestroy(&begun->smoother->vec_rhs)); /* our reference to the start vector */
    begun->smoother->vec_rhs = begun->right_hand_side;
    PetscCall(KSPChebyshevEstEigSetUseNoisy(begun->smoother, PETSC_TRUE));
    PetscCall(KSPDestroy(&begun->smoother));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
