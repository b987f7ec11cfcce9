/* Where everything of an exchange in the mode `peer` lies, in memory that all ranks reach: flags, what kernels read, and what arrives. Ranks tell each
   other in one message each, and nobody waits for a device but for memory that was used before. */
#include "halo/halo.h"

/* flags of several ranks are in cache lines of their own */
enum { FLAG_BYTES = 64 };

/* On a device, an exchange beside PETSc's stream takes 4 to 7 us less where the local part takes longer, since all but the end is hidden behind
   that; but its events keep the host for 5 us, which decides where the local part is short. Nonzeros of this rank, on H200s: with 0.9 million a
   product took 22 us and not 17, with 7 million 28 and not 32, with 28 million 87 and not 94. */
enum { LONG_LOCAL_PART = 3000000 };

/* The piece of this rank, in bytes from its beginning. Flags come first; then what is sent to the backend as one; then what other ranks write. */
typedef struct {
  size_t tables; /* the begin of what is sent, up to `arrived[0]` */
  size_t messages[2], arrivals[2], failures, index;
  size_t arrived[2]; /* ghosts, and sums */
  size_t bytes;
} Layout;

/* what one rank tells another one */
typedef struct {
  int64_t chunk;      /* of its piece; offsets are in that */
  int64_t flag;       /* that the other one raises */
  int64_t arrived[2]; /* where the other one's entries go, and its sums, in exchanges with even numbers */
  int64_t stride[2];  /* scalars from there to those with odd ones */
} Address;

typedef struct {
  PetscMPIInt     rank, nranks;
  double          limit; /* seconds */
  Layout          layout;
  Address        *mine, *theirs; /* [nranks] for each rank, of each rank */
  PetscMPIInt    *neighbours;    /* [peer->nmessages] who sends to this rank or gets something from it, ascending */
  PetscMPIInt    *links[2];      /* [peer->nmessages] which of `to` and `from` that is; -1: none */
  char           *tables;        /* a copy on the host */
  const PetscInt *begins[2];     /* of what is sent, and of ghosts */
  int64_t         nsent[2];      /* of entries, and of sums: as many as ghosts */
} SetUp;

static size_t Aligned(size_t bytes)
{
  return (bytes + GPUFMT_ARENA_ALIGNMENT - 1) / GPUFMT_ARENA_ALIGNMENT * GPUFMT_ARENA_ALIGNMENT;
}

/* scalars from what arrives in exchanges with even numbers to what arrives in others */
static int64_t Stride(int64_t count)
{
  return (int64_t)(Aligned((size_t)count * sizeof(PetscScalar)) / sizeof(PetscScalar));
}

/* ---- this rank alone ---- */

