/* gpubcgs: KSPBCGS whose scalars stay where its vectors are, queued as gpucg is; this rank comes to the conclusions that KSPBCGS comes to, in its order. */
#include "ksp/ksp.h"

/* The private context of PETSc's KSPBCGS, from bcgsimpl.h of PETSc 3.24 to 3.26 */
typedef struct {
  Vec guess; /* preconditioned on the right: the solution is what is found, added to it */
} BcgsContext;

typedef struct {
  KSP             ksp;
  GpufmtKsp      *own;
  BcgsContext    *bcgs;
  Mat             A;
  PetscBool       is_diagonal;     /* the preconditioner */
  Vec             r, rp, v, t, p;  /* s takes the place of r */
  Vec             between;         /* preconditioner and matrix, the one and then the other */
  Vec             left, right, dz; /* the diagonal on its side, or NULL; what is made by it on the right */
  PetscMPIInt     nranks;
  GpufmtKspQueue  queue;
  GpufmtBcgsState state; /* as it was when it was last read */
  PetscReal       norm;  /* as in KSPBCGS: dp */
} Bcgs;

/* ---- what is queued ---- */

/* a step that makes `n` sums, from `first` on, and its like that makes those of all ranks by itself */
typedef struct {
  int step, step_of_ranks, first, n;
} SumsStep;

static const SumsStep shadow_step = {GPUFMT_BCGS_SHADOW, GPUFMT_BCGS_SHADOW_OF_RANKS, 0, 1};
static const SumsStep dots_step   = {GPUFMT_BCGS_DOTS, GPUFMT_BCGS_DOTS_OF_RANKS, 1, 3};
static const SumsStep update_step = {GPUFMT_BCGS_UPDATE, GPUFMT_BCGS_UPDATE_OF_RANKS, 4, 2};

