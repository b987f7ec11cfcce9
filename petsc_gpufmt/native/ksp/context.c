/* What solvers of ours have in common: a KSP of PETSc with another solve, and what belongs to it. */
#include "ksp/ksp.h"

static const char container[] = "petsc_gpufmt_ksp";

static PetscErrorCode Clear(GpufmtKsp *own)
{
  PetscFunctionBegin;
  if (own->estimates) PetscCall(GpufmtKspEstimatorKeep(own));
  PetscCall(GpufmtKspQueueClear(own));
  PetscCall(GpufmtLeaseDrop(&own->lease));
  PetscCall(GpufmtLeaseDrop(&own->inner.lease));
  PetscCall(GpufmtBufferFree(&own->inverses.buffer));
  own->inverses.from = NULL;
  own->last[0]       = '\0';
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Destroy(GpufmtContextAddress address)
{
  GpufmtKsp **own = (GpufmtKsp **)address;

  PetscFunctionBegin;
  PetscCall(Clear(*own));
  PetscCall(PetscFree(*own));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtKspGet(KSP ksp, GpufmtKsp **own)
{
  PetscFunctionBegin;
  PetscCall(PetscObjectContainerQuery((PetscObject)ksp, container, (void *)own));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* vectors may come with other sizes next */
static PetscErrorCode KSPReset_Gpufmt(KSP ksp)
{
  GpufmtKsp *own;

  PetscFunctionBegin;
  PetscCall(GpufmtKspGet(ksp, &own));
  PetscCall(Clear(own));
  if (own->parent.reset) PetscCall((*own->parent.reset)(ksp));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* another type follows, or the end */
static PetscErrorCode KSPDestroy_Gpufmt(KSP ksp)
{
  GpufmtKsp *own;
  PetscErrorCode (*destroy)(KSP);

  PetscFunctionBegin;
  PetscCall(GpufmtKspGet(ksp, &own));
  destroy = own->parent.destroy;
  PetscCall(GpufmtJacobiLeave());
  PetscCall(PetscObjectCompose((PetscObject)ksp, container, NULL));
  PetscCall((*destroy)(ksp));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode KSPView_Gpufmt(KSP ksp, PetscViewer viewer)
{
  GpufmtKsp *own;
  PetscBool  isascii;

  PetscFunctionBegin;
  PetscCall(GpufmtKspGet(ksp, &own));
  if (own->parent.view) PetscCall((*own->parent.view)(ksp, viewer));
  PetscCall(PetscObjectTypeCompare((PetscObject)viewer, PETSCVIEWERASCII, &isascii));
  if (isascii && own->last[0]) PetscCall(PetscViewerASCIIPrintf(viewer, "  petsc_gpufmt: %s\n", own->last));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A failure in a solve. On several ranks it is kept for the end, and all that this rank adds up from then on is no number: so the others, who wait for
   its sums, come to an end in the same iteration. */
PetscErrorCode GpufmtKspKeep(KSP ksp, GpufmtKsp *own, PetscErrorCode ierr)
{
  PetscMPIInt nranks;

  PetscFunctionBegin;
  if (PetscLikely(!ierr)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCallMPI(MPI_Comm_size(PetscObjectComm((PetscObject)ksp), &nranks));
  if (nranks == 1) PetscCall(ierr);
  if (!own->failed) own->failed = ierr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A solve; what was kept of one rank fails on all. */
static PetscErrorCode KSPSolve_Gpufmt(KSP ksp)
{
  GpufmtKsp     *own;
  Mat            A, made_from;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(GpufmtKspGet(ksp, &own));
  if (PetscDefined(USE_COMPLEX)) {
    PetscCall(GpufmtKspLeave(ksp, own, GPUFMT_KSP_COMPLEX));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(PCGetOperators(ksp->pc, &A, &made_from));
  if (A == made_from) PetscCall(GpufmtKspJacobiTake(ksp->pc)); /* A is multiplied next, so it may be stored for its diagonal */
  own->failed = PETSC_SUCCESS;
  ierr        = (*own->solve)(ksp);
  PetscCall(GpufmtKspStatesDrop(own));
  if (!ierr) ierr = GpufmtAgree((PetscObject)ksp, "A solve", own->failed, 0, NULL);
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A KSP that PETSc has just created gets our functions, and what belongs to them. Collective, and so is the lack of memory for it. */
PetscErrorCode GpufmtKspTake(KSP ksp, PetscErrorCode (*solve)(KSP), PetscErrorCode (*options)(KSP, PetscOptionItems))
{
  GpufmtKsp     *own = NULL;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  ierr = GpufmtAgree((PetscObject)ksp, "The making of a solver", PetscNew(&own), 0, NULL);
  if (ierr) PetscCall(PetscFree(own));
  PetscCall(ierr);
  own->parent = *ksp->ops;
  own->graphs = GpufmtDeviceUsable();
  PetscCall(PetscObjectContainerCompose((PetscObject)ksp, container, own, Destroy));
  GpufmtJacobiUse();
  own->solve               = solve;
  ksp->ops->solve          = KSPSolve_Gpufmt;
  ksp->ops->setfromoptions = options;
  ksp->ops->view           = KSPView_Gpufmt;
  ksp->ops->reset          = KSPReset_Gpufmt;
  ksp->ops->destroy        = KSPDestroy_Gpufmt;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The solve is PETSc's, for a reason that -info and -ksp_view say. */
PetscErrorCode GpufmtKspLeave(KSP ksp, GpufmtKsp *own, const char reason[])
{
  PetscFunctionBegin;
  PetscCall(PetscSNPrintf(own->last, sizeof(own->last), "solved by PETSc's own method, because %s", reason));
  PetscCall(PetscInfo(ksp, "%s\n", own->last));
  PetscCall((*own->parent.solve)(ksp));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* a test of convergence whose solve has begun before that of the method which calls it */
typedef struct {
  PetscInt before; /* iterations */
  PetscErrorCode (*test)(KSP, PetscInt, PetscReal, KSPConvergedReason *, void *);
  void *context;
} LaterTest;

static PetscErrorCode ConvergedLater(KSP ksp, PetscInt n, PetscReal norm, KSPConvergedReason *reason, void *context)
{
  const LaterTest *later = (const LaterTest *)context;

  PetscFunctionBegin;
  ksp->max_it += later->before;
  PetscCall((*later->test)(ksp, later->before + n, norm, reason, later->context));
  ksp->max_it -= later->before;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* PETSc's method goes on from the solution as it is, with the iterations that are left, for a reason that -info and -ksp_view say. What has failed on some
   rank so far fails on all. Collective. */
PetscErrorCode GpufmtKspGoOn(KSP ksp, GpufmtKsp *own, const char reason[])
{
  LaterTest       later      = {.before = ksp->its, .test = ksp->converged, .context = ksp->cnvP};
  const PetscInt  most       = ksp->max_it;
  const PetscBool guess_zero = ksp->guess_zero;
  PetscErrorCode  ierr;
  size_t          length;

  PetscFunctionBegin;
  PetscCall(GpufmtAgree((PetscObject)ksp, "The beginning of a solve", own->failed, 0, NULL));
  PetscCall(PetscStrlen(own->last, &length));
  PetscCall(PetscSNPrintf(own->last + length, sizeof(own->last) - length, "; from iteration %" PetscInt_FMT " on PETSc's own method, because %s",
                          ksp->its, reason));
  PetscCall(PetscInfo(ksp, "%s\n", own->last));
  ksp->guess_zero = PETSC_FALSE;
  ksp->max_it     = most - later.before;
  ksp->converged  = ConvergedLater;
  ksp->cnvP       = &later;
  ierr            = (*own->parent.solve)(ksp);
  ksp->guess_zero = guess_zero;
  ksp->max_it     = most;
  ksp->converged  = later.test;
  ksp->cnvP       = later.context;
  ksp->its += later.before;
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtKspSetUp(void)
{
  PetscFunctionBegin;
  PetscCall(KSPRegister(KSPGPUBCGS, KSPCreate_GPUBCGS));
  PetscCall(KSPRegister(KSPGPUCG, KSPCreate_GPUCG));
  PetscCall(KSPRegister(KSPGPUCHEBYSHEV, KSPCreate_GPUCHEBYSHEV));
  PetscCall(KSPRegister(KSPGPUGMRES, KSPCreate_GPUGMRES));
  PetscCall(KSPRegister(KSPGPUFGMRES, KSPCreate_GPUFGMRES));
  PetscCall(KSPRegister(KSPMIXEDCG, KSPCreate_MIXEDCG));
  PetscFunctionReturn(PETSC_SUCCESS);
}
