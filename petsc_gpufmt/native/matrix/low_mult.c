/* Products in single precision, with the copy of a sequential or parallel matrix, for solvers that correct in double what they have found in single.

   All ranks agree on the copy before it is used: GpufmtLowUpdate() is collective. It is the copy of A, unless entries leave the range of single
   precision. Then it is that of S A S, where S is a diagonal matrix of powers of two that brings the diagonal of A near 1, so that no entry is rounded
   twice. GpufmtLowMult() takes no collective call: what fails there is an error on its rank alone, after the exchange. */
#include "matrix/matrix.h"
#include <float.h>
#include <math.h>

static const char what[] = "The copy of a matrix in single precision";

typedef struct {
  int             nblocks;
  Mat             blocks[2]; /* the matrix itself, or its diagonal and off-diagonal block */
  GpufmtHaloParts halo;      /* of a parallel matrix, else NULL */
  PetscInt        nghosts;
} Parts;

static PetscErrorCode PartsGet(Mat A, Parts *parts)
{
  PetscFunctionBegin;
  PetscCheck(sizeof(PetscReal) > sizeof(float) && !PetscDefined(USE_COMPLEX), PetscObjectComm((PetscObject)A), PETSC_ERR_SUP,
             "A copy of a matrix in single precision was asked for, and this PETSc has %s: use the matrix as it is",
             PetscDefined(USE_COMPLEX) ? "complex scalars" : "single precision itself");
  PetscCheck(GpufmtSeqData(A) || GpufmtFormatFind(((PetscObject)A)->type_name), PetscObjectComm((PetscObject)A), PETSC_ERR_SUP,
             "A matrix of type %s has no copy in single precision: choose a type of petsc_gpufmt, such as -mat_type gpufmt",
             ((PetscObject)A)->type_name);
  PetscCheck(A->assembled, PetscObjectComm((PetscObject)A), PETSC_ERR_ARG_WRONGSTATE,
             "A matrix that is not assembled has no copy in single precision: assemble it first");
  *parts = (Parts){.nblocks = 1, .blocks = {A}};
  if (GpufmtSeqData(A)) PetscFunctionReturn(PETSC_SUCCESS);
  parts->nblocks = 2;
  PetscCall(GpufmtParallelParts(A, &parts->blocks[0], &parts->blocks[1], &parts->halo));
  PetscCall(VecGetLocalSize(parts->halo.ghost, &parts->nghosts));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---- the copy ---- */

/* the exchange, where entries go through memory of other ranks; NULL: they are messages */
static const GpufmtPeer *PeerOf(const GpufmtLow *low, int backend)
{
  const GpufmtPeer *peer = low->halo && low->halo->mode == &gpufmt_halo_peer ? (const GpufmtPeer *)low->halo->data : NULL;

  return peer && peer->backend == backend ? peer : NULL;
}

static PetscErrorCode GhostsReserve(Mat A, int backend, const Parts *parts)
{
  GpufmtLow *low = &((Mat_Gpufmt *)A->spptr)->low;

  PetscFunctionBegin;
  if (!PeerOf(low, backend)) PetscCall(GpufmtBufferReserve(backend, (size_t)parts->nghosts * sizeof(float), &low->ghosts[backend]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode FillBlocks(Mat A, int backend, const Parts *parts, Vec scaling, int64_t outside[GPUFMT_NUM_OUTSIDE])
{
  PetscFunctionBegin;
  PetscCall(GhostsReserve(A, backend, parts));
  for (int b = 0; b < parts->nblocks; b++) {
    int64_t of_block[GPUFMT_NUM_OUTSIDE];

    PetscCall(GpufmtLowStoreFill(parts->blocks[b], backend, scaling, scaling && b ? parts->halo.ghost : scaling, of_block));
    for (int k = 0; k < GPUFMT_NUM_OUTSIDE; k++) outside[k] += of_block[k];
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Fills the copy on all ranks, or fails on all; outside[]: the most on any rank. Collective. */
static PetscErrorCode FillAll(Mat A, int backend, const Parts *parts, Vec scaling, int outside[GPUFMT_NUM_OUTSIDE])
{
  int64_t        own[GPUFMT_NUM_OUTSIDE] = {0};
  PetscErrorCode ierr;

  PetscFunctionBegin;
  ierr = FillBlocks(A, backend, parts, scaling, own);
  for (int k = 0; k < GPUFMT_NUM_OUTSIDE; k++) outside[k] = (int)PetscMin(own[k], INT_MAX);
  PetscCall(GpufmtAgree((PetscObject)A, what, ierr, GPUFMT_NUM_OUTSIDE, outside));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* *scaling: powers of two, whose squares times the diagonal of A are near 1; 1 where there is no such number */
static PetscErrorCode ScalingMake(Mat A, Vec *scaling)
{
  PetscScalar *factors;

  PetscFunctionBegin;
  PetscCall(MatCreateVecs(A, NULL, scaling));
  PetscCall(MatGetDiagonal(A, *scaling));
  PetscCall(VecGetArray(*scaling, &factors));
  for (PetscInt i = 0; i < A->rmap->n; i++) {
    int exponent = 0;

    if (PetscIsNormalScalar(factors[i])) (void)frexp((double)PetscRealPart(factors[i]), &exponent);
    factors[i] = ldexp(1.0, -exponent / 2);
  }
  PetscCall(VecRestoreArray(*scaling, &factors));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Makes the copy that of S A S. Collective. */
static PetscErrorCode FillScaled(Mat A, int backend, const Parts *parts, int outside[GPUFMT_NUM_OUTSIDE])
{
  GpufmtLow     *low = &((Mat_Gpufmt *)A->spptr)->low;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  ierr = ScalingMake(A, &low->scaling[backend]);
  PetscCall(GpufmtAgree((PetscObject)A, what, ierr, 0, NULL));
  if (parts->halo.scatter) {
    PetscCall(VecScatterBegin(parts->halo.scatter, low->scaling[backend], parts->halo.ghost, INSERT_VALUES, SCATTER_FORWARD));
    PetscCall(VecScatterEnd(parts->halo.scatter, low->scaling[backend], parts->halo.ghost, INSERT_VALUES, SCATTER_FORWARD));
  }
  PetscCall(FillAll(A, backend, parts, low->scaling[backend], outside));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Makes the copy that of A, or of S A S if entries leave the range and that helps. Collective. */
static PetscErrorCode Renew(Mat A, int backend, const Parts *parts)
{
  GpufmtLow *low = &((Mat_Gpufmt *)A->spptr)->low;
  int        outside[GPUFMT_NUM_OUTSIDE], scaled[GPUFMT_NUM_OUTSIDE];

  PetscFunctionBegin;
  PetscCall(VecDestroy(&low->scaling[backend]));
  PetscCall(FillAll(A, backend, parts, NULL, outside));
  if ((outside[GPUFMT_TOO_LARGE] || outside[GPUFMT_TOO_SMALL]) && A->rmap->N == A->cmap->N) {
    PetscCall(FillScaled(A, backend, parts, scaled));
    if (scaled[GPUFMT_TOO_LARGE] && !outside[GPUFMT_TOO_LARGE]) {
      PetscCall(VecDestroy(&low->scaling[backend]));
      PetscCall(FillAll(A, backend, parts, NULL, outside));
    } else {
      PetscCall(PetscInfo(A, "copy in single precision: of S A S, S of powers of two, for %d entries are too large and %d too small; %d then\n",
                          outside[GPUFMT_TOO_LARGE], outside[GPUFMT_TOO_SMALL], scaled[GPUFMT_TOO_SMALL]));
      outside[GPUFMT_TOO_LARGE] = scaled[GPUFMT_TOO_LARGE];
    }
  }
  PetscCheck(!outside[GPUFMT_TOO_LARGE], PetscObjectComm((PetscObject)A), PETSC_ERR_ARG_OUTOFRANGE,
             "%s cannot hold %d entries, which are larger than %g even where the diagonal is scaled to 1: solve in double, or scale the matrix first",
             what, outside[GPUFMT_TOO_LARGE], (double)FLT_MAX);
  for (int b = 0; b < parts->nblocks; b++) GpufmtLowStoreAccept(parts->blocks[b], backend);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Makes the copy of A on a backend that of its values as they are now; nothing is done if it is. *scaling, of A: S, or NULL where it is the copy of A
   itself. Collective; fails on all ranks or on none. */
PetscErrorCode GpufmtLowUpdate(Mat A, int backend, Vec *scaling)
{
  Parts parts;
  int   is_new = 0;

  PetscFunctionBegin;
  PetscCall(PartsGet(A, &parts));
  if (parts.nblocks > 1) PetscCall(GpufmtHaloUpdate(A, &parts.halo, sizeof(float), &((Mat_Gpufmt *)A->spptr)->low.halo));
  for (int b = 0; b < parts.nblocks; b++)
    if (!GpufmtLowStoreCurrent(parts.blocks[b], backend)) is_new = 1;
  PetscCall(GpufmtAgree((PetscObject)A, what, PETSC_SUCCESS, 1, &is_new));
  if (is_new) PetscCall(Renew(A, backend, &parts));
  *scaling = ((Mat_Gpufmt *)A->spptr)->low.scaling[backend];
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---- the product ---- */

static PetscErrorCode StoreFind(Mat block, int backend, const GpufmtStore **store)
{
  PetscFunctionBegin;
  *store = GpufmtLowStoreCurrent(block, backend);
  PetscCheck(*store, PETSC_COMM_SELF, PETSC_ERR_ORDER, "%s is not that of its values as they are now: call GpufmtLowUpdate() before a product", what);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* of z = A x, or of z += A x */
static PetscLogDouble Flops(Mat block, const GpufmtStore *store, PetscBool add)
{
  return 2.0 * GpufmtEntries(block) - (add ? 0.0 : (PetscLogDouble)store->answer.nonempty_rows);
}

/* z = A x, or z += A x, with a block */
static PetscErrorCode BlockMult(Mat block, int backend, PetscBool add, const void *x, void *z)
{
  const GpufmtStore *store;
  void              *slots[GPUFMT_NUM_SLOTS] = {NULL}, *stream = NULL;

  PetscFunctionBegin;
  PetscCall(StoreFind(block, backend, &store));
  if (backend == GPUFMT_BACKEND_CUDA) PetscCall(GpufmtDeviceGet(NULL, &stream));
  slots[GPUFMT_SLOT_X] = (void *)x;
  slots[GPUFMT_SLOT_Y] = slots[GPUFMT_SLOT_Z] = z;
  PetscCall(GpufmtReplay(&store->answer.plans[add ? GPUFMT_PLAN_ADD : GPUFMT_PLAN_MULT], backend, slots, stream));
  PetscCall(GpufmtLogFlops(backend, Flops(block, store, add)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* sends entries of x, and brings those of other ranks to *ghosts */
static PetscErrorCode ExchangeBegin(const GpufmtLow *low, int backend, const Parts *parts, const void *x)
{
  const PetscMemType memtype = backend == GPUFMT_BACKEND_CUDA ? PETSC_MEMTYPE_CUDA : PETSC_MEMTYPE_HOST;

  PetscFunctionBegin;
  if (PeerOf(low, backend)) PetscCall(GpufmtPeerArrayBegin(low->halo, x));
  else PetscCall(PetscSFBcastWithMemTypeBegin(parts->halo.scatter, MPI_FLOAT, memtype, x, memtype, low->ghosts[backend].array, MPI_REPLACE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode ExchangeEnd(const GpufmtLow *low, int backend, const Parts *parts, const void *x, void **ghosts)
{
  PetscFunctionBegin;
  *ghosts = low->ghosts[backend].array;
  if (PeerOf(low, backend)) PetscCall(GpufmtPeerArrayEnd(low->halo, ghosts));
  else PetscCall(PetscSFBcastEnd(parts->halo.scatter, MPI_FLOAT, x, *ghosts, MPI_REPLACE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* z = A x, or S A S x, as GpufmtLowUpdate() has left it: x and z are arrays of float on the backend. Other ranks get their entries of x whatever fails
   here. */
PetscErrorCode GpufmtLowMult(Mat A, int backend, const void *x, void *z)
{
  const GpufmtLow *low = &((Mat_Gpufmt *)A->spptr)->low;
  PetscErrorCode   ierr;
  Parts            parts;
  void            *ghosts;

  PetscFunctionBegin;
  PetscCall(PartsGet(A, &parts));
  if (parts.nblocks == 1) {
    PetscCall(BlockMult(A, backend, PETSC_FALSE, x, z));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(GhostsReserve(A, backend, &parts)); /* they are there, unless the pattern is new */
  PetscCall(ExchangeBegin(low, backend, &parts, x));
  ierr = BlockMult(parts.blocks[0], backend, PETSC_FALSE, x, z);
  PetscCall(ExchangeEnd(low, backend, &parts, x, &ghosts));
  if (!ierr) ierr = BlockMult(parts.blocks[1], backend, PETSC_TRUE, ghosts, z);
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What a record of products depends on besides plans, and how many it has a multiple of, since two places take turns where entries of other ranks
   arrive; 0: products cannot be recorded. The same on all ranks. */
PetscErrorCode GpufmtLowRecordKeys(Mat A, int backend, const void *keys[GPUFMT_LOW_KEYS], PetscInt *unit)
{
  const GpufmtPeer *peer = PeerOf(&((Mat_Gpufmt *)A->spptr)->low, backend);

  PetscFunctionBegin;
  PetscCall(PetscArrayzero(keys, GPUFMT_LOW_KEYS));
  keys[0] = (const void *)(intptr_t)((PetscObject)A)->id;
  *unit   = GpufmtSeqData(A) ? 1 : peer ? 2 : 0;
  if (peer) {
    keys[1] = peer->messages[GPUFMT_DIRECT];
    keys[2] = peer->arrivals[GPUFMT_DIRECT];
    keys[3] = (const void *)(uintptr_t)(peer->exchange & 1);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode BlockRecord(Mat block, int backend, int plan, const void *x, void *z, GpufmtGraph graph)
{
  const GpufmtStore *store;
  void              *slots[GPUFMT_NUM_SLOTS] = {[GPUFMT_SLOT_X] = (void *)x, [GPUFMT_SLOT_Y] = z, [GPUFMT_SLOT_Z] = z};

  PetscFunctionBegin;
  PetscCall(StoreFind(block, backend, &store));
  PetscCall(GpufmtGraphAdd(graph, &store->answer.plans[plan], slots, &store->lease));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Adds z = A x to a graph, the k-th product that it has, as GpufmtLowMult() would make it now. Not collective. */
PetscErrorCode GpufmtLowRecord(Mat A, int backend, PetscInt k, const void *x, void *z, GpufmtGraph graph)
{
  const GpufmtPeer *peer = PeerOf(&((Mat_Gpufmt *)A->spptr)->low, backend);
  Parts             parts;

  PetscFunctionBegin;
  PetscCall(PartsGet(A, &parts));
  if (peer) PetscCall(GpufmtRecordExchange(peer, GPUFMT_PEER_SEND, x, graph));
  PetscCall(BlockRecord(parts.blocks[0], backend, GPUFMT_PLAN_MULT, x, z, graph));
  if (peer) {
    PetscCall(GpufmtRecordExchange(peer, GPUFMT_PEER_WAIT, NULL, graph));
    PetscCall(BlockRecord(parts.blocks[1], backend, GPUFMT_PLAN_ADD, peer->places[(peer->exchange + 1 + (uint64_t)k) & 1], z, graph));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* So many recorded products were launched, and on several ranks one more, if that makes their number even. */
PetscErrorCode GpufmtLowLaunched(Mat A, int backend, PetscInt nmults)
{
  const GpufmtStore *store;
  Parts              parts;

  PetscFunctionBegin;
  PetscCall(PartsGet(A, &parts));
  for (int b = 0; b < parts.nblocks; b++) {
    PetscCall(StoreFind(parts.blocks[b], backend, &store));
    PetscCall(GpufmtLogFlops(backend, (PetscLogDouble)nmults * Flops(parts.blocks[b], store, b ? PETSC_TRUE : PETSC_FALSE)));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