/* sums of all ranks */
static PetscErrorCode MakeSums(Bcgs *s, const SumsStep *sums, PetscInt n, const GpufmtKspVector vectors[])
{
  GpufmtKsp *const own   = s->own;
  GpufmtBcgsState *state = (GpufmtBcgsState *)own->plans.state;

  PetscFunctionBegin;
  if (s->nranks > 1 && GpufmtKspSumsAreLaunched(own)) {
    PetscCall(GpufmtKspStepOfRanks(s->ksp, own, &own->plans.steps[sums->step_of_ranks], &own->lease, n, vectors));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(GpufmtKspStep(s->ksp, own, sums->step, n, vectors));
  if (s->nranks > 1) PetscCall(GpufmtKspSum(s->ksp, own, sums->n, state->sums + sums->first));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* w = K u, or as much of it as kernels leave to others */
static PetscErrorCode Multiply(Bcgs *s, Vec u, Vec w)
{
  PetscFunctionBegin;
  if (s->is_diagonal) PetscCall(GpufmtKspMult(s->ksp, s->own, s->A, s->dz ? s->dz : u, w));
  else if (s->ksp->pc_side == PC_RIGHT) {
    PetscCall(GpufmtKspPCApply(s->ksp, s->own, u, s->between));
    PetscCall(GpufmtKspMult(s->ksp, s->own, s->A, s->between, w));
  } else {
    PetscCall(GpufmtKspMult(s->ksp, s->own, s->A, u, s->between));
    PetscCall(GpufmtKspPCApply(s->ksp, s->own, s->between, w));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static GpufmtKspVector Product(const Bcgs *s, Vec product)
{
  return s->left ? GpufmtChanges(GPUFMT_SLOT_W, product) : GpufmtReads(GPUFMT_SLOT_W, product);
}

/* one iteration, or its record in a graph */
static PetscErrorCode Iterate(void *method)
{
  Bcgs *const           s           = (Bcgs *)method;
  const GpufmtKspVector direction[] = {GpufmtChanges(GPUFMT_SLOT_P, s->p), GpufmtReads(GPUFMT_SLOT_R, s->r), GpufmtReads(GPUFMT_SLOT_W, s->v),
                                       GpufmtReads(GPUFMT_SLOT_D, s->right), GpufmtWrites(GPUFMT_SLOT_Z, s->dz)};
  const GpufmtKspVector shadow[]    = {Product(s, s->v), GpufmtReads(GPUFMT_SLOT_Y, s->rp), GpufmtReads(GPUFMT_SLOT_D, s->left)};
  const GpufmtKspVector half[]      = {GpufmtChanges(GPUFMT_SLOT_R, s->r), GpufmtReads(GPUFMT_SLOT_W, s->v), GpufmtReads(GPUFMT_SLOT_D, s->right),
                                       GpufmtChanges(GPUFMT_SLOT_Z, s->dz)};
  const GpufmtKspVector dots[]      = {Product(s, s->t), GpufmtReads(GPUFMT_SLOT_R, s->r), GpufmtReads(GPUFMT_SLOT_D, s->left)};
  const GpufmtKspVector update[]    = {GpufmtChanges(GPUFMT_SLOT_X, s->ksp->vec_sol), GpufmtChanges(GPUFMT_SLOT_R, s->r),
                                       GpufmtReads(GPUFMT_SLOT_P, s->p), GpufmtReads(GPUFMT_SLOT_W, s->t), GpufmtReads(GPUFMT_SLOT_Y, s->rp)};

  PetscFunctionBegin;
  PetscCall(GpufmtKspStep(s->ksp, s->own, GPUFMT_BCGS_DIRECTION, PETSC_STATIC_ARRAY_LENGTH(direction), direction));
  PetscCall(Multiply(s, s->p, s->v));
  PetscCall(MakeSums(s, &shadow_step, PETSC_STATIC_ARRAY_LENGTH(shadow), shadow));
  PetscCall(GpufmtKspStep(s->ksp, s->own, GPUFMT_BCGS_HALF, PETSC_STATIC_ARRAY_LENGTH(half), half));
  PetscCall(Multiply(s, s->r, s->t));
  PetscCall(MakeSums(s, &dots_step, PETSC_STATIC_ARRAY_LENGTH(dots), dots));
  PetscCall(MakeSums(s, &update_step, PETSC_STATIC_ARRAY_LENGTH(update), update));
  if (s->nranks > 1 && !GpufmtKspSumsAreLaunched(s->own)) PetscCall(GpufmtKspStep(s->ksp, s->own, GPUFMT_BCGS_END, 0, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---- what KSPBCGS does with scalars ---- */

static PetscErrorCode Breakdown(Bcgs *s, const char error[], const char info[])
{
  KSP ksp = s->ksp;

  PetscFunctionBegin;
  PetscCheck(!ksp->errorifnotconverged, PetscObjectComm((PetscObject)ksp), PETSC_ERR_NOT_CONVERGED, "%s", error);
  ksp->reason = KSP_DIVERGED_BREAKDOWN;
  PetscCall(PetscInfo(ksp, "%s\n", info));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The iteration has ended before its last sums. */
static PetscErrorCode Unfinished(Bcgs *s)
{
  KSP               ksp = s->ksp;
  const PetscScalar d1  = (PetscScalar)s->state.sums[0];

  PetscFunctionBegin;
  KSPCheckDot(ksp, d1);
  if (d1 == 0.0) {
    PetscCall(Breakdown(s, "KSPSolve breakdown due to zero inner product", "Breakdown due to zero inner product"));
  } else if (s->state.sums[3] != 0.0) {
    PetscCall(Breakdown(s, "KSPSolve has failed due to singular preconditioned operator", "Failed due to singular preconditioned operator"));
  } else { /* s is 0: x is the solution */
    ksp->its++;
    ksp->rnorm  = 0.0;
    ksp->reason = KSP_CONVERGED_RTOL;
    PetscCall(KSPLogResidualHistory(ksp, s->norm));
    PetscCall(KSPMonitor(ksp, s->queue.i + 1, 0.0));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* a norm as KSPBCGS finds it, after so many iterations */
static PetscErrorCode TestNorm(Bcgs *s, PetscInt iterations, PetscReal norm)
{
  KSP ksp = s->ksp;

  PetscFunctionBegin;
  if (ksp->normtype != KSP_NORM_NONE) KSPCheckNorm(ksp, norm);
  ksp->its   = iterations;
  ksp->rnorm = s->norm = norm;
  PetscCall(KSPLogResidualHistory(ksp, norm));
  PetscCall(KSPMonitor(ksp, iterations, norm));
  PetscCall((*ksp->converged)(ksp, iterations, norm, &ksp->reason, ksp->cnvP));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Solve(Bcgs *s)
{
  KSP    ksp = s->ksp;
  double rho = s->state.rho;

  PetscFunctionBegin;
  do {
    const GpufmtBcgsRecord *record;

    PetscCall(GpufmtKspFetch(&s->queue));
    PetscCall(GpufmtLogFlops(s->own->backend, 24.0 * s->own->nrows));
    if (s->state.iteration == s->queue.i) PetscCall(Unfinished(s));
    if (ksp->reason) break;
    record = &s->state.records[s->queue.i % GPUFMT_KRYLOV_RECORDS];
    PetscCall(TestNorm(s, s->queue.i + 1, (PetscReal)record->norm));
    if (ksp->reason) break;
    if (rho == 0.0) {
      PetscCall(Breakdown(s, "KSPSolve breakdown due to zero inner product", "Breakdown due to zero rho inner product"));
      break;
    }
    rho = record->rho;
    s->queue.i++;
  } while (s->queue.i < ksp->max_it);
  if (s->queue.i >= ksp->max_it) ksp->reason = KSP_DIVERGED_ITS;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---- beginning and end ---- */

/* The residual, and on the right a solution that begins with 0. A guess of an earlier solve goes, or it would be added to this one's solution. */
static PetscErrorCode FirstResidual(Bcgs *s)
{
  KSP ksp = s->ksp;
  Vec b   = ksp->pc_side == PC_RIGHT ? s->r : s->t;

  PetscFunctionBegin;
  PetscCall(VecDestroy(&s->bcgs->guess));
  if (!ksp->guess_zero) {
    PetscCall(GpufmtKspMult(ksp, s->own, s->A, ksp->vec_sol, b));
    PetscCall(VecAYPX(b, -1.0, ksp->vec_rhs));
  } else PetscCall(GpufmtKspCopy(s->own->backend, ksp->vec_rhs, b));
  if (ksp->pc_side == PC_LEFT) PetscCall(GpufmtKspPCApply(ksp, s->own, b, s->r));
  PetscCall(VecFlag(s->r, ksp->reason == KSP_DIVERGED_PC_FAILED || s->own->failed)); /* on some ranks alone, it may be: the norm tells all */
  if (ksp->pc_side == PC_RIGHT && !ksp->guess_zero) {
    PetscCall(VecDuplicate(ksp->vec_sol, &s->bcgs->guess));
    PetscCall(VecCopy(ksp->vec_sol, s->bcgs->guess));
    PetscCall(VecSet(ksp->vec_sol, 0.0));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the state before the first iteration, once the first norm is known */
static PetscErrorCode FirstNorm(Bcgs *s)
{
  KSP              ksp   = s->ksp;
  GpufmtBcgsState *state = &s->state;
  PetscScalar      rho;
  PetscReal        norm = 0.0;

  PetscFunctionBegin;
  if (ksp->normtype != KSP_NORM_NONE) PetscCall(VecNorm(s->r, NORM_2, &norm));
  PetscCall(TestNorm(s, 0, norm));
  if (ksp->reason) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(VecCopy(s->r, s->rp));
  PetscCall(VecDot(s->r, s->rp, &rho));
  *state = (GpufmtBcgsState){.rho        = (double)PetscRealPart(rho),
                             .limit      = -1.0,
                             .divergence = PETSC_INFINITY,
                             .most       = PetscMax(1, ksp->max_it), /* KSPBCGS makes one where none is wanted */
                             .norm       = (int64_t)ksp->normtype,
                             .alone      = s->nranks == 1};
  if (ksp->normtype != KSP_NORM_NONE && ksp->converged == KSPConvergedDefault) {
    state->limit      = ksp->ttol;
    state->divergence = ksp->divtol * ksp->rnorm0;
  }
  PetscCall(GpufmtCopyToBackend(s->own->backend, s->own->plans.state, state, offsetof(GpufmtBcgsState, records)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The solution of the matrix, of that of the preconditioned matrix. */
static PetscErrorCode LastSolution(Bcgs *s, PetscBool begun)
{
  KSP ksp = s->ksp;

  PetscFunctionBegin;
  if (begun && ksp->pc_side == PC_RIGHT) {
    PetscCall(GpufmtKspPCApply(ksp, s->own, ksp->vec_sol, s->t));
    PetscCall(VecCopy(s->t, ksp->vec_sol));
  }
  if (s->bcgs->guess) PetscCall(VecAXPY(ksp->vec_sol, 1.0, s->bcgs->guess));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* why a solve is left to KSPBCGS; NULL: it is not */
static PetscErrorCode WhyNot(KSP ksp, int *backend, const char **why_not)
{
  const Vec vectors[] = {ksp->vec_sol, ksp->vec_rhs, ksp->work[0], ksp->work[1], ksp->work[2], ksp->work[3], ksp->work[4], ksp->work[5]};
  PetscBool usable;

  PetscFunctionBegin;
  PetscCall(GpufmtKspBackend(PETSC_STATIC_ARRAY_LENGTH(vectors), vectors, backend, &usable));
  if (ksp->chknorm > 0) *why_not = "norms are not checked in all iterations (-ksp_check_norm_iteration)";
  else if (ksp->transpose_solve) *why_not = "it is with the transposed matrix";
  else if (!usable) *why_not = GPUFMT_KSP_VECTORS_ELSEWHERE;
  else *why_not = NULL;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Prepare(Bcgs *s, int backend)
{
  KSP ksp = s->ksp;
  Vec d   = NULL;

  PetscFunctionBegin;
  PetscCall(PCGetOperators(ksp->pc, &s->A, NULL));
  PetscCallMPI(MPI_Comm_size(PetscObjectComm((PetscObject)ksp), &s->nranks));
  PetscCall(GpufmtKspKeep(ksp, s->own, GpufmtKspDiagonal(ksp, &d, &s->is_diagonal)));
  PetscCall(GpufmtKspPlansGet(ksp, s->own, GPUFMT_KRYLOV_BCGS, backend));
  PetscCall(GpufmtKspStatesReserve(ksp, s->own, sizeof(s->state)));
  if (ksp->pc_side == PC_RIGHT) s->right = d;
  else s->left = d;
  if (s->right) s->dz = s->between;
  PetscCall(PetscSNPrintf(s->own->last, sizeof(s->own->last), "scalars on the %s, %s", backend == GPUFMT_BACKEND_CUDA ? "device" : "host",
                          s->is_diagonal ? "the preconditioner in the kernels" : "with PCApply"));
  PetscCall(GpufmtKspRecordReady(ksp, s->own, s->A, s->is_diagonal));
  s->queue = (GpufmtKspQueue){
    .ksp       = ksp,
    .own       = s->own,
    .iterate   = Iterate,
    .method    = s,
    .A         = s->A,
    .nvectors  = 8,
    .vectors   = {GpufmtChanges(GPUFMT_SLOT_X, ksp->vec_sol), GpufmtChanges(GPUFMT_SLOT_R, s->r), GpufmtReads(GPUFMT_SLOT_Y, s->rp),
                  GpufmtChanges(GPUFMT_SLOT_W, s->v), GpufmtChanges(GPUFMT_SLOT_W, s->t), GpufmtChanges(GPUFMT_SLOT_P, s->p),
                  GpufmtReads(GPUFMT_SLOT_D, d), GpufmtChanges(GPUFMT_SLOT_Z, s->dz)},
    .state     = &s->state,
    .iteration = &s->state.iteration,
    .stop      = &s->state.stop,
    .ahead     = 1,
  };
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode KSPSolve_GPUBCGS(KSP ksp)
{
  Bcgs        s = {.ksp     = ksp,
                   .bcgs    = (BcgsContext *)ksp->data,
                   .r       = ksp->work[0],
                   .rp      = ksp->work[1],
                   .v       = ksp->work[2],
                   .t       = ksp->work[3],
                   .between = ksp->work[4],
                   .p       = ksp->work[5]};
  int         backend;
  const char *why_not;
  PetscBool   begun;

  PetscFunctionBegin;
  PetscCall(GpufmtKspGet(ksp, &s.own));
  PetscCall(WhyNot(ksp, &backend, &why_not));
  if (why_not) {
    PetscCall(GpufmtKspLeave(ksp, s.own, why_not));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(Prepare(&s, backend));
  PetscCall(FirstResidual(&s));
  PetscCall(FirstNorm(&s));
  begun = (PetscBool)!ksp->reason;
  if (begun) PetscCall(Solve(&s));
  PetscCall(LastSolution(&s, begun));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode KSPSetFromOptions_GPUBCGS(KSP ksp, PetscOptionItems PetscOptionsObject)
{
  return GpufmtKspOptions(ksp, PetscOptionsObject, KSPGPUBCGS, PETSC_TRUE);
}

PETSC_EXTERN PetscErrorCode KSPCreate_BCGS(KSP);

PetscErrorCode KSPCreate_GPUBCGS(KSP ksp)
{
  PetscFunctionBegin;
  PetscCall(KSPCreate_BCGS(ksp));
  PetscCall(GpufmtKspTake(ksp, KSPSolve_GPUBCGS, KSPSetFromOptions_GPUBCGS));
  PetscFunctionReturn(PETSC_SUCCESS);
}
