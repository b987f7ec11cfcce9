/* Sums of a few numbers over the ranks of a matrix. They go the way its halo exchange goes: through memory of other ranks, by one launch that the host does
   not wait for, or where there is none by messages of MPI. The protocol is that of the mode `peer` (docs/design/halo.md). */
#include "halo/halo.h"

struct _GpufmtSums {
  MPI_Comm    comm;
  PetscMPIInt rank, nranks;
  int         backend;
  double      limit; /* seconds */
  GpufmtPiece piece; /* of no arena: by messages */
  void       *messages, *arrivals;
};

/* The piece of a rank, the same on all of them, in bytes from its beginning: flags, what kernels read, what arrives */
typedef struct {
  size_t  messages, arrivals, failures, exchange, arrived;
  int64_t stride; /* scalars from what arrives in exchanges with even numbers to what arrives in others */
  size_t  bytes;
} Layout;

/* what one rank tells all others */
typedef struct {
  int64_t chunk, offset; /* of its piece */
} Address;

typedef struct {
  GpufmtSums sums;
  Mat        A;
  Layout     layout;
  Address   *addresses; /* [nranks] */
  char      *tables;    /* a copy on the host */
} SetUp;

static Layout LayoutMake(size_t nranks)
{
  const size_t arrives = GpufmtPieceAligned(nranks * GPUFMT_MOST_SUMS * sizeof(PetscScalar));
  Layout       layout  = {.messages = GpufmtPieceAligned(nranks * GPUFMT_FLAG_BYTES), .stride = (int64_t)(arrives / sizeof(PetscScalar))};

  layout.arrivals = layout.messages + nranks * sizeof(GpufmtPeerMessage);
  layout.failures = layout.arrivals + sizeof(GpufmtPeerArrivals) + nranks * sizeof(int64_t);
  layout.exchange = layout.failures + nranks * sizeof(void *);
  layout.arrived  = GpufmtPieceAligned(layout.exchange + sizeof(uint64_t));
  layout.bytes    = layout.arrived + 2 * arrives;
  return layout;
}

