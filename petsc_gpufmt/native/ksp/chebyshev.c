/* gpuchebyshev: KSPCHEBYSHEV of the first kind as a smoother, with all that a step does with vectors beside the product in one launch. Set-up and
   estimates of eigenvalues are PETSc's but for the solve (estimator.c). A KSP of PETSc's own type can get the same solve: GAMG knows that type by its name. */
#include "ksp/ksp.h"

/* The private context of PETSc's KSPCHEBYSHEV, from chebyshevimpl.h of PETSc 3.24 to 3.26, as far as it is read */
typedef struct {
  PetscReal        emin, emax;
  PetscReal        emin_computed, emax_computed;
  PetscReal        emin_provided, emax_provided;
  PetscReal       *betas;
  PetscInt         num_betas_alloc;
  KSP              kspest;
  PetscReal        tform[4]; /* from extreme estimates to the lower bound, and to the upper one */
  PetscInt         eststeps;
  PetscBool        usenoisy;
  KSPChebyshevKind chebykind;
} ChebyshevContext;

typedef struct {
  KSP                ksp;
  GpufmtKsp         *own;
  Mat                A;
  Vec                d;         /* NULL: 1, or what is in `inverses` */
  const PetscScalar *inverses;  /* of point blocks */
  PetscBool          fused;     /* a step was a single launch */
  PetscReal          scale, mu; /* eigenvalues of the preconditioned matrix times scale are to be within 1 / mu of 1 */
} Chebyshev;

/* ---- what PETSc knows ---- */

/* whether PETSc has just made a context as we know it */
static PetscBool LayoutIsKnown(KSP ksp)
{
  const ChebyshevContext *c = (const ChebyshevContext *)ksp->data;

  return (PetscBool)(c->emin == 0 && c->emax == 0 && c->emax_provided == 0 && !c->betas && !c->kspest && c->tform[0] == 0 &&
                     c->tform[1] == (PetscReal)0.1 && c->tform[2] == 0 && c->tform[3] == (PetscReal)1.1 && c->eststeps == 10 &&
                     c->usenoisy == PETSC_TRUE && c->chebykind == KSP_CHEBYSHEV_FIRST);
}

/* what KSPSolve_Chebyshev_FirstKind() makes of the bounds of eigenvalues: those that were given, or from estimates of its own, or of others */
static void SetBounds(Chebyshev *s)
{
  const ChebyshevContext *c    = (const ChebyshevContext *)s->ksp->data;
  PetscReal               emin = c->emin, emax = c->emax;

  if (emax == 0 && c->emax_computed != 0) emax = c->tform[2] * c->emin_computed + c->tform[3] * c->emax_computed;
  else if (emax == 0 && c->emax_provided != 0) emax = c->tform[2] * c->emin_provided + c->tform[3] * c->emax_provided;
  if (emin == 0 && c->emin_computed != 0) emin = c->tform[0] * c->emin_computed + c->tform[1] * c->emax_computed;
  else if (emin == 0 && c->emin_provided != 0) emin = c->tform[0] * c->emin_provided + c->tform[1] * c->emax_provided;
  s->scale = 2 / (emax + emin);
  s->mu    = 1 / (1 - s->scale * emin);
}

/* ---- the iteration ---- */

/* whether products by the matrix are ours, of one rank, and made where vectors are: then other plans of it can take their place */
static PetscBool MultIsOurs(const Chebyshev *s)
{
  PetscMPIInt nranks;

  if (s->A->ops->mult != MatMult_SeqAIJGpufmt) return PETSC_FALSE;
#if PetscDefined(HAVE_DEVICE)
  if (s->own->backend == GPUFMT_BACKEND_CUDA && s->A->boundtocpu) return PETSC_FALSE;
#endif
  return (PetscBool)(!MPI_Comm_size(PetscObjectComm((PetscObject)s->ksp), &nranks) && nranks == 1);
}

