/* The mode `peer`: ranks write entries into memory of those who need them, and no message is sent. The protocol is in docs/design/halo.md. This file
   lays out memory and tells ranks of it; kernels, or their counterparts on the host, do the rest (petsc_gpufmt/halo/peer.py). */
#include "halo/halo.h"

/* What a rank has for an exchange: a flag for each rank that may raise it, each in a cache line of its own, and two places each for what arrives. */
enum { FLAG_BYTES = 64 };

/* On a device, an exchange beside PETSc's stream takes 4 to 7 us less where the local part takes longer, since all but the end is hidden behind
   that; but its events keep the host for 5 us, which decides where the local part is short. Nonzeros of this rank, on H200s: with 0.9 million a
   product took 22 us and not 17, with 7 million 28 and not 32, with 28 million 87 and not 94. */
enum { LONG_LOCAL_PART = 3000000 };

/* what each rank tells another one; all are counted in their units */
typedef struct {
  int64_t chunk, offset;           /* of its piece */
  int64_t nghosts, nsent;          /* of it */
  int64_t first_ghost, first_sent; /* of the entries that the other rank sends, among its ghosts, and of those that it gets, among those sent */
} Layout;

typedef struct {
  GpufmtArena arena;
  GpufmtPiece piece;
  int         backend;
  PetscMPIInt rank, nranks;
  double      limit;    /* seconds */
  uint64_t    exchange; /* number of the last one */
  PetscBool   open;     /* it has begun, and not ended */
  PetscBool   beside;   /* PETSc's stream */
  void       *stream;   /* that it ran on */
  GpufmtLease lease;
  GpufmtPlan  steps[GPUFMT_NUM_PEER_STEPS];
  Vec         ghosts[2]; /* of exchanges with even and odd numbers */
  void       *staged;    /* a copy on the device of a vector that is on the host */
  size_t      capacity;  /* of it, in bytes */
} Peer;

/* scalars from what arrives in exchanges with even numbers to what arrives in others */
static int64_t Stride(int64_t count)
{
  const int64_t unit = GPUFMT_ARENA_ALIGNMENT / (int64_t)sizeof(PetscScalar);

  return (count + unit - 1) / unit * unit;
}

/* bytes from the beginning of a piece */
static size_t GhostsAt(PetscMPIInt nranks)
{
  return ((size_t)nranks * FLAG_BYTES + GPUFMT_ARENA_ALIGNMENT - 1) / GPUFMT_ARENA_ALIGNMENT * GPUFMT_ARENA_ALIGNMENT;
}

static size_t SumsAt(PetscMPIInt nranks, int64_t nghosts)
{
  return GhostsAt(nranks) + 2 * (size_t)Stride(nghosts) * sizeof(PetscScalar);
}

static size_t PieceBytes(PetscMPIInt nranks, int64_t nghosts, int64_t nsent)
{
  return SumsAt(nranks, nghosts) + 2 * (size_t)Stride(nsent) * sizeof(PetscScalar);
}

/* ---- set-up ---- */

