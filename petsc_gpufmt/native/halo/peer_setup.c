/* Where everything of an exchange in the mode `peer` lies, in memory that all ranks reach: flags, what kernels read, and what arrives. Ranks tell each
   other in one message each, and nobody waits for a device but for memory that was used before. */
#include "halo/halo.h"

/* On a device, an exchange beside PETSc's stream takes 4 to 7 us less where the local part takes longer, since all but the end is hidden behind
   that; but its events keep the host for 5 us, which decides where the local part is short. Nonzeros of this rank, on H200s: with 0.9 million a
   product took 22 us and not 17, with 7 million 28 and not 32, with 28 million 87 and not 94. */
enum { LONG_LOCAL_PART = 3000000 };

/* The piece of this rank, in bytes from its beginning. Flags come first; then what is sent to the backend as one; then what other ranks write. */
typedef struct {
  size_t tables; /* the begin of what is sent, up to `arrived[0]` */
  size_t messages[2], arrivals[2], failures, exchange, index;
  size_t arrived[2]; /* ghosts, and sums */
  size_t bytes;
} Layout;

/* what one rank tells another one */
typedef struct {
  int64_t chunk;      /* of its piece; offsets are in that */
  int64_t flag;       /* that the other one raises */
  int64_t arrived[2]; /* where the other one's entries go, and its sums, in exchanges with even numbers */
  int64_t stride[2];  /* entries from there to those with odd ones */
} Address;

