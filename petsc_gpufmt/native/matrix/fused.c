/* Products of a sequential matrix with what solvers want of each row, on arrays that are where the caller says. Their plans are asked for when they
   are first wanted, and go with the store. A format that has none is not an error: the caller does it in two steps. */
#include "matrix/matrix.h"

PetscErrorCode GpufmtFusedDrop(GpufmtStore *store)
{
  PetscFunctionBegin;
  for (int kind = 0; kind < GPUFMT_NUM_FUSED; kind++) PetscCall(GpufmtLeaseDrop(&store->fused[kind].lease));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The plan GPUFMT_FUSED_... for A as it is now, on a backend; NULL if its format offers none. It is there as long as its lease holds. */
PetscErrorCode GpufmtFusedGet(Mat A, int backend, int kind, const GpufmtFused **out)
{
  Mat_Gpufmt        *gpufmt  = GpufmtSeqData(A);
  GpufmtFusedRequest request = {.fused = kind};
  GpufmtStore       *store;
  GpufmtFused       *fused;

  PetscFunctionBegin;
  *out = NULL;
  PetscCheck(gpufmt, PETSC_COMM_SELF, PETSC_ERR_ARG_WRONG, "A fused product was asked for a matrix of type %s: give a sequential one of petsc_gpufmt",
             ((PetscObject)A)->type_name);
  PetscCheck((kind != GPUFMT_FUSED_MULT_DOT && kind != GPUFMT_FUSED_SMOOTH) || A->rmap->n == A->cmap->n, PETSC_COMM_SELF, PETSC_ERR_ARG_SIZ,
             "A fused product that takes x by rows was asked for a matrix with %" PetscInt_FMT " rows and %" PetscInt_FMT
             " columns: give a square one",
             A->rmap->n, A->cmap->n);
  PetscCall(GpufmtStoreGet(A, gpufmt, backend, PETSC_FALSE, &store));
  fused = &store->fused[kind];
  if (!GpufmtLeaseHolds(&fused->lease)) {
    request.stored = store->answer.stored;
    fused->answer  = (GpufmtFusedAnswer){0};
    PetscCall(GpufmtPlannerAsk(GPUFMT_ASK_FUSED, backend, GPUFMT_Plan, A, &request.place, &fused->answer.outcome, &fused->lease));
  }
  if (fused->answer.offered) *out = fused;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* replays the plan and counts: of a row with k entries 2 k operations and so many */
static PetscErrorCode FusedRun(Mat A, int backend, int kind, void *const slots[GPUFMT_NUM_SLOTS], PetscLogDouble flops_a_row, PetscBool *done)
{
  const GpufmtFused *fused;
  GpufmtStore       *store;
  void              *stream = NULL;
  PetscLogDouble     flops;

  PetscFunctionBegin;
  PetscCall(GpufmtFusedGet(A, backend, kind, &fused));
  *done = (PetscBool)(fused != NULL);
  if (!fused) PetscFunctionReturn(PETSC_SUCCESS);
  store = &GpufmtSeqData(A)->stores[backend][0];
  store->mults++;
  if (backend == GPUFMT_BACKEND_CUDA) PetscCall(GpufmtDeviceGet(NULL, &stream));
  PetscCall(GpufmtReplay(&fused->answer.plan, backend, slots, stream));
  flops = 2 * GpufmtEntries(A) + flops_a_row * (PetscLogDouble)store->answer.nonempty_rows;
  PetscCall(GpufmtLogFlops(backend, flops));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* z = A x and *result = x . A x, unless `done` says that there is no plan */
PetscErrorCode GpufmtMultDot(Mat A, int backend, const void *x, void *z, void *result, PetscBool *done)
{
  void *slots[GPUFMT_NUM_SLOTS] = {NULL};

  PetscFunctionBegin;
  slots[GPUFMT_SLOT_X]      = (void *)x;
  slots[GPUFMT_SLOT_Z]      = z;
  slots[GPUFMT_SLOT_RESULT] = result;
  PetscCall(FusedRun(A, backend, GPUFMT_FUSED_MULT_DOT, slots, 1, done));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* z = z + A x and *result = y . A x, likewise: with an off-diagonal block and its ghosts x, what it adds to y . z */
PetscErrorCode GpufmtAddDot(Mat A, int backend, const void *x, const void *y, void *z, void *result, PetscBool *done)
{
  void *slots[GPUFMT_NUM_SLOTS] = {NULL};

  PetscFunctionBegin;
  slots[GPUFMT_SLOT_X]      = (void *)x;
  slots[GPUFMT_SLOT_Y]      = (void *)y;
  slots[GPUFMT_SLOT_Z]      = z;
  slots[GPUFMT_SLOT_RESULT] = result;
  PetscCall(FusedRun(A, backend, GPUFMT_FUSED_ADD_DOT, slots, 2, done));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* z = alpha u + beta x + gamma d (b - A x), row by row, likewise */
PetscErrorCode GpufmtSmooth(Mat A, int backend, const GpufmtSmoothing *s, PetscBool *done)
{
  void *slots[GPUFMT_NUM_SLOTS] = {NULL};

  PetscFunctionBegin;
  slots[GPUFMT_SLOT_ALPHA] = GpufmtScalarWord(s->alpha);
  slots[GPUFMT_SLOT_BETA]  = GpufmtScalarWord(s->beta);
  slots[GPUFMT_SLOT_GAMMA] = GpufmtScalarWord(s->gamma);
  slots[GPUFMT_SLOT_X]     = (void *)s->x;
  slots[GPUFMT_SLOT_U]     = (void *)s->u;
  slots[GPUFMT_SLOT_B]     = (void *)s->b;
  slots[GPUFMT_SLOT_D]     = (void *)s->d;
  slots[GPUFMT_SLOT_Z]     = s->z;
  PetscCall(FusedRun(A, backend, GPUFMT_FUSED_SMOOTH, slots, 6, done));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* z = z - gamma d A x, row by row, likewise: with an off-diagonal block and its ghosts x, what GpufmtSmooth() with the diagonal block lacks */
PetscErrorCode GpufmtAddSmooth(Mat A, int backend, const GpufmtSmoothing *s, PetscBool *done)
{
  void *slots[GPUFMT_NUM_SLOTS] = {NULL};

  PetscFunctionBegin;
  slots[GPUFMT_SLOT_GAMMA] = GpufmtScalarWord(s->gamma);
  slots[GPUFMT_SLOT_X]     = (void *)s->x;
  slots[GPUFMT_SLOT_D]     = (void *)s->d;
  slots[GPUFMT_SLOT_Z]     = s->z;
  PetscCall(FusedRun(A, backend, GPUFMT_FUSED_ADD_SMOOTH, slots, 2, done));
  PetscFunctionReturn(PETSC_SUCCESS);
}