/* What this rank is to know of others: `theirs` of each rank. Collective. */
static PetscErrorCode LayoutsExchange(GpufmtHalo halo, const Peer *peer, MPI_Comm comm, Layout mine[], Layout theirs[])
{
  const GpufmtHaloLinks *links = &halo->links;

  PetscFunctionBegin;
  for (PetscMPIInt r = 0; r < peer->nranks; r++)
    mine[r] = (Layout){.chunk = peer->piece.chunk, .offset = peer->piece.offset, .nghosts = halo->nghosts, .nsent = links->to_begins[links->nto]};
  for (PetscMPIInt k = 0; k < links->nfrom; k++) mine[links->from[k]].first_ghost = links->from_begins[k];
  for (PetscMPIInt k = 0; k < links->nto; k++) mine[links->to[k]].first_sent = links->to_begins[k];
  PetscCallMPI(MPI_Alltoall(mine, (PetscMPIInt)sizeof(Layout), MPI_BYTE, theirs, (PetscMPIInt)sizeof(Layout), MPI_BYTE, comm));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The ranks that this one sends to, or that send to it: all of them raise flags here, and this one there. */
static int64_t NeighboursFind(const GpufmtHaloLinks *links, int64_t neighbours[], int64_t to[], int64_t from[])
{
  int64_t     n = 0;
  PetscMPIInt t = 0, f = 0;

  while (t < links->nto || f < links->nfrom) {
    const PetscMPIInt next_to = t < links->nto ? links->to[t] : PETSC_MPI_INT_MAX, next_from = f < links->nfrom ? links->from[f] : PETSC_MPI_INT_MAX;

    neighbours[n] = PetscMin(next_to, next_from);
    to[n]         = next_to <= next_from ? t++ : -1;
    from[n]       = next_from <= next_to ? f++ : -1;
    n++;
  }
  return n;
}

/* tables for as many neighbours as there may be */
typedef struct {
  Layout            *mine, *theirs;
  int64_t           *neighbours, *to, *from, *flags, *failures;
  GpufmtPeerMessage *messages[2];
} Tables;

static PetscErrorCode TablesMake(PetscMPIInt n, Tables *tables)
{
  PetscFunctionBegin;
  PetscCall(PetscMalloc2(n, &tables->mine, n, &tables->theirs));
  PetscCall(PetscMalloc5(n, &tables->neighbours, n, &tables->to, n, &tables->from, n, &tables->flags, n, &tables->failures));
  PetscCall(PetscMalloc2(n, &tables->messages[0], n, &tables->messages[1]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode TablesFree(Tables *tables)
{
  PetscFunctionBegin;
  PetscCall(PetscFree2(tables->mine, tables->theirs));
  PetscCall(PetscFree5(tables->neighbours, tables->to, tables->from, tables->flags, tables->failures));
  PetscCall(PetscFree2(tables->messages[0], tables->messages[1]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* what is sent to a neighbour, directly and back */
static void MessagesMake(GpufmtHalo halo, const Peer *peer, const Tables *tables, int64_t n)
{
  const GpufmtHaloLinks *links = &halo->links;
  const int64_t          to = tables->to[n], from = tables->from[n];
  const PetscMPIInt      rank   = (PetscMPIInt)tables->neighbours[n];
  const Layout          *theirs = &tables->theirs[rank];
  char *const            piece  = (char *)GpufmtArenaAddress(peer->arena, rank, theirs->chunk, theirs->offset);
  char *const ghosts = piece + GhostsAt(peer->nranks), *const sums = piece + SumsAt(peer->nranks, theirs->nghosts);

  tables->messages[0][n] = tables->messages[1][n] = (GpufmtPeerMessage){.target = ghosts, .flag = piece + peer->rank * FLAG_BYTES};
  if (to >= 0) {
    tables->messages[0][n].target = ghosts + theirs->first_ghost * (int64_t)sizeof(PetscScalar);
    tables->messages[0][n].stride = Stride(theirs->nghosts);
    tables->messages[0][n].first  = links->to_begins[to];
    tables->messages[0][n].count  = links->to_begins[to + 1] - links->to_begins[to];
  }
  if (from >= 0) {
    tables->messages[1][n].target = sums + theirs->first_sent * (int64_t)sizeof(PetscScalar);
    tables->messages[1][n].stride = Stride(theirs->nsent);
    tables->messages[1][n].first  = links->from_begins[from];
    tables->messages[1][n].count  = links->from_begins[from + 1] - links->from_begins[from];
  }
}

static PetscErrorCode Plan(GpufmtHalo halo, Mat A, Peer *peer, const Tables *tables)
{
  const GpufmtHaloLinks *links   = &halo->links;
  const int64_t          nsent   = links->to_begins[links->nto];
  char *const            own     = (char *)GpufmtPieceAddress(&peer->piece);
  GpufmtPeerRequest      request = {.nsent = nsent, .index = links->indices, .rank = peer->rank, .nranks = peer->nranks};
  GpufmtPeerAnswer       answer  = {0};
  void *const           *failures;

  PetscFunctionBegin;
  request.nneighbours = NeighboursFind(links, tables->neighbours, tables->to, tables->from);
  for (int64_t n = 0; n < request.nneighbours; n++) {
    MessagesMake(halo, peer, tables, n);
    tables->flags[n] = (int64_t)(uintptr_t)(own + tables->neighbours[n] * FLAG_BYTES);
  }
  GpufmtArenaWords(peer->arena, &failures, &request.report);
  for (PetscMPIInt r = 0; r < peer->nranks; r++) tables->failures[r] = (int64_t)(uintptr_t)failures[r];
  for (int k = 0; k < 2; k++) request.messages[k] = tables->messages[k];
  request.flags       = tables->flags;
  request.ranks       = tables->neighbours;
  request.failures    = tables->failures;
  request.arrivals[0] = (GpufmtPeerArrival){.address = own + GhostsAt(peer->nranks), .stride = Stride(halo->nghosts), .count = halo->nghosts};
  request.arrivals[1] = (GpufmtPeerArrival){.address = own + SumsAt(peer->nranks, halo->nghosts), .stride = Stride(nsent), .count = nsent};
  request.limit       = (int64_t)PetscMin(1e9 * peer->limit, 4e18);
  if (peer->backend == GPUFMT_BACKEND_CUDA) PetscCall(GpufmtDeviceTicks(peer->limit, &request.limit));
  PetscCall(GpufmtPlannerAsk(GPUFMT_ASK_PEER, peer->backend, GPUFMT_Plan, A, &request.place, &answer.outcome, &peer->lease));
  for (int step = 0; step < GPUFMT_NUM_PEER_STEPS; step++) peer->steps[step] = answer.steps[step];
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* vectors whose arrays are where entries arrive */
static PetscErrorCode GhostsMake(GpufmtHalo halo, Peer *peer)
{
  PetscScalar *array = (PetscScalar *)((char *)GpufmtPieceAddress(&peer->piece) + GhostsAt(peer->nranks));

  PetscFunctionBegin;
  for (int k = 0; k < 2; k++, array += Stride(halo->nghosts)) {
    if (peer->backend == GPUFMT_BACKEND_HOST) PetscCall(VecCreateSeqWithArray(PETSC_COMM_SELF, 1, halo->nghosts, array, &peer->ghosts[k]));
#if PetscDefined(HAVE_CUDA)
    else PetscCall(VecCreateSeqCUDAWithArray(PETSC_COMM_SELF, 1, halo->nghosts, array, &peer->ghosts[k]));
#endif
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode BesideChoose(Mat A, Peer *peer)
{
  Mat     diag;
  MatInfo info;

  PetscFunctionBegin;
  PetscCall(MatMPIAIJGetSeqAIJ(A, &diag, NULL, NULL));
  PetscCall(MatGetInfo(diag, MAT_LOCAL, &info)); /* under -mat_seqaij_type its arrays may be on the device */
  peer->beside = (PetscBool)(peer->backend == GPUFMT_BACKEND_CUDA && info.nz_used >= LONG_LOCAL_PART);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode SetUp(GpufmtHalo halo, Mat A, Peer *peer, const Tables *tables)
{
  PetscFunctionBegin;
  PetscCall(BesideChoose(A, peer));
  PetscCall(Plan(halo, A, peer, tables));
  PetscCall(GhostsMake(halo, peer));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Where ranks work, GPUFMT_NUM_BACKENDS if that differs. What failed on one, `own`, fails on all. Collective. */
static PetscErrorCode BackendAgree(Mat A, PetscErrorCode own, int *backend)
{
  int most[2] = {*backend, -*backend};

  PetscFunctionBegin;
  PetscCall(GpufmtAgree((PetscObject)A, "The set-up of a halo exchange", own, 2, most));
  if (most[0] != -most[1]) *backend = GPUFMT_NUM_BACKENDS;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Where all ranks reach memory of each other. */
static PetscErrorCode ArenaFind(Mat A, PetscErrorCode own, Peer *peer, const char **why_not)
{
  MPI_Comm comm = PetscObjectComm((PetscObject)A);

  PetscFunctionBegin;
  peer->backend = GpufmtBackendOf(A);
  PetscCall(BackendAgree(A, own, &peer->backend));
  if (peer->backend == GPUFMT_NUM_BACKENDS) *why_not = "ranks work in different places";
  else {
    PetscCall(GpufmtArenaGet(comm, peer->backend, &peer->arena));
    *why_not = GpufmtArenaWhyNot(peer->arena);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Try(GpufmtHalo halo, Mat A, const char **why_not)
{
  MPI_Comm       comm  = PetscObjectComm((PetscObject)A);
  Peer           first = {0}, *peer = NULL;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(GpufmtHaloLimitGet(A, &first.limit));
  PetscCallMPI(MPI_Comm_rank(comm, &first.rank));
  PetscCallMPI(MPI_Comm_size(comm, &first.nranks));
  if (first.nranks == 1) {
    *why_not = "there is one rank";
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  ierr = PetscNew(&peer);
  ierr = ArenaFind(A, ierr, &first, why_not); /* which tells other ranks where there is no memory */
  if (ierr || *why_not) PetscCall(PetscFree(peer));
  PetscCall(ierr);
  if (peer) *peer = first;
  halo->data = peer;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Where the arena has no more memory, the exchange is another one on all ranks. */
static PetscErrorCode Create(GpufmtHalo halo, Mat A, PetscErrorCode own)
{
  const GpufmtHaloLinks *links  = &halo->links;
  Peer *const            peer   = (Peer *)halo->data;
  Tables                 tables = {0};
  PetscErrorCode         ierr   = own ? own : TablesMake(peer->nranks, &tables);
  const int64_t          nsent  = own ? 0 : links->to_begins[links->nto];

  PetscFunctionBegin;
  ierr = GpufmtArenaReserve(peer->arena, ierr, PieceBytes(peer->nranks, halo->nghosts, nsent), &peer->piece);
  if (!ierr && peer->piece.arena) {
    PetscCall(LayoutsExchange(halo, peer, PetscObjectComm((PetscObject)A), tables.mine, tables.theirs));
    ierr = SetUp(halo, A, peer, &tables);
  }
  PetscCall(TablesFree(&tables));
  PetscCall(ierr);
  if (peer->piece.arena) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscInfo(A, "halo exchange in mode overlap, not peer: %s\n", GpufmtArenaWhyNot(peer->arena)));
  PetscCall(PetscFree(halo->data));
  halo->mode = &gpufmt_halo_overlap;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Destroy(GpufmtHalo halo)
{
  Peer *peer = (Peer *)halo->data;

  PetscFunctionBegin;
  if (!peer) PetscFunctionReturn(PETSC_SUCCESS);
  if (peer->open && peer->beside)
    PetscCall(GpufmtDeviceSynchronize(GpufmtArenaBeside(peer->arena)->stream)); /* synchronize! a failure in between: the plan may still run */
  for (int k = 0; k < 2; k++) PetscCall(VecDestroy(&peer->ghosts[k]));
  PetscCall(GpufmtLeaseDrop(&peer->lease));
  PetscCall(GpufmtDeviceFree(&peer->staged, &peer->capacity));
  if (!peer->open) PetscCall(GpufmtArenaRelease(&peer->piece)); /* else flags of others may still be raised there */
  PetscCall(PetscFree(halo->data));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---- exchanges ---- */

static PetscErrorCode Run(Peer *peer, int step, void *stream, void *x, void *z)
{
  void *slots[GPUFMT_NUM_SLOTS] = {[GPUFMT_SLOT_X] = x, [GPUFMT_SLOT_Z] = z, [GPUFMT_SLOT_ALPHA] = (void *)(uintptr_t)peer->exchange};

  PetscFunctionBegin;
  PetscCheck(GpufmtLeaseHolds(&peer->lease), PETSC_COMM_SELF, PETSC_ERR_ORDER,
             "The plan of a halo exchange is gone, since Python has ended in this process: multiply before the interpreter exits");
  PetscCall(GpufmtReplay(&peer->steps[step], peer->backend, slots, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* where an array is worked with: a copy on the device, if it is not there */
static PetscErrorCode Place(Peer *peer, Vec v, const PetscScalar *array, PetscMemType memtype, PetscScalar **placed)
{
  size_t   bytes;
  PetscInt n;

  PetscFunctionBegin;
  PetscCall(VecGetLocalSize(v, &n));
  bytes   = (size_t)n * sizeof(PetscScalar);
  *placed = (PetscScalar *)array;
  if (peer->backend == GPUFMT_BACKEND_HOST || PetscMemTypeDevice(memtype)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtDeviceReserve(bytes, &peer->staged, &peer->capacity));
  PetscCall(GpufmtDeviceUpload(peer->staged, array, bytes, peer->stream));
  *placed = (PetscScalar *)peer->staged;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode SendOnHost(Peer *peer, int send, Vec v)
{
  const PetscScalar *array;
  PetscErrorCode     ierr;

  PetscFunctionBegin;
  PetscCall(VecGetArrayRead(v, &array));
  ierr = Run(peer, send, NULL, (void *)array, NULL); /* a failure leaves the vector usable */
  PetscCall(VecRestoreArrayRead(v, &array));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Beside PETSc's stream both are queued before the local part, else one before it and one behind it. */
static PetscErrorCode SendAndWait(Peer *peer, int send, int wait, const PetscScalar *array, PetscMemType memtype, Vec v)
{
  GpufmtBeside *beside = GpufmtArenaBeside(peer->arena);
  PetscScalar  *placed;

  PetscFunctionBegin;
  PetscCall(Place(peer, v, array, memtype, &placed));
  if (!peer->beside) {
    PetscCall(Run(peer, send, peer->stream, placed, NULL));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(GpufmtBesideFollow(beside, peer->stream));
  PetscCall(Run(peer, send, beside->stream, placed, NULL));
  PetscCall(Run(peer, wait, beside->stream, NULL, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Exchanges follow what PETSc's stream has done so far. If that is another stream than in the last exchange, the one before has to be over. */
static PetscErrorCode SendOnDevice(Peer *peer, int send, int wait, Vec v)
{
  const PetscScalar *array;
  PetscMemType       memtype;
  void              *stream;
  PetscErrorCode     ierr;

  PetscFunctionBegin;
  PetscCall(GpufmtDeviceGet(NULL, &stream));
  if (stream != peer->stream) PetscCall(GpufmtDeviceSettle()); /* synchronize! */
  peer->stream = stream;
  PetscCall(VecGetArrayReadAndMemType(v, &array, &memtype));
  ierr = SendAndWait(peer, send, wait, array, memtype, v); /* a failure leaves the vector usable */
  PetscCall(VecRestoreArrayReadAndMemType(v, &array));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode BeginEither(Peer *peer, int send, int wait, Vec v)
{
  PetscFunctionBegin;
  PetscCall(GpufmtArenaCheck(peer->arena, peer->limit));
  peer->exchange++;
  peer->open = PETSC_TRUE;
  if (peer->backend == GPUFMT_BACKEND_HOST) PetscCall(SendOnHost(peer, send, v));
  else PetscCall(SendOnDevice(peer, send, wait, v));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* On a device a failure is known when the next exchange begins: what should have arrived is NaN until then. */
static PetscErrorCode EndEither(Peer *peer, int wait)
{
  PetscFunctionBegin;
  if (peer->beside) PetscCall(GpufmtBesideJoin(GpufmtArenaBeside(peer->arena), peer->stream));
  else PetscCall(Run(peer, wait, peer->stream, NULL, NULL));
  if (peer->backend == GPUFMT_BACKEND_HOST) PetscCall(GpufmtArenaCheck(peer->arena, peer->limit));
  peer->open = PETSC_FALSE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Begin(GpufmtHalo halo, Vec x)
{
  PetscFunctionBegin;
  PetscCall(BeginEither((Peer *)halo->data, GPUFMT_PEER_SEND, GPUFMT_PEER_WAIT, x));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode End(GpufmtHalo halo, Vec x, Vec *ghost)
{
  Peer *const  peer = (Peer *)halo->data;
  PetscScalar *array;
  PetscMemType memtype;

  PetscFunctionBegin;
  PetscCall(EndEither(peer, GPUFMT_PEER_WAIT));
  *ghost = peer->ghosts[peer->exchange & 1];
  PetscCall(VecGetArrayWriteAndMemType(*ghost, &array, &memtype)); /* a copy that the vector may have on the host is an old one now */
  PetscCall(VecRestoreArrayWriteAndMemType(*ghost, &array));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode BeginBack(GpufmtHalo halo)
{
  PetscFunctionBegin;
  PetscCall(BeginEither((Peer *)halo->data, GPUFMT_PEER_SEND_BACK, GPUFMT_PEER_WAIT_BACK, halo->ghost));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode EndBack(GpufmtHalo halo, Vec z)
{
  Peer *const     peer    = (Peer *)halo->data;
  const PetscBool on_host = (PetscBool)(peer->backend == GPUFMT_BACKEND_HOST);
  PetscMemType    memtype = PETSC_MEMTYPE_HOST;
  PetscScalar    *array, *placed = NULL;
  PetscInt        n;
  PetscErrorCode  ierr;

  PetscFunctionBegin;
  PetscCall(EndEither(peer, GPUFMT_PEER_WAIT_BACK));
  PetscCall(VecGetLocalSize(z, &n));
  if (on_host) PetscCall(VecGetArray(z, &array));
  else PetscCall(VecGetArrayAndMemType(z, &array, &memtype));
  ierr = Place(peer, z, array, memtype, &placed);
  if (!ierr) ierr = Run(peer, GPUFMT_PEER_ADD, peer->stream, NULL, placed); /* a failure leaves the vector usable */
  if (!ierr && placed != array) ierr = GpufmtDeviceDownload(array, placed, (size_t)n * sizeof(PetscScalar), peer->stream);
  if (on_host) PetscCall(VecRestoreArray(z, &array));
  else PetscCall(VecRestoreArrayAndMemType(z, &array));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

const GpufmtHaloMode gpufmt_halo_peer = {"peer", PETSC_TRUE, Try, Create, Destroy, Begin, End, BeginBack, EndBack};