static PetscErrorCode BesideChoose(Mat A, GpufmtPeer *peer)
{
  Mat     diag;
  MatInfo info;

  PetscFunctionBegin;
  PetscCall(MatMPIAIJGetSeqAIJ(A, &diag, NULL, NULL));
  PetscCall(MatGetInfo(diag, MAT_LOCAL, &info)); /* under -mat_seqaij_type its arrays may be on the device */
  peer->beside = (PetscBool)(peer->backend == GPUFMT_BACKEND_CUDA && info.nz_used >= LONG_LOCAL_PART);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The ranks that this one sends to, or that send to it: all of them raise flags here, and this one there. */
static PetscErrorCode NeighboursFind(const GpufmtHaloLinks *links, GpufmtPeer *peer, SetUp *s)
{
  PetscMPIInt t = 0, f = 0, n = 0;

  PetscFunctionBegin;
  PetscCall(
    PetscMalloc3(links->nto + links->nfrom, &s->neighbours, links->nto + links->nfrom, &s->links[0], links->nto + links->nfrom, &s->links[1]));
  while (t < links->nto || f < links->nfrom) {
    const PetscMPIInt to = t < links->nto ? links->to[t] : PETSC_MPI_INT_MAX, from = f < links->nfrom ? links->from[f] : PETSC_MPI_INT_MAX;

    s->neighbours[n]           = PetscMin(to, from);
    s->links[GPUFMT_DIRECT][n] = to <= from ? t++ : -1;
    s->links[GPUFMT_BACK][n]   = from <= to ? f++ : -1;
    n++;
  }
  peer->nmessages          = n;
  s->begins[GPUFMT_DIRECT] = links->to_begins;
  s->begins[GPUFMT_BACK]   = links->from_begins;
  s->nsent[GPUFMT_DIRECT]  = links->to_begins[links->nto];
  s->nsent[GPUFMT_BACK]    = links->from_begins[links->nfrom];
  PetscFunctionReturn(PETSC_SUCCESS);
}

static void LayoutMake(const GpufmtPeer *peer, SetUp *s)
{
  const size_t n = (size_t)peer->nmessages, nranks = (size_t)s->nranks;
  Layout      *layout = &s->layout;
  size_t       end = layout->tables = Aligned(nranks * FLAG_BYTES);

  for (int k = 0; k < 2; k++) {
    layout->messages[k] = end;
    layout->arrivals[k] = end += n * sizeof(GpufmtPeerMessage);
    end += sizeof(GpufmtPeerArrivals) + n * sizeof(int64_t);
  }
  layout->failures = end;
  layout->index    = end += nranks * sizeof(void *);
  end              = Aligned(end + (size_t)s->nsent[GPUFMT_DIRECT] * sizeof(PetscInt));
  for (int k = 0; k < 2; k++) { /* what arrives directly is as many as are sent back */
    layout->arrived[k] = end;
    end += 2 * (size_t)Stride(s->nsent[!k]) * sizeof(PetscScalar);
  }
  layout->bytes = end;
}

static PetscErrorCode Begin(GpufmtHalo halo, Mat A, GpufmtArena arena, SetUp *s)
{
  GpufmtPeer *peer;

  PetscFunctionBegin;
  PetscCall(PetscNew(&peer));
  halo->data    = peer;
  peer->arena   = arena;
  peer->limit   = s->limit;
  peer->backend = GpufmtBackendOf(A);
  if (peer->backend == GPUFMT_BACKEND_CUDA) PetscCall(GpufmtDeviceGet(NULL, &peer->stream));
  PetscCall(GpufmtPeerPlan(peer->backend, A));
  PetscCall(BesideChoose(A, peer));
  PetscCall(NeighboursFind(&halo->links, peer, s));
  LayoutMake(peer, s);
  PetscCall(PetscMalloc2(s->nranks, &s->mine, s->nranks, &s->theirs));
  PetscCall(PetscCalloc1(s->layout.arrived[0] - s->layout.tables, &s->tables));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode SetUpFree(SetUp *s)
{
  PetscFunctionBegin;
  PetscCall(PetscFree3(s->neighbours, s->links[0], s->links[1]));
  PetscCall(PetscFree2(s->mine, s->theirs));
  PetscCall(PetscFree(s->tables));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* vectors whose arrays are where entries arrive */
static PetscErrorCode GhostsMake(GpufmtHalo halo, GpufmtPeer *peer, const Layout *layout)
{
  PetscScalar *array = (PetscScalar *)((char *)GpufmtPieceAddress(&peer->piece) + layout->arrived[GPUFMT_DIRECT]);

  PetscFunctionBegin;
  for (int k = 0; k < 2; k++, array += Stride(halo->nghosts)) {
    if (peer->backend == GPUFMT_BACKEND_HOST) PetscCall(VecCreateSeqWithArray(PETSC_COMM_SELF, 1, halo->nghosts, array, &peer->ghosts[k]));
#if PetscDefined(HAVE_CUDA)
    else PetscCall(VecCreateSeqCUDAWithArray(PETSC_COMM_SELF, 1, halo->nghosts, array, &peer->ghosts[k]));
#endif
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Others may write here once they know of it: what has read it must have ended. */
static PetscErrorCode FlagsClear(const GpufmtPeer *peer, size_t bytes)
{
  void *flags = GpufmtPieceAddress(&peer->piece);

  PetscFunctionBegin;
  if (peer->backend == GPUFMT_BACKEND_HOST) PetscCall(PetscMemzero(flags, bytes));
  else {
    PetscCall(GpufmtDeviceSettle());
    PetscCall(GpufmtDeviceClear(flags, bytes, peer->stream)); /* synchronize! */
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* All that may fail on this rank; `missing` becomes units of memory that the arena has not. */
static PetscErrorCode PieceMake(GpufmtHalo halo, Mat A, GpufmtArena arena, SetUp *s, int *missing)
{
  GpufmtPeer *peer;

  PetscFunctionBegin;
  if (!halo->data) PetscCall(Begin(halo, A, arena, s));
  peer = (GpufmtPeer *)halo->data;
  if (peer->piece.arena) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtArenaTake(arena, s->layout.bytes, &peer->piece));
  if (!peer->piece.arena) {
    *missing = (int)(s->layout.bytes / GPUFMT_ARENA_ALIGNMENT);
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(GhostsMake(halo, peer, &s->layout));
  if (peer->piece.used) PetscCall(FlagsClear(peer, s->layout.tables));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---- all ranks ---- */

/* Collective. */
static PetscErrorCode AddressesExchange(MPI_Comm comm, GpufmtPeer *peer, SetUp *s)
{
  PetscFunctionBegin;
  for (PetscMPIInt r = 0; r < s->nranks; r++) {
    s->mine[r] = (Address){.chunk = peer->piece.chunk, .flag = peer->piece.offset + r * FLAG_BYTES};
    for (int k = 0; k < 2; k++) {
      s->mine[r].arrived[k] = peer->piece.offset + (int64_t)s->layout.arrived[k];
      s->mine[r].stride[k]  = Stride(s->nsent[!k]);
    }
  }
  for (PetscMPIInt n = 0; n < peer->nmessages; n++) /* after what lower ranks send */
    for (int k = 0; k < 2; k++)
      if (s->links[!k][n] >= 0) s->mine[s->neighbours[n]].arrived[k] += (int64_t)s->begins[!k][s->links[!k][n]] * (int64_t)sizeof(PetscScalar);
  PetscCallMPI(MPI_Alltoall(s->mine, (PetscMPIInt)sizeof(Address), MPI_BYTE, s->theirs, (PetscMPIInt)sizeof(Address), MPI_BYTE, comm));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* what is sent to a neighbour, directly or back */
static GpufmtPeerMessage Message(const GpufmtPeer *peer, const SetUp *s, PetscMPIInt n, int k)
{
  const PetscMPIInt rank = s->neighbours[n], link = s->links[k][n];
  const Address    *theirs  = &s->theirs[rank];
  const char *const index   = (const char *)GpufmtPieceAddress(&peer->piece) + s->layout.index;
  GpufmtPeerMessage message = {.target = GpufmtArenaAddress(peer->arena, rank, theirs->chunk, theirs->arrived[k]),
                               .stride = theirs->stride[k],
                               .flag   = GpufmtArenaAddress(peer->arena, rank, theirs->chunk, theirs->flag)};

  if (link >= 0) {
    message.first = s->begins[k][link];
    message.count = s->begins[k][link + 1] - message.first;
    if (k == GPUFMT_DIRECT) message.index = index + (size_t)message.first * sizeof(PetscInt);
  }
  return message;
}

static PetscErrorCode Arrivals(const GpufmtPeer *peer, const SetUp *s, int k, GpufmtPeerArrivals *arrivals)
{
  char *const  own = (char *)GpufmtPieceAddress(&peer->piece);
  void *const *failures;
  void        *report;

  PetscFunctionBegin;
  GpufmtArenaWords(peer->arena, &failures, &report);
  *arrivals = (GpufmtPeerArrivals){.flags       = own,
                                   .spacing     = FLAG_BYTES / (int64_t)sizeof(uint64_t),
                                   .nneighbours = peer->nmessages,
                                   .rank        = s->rank,
                                   .limit       = (int64_t)PetscMin(1e9 * peer->limit, 4e18),
                                   .arrived     = own + s->layout.arrived[k],
                                   .stride      = Stride(s->nsent[!k]),
                                   .count       = s->nsent[!k],
                                   .nranks      = s->nranks,
                                   .failures    = (void *const *)(own + s->layout.failures),
                                   .failure     = failures[s->rank],
                                   .report      = report};
  if (peer->backend == GPUFMT_BACKEND_CUDA) PetscCall(GpufmtDeviceTicks(peer->limit, &arrivals->limit));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* what kernels read, in one piece */
static PetscErrorCode TablesSend(const GpufmtHaloLinks *links, GpufmtPeer *peer, SetUp *s)
{
  const Layout *layout = &s->layout;
  char *const own = (char *)GpufmtPieceAddress(&peer->piece), *const tables = s->tables - layout->tables;
  const size_t bytes = layout->arrived[0] - layout->tables;
  void *const *failures;
  void        *report;

  PetscFunctionBegin;
  for (int k = 0; k < 2; k++) {
    GpufmtPeerMessage  *messages = (GpufmtPeerMessage *)(tables + layout->messages[k]);
    GpufmtPeerArrivals *arrivals = (GpufmtPeerArrivals *)(tables + layout->arrivals[k]);
    int64_t            *ranks    = (int64_t *)(arrivals + 1);

    for (PetscMPIInt n = 0; n < peer->nmessages; n++) {
      messages[n]      = Message(peer, s, n, k);
      ranks[n]         = s->neighbours[n];
      peer->longest[k] = PetscMax(peer->longest[k], messages[n].count);
    }
    PetscCall(Arrivals(peer, s, k, arrivals));
    peer->messages[k] = own + layout->messages[k];
    peer->arrivals[k] = own + layout->arrivals[k];
  }
  GpufmtArenaWords(peer->arena, &failures, &report);
  PetscCall(PetscArraycpy((void **)(tables + layout->failures), failures, s->nranks));
  PetscCall(PetscArraycpy((PetscInt *)(tables + layout->index), links->indices, s->nsent[GPUFMT_DIRECT]));
  if (peer->backend == GPUFMT_BACKEND_HOST) PetscCall(PetscMemcpy(own + layout->tables, s->tables, bytes));
  else PetscCall(GpufmtDeviceUpload(own + layout->tables, s->tables, bytes, peer->stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* until all ranks have a piece; `why_not`: they cannot */
static PetscErrorCode PiecesMake(GpufmtHalo halo, Mat A, PetscBool named, PetscErrorCode own, SetUp *s, const char **why_not)
{
  MPI_Comm  comm    = PetscObjectComm((PetscObject)A);
  const int backend = GpufmtBackendOf(A);

  PetscFunctionBegin;
  for (*why_not = NULL; !*why_not;) {
    int         most[] = {backend, -backend, 0}; /* where some and all work, missing memory */
    GpufmtArena arena  = NULL;

    if (!own) own = GpufmtArenaFind(comm, backend, &arena);
    if (!own && arena && !GpufmtArenaWhyNot(arena)) own = PieceMake(halo, A, arena, s, &most[2]);
    PetscCall(GpufmtAgree((PetscObject)A, "The set-up of a halo exchange", own, 3, most));
    if (most[0] != -most[1]) *why_not = "ranks work in different places";
    else if (backend == GPUFMT_BACKEND_HOST && !named) *why_not = "on the host it is for whom asks for it";
    else if (!arena) PetscCall(GpufmtArenaMake(comm, backend));
    else if (GpufmtArenaWhyNot(arena)) *why_not = GpufmtArenaWhyNot(arena);
    else if (most[2]) PetscCall(GpufmtArenaGrow(arena, (size_t)most[2] * GPUFMT_ARENA_ALIGNMENT));
    else break;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Makes the exchange of a matrix, unless `why_not` says why there is none. If it was not named, it may be one of the device alone. A rank that has
   failed before, `own`, has no `halo`; what fails on one rank fails on all. Collective. */
PetscErrorCode GpufmtPeerCreate(GpufmtHalo halo, Mat A, PetscBool named, PetscErrorCode own, const char **why_not)
{
  MPI_Comm comm = PetscObjectComm((PetscObject)A);
  SetUp    s    = {0};

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_rank(comm, &s.rank));
  PetscCallMPI(MPI_Comm_size(comm, &s.nranks));
  if (!own) own = GpufmtHaloLimitGet(A, &s.limit);
  own = PiecesMake(halo, A, named, own, &s, why_not);
  if (!own && !*why_not) own = AddressesExchange(comm, (GpufmtPeer *)halo->data, &s);
  if (!own && !*why_not) own = TablesSend(&halo->links, (GpufmtPeer *)halo->data, &s);
  PetscCall(SetUpFree(&s));
  if (halo && (own || *why_not)) PetscCall(GpufmtPeerDestroy(halo));
  PetscCall(own);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtPeerDestroy(GpufmtHalo halo)
{
  GpufmtPeer *peer = (GpufmtPeer *)halo->data;

  PetscFunctionBegin;
  if (!peer) PetscFunctionReturn(PETSC_SUCCESS);
  if (peer->open && peer->beside)
    PetscCall(GpufmtDeviceSynchronize(GpufmtArenaBeside(peer->arena)->stream)); /* synchronize! a failure in between: the plan may still run */
  for (int k = 0; k < 2; k++) PetscCall(VecDestroy(&peer->ghosts[k]));
  PetscCall(GpufmtDeviceFree(&peer->staged, &peer->capacity));
  if (!peer->open) PetscCall(GpufmtArenaRelease(&peer->piece)); /* else flags of others may still be raised there */
  PetscCall(PetscFree(halo->data));
  PetscFunctionReturn(PETSC_SUCCESS);
}