/* all that may fail on this rank */
static PetscErrorCode PieceMake(void *context, GpufmtArena arena, int *missing)
{
  SetUp           *s    = (SetUp *)context;
  GpufmtSums const sums = s->sums;

  PetscFunctionBegin;
  if (!s->addresses) {
    PetscCall(GpufmtPeerPlan(sums->backend, sizeof(PetscScalar), s->A));
    PetscCall(PetscMalloc1(sums->nranks, &s->addresses));
    PetscCall(PetscCalloc1(s->layout.arrived - s->layout.messages, &s->tables));
  }
  PetscCall(GpufmtPieceTake(arena, sums->backend, s->layout.bytes, s->layout.messages, &sums->piece, missing));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* what kernels read; the number of the last sum is 0 */
static PetscErrorCode TablesSend(SetUp *s)
{
  GpufmtSums    sums   = s->sums;
  const Layout *layout = &s->layout;
  char *const own = (char *)GpufmtPieceAddress(&sums->piece), *const tables = s->tables - layout->messages;
  GpufmtPeerMessage  *messages = (GpufmtPeerMessage *)(tables + layout->messages);
  GpufmtPeerArrivals *arrivals = (GpufmtPeerArrivals *)(tables + layout->arrivals);
  int64_t            *ranks    = (int64_t *)(arrivals + 1);
  void *const        *failures;
  void               *report, *stream = NULL;

  PetscFunctionBegin;
  for (PetscMPIInt r = 0; r < sums->nranks; r++) {
    char *there = (char *)GpufmtArenaAddress(sums->piece.arena, r, s->addresses[r].chunk, s->addresses[r].offset);

    messages[r] = (GpufmtPeerMessage){.target = there + layout->arrived + (size_t)sums->rank * GPUFMT_MOST_SUMS * sizeof(PetscScalar),
                                      .stride = layout->stride,
                                      .flag   = there + (size_t)sums->rank * GPUFMT_FLAG_BYTES,
                                      .count  = GPUFMT_MOST_SUMS};
    ranks[r]    = r;
  }
  PetscCall(GpufmtArrivalsBegin(&sums->piece, sums->backend, sums->rank, sums->nranks, sums->limit, own + layout->failures, arrivals));
  arrivals->nneighbours = sums->nranks;
  arrivals->arrived     = own + layout->arrived;
  arrivals->stride      = layout->stride;
  arrivals->count       = sums->nranks * GPUFMT_MOST_SUMS;
  arrivals->exchange    = own + layout->exchange;
  GpufmtArenaWords(sums->piece.arena, &failures, &report);
  PetscCall(PetscArraycpy((void **)(tables + layout->failures), failures, sums->nranks));
  if (sums->backend == GPUFMT_BACKEND_CUDA) PetscCall(GpufmtDeviceGet(NULL, &stream));
  PetscCall(GpufmtTablesSend(sums->backend, own + layout->messages, s->tables, layout->arrived - layout->messages, stream));
  sums->messages = own + layout->messages;
  sums->arrivals = own + layout->arrivals;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* through memory of other ranks, unless `why_not` says why that cannot be; collective */
static PetscErrorCode SetUpTables(SetUp *s, PetscBool named, PetscErrorCode own, const char **why_not)
{
  static const char what[] = "The set-up of sums over ranks";
  Address           mine;

  PetscFunctionBegin;
  PetscCall(GpufmtPiecesMake(s->A, what, named, own, PieceMake, s, why_not));
  if (*why_not) {
    PetscCall(GpufmtArenaRelease(&s->sums->piece)); /* this rank may have taken one before others said so */
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  mine = (Address){.chunk = s->sums->piece.chunk, .offset = s->sums->piece.offset};
  PetscCallMPI(
    MPI_Allgather(&mine, (PetscMPIInt)sizeof(mine), MPI_BYTE, s->addresses, (PetscMPIInt)sizeof(mine), MPI_BYTE, PetscObjectComm((PetscObject)s->A)));
  PetscCall(GpufmtAgree((PetscObject)s->A, what, TablesSend(s), 0, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* this rank alone */
static PetscErrorCode New(Mat A, GpufmtSums *out)
{
  GpufmtSums sums;

  PetscFunctionBegin;
  PetscCall(PetscNew(out));
  sums          = *out;
  sums->backend = GpufmtBackendOf(A);
  PetscCall(GpufmtHaloLimitGet(A, &sums->limit));
  PetscCallMPI(MPI_Comm_rank(PetscObjectComm((PetscObject)A), &sums->rank));
  PetscCallMPI(MPI_Comm_size(PetscObjectComm((PetscObject)A), &sums->nranks));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Sums over the ranks of A, of arrays where it works: on the host, or on its device. `why_not` NULL: through memory of other ranks, or there are none; else
   why by messages. What fails on one rank fails on all, and leaves nothing. Collective. */
PetscErrorCode GpufmtSumsCreate(Mat A, GpufmtSums *out, const char **why_not)
{
  const GpufmtHaloMode *named;
  PetscMPIInt           nranks;
  PetscErrorCode        ierr;
  SetUp                 s = {.A = A};

  PetscFunctionBegin;
  *out     = NULL;
  *why_not = NULL;
  PetscCall(GpufmtHaloModeNamed(A, &named)); /* all ranks have the same options */
  PetscCallMPI(MPI_Comm_size(PetscObjectComm((PetscObject)A), &nranks));
  ierr     = New(A, &s.sums);
  s.layout = LayoutMake((size_t)nranks);
  if (nranks > 1 && named && named != &gpufmt_halo_peer) *why_not = "-mat_halo_mode names messages";
  if (nranks > 1 && !*why_not) ierr = SetUpTables(&s, (PetscBool) !!named, ierr, why_not);
  else ierr = GpufmtAgree((PetscObject)A, "The set-up of sums over ranks", ierr, 0, NULL);
  PetscCall(PetscFree(s.addresses));
  PetscCall(PetscFree(s.tables));
  if (!ierr) ierr = PetscCommDuplicate(PetscObjectComm((PetscObject)A), &s.sums->comm, NULL); /* ranks wait there by PETSc's own checks */
  if (ierr) PetscCall(GpufmtSumsDestroy(&s.sums));
  PetscCall(ierr);
  *out = s.sums;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* not collective: what other ranks wrote here was waited for */
PetscErrorCode GpufmtSumsDestroy(GpufmtSums *sums)
{
  PetscFunctionBegin;
  if (!*sums) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtArenaRelease(&(*sums)->piece));
  if ((*sums)->comm) PetscCall(PetscCommDestroy(&(*sums)->comm));
  PetscCall(PetscFree(*sums));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* whether a sum or an exchange of these ranks has failed, as far as this rank knows so far; waits for nothing */
PetscErrorCode GpufmtSumsCheck(GpufmtSums sums)
{
  PetscFunctionBegin;
  if (sums->piece.arena) PetscCall(GpufmtArenaCheck(sums->piece.arena, sums->limit));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* not messages */
PetscBool GpufmtSumsAreLaunched(GpufmtSums sums)
{
  return (PetscBool)(sums->nranks == 1 || sums->piece.arena);
}

/* What launches that sum over ranks by themselves find in these slots; there are several ranks, and sums are no messages. Such launches and those of plans
   count their exchanges together: all ranks run the same ones in the same order. */
void GpufmtSumsTables(GpufmtSums sums, void **messages, void **arrivals)
{
  *messages = sums->messages;
  *arrivals = sums->arrivals;
}

/* One launch and its slots, to be replayed or recorded as often as one likes while `sums` is there and the lease holds; none on one rank. NULL: sums are
   messages. All ranks run the same sums in the same order, in one stream each. */
PetscErrorCode GpufmtSumsPlan(GpufmtSums sums, PetscInt n, PetscScalar *array, const GpufmtPlan **plan, void *slots[GPUFMT_NUM_SLOTS],
                              const GpufmtLease **lease)
{
  static const GpufmtPlan nothing = {0};
  GpufmtPlan             *step;

  PetscFunctionBegin;
  *plan  = sums->nranks == 1 ? &nothing : NULL;
  *lease = NULL;
  if (!sums->piece.arena) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtPeerStep(sums->backend, sizeof(PetscScalar), GPUFMT_PEER_SUM, &step, lease));
  GpufmtSumsTables(sums, &slots[GPUFMT_SLOT_MESSAGES], &slots[GPUFMT_SLOT_ARRIVALS]);
  slots[GPUFMT_SLOT_X] = slots[GPUFMT_SLOT_Z] = array;
  slots[GPUFMT_SLOT_ALPHA]                    = (void *)(intptr_t)n;
  *plan                                       = step;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Without memory of others. A rank that fails sends what is not a number, so that others need not wait for it. */
static PetscErrorCode ByMessages(GpufmtSums sums, PetscInt n, PetscScalar *array, void *stream)
{
  const PetscBool on_device = (PetscBool)(sums->backend == GPUFMT_BACKEND_CUDA);
  PetscScalar     numbers[GPUFMT_MOST_SUMS];
  PetscErrorCode  ierr = PETSC_SUCCESS;

  PetscFunctionBegin;
  if (on_device) {
    memset(numbers, 0xff, sizeof(numbers));
    ierr = GpufmtDeviceDownload(numbers, array, (size_t)n * sizeof(*numbers), stream); /* synchronize! */
  }
  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, on_device ? numbers : array, (PetscMPIInt)n, MPIU_SCALAR, MPIU_SUM, sums->comm));
  PetscCall(ierr);
  if (on_device) PetscCall(GpufmtDeviceUpload(array, numbers, (size_t)n * sizeof(*numbers), stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* array[k], k < n, becomes the sum of those of all ranks: the same bits on all of them. Through memory of others, those of ranks are added in their
   order, and on a device a failure is known in the next sum: this one gives what is not a number. Collective. */
PetscErrorCode GpufmtSumsRun(GpufmtSums sums, PetscInt n, PetscScalar *array, void *stream)
{
  void              *slots[GPUFMT_NUM_SLOTS] = {NULL};
  const GpufmtPlan  *plan;
  const GpufmtLease *lease;

  PetscFunctionBegin;
  PetscCheck(n >= 1 && n <= GPUFMT_MOST_SUMS, PETSC_COMM_SELF, PETSC_ERR_ARG_OUTOFRANGE,
             "A sum over ranks of %" PetscInt_FMT " numbers: it takes 1 to %d at once", n, GPUFMT_MOST_SUMS);
  PetscCall(GpufmtSumsCheck(sums));
  PetscCall(GpufmtSumsPlan(sums, n, array, &plan, slots, &lease));
  if (!plan) PetscCall(ByMessages(sums, n, array, stream));
  else if (plan->nlaunches) PetscCall(GpufmtReplay(plan, sums->backend, slots, stream));
  if (sums->backend == GPUFMT_BACKEND_HOST) PetscCall(GpufmtSumsCheck(sums));
  PetscFunctionReturn(PETSC_SUCCESS);
}