typedef struct {
  GpufmtHalo      halo; /* of this matrix */
  Mat             A;
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

/* entries from those that arrive in exchanges with even numbers to those that arrive in others */
static int64_t Stride(int64_t count, size_t scalar_bytes)
{
  return (int64_t)(GpufmtPieceAligned((size_t)count * scalar_bytes) / scalar_bytes);
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
  size_t       end = layout->tables = GpufmtPieceAligned(nranks * GPUFMT_FLAG_BYTES);

  for (int k = 0; k < 2; k++) {
    layout->messages[k] = end;
    layout->arrivals[k] = end += n * sizeof(GpufmtPeerMessage);
    end += sizeof(GpufmtPeerArrivals) + n * sizeof(int64_t);
  }
  layout->failures = end;
  layout->exchange = end += nranks * sizeof(void *);
  layout->index    = end += sizeof(uint64_t);
  end              = GpufmtPieceAligned(end + (size_t)s->nsent[GPUFMT_DIRECT] * sizeof(PetscInt));
  for (int k = 0; k < 2; k++) { /* what arrives directly is as many as are sent back */
    layout->arrived[k] = end;
    end += 2 * (size_t)Stride(s->nsent[!k], peer->scalar_bytes) * peer->scalar_bytes;
  }
  layout->bytes = end;
}

static PetscErrorCode Begin(SetUp *s, GpufmtArena arena)
{
  Mat         A    = s->A;
  GpufmtHalo  halo = s->halo;
  GpufmtPeer *peer;

  PetscFunctionBegin;
  PetscCall(PetscNew(&peer));
  halo->data         = peer;
  peer->arena        = arena;
  peer->limit        = s->limit;
  peer->backend      = GpufmtBackendOf(A);
  peer->scalar_bytes = halo->scalar_bytes;
  if (peer->backend == GPUFMT_BACKEND_CUDA) PetscCall(GpufmtDeviceGet(NULL, &peer->stream));
  PetscCall(GpufmtPeerPlan(peer->backend, peer->scalar_bytes, A));
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

/* where entries arrive, and vectors whose arrays these are */
static PetscErrorCode GhostsMake(GpufmtHalo halo, GpufmtPeer *peer, const Layout *layout)
{
  const size_t stride = (size_t)Stride(halo->nghosts, peer->scalar_bytes) * peer->scalar_bytes;

  PetscFunctionBegin;
  for (int k = 0; k < 2; k++) {
    PetscScalar *array = (PetscScalar *)((char *)GpufmtPieceAddress(&peer->piece) + layout->arrived[GPUFMT_DIRECT] + (size_t)k * stride);

    peer->places[k] = array;
    if (peer->scalar_bytes != sizeof(PetscScalar)) continue;
    if (peer->backend == GPUFMT_BACKEND_HOST) PetscCall(VecCreateSeqWithArray(PETSC_COMM_SELF, 1, halo->nghosts, array, &peer->ghosts[k]));
#if PetscDefined(HAVE_CUDA)
    else PetscCall(VecCreateSeqCUDAWithArray(PETSC_COMM_SELF, 1, halo->nghosts, array, &peer->ghosts[k]));
#endif
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* All that may fail on this rank; `missing` becomes units of memory that the arena has not. */
static PetscErrorCode PieceMake(void *context, GpufmtArena arena, int *missing)
{
  SetUp      *s = (SetUp *)context;
  GpufmtPeer *peer;

  PetscFunctionBegin;
  if (!s->halo->data) PetscCall(Begin(s, arena));
  peer = (GpufmtPeer *)s->halo->data;
  PetscCall(GpufmtPieceTake(arena, peer->backend, s->layout.bytes, s->layout.tables, &peer->piece, missing));
  if (peer->piece.arena && !peer->places[0]) PetscCall(GhostsMake(s->halo, peer, &s->layout));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---- all ranks ---- */

/* Collective. */
static PetscErrorCode AddressesExchange(MPI_Comm comm, GpufmtPeer *peer, SetUp *s)
{
  PetscFunctionBegin;
  for (PetscMPIInt r = 0; r < s->nranks; r++) {
    s->mine[r] = (Address){.chunk = peer->piece.chunk, .flag = peer->piece.offset + r * GPUFMT_FLAG_BYTES};
    for (int k = 0; k < 2; k++) {
      s->mine[r].arrived[k] = peer->piece.offset + (int64_t)s->layout.arrived[k];
      s->mine[r].stride[k]  = Stride(s->nsent[!k], peer->scalar_bytes);
    }
  }
  for (PetscMPIInt n = 0; n < peer->nmessages; n++) /* after what lower ranks send */
    for (int k = 0; k < 2; k++)
      if (s->links[!k][n] >= 0) s->mine[s->neighbours[n]].arrived[k] += (int64_t)s->begins[!k][s->links[!k][n]] * (int64_t)peer->scalar_bytes;
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
  char *const own = (char *)GpufmtPieceAddress(&peer->piece);

  PetscFunctionBegin;
  PetscCall(GpufmtArrivalsBegin(&peer->piece, peer->backend, s->rank, s->nranks, s->limit, own + s->layout.failures, arrivals));
  arrivals->nneighbours = peer->nmessages;
  arrivals->arrived     = own + s->layout.arrived[k];
  arrivals->stride      = Stride(s->nsent[!k], peer->scalar_bytes);
  arrivals->count       = s->nsent[!k];
  arrivals->exchange    = own + s->layout.exchange;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* what kernels read, in one piece; the number of the last exchange is 0 */
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
  PetscCall(GpufmtTablesSend(peer->backend, own + layout->tables, s->tables, bytes, peer->stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Makes the exchange of a matrix, unless `why_not` says why there is none. If it was not named, it may be one of the device alone. A rank that has
   failed before, `own`, has no `halo`; what fails on one rank fails on all. Collective. */
PetscErrorCode GpufmtPeerCreate(GpufmtHalo halo, Mat A, PetscBool named, PetscErrorCode own, const char **why_not)
{
  MPI_Comm comm = PetscObjectComm((PetscObject)A);
  SetUp    s    = {.halo = halo, .A = A};

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_rank(comm, &s.rank));
  PetscCallMPI(MPI_Comm_size(comm, &s.nranks));
  if (!own) own = GpufmtHaloLimitGet(A, &s.limit);
  own = GpufmtPiecesMake(A, "The set-up of a halo exchange", named, own, PieceMake, &s, why_not);
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