/* A step by one launch, where the format of the matrix has one. It reads x where others have been written, so that may not be the next iterate. */
static PetscErrorCode StepFused(Chebyshev *s, Vec x, Vec next, PetscInt n, const GpufmtKspVector vectors[], PetscBool *done)
{
  const GpufmtFused *fused = NULL;

  PetscFunctionBegin;
  *done = PETSC_FALSE;
  if (!s->own->fused || s->own->point_block || x == next || !MultIsOurs(s)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtFusedGet(s->A, s->own->backend, GPUFMT_FUSED_SMOOTH, &fused));
  if (!fused) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtKspRun(s->own->backend, &fused->answer.plan, n, vectors, NULL, &fused->lease));
  PetscCall(GpufmtRecordLaunched(s->A, s->own->backend, 1)); /* it is counted as one */
  *done = s->fused = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* next = (1 - omega) before + omega (x + scale d (b - A x)); `before` and x are 0 where they are NULL */
static PetscErrorCode Step(Chebyshev *s, Vec before, Vec x, Vec next, PetscReal omega)
{
  KSP                   ksp       = s->ksp;
  const Vec             w         = x ? ksp->work[2] : NULL;
  const PetscInt        size      = s->own->point_block;
  const GpufmtKspVector by        = size ? GpufmtArray(GPUFMT_SLOT_D, s->inverses) : GpufmtReads(GPUFMT_SLOT_D, s->d);
  const GpufmtKspVector vectors[] = {GpufmtReads(GPUFMT_SLOT_W, w),
                                     GpufmtScalar(GPUFMT_SLOT_ALPHA, before ? 1 - omega : 0),
                                     GpufmtScalar(GPUFMT_SLOT_BETA, omega),
                                     GpufmtScalar(GPUFMT_SLOT_GAMMA, omega * s->scale),
                                     GpufmtReads(GPUFMT_SLOT_U, before),
                                     GpufmtReads(GPUFMT_SLOT_X, x),
                                     by,
                                     GpufmtReads(GPUFMT_SLOT_B, ksp->vec_rhs),
                                     GpufmtWrites(GPUFMT_SLOT_Z, next)}; /* comes last: it may be one of those that are read */
  const PetscInt        n         = PETSC_STATIC_ARRAY_LENGTH(vectors);
  const PetscLogDouble  flops     = (1.0 + (size ? 2 * size - 1 : s->d != NULL) + (x ? 3 : 0) + (before ? 2 : 0)) * s->own->nrows;
  PetscBool             done      = PETSC_FALSE;

  PetscFunctionBegin;
  if (x) PetscCall(StepFused(s, x, next, n - 1, vectors + 1, &done)); /* which has no use for w */
  if (x && !done) PetscCall(GpufmtKspMult(ksp, s->own, s->A, x, w));
  if (!done) PetscCall(GpufmtKspStep(ksp, s->own, GPUFMT_CHEBYSHEV_STEP, n, vectors));
  PetscCall(GpufmtLogFlops(s->own->backend, flops));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Where iterate k lies, so that the last one is the solution: they take turns, and each may take the place of the last but one. The first one may not
   lie in that of the guess, which the second one is made of too. */
static Vec IterateAt(const KSP ksp, PetscInt k)
{
  if ((ksp->max_it - k) % 2) return ksp->work[0];
  return k == 1 && ksp->max_it > 1 && !ksp->guess_zero ? ksp->work[1] : ksp->vec_sol;
}

/* c: Chebyshev's polynomials at mu, of the degrees k - 2 and k - 1 */
static PetscErrorCode Iterate(Chebyshev *s)
{
  KSP       ksp    = s->ksp;
  Vec       before = NULL, x = ksp->guess_zero ? NULL : ksp->vec_sol;
  PetscReal c[2] = {1, s->mu}, omega = 1;

  PetscFunctionBegin;
  for (PetscInt k = 1; k <= ksp->max_it; k++) {
    const Vec next = IterateAt(ksp, k);

    if (k > 1) {
      const PetscReal of_k = 2 * s->mu * c[1] - c[0];

      omega = 2 * s->mu * c[1] / of_k;
      c[0]  = c[1];
      c[1]  = of_k;
    }
    PetscCall(Step(s, before, x, next, omega));
    before = x;
    x      = next;
  }
  ksp->its    = ksp->max_it;
  ksp->reason = KSP_CONVERGED_ITS;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---- the type ---- */

/* Why a solve is left to PETSc; NULL: it is not. Ranks need not agree: PETSc's has the same products, and nothing else that is of all ranks. */
static PetscErrorCode WhyNot(Chebyshev *s, const char **why_not)
{
  const KSP ksp       = s->ksp;
  const Vec vectors[] = {ksp->vec_sol, ksp->vec_rhs, ksp->work[0], ksp->work[1], ksp->work[2]};
  PetscBool usable, is_diagonal = PETSC_FALSE;
  int       backend;

  PetscFunctionBegin;
  *why_not = NULL;
  if (PetscDefined(USE_COMPLEX)) *why_not = GPUFMT_KSP_COMPLEX;
  else if (ksp->normtype != KSP_NORM_NONE) *why_not = "norms are wanted (-ksp_norm_type none)";
  else if (((const ChebyshevContext *)ksp->data)->chebykind != KSP_CHEBYSHEV_FIRST) *why_not = "the polynomial is not of the first kind";
  else if (ksp->max_it < 1) *why_not = "no iterations are wanted";
  else if (ksp->err_hist) *why_not = "norms of errors are wanted";
  else if (ksp->transpose_solve) *why_not = "it is with the transposed matrix";
  if (*why_not) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtKspBackendHere(PETSC_STATIC_ARRAY_LENGTH(vectors), vectors, &backend, &usable));
  if (!usable || backend != s->own->backend) *why_not = GPUFMT_KSP_VECTORS_ELSEWHERE;
  if (*why_not) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtKspKeep(ksp, s->own, GpufmtKspDiagonal(ksp, &s->d, &is_diagonal)));
  if (!is_diagonal) PetscCall(GpufmtKspKeep(ksp, s->own, GpufmtKspInversesGet(ksp, s->own, &s->inverses, why_not)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Plans for the preconditioner as it is. Collective. */
static PetscErrorCode PlansGet(KSP ksp, GpufmtKsp *own, int backend)
{
  PetscInt       point_block;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(GpufmtKspPointBlock(ksp, &point_block));
  if (point_block != own->point_block) PetscCall(GpufmtLeaseDrop(&own->lease));
  own->point_block = point_block;
  ierr             = GpufmtKspPlansGet(ksp, own, GPUFMT_KRYLOV_CHEBYSHEV, backend);
  if (ierr) own->point_block = -1; /* the next solve asks again */
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The type of the preconditioner, or the block size of its matrix, may be another since the set-up, on all ranks. */
static PetscErrorCode PlansUpdate(KSP ksp, GpufmtKsp *own)
{
  PetscInt point_block;

  PetscFunctionBegin;
  PetscCall(GpufmtKspPointBlock(ksp, &point_block));
  if (own->backend >= 0 && point_block != own->point_block) PetscCall(PlansGet(ksp, own, own->backend));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* PETSc's reads the guess, which KSPSolve() has not set to zero */
static PetscErrorCode Leave(Chebyshev *s, const char why_not[])
{
  PetscFunctionBegin;
  if (s->ksp->guess_zero) PetscCall(VecSet(s->ksp->vec_sol, 0.0));
  PetscCall(GpufmtKspLeave(s->ksp, s->own, why_not));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What fails on one rank fails there, once its products with others are done. */
static PetscErrorCode KSPSolve_GPUCHEBYSHEV(KSP ksp)
{
  static const char *const how[2][2] = {
    {"each step a product and one pass over vectors on the host",   "steps in the product on the host"  },
    {"each step a product and one pass over vectors on the device", "steps in the product on the device"}
  };
  Chebyshev   s = {.ksp = ksp};
  const char *why_not;

  PetscFunctionBegin;
  PetscCall(GpufmtKspGet(ksp, &s.own));
  s.own->failed = PETSC_SUCCESS;
  PetscCall(PlansUpdate(ksp, s.own));
  PetscCall(WhyNot(&s, &why_not));
  if (why_not) PetscCall(Leave(&s, why_not));
  else {
    PetscCall(PCGetOperators(ksp->pc, &s.A, NULL));
    SetBounds(&s);
    PetscCall(Iterate(&s));
    PetscCall(PetscStrncpy(s.own->last, how[s.own->backend == GPUFMT_BACKEND_CUDA][s.fused], sizeof(s.own->last)));
  }
  PetscCall(s.own->failed);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Our solve takes the place of PETSc's, which each set-up chooses. It is made ready here, with all ranks: a smoother runs often, and waits for nobody but in
   products. */
static PetscErrorCode GetReady(KSP ksp, GpufmtKsp *own)
{
  int       backend;
  PetscBool usable;

  PetscFunctionBegin;
  own->parent.solve = ksp->ops->solve;
  ksp->ops->solve   = KSPSolve_GPUCHEBYSHEV;
  PetscCall(GpufmtKspBackend(3, ksp->work, &backend, &usable));
  own->failed = PETSC_SUCCESS;
  if (usable && !PetscDefined(USE_COMPLEX)) PetscCall(PlansGet(ksp, own, backend));
  else own->backend = -1;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* PETSc's set-up makes the solver that estimates eigenvalues, and gives it type and options, if it has to. That is done here before it, as there, so that the
   solve is ours. */
static PetscErrorCode EstimatorReady(KSP ksp)
{
  ChebyshevContext *c = (ChebyshevContext *)ksp->data;
  const char       *prefix;
  Mat               A, made_from;
  PetscBool         is_jacobi, known, definite, named = PETSC_FALSE;

  PetscFunctionBegin;
  PetscCall(PetscObjectTypeCompare((PetscObject)ksp->pc, PCJACOBI, &is_jacobi));
  if (!is_jacobi) PetscFunctionReturn(PETSC_SUCCESS);
  if ((c->emin == 0 || c->emax == 0) && !c->kspest) PetscCall(KSPChebyshevEstEigSet(ksp, PETSC_DECIDE, PETSC_DECIDE, PETSC_DECIDE, PETSC_DECIDE));
  if (!c->kspest) PetscFunctionReturn(PETSC_SUCCESS); /* others have found the eigenvalues */
  PetscCall(KSPGetOperators(ksp, &A, &made_from));
  PetscCall(MatIsSPDKnown(made_from, &known, &definite));
  PetscCall(KSPGetOptionsPrefix(c->kspest, &prefix));
  if (known && definite) PetscCall(PetscOptionsHasName(NULL, prefix, "-ksp_type", &named));
  if (known && definite && !named) PetscCall(KSPSetType(c->kspest, KSPCG));
  if (ksp->setfromoptionscalled && !c->kspest->setfromoptionscalled) {
    PetscCall(KSPSetPC(c->kspest, ksp->pc));
    PetscCall(KSPSetFromOptions(c->kspest));
    PetscCall(KSPSetPC(c->kspest, NULL));
  }
  if (!((PetscObject)c->kspest)->type_name) PetscCall(KSPSetType(c->kspest, KSPGMRES)); /* as KSPSetUp() */
  PetscCall(GpufmtKspEstimatorTake(c->kspest, A));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode KSPSetUp_GPUCHEBYSHEV(KSP ksp)
{
  GpufmtKsp *own;

  PetscFunctionBegin;
  PetscCall(GpufmtKspGet(ksp, &own));
  PetscCall(EstimatorReady(ksp));
  PetscCall((*own->parent.setup)(ksp));
  PetscCall(GetReady(ksp, own));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode KSPSetFromOptions_GPUCHEBYSHEV(KSP ksp, PetscOptionItems PetscOptionsObject)
{
  GpufmtKsp *own;

  PetscFunctionBegin;
  PetscCall(GpufmtKspGet(ksp, &own));
  PetscCall((*own->parent.setfromoptions)(ksp, PetscOptionsObject));
  PetscOptionsHeadBegin(PetscOptionsObject, "Options of solvers of petsc_gpufmt");
  PetscCall(
    PetscOptionsBool("-ksp_" KSPGPUCHEBYSHEV "_fused", "Make steps in the product, where the format can", NULL, own->fused, &own->fused, NULL));
  PetscOptionsHeadEnd();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* On the host a step in the product takes longer than two passes: vectors are in its caches. */
static PetscErrorCode Take(KSP ksp)
{
  const PetscBool set_up = (PetscBool)(ksp->work != NULL);
  GpufmtKsp      *own;

  PetscFunctionBegin;
  PetscCall(GpufmtKspTake(ksp, KSPSolve_GPUCHEBYSHEV, KSPSetFromOptions_GPUCHEBYSHEV));
  PetscCall(GpufmtKspGet(ksp, &own));
  own->fused          = GpufmtDeviceUsable();
  ksp->ops->setup     = KSPSetUp_GPUCHEBYSHEV;
  ksp->ops->solve     = own->parent.solve;
  ksp->guess_not_read = PETSC_TRUE; /* where it is zero */
  if (set_up) PetscCall(GetReady(ksp, own));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A KSP of PETSc's type gets our solve and keeps its name, with all that it knows. Where PETSc's contexts are not as we know them, or it is of another
   type, or scalars are complex, nothing is done. */
PetscErrorCode GpufmtKspChebyshevTake(KSP ksp)
{
  GpufmtKsp *own;
  KSP        fresh;
  PetscBool  is_chebyshev, known;

  PetscFunctionBegin;
  PetscCall(PetscObjectTypeCompare((PetscObject)ksp, KSPCHEBYSHEV, &is_chebyshev));
  PetscCall(GpufmtKspGet(ksp, &own));
  if (!is_chebyshev || own || PetscDefined(USE_COMPLEX)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(KSPCreate(PETSC_COMM_SELF, &fresh));
  PetscCall(KSPSetType(fresh, KSPCHEBYSHEV));
  known = LayoutIsKnown(fresh);
  PetscCall(KSPDestroy(&fresh));
  if (!known) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(Take(ksp));
  PetscCall(GpufmtKspGet(ksp, &own)); /* options have been read before */
  PetscCall(PetscOptionsGetBool(((PetscObject)ksp)->options, ((PetscObject)ksp)->prefix, "-ksp_" KSPGPUCHEBYSHEV "_fused", &own->fused, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PETSC_EXTERN PetscErrorCode KSPCreate_Chebyshev(KSP);

PetscErrorCode KSPCreate_GPUCHEBYSHEV(KSP ksp)
{
  PetscFunctionBegin;
  PetscCall(KSPCreate_Chebyshev(ksp));
  PetscCheck(LayoutIsKnown(ksp), PetscObjectComm((PetscObject)ksp), PETSC_ERR_SUP,
             "-ksp_type " KSPGPUCHEBYSHEV ": KSPCHEBYSHEV of PETSc %d.%d.%d is not as petsc_gpufmt knows it; use -ksp_type chebyshev",
             PETSC_VERSION_MAJOR, PETSC_VERSION_MINOR, PETSC_VERSION_SUBMINOR);
  PetscCall(Take(ksp));
  PetscFunctionReturn(PETSC_SUCCESS);
}
