/* Products with vectors that solvers record in graphs, with the dot product that conjugate gradients want where the formats make it beside. A parallel
   product is recorded where its halo exchange is made by kernels: of an even number of products, since two ghost vectors take turns. */
#include "matrix/matrix.h"

typedef struct {
  Mat         diag, offdiag; /* offdiag is NULL in a sequential matrix */
  GpufmtPeer *peer;          /* of the halo exchange */
} Parts;

static PetscErrorCode IsParallel(Mat A, PetscBool *parallel)
{
  PetscFunctionBegin;
  PetscCall(PetscStrbeginswith(((PetscObject)A)->type_name, MATMPIAIJ, parallel));
  if (!GpufmtFormatFind(((PetscObject)A)->type_name)) *parallel = PETSC_FALSE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PartsFind(Mat A, Parts *p, PetscBool *found)
{
  GpufmtHaloParts   halo_parts;
  const Mat_Gpufmt *gpufmt;
  PetscBool         parallel;

  PetscFunctionBegin;
  *p     = (Parts){.diag = A};
  *found = (PetscBool)(GpufmtSeqData(A) && A->ops->mult == MatMult_SeqAIJGpufmt);
  PetscCall(IsParallel(A, &parallel));
  if (!parallel) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtParallelParts(A, &p->diag, &p->offdiag, &halo_parts));
  gpufmt = (Mat_Gpufmt *)A->spptr;
  if (gpufmt->agreed[0] && gpufmt->halo->mode == &gpufmt_halo_peer) p->peer = (GpufmtPeer *)gpufmt->halo->data;
  *found = (PetscBool)(p->peer && GpufmtSeqData(p->diag) && GpufmtSeqData(p->offdiag));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The stores of both blocks are those of their values; and plans with a dot product, if both have one. A rank may fail alone. */
static PetscErrorCode StoresGet(const Parts *p, int backend, PetscBool *dots)
{
  GpufmtStore       *store;
  const GpufmtFused *fused;

  PetscFunctionBegin;
  PetscCall(GpufmtStoreGet(p->diag, GpufmtSeqData(p->diag), backend, PETSC_FALSE, &store));
  if (p->offdiag) PetscCall(GpufmtStoreGet(p->offdiag, GpufmtSeqData(p->offdiag), backend, PETSC_FALSE, &store));
  *dots = PetscDefined(USE_REAL_DOUBLE); /* else they are not of the type of solvers' sums */
  if (*dots) {
    PetscCall(GpufmtFusedGet(p->diag, backend, GPUFMT_FUSED_MULT_DOT, &fused));
    if (!fused || !fused->answer.plan.nlaunches) *dots = PETSC_FALSE; /* without rows nobody writes a sum */
  }
  if (*dots && p->offdiag) {
    PetscCall(GpufmtFusedGet(p->offdiag, backend, GPUFMT_FUSED_ADD_DOT, &fused));
    if (!fused || !fused->answer.plan.nlaunches) *dots = PETSC_FALSE;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Whether products of A as it is can be recorded on a backend, as all ranks want, and with dot products. What fails on one fails on all. Collective. */
PetscErrorCode GpufmtRecordReady(Mat A, int backend, PetscBool wanted, PetscBool *ready, PetscBool *dots)
{
  Parts          p;
  PetscErrorCode ierr = PETSC_SUCCESS;
  int            missing[2];

  PetscFunctionBegin;
  *dots = PETSC_FALSE;
  PetscCall(PartsFind(A, &p, ready));
  if (!wanted || (p.peer && p.peer->backend != backend)) *ready = PETSC_FALSE;
#if PetscDefined(HAVE_DEVICE)
  if (backend == GPUFMT_BACKEND_CUDA && A->boundtocpu) *ready = PETSC_FALSE;
#endif
  if (*ready) ierr = StoresGet(&p, backend, dots);
  missing[0] = !*ready;
  missing[1] = !*dots;
  PetscCall(GpufmtAgree((PetscObject)A, "The record of a product with a vector", ierr, 2, missing));
  *ready = (PetscBool)!missing[0];
  *dots  = (PetscBool)!missing[1];
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Before products are recorded later: others may have planned again since. *dots: as before. A rank may fail alone. */
PetscErrorCode GpufmtRecordUpdate(Mat A, int backend, PetscBool *dots)
{
  Parts     p;
  PetscBool found;

  PetscFunctionBegin;
  PetscCall(PartsFind(A, &p, &found));
  PetscCheck(found, PETSC_COMM_SELF, PETSC_ERR_PLIB, "A product of a matrix of type %s was to be recorded", ((PetscObject)A)->type_name);
  PetscCall(StoresGet(&p, backend, dots));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the ghost vector of the product that is the k-th to come */
static PetscErrorCode GhostArray(const GpufmtPeer *peer, PetscInt k, const PetscScalar **array)
{
  Vec                ghost = peer->ghosts[(peer->exchange + 1 + (uint64_t)k) & 1];
  const PetscScalar *used;
  PetscMemType       memtype;

  PetscFunctionBegin;
  PetscCall(VecGetArrayReadAndMemType(ghost, &used, &memtype));
  *array = used;
  PetscCall(VecRestoreArrayReadAndMemType(ghost, &used));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What a record depends on besides plans: it is good as long as these words are the same. And how many products it has a multiple of. */
PetscErrorCode GpufmtRecordKeys(Mat A, const void *keys[GPUFMT_RECORD_KEYS], PetscInt *unit)
{
  Parts     p;
  PetscBool found;

  PetscFunctionBegin;
  PetscCall(PartsFind(A, &p, &found));
  *unit = p.peer ? 2 : 1;
  for (int k = 0; k < GPUFMT_RECORD_KEYS; k++) keys[k] = NULL;
  keys[0] = (const void *)(intptr_t)((PetscObject)A)->id;
  if (!p.peer) PetscFunctionReturn(PETSC_SUCCESS);
  keys[1] = p.peer->messages[GPUFMT_DIRECT];
  keys[2] = p.peer->arrivals[GPUFMT_DIRECT];
  keys[3] = (const void *)(uintptr_t)(p.peer->exchange & 1);
  for (PetscInt k = 0; k < 2; k++) PetscCall(GhostArray(p.peer, k, (const PetscScalar **)&keys[4 + k]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PlanAdd(GpufmtGraph graph, Mat block, int backend, int plan, int fused_kind, void *const slots[GPUFMT_NUM_SLOTS])
{
  const GpufmtStore *store = &GpufmtSeqData(block)->stores[backend][0];
  const GpufmtFused *fused = &store->fused[fused_kind];

  PetscFunctionBegin;
  if (slots[GPUFMT_SLOT_RESULT]) PetscCall(GpufmtGraphAdd(graph, &fused->answer.plan, slots, &fused->lease));
  else PetscCall(GpufmtGraphAdd(graph, &store->answer.plans[plan], slots, &store->lease));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* a step of what goes directly */
PetscErrorCode GpufmtRecordExchange(const GpufmtPeer *peer, int step, const void *x, GpufmtGraph graph)
{
  void              *slots[GPUFMT_NUM_SLOTS] = {NULL};
  const GpufmtPlan  *plan;
  const GpufmtLease *lease;

  PetscFunctionBegin;
  PetscCall(GpufmtPeerLaunch(peer, step, GPUFMT_DIRECT, x, NULL, &plan, slots, &lease));
  if (plan) PetscCall(GpufmtGraphAdd(graph, plan, slots, lease));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Adds z = A x to a graph, the k-th product that it has; and with `dots` the sums whose sum over all ranks is x . z: dots[0], and dots[1] of a parallel
   matrix. After GpufmtRecordReady(). */
PetscErrorCode GpufmtRecordMult(Mat A, int backend, PetscInt k, const PetscScalar *x, PetscScalar *z, double *dots, GpufmtGraph graph)
{
  Parts     p;
  PetscBool found;
  void     *slots[GPUFMT_NUM_SLOTS] = {NULL};

  PetscFunctionBegin;
  PetscCall(PartsFind(A, &p, &found));
  PetscCheck(found, PETSC_COMM_SELF, PETSC_ERR_PLIB, "A product of a matrix of type %s was to be recorded", ((PetscObject)A)->type_name);
  if (p.peer) PetscCall(GpufmtRecordExchange(p.peer, GPUFMT_PEER_SEND, x, graph));
  slots[GPUFMT_SLOT_X] = (void *)x;
  slots[GPUFMT_SLOT_Z] = slots[GPUFMT_SLOT_Y] = z;
  slots[GPUFMT_SLOT_RESULT]                   = dots;
  PetscCall(PlanAdd(graph, p.diag, backend, GPUFMT_PLAN_MULT, GPUFMT_FUSED_MULT_DOT, slots));
  if (p.peer) {
    const PetscScalar *ghost = NULL;

    PetscCall(GpufmtRecordExchange(p.peer, GPUFMT_PEER_WAIT, NULL, graph));
    PetscCall(GhostArray(p.peer, k, &ghost));
    slots[GPUFMT_SLOT_X]      = (void *)ghost;
    slots[GPUFMT_SLOT_Y]      = dots ? (void *)x : z; /* what the sum is with, or where it is added to */
    slots[GPUFMT_SLOT_RESULT] = dots ? dots + 1 : NULL;
    PetscCall(PlanAdd(graph, p.offdiag, backend, GPUFMT_PLAN_ADD, GPUFMT_FUSED_ADD_DOT, slots));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* So many recorded products are about to be launched. */
PetscErrorCode GpufmtRecordLaunched(Mat A, int backend, PetscInt nmults)
{
  Parts          p;
  PetscBool      found;
  PetscLogDouble flops;

  PetscFunctionBegin;
  PetscCall(PartsFind(A, &p, &found));
  flops = 2 * GpufmtEntries(p.diag);
  GpufmtSeqData(p.diag)->stores[backend][0].mults += nmults;
  if (p.peer) {
    flops += 2 * GpufmtEntries(p.offdiag);
    GpufmtSeqData(p.offdiag)->stores[backend][0].mults += nmults;
    p.peer->exchange += (uint64_t)nmults;
  }
  PetscCall(GpufmtLogFlops(backend, nmults * flops));
  PetscFunctionReturn(PETSC_SUCCESS);
}
