/* The mode `peer`: ranks write entries into memory of those who need them, and no message is sent. The protocol is in docs/design/halo.md, and
   what is made of memory before in peer_setup.c; kernels, or their counterparts on the host, do the rest (petsc_gpufmt/halo/peer.py). */
#include "halo/halo.h"

/* the launches of all exchanges on a backend, of entries of a precision */
typedef struct {
  GpufmtLease      lease;
  GpufmtPeerAnswer answer;
} Plans;

static Plans plans[GPUFMT_NUM_BACKENDS][2];

static Plans *PlansOf(int backend, size_t scalar_bytes)
{
  return &plans[backend][scalar_bytes != sizeof(PetscScalar)];
}

/* before the first exchange on a backend */
PetscErrorCode GpufmtPeerPlan(int backend, size_t scalar_bytes, Mat A)
{
  GpufmtPeerRequest request = {.place = {.scalar_bytes = (int32_t)scalar_bytes}};
  Plans            *p       = PlansOf(backend, scalar_bytes);

  PetscFunctionBegin;
  if (GpufmtLeaseHolds(&p->lease)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtPlannerAsk(GPUFMT_ASK_PEER, backend, GPUFMT_Plan, A, &request.place, &p->answer.outcome, &p->lease));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the plan of a step, which lasts as long as the lease holds */
PetscErrorCode GpufmtPeerStep(int backend, size_t scalar_bytes, int step, GpufmtPlan **plan, const GpufmtLease **lease)
{
  Plans *p = PlansOf(backend, scalar_bytes);

  PetscFunctionBegin;
  PetscCheck(GpufmtLeaseHolds(&p->lease), PETSC_COMM_SELF, PETSC_ERR_ORDER,
             "The plan of a halo exchange is gone, since Python has ended in this process: multiply before the interpreter exits");
  *plan  = &p->answer.steps[step];
  *lease = &p->lease;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* One step of what goes directly, or back: its launch and slots, until the next step of any exchange; NULL: there is nothing to do. The number of the
   exchange is in memory, so the same launch and slots serve every one. */
PetscErrorCode GpufmtPeerLaunch(const GpufmtPeer *peer, int step, int k, const void *x, void *z, const GpufmtPlan **out,
                                void *slots[GPUFMT_NUM_SLOTS], const GpufmtLease **lease)
{
  const int     sent    = step == GPUFMT_PEER_ADD ? GPUFMT_DIRECT : k; /* sums arrive for what was sent */
  const int64_t entries = PlansOf(peer->backend, peer->scalar_bytes)->answer.block_entries[step];
  GpufmtPlan   *plan    = NULL;

  PetscFunctionBegin;
  *out = NULL;
  PetscCall(GpufmtPeerStep(peer->backend, peer->scalar_bytes, step, &plan, lease));
  if (step != GPUFMT_PEER_WAIT) {
    uint32_t *grid = plan->launches[0].grid;

    if (!peer->nmessages) PetscFunctionReturn(PETSC_SUCCESS);
    grid[0] = (uint32_t)PetscMax(1, (peer->longest[sent] + entries - 1) / entries);
    grid[1] = (uint32_t)peer->nmessages;
  }
  slots[GPUFMT_SLOT_X]        = (void *)x;
  slots[GPUFMT_SLOT_Z]        = z;
  slots[GPUFMT_SLOT_MESSAGES] = peer->messages[sent];
  slots[GPUFMT_SLOT_ARRIVALS] = peer->arrivals[k];
  *out                        = plan;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Run(const GpufmtPeer *peer, int step, int k, void *stream, const void *x, void *z)
{
  void              *slots[GPUFMT_NUM_SLOTS] = {NULL};
  const GpufmtPlan  *plan                    = NULL;
  const GpufmtLease *lease;

  PetscFunctionBegin;
  PetscCall(GpufmtPeerLaunch(peer, step, k, x, z, &plan, slots, &lease));
  if (plan) PetscCall(GpufmtReplay(plan, peer->backend, slots, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* where an array is worked with: a copy on the device, if it is not there */
static PetscErrorCode Place(GpufmtPeer *peer, Vec v, const PetscScalar *array, PetscMemType memtype, PetscScalar **placed)
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

static PetscErrorCode SendOnHost(GpufmtPeer *peer, int k, Vec v)
{
  const PetscScalar *array;
  PetscErrorCode     ierr;

  PetscFunctionBegin;
  PetscCall(VecGetArrayRead(v, &array));
  ierr = Run(peer, GPUFMT_PEER_SEND, k, NULL, array, NULL); /* a failure leaves the vector usable */
  PetscCall(VecRestoreArrayRead(v, &array));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Exchanges follow what PETSc's stream has done so far. If that is another stream than in the last exchange, the one before has to be over. */
static PetscErrorCode StreamFollow(GpufmtPeer *peer)
{
  void *stream;

  PetscFunctionBegin;
  PetscCall(GpufmtDeviceGet(NULL, &stream));
  if (stream != peer->stream) PetscCall(GpufmtDeviceSettle()); /* synchronize! */
  peer->stream = stream;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Beside PETSc's stream both are queued before the local part, else one before it and one behind it. */
static PetscErrorCode SendAndWait(const GpufmtPeer *peer, int k, const void *placed)
{
  GpufmtBeside *beside = GpufmtArenaBeside(peer->arena);

  PetscFunctionBegin;
  if (!peer->beside) {
    PetscCall(Run(peer, GPUFMT_PEER_SEND, k, peer->stream, placed, NULL));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(GpufmtBesideFollow(beside, peer->stream));
  PetscCall(Run(peer, GPUFMT_PEER_SEND, k, beside->stream, placed, NULL));
  PetscCall(Run(peer, GPUFMT_PEER_WAIT, k, beside->stream, NULL, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Without memory for a copy, *own, others get what is not a number, and need not wait. */
static PetscErrorCode SendOnDevice(GpufmtPeer *peer, int k, Vec v, PetscErrorCode *own)
{
  const PetscScalar *array;
  PetscScalar       *placed;
  PetscMemType       memtype;
  PetscErrorCode     ierr;

  PetscFunctionBegin;
  PetscCall(StreamFollow(peer));
  PetscCall(VecGetArrayReadAndMemType(v, &array, &memtype));
  *own = Place(peer, v, array, memtype, &placed);
  ierr = SendAndWait(peer, k, *own ? NULL : placed); /* a failure leaves the vector usable */
  PetscCall(VecRestoreArrayReadAndMemType(v, &array));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Open(GpufmtPeer *peer)
{
  PetscFunctionBegin;
  PetscCall(GpufmtArenaCheck(peer->arena, peer->limit));
  PetscCheck(!peer->open, PETSC_COMM_SELF, PETSC_ERR_ORDER,
             "An earlier product of this parallel matrix with a vector failed in the middle of its halo exchange: make the matrix anew");
  peer->exchange++;
  peer->open = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode BeginEither(GpufmtHalo halo, int k, Vec v)
{
  GpufmtPeer *peer = (GpufmtPeer *)halo->data;

  PetscFunctionBegin;
  PetscCall(Open(peer));
  if (peer->backend == GPUFMT_BACKEND_HOST) PetscCall(SendOnHost(peer, k, v));
  else PetscCall(SendOnDevice(peer, k, v, &halo->own));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* On a device a failure is known when the next exchange begins: what should have arrived is NaN until then. */
static PetscErrorCode EndEither(GpufmtPeer *peer, int k)
{
  PetscFunctionBegin;
  if (peer->beside) PetscCall(GpufmtBesideJoin(GpufmtArenaBeside(peer->arena), peer->stream));
  else PetscCall(Run(peer, GPUFMT_PEER_WAIT, k, peer->stream, NULL, NULL));
  if (peer->backend == GPUFMT_BACKEND_HOST) PetscCall(GpufmtArenaCheck(peer->arena, peer->limit));
  peer->open = PETSC_FALSE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Begin(GpufmtHalo halo, Vec x)
{
  PetscFunctionBegin;
  PetscCall(BeginEither(halo, GPUFMT_DIRECT, x));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode End(GpufmtHalo halo, Vec x, Vec *ghost)
{
  GpufmtPeer *const peer = (GpufmtPeer *)halo->data;
  PetscScalar      *array;
  PetscMemType      memtype;

  PetscFunctionBegin;
  PetscCall(EndEither(peer, GPUFMT_DIRECT));
  *ghost = peer->ghosts[peer->exchange & 1];
  PetscCall(VecGetArrayWriteAndMemType(*ghost, &array, &memtype)); /* a copy that the vector may have on the host is an old one now */
  PetscCall(VecRestoreArrayWriteAndMemType(*ghost, &array));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode BeginBack(GpufmtHalo halo)
{
  PetscFunctionBegin;
  PetscCall(BeginEither(halo, GPUFMT_BACK, halo->ghost));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode EndBack(GpufmtHalo halo, Vec z)
{
  GpufmtPeer *const peer    = (GpufmtPeer *)halo->data;
  const PetscBool   on_host = (PetscBool)(peer->backend == GPUFMT_BACKEND_HOST);
  PetscMemType      memtype = PETSC_MEMTYPE_HOST;
  PetscScalar      *array, *placed = NULL;
  PetscInt          n;
  PetscErrorCode    ierr;

  PetscFunctionBegin;
  PetscCall(EndEither(peer, GPUFMT_BACK));
  PetscCall(VecGetLocalSize(z, &n));
  if (on_host) PetscCall(VecGetArray(z, &array));
  else PetscCall(VecGetArrayAndMemType(z, &array, &memtype));
  ierr = Place(peer, z, array, memtype, &placed);
  if (!ierr) ierr = Run(peer, GPUFMT_PEER_ADD, GPUFMT_BACK, peer->stream, NULL, placed); /* a failure leaves the vector usable */
  if (!ierr && placed != array) ierr = GpufmtDeviceDownload(array, placed, (size_t)n * sizeof(PetscScalar), peer->stream);
  if (on_host) PetscCall(VecRestoreArray(z, &array));
  else PetscCall(VecRestoreArrayAndMemType(z, &array));
  if (!halo->own) halo->own = ierr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Sends entries of an array on the backend. */
PetscErrorCode GpufmtPeerArrayBegin(GpufmtHalo halo, const void *x)
{
  GpufmtPeer *peer = (GpufmtPeer *)halo->data;

  PetscFunctionBegin;
  PetscCall(Open(peer));
  if (peer->backend == GPUFMT_BACKEND_HOST) PetscCall(Run(peer, GPUFMT_PEER_SEND, GPUFMT_DIRECT, NULL, x, NULL));
  else {
    PetscCall(StreamFollow(peer));
    PetscCall(SendAndWait(peer, GPUFMT_DIRECT, x));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* *ghosts: those of other ranks, until the end of the exchange after next */
PetscErrorCode GpufmtPeerArrayEnd(GpufmtHalo halo, void **ghosts)
{
  GpufmtPeer *peer = (GpufmtPeer *)halo->data;

  PetscFunctionBegin;
  PetscCall(EndEither(peer, GPUFMT_DIRECT));
  *ghosts = peer->places[peer->exchange & 1];
  PetscFunctionReturn(PETSC_SUCCESS);
}

const GpufmtHaloMode gpufmt_halo_peer = {"peer", NULL, GpufmtPeerDestroy, Begin, End, BeginBack, EndBack};
