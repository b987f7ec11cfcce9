/* A mode in which a thread drives the exchange while this one computes the local part. What is sent is packed before, on the host or behind what
   the device has to do. The thread waits for that, starts persistent messages and ends them. An MPI that cannot read the memory of a device gets
   copies, by a stream for them alone; long messages are cut then, so that one part is copied while another one is under way. */
#include "halo/halo.h"
#include <sched.h>

enum { SENT, RECEIVED };

/* of a message is one part at most where MPI may need copies; a copy of so many takes 10 us, twice as long as to begin it */
enum { PART_BYTES = 1 << 18 };

/* a part of a message, with a request of its own */
typedef struct {
  PetscMPIInt rank, count;
  PetscInt    begin; /* among all entries that are sent, or received */
  int         copy;
  PetscBool   under_way;
} Part;

/* parts [first, last), which are beside each other, and copied at once */
typedef struct {
  size_t begin, end; /* bytes of what is sent, or received */
  int    first, last;
  int    left; /* of these, under way */
} Copy;

/* what is packed on a backend */
typedef struct {
  PetscBool   made;
  GpufmtLease lease; /* of the plan */
  GpufmtPlan  pack;
  void       *packed;
  size_t      capacity; /* of it, in bytes; 0 on the host */
} Side;

typedef struct {
  int          held; /* the thread */
  MPI_Comm     comm;
  PetscMPIInt  tag;
  Side         sides[GPUFMT_NUM_BACKENDS];
  int          first; /* the backend whose side is there */
  GpufmtBeside beside;
  PetscBool    staged;    /* there is `pinned` */
  void        *pinned[2]; /* SENT, RECEIVED; MPI takes these in the place of memory of the device */
  int          nparts[2], ncopies[2];
  Part        *parts; /* those that are received come first */
  Copy        *copies[2];
  MPI_Request *requests;          /* of the parts */
  int          nrequests;         /* that are made */
  int         *ended;             /* numbers of parts that have just ended */
  double       limit;             /* seconds, 0: none */
  void        *given[2];          /* addresses that the requests are for */
  PetscScalar *ghosts;            /* this and what follows are of the exchange under way */
  PetscMemType memtype;           /* of them */
  PetscBool    on_device;         /* something is */
  void        *download, *upload; /* from where to `pinned`, to where from there; NULL: no */
  size_t       bytes[2];
  int          left;      /* parts that are under way, or will be */
  int          cuda, mpi; /* codes of errors */
  int          late;      /* the rank that is, -1: none. Its messages may come whenever: nothing is given back then. */
} Task;

/* ---- by the thread ---- */

static void PartEnds(Task *t, int number)
{
  const int direction = number < t->nparts[RECEIVED] ? RECEIVED : SENT;
  Copy     *copy      = &t->copies[direction][t->parts[number].copy];

  t->parts[number].under_way = PETSC_FALSE;
  t->left--;
  if (--copy->left || direction == SENT || !t->upload || t->cuda) return;
  t->cuda = GpufmtBesideUpload(&t->beside, (char *)t->upload + copy->begin, (char *)t->pinned[RECEIVED] + copy->begin, copy->end - copy->begin);
}

/* what has ended meanwhile */
static void GoOn(Task *t)
{
  int n;

  t->mpi = MPI_Testsome(t->nparts[RECEIVED] + t->nparts[SENT], t->requests, &n, t->ended, MPI_STATUSES_IGNORE);
  if (t->mpi || n == MPI_UNDEFINED) return;
  for (int k = 0; k < n; k++) PartEnds(t, t->ended[k]);
}

static void Download(Task *t, int k)
{
  const Copy *copy = &t->copies[SENT][k];

  if (!t->download || t->cuda || k >= t->ncopies[SENT]) return;
  t->cuda = GpufmtBesideDownload(&t->beside, k, (char *)t->pinned[SENT] + copy->begin, (char *)t->download + copy->begin, copy->end - copy->begin);
}

/* The next parts are copied while those before are sent. After an error they go, too: other ranks wait. */
static void Send(Task *t)
{
  Download(t, 0);
  for (int k = 0; k < t->ncopies[SENT] && !t->mpi; k++) {
    const Copy *copy = &t->copies[SENT][k];

    Download(t, k + 1);
    if (t->download && !t->cuda) t->cuda = GpufmtBesideAwait(&t->beside, k);
    t->mpi = MPI_Startall(copy->last - copy->first, t->requests + copy->first);
    if (!t->mpi) GoOn(t);
  }
}

static void Begun(Task *t)
{
  t->left = t->nparts[RECEIVED] + t->nparts[SENT];
  for (int k = 0; k < t->left; k++) t->parts[k].under_way = PETSC_TRUE;
  for (int d = 0; d < 2; d++)
    for (int k = 0; k < t->ncopies[d]; k++) t->copies[d][k].left = t->copies[d][k].last - t->copies[d][k].first;
}

static int FirstUnderWay(const Task *t)
{
  int k = 0;

  while (!t->parts[k].under_way) k++;
  return t->parts[k].rank;
}

/* One by one: parts of a message differ in nothing but their order, and MPI_Startall() may take any. What is sent at once goes to different ranks. */
static void Receive(Task *t)
{
  t->mpi = MPI_SUCCESS;
  for (int k = 0; k < t->nparts[RECEIVED] && !t->mpi; k++) t->mpi = MPI_Start(&t->requests[k]);
}

static int Exchange(void *data)
{
  Task  *t = (Task *)data;
  double begin;

  t->cuda = t->on_device ? GpufmtBesideEnter(&t->beside) : 0;
  Begun(t);
  Receive(t);
  Send(t);
  begin = MPI_Wtime();
  while (t->left && !t->mpi && t->late < 0) {
    GoOn(t);
    (void)sched_yield();
    if (t->left && t->limit > 0 && MPI_Wtime() - begin > t->limit) t->late = FirstUnderWay(t);
  }
  return t->cuda || t->mpi || t->late >= 0;
}

/* ---- by PETSc's thread ---- */

/* how many parts messages have */
static int PartsCount(PetscMPIInt n, const PetscInt begins[], PetscInt most)
{
  PetscInt count = 0;

  for (PetscMPIInt k = 0; k < n; k++) count += (begins[k + 1] - begins[k]) / most + ((begins[k + 1] - begins[k]) % most > 0);
  return (int)count;
}

static void PartsFill(Task *t, int direction, PetscMPIInt n, const PetscMPIInt ranks[], const PetscInt begins[], PetscInt most)
{
  Part *part = t->parts + (direction == SENT ? t->nparts[RECEIVED] : 0);

  for (PetscMPIInt k = 0; k < n; k++)
    for (PetscInt begin = begins[k]; begin < begins[k + 1]; begin += part++->count)
      *part = (Part){.rank = ranks[k], .count = (PetscMPIInt)PetscMin(begins[k + 1] - begin, most), .begin = begin};
}

/* short parts are copied together */
static void CopiesFill(Task *t, int direction)
{
  const int first = direction == SENT ? t->nparts[RECEIVED] : 0;
  Copy     *copy  = t->copies[direction];

  for (int k = first; k < first + t->nparts[direction]; k++) {
    Part *part = &t->parts[k];

    if (k == first || copy->end - copy->begin >= PART_BYTES) {
      copy  = &t->copies[direction][t->ncopies[direction]++];
      *copy = (Copy){.begin = (size_t)part->begin * sizeof(PetscScalar), .first = k};
    }
    copy->end  = (size_t)(part->begin + part->count) * sizeof(PetscScalar);
    copy->last = k + 1;
    part->copy = (int)(copy - t->copies[direction]);
  }
}

static PetscErrorCode PartsMake(const GpufmtHaloLinks *links, Task *t)
{
  const PetscInt most = use_gpu_aware_mpi ? PETSC_MPI_INT_MAX : PART_BYTES / (PetscInt)sizeof(PetscScalar);
  int            n;

  PetscFunctionBegin;
  t->nparts[RECEIVED] = PartsCount(links->nfrom, links->from_begins, most);
  t->nparts[SENT]     = PartsCount(links->nto, links->to_begins, most);
  n                   = t->nparts[RECEIVED] + t->nparts[SENT];
  PetscCall(PetscMalloc3(n, &t->parts, n, &t->requests, n, &t->ended));
  PetscCall(PetscMalloc2(t->nparts[SENT], &t->copies[SENT], t->nparts[RECEIVED], &t->copies[RECEIVED]));
  PartsFill(t, RECEIVED, links->nfrom, links->from, links->from_begins, most);
  PartsFill(t, SENT, links->nto, links->to, links->to_begins, most);
  for (int d = 0; d < 2; d++) CopiesFill(t, d);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode RequestsFree(Task *t)
{
  PetscFunctionBegin;
  for (int k = 0; k < t->nrequests; k++) PetscCallMPI(MPI_Request_free(&t->requests[k]));
  t->nrequests = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* messages from and to these addresses */
static PetscErrorCode RequestsMake(void *sent, void *received, Task *t)
{
  PetscFunctionBegin;
  if (t->given[SENT] == sent && t->given[RECEIVED] == received) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(RequestsFree(t));
  for (int k = 0; k < t->nparts[RECEIVED] + t->nparts[SENT]; k++) {
    const Part *part = &t->parts[k];

    if (k < t->nparts[RECEIVED])
      PetscCallMPI(MPI_Recv_init((PetscScalar *)received + part->begin, part->count, MPIU_SCALAR, part->rank, t->tag, t->comm, &t->requests[k]));
    else PetscCallMPI(MPI_Send_init((PetscScalar *)sent + part->begin, part->count, MPIU_SCALAR, part->rank, t->tag, t->comm, &t->requests[k]));
    t->nrequests++;
  }
  t->given[SENT]     = sent;
  t->given[RECEIVED] = received;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Packing is a sum of entries with one term each. */
static PetscErrorCode PackPlan(GpufmtHalo halo, int backend, Side *side)
{
  const GpufmtHaloLinks *links   = &halo->links;
  const PetscInt         nsent   = links->to_begins[links->nto];
  GpufmtEntrySumRequest  request = {.ntargets = nsent, .nterms = nsent, .index = links->indices, .sizes = {halo->nx}};
  GpufmtEntrySumAnswer   answer  = {0};

  PetscFunctionBegin;
  PetscCall(GpufmtPlannerAsk(GPUFMT_ASK_ENTRY_SUM, backend, GPUFMT_Plan, NULL, &request.place, &answer.outcome, &side->lease));
  side->pack = answer.sum;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* what a backend needs once */
static PetscErrorCode SideMake(GpufmtHalo halo, int backend)
{
  Task *t    = (Task *)halo->data;
  Side *side = &t->sides[backend];

  PetscFunctionBegin;
  if (t->bytes[SENT] && !GpufmtLeaseHolds(&side->lease)) PetscCall(PackPlan(halo, backend, side));
  if (side->made) PetscFunctionReturn(PETSC_SUCCESS);
  if (backend == GPUFMT_BACKEND_HOST) PetscCall(PetscMalloc(t->bytes[SENT], &side->packed));
  else PetscCall(GpufmtDeviceReserve(t->bytes[SENT], &side->packed, &side->capacity));
  side->made = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* what work on the device needs once */
static PetscErrorCode DeviceMake(Task *t)
{
  PetscFunctionBegin;
  if (!t->beside.stream) PetscCall(GpufmtBesideCreate(&t->beside));
  if (t->staged || use_gpu_aware_mpi) PetscFunctionReturn(PETSC_SUCCESS);
  for (int k = 0; k < 2; k++)
    if (!t->pinned[k]) PetscCall(GpufmtPinnedTake(t->bytes[k], &t->pinned[k]));
  t->staged = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode CheckLevel(void)
{
  static const struct {
    int         level;
    const char *name;
  } levels[] = {
    {MPI_THREAD_SINGLE,   "MPI_THREAD_SINGLE"  },
    {MPI_THREAD_FUNNELED, "MPI_THREAD_FUNNELED"}
  };
  const char *name = "another one";
  int         provided;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Query_thread(&provided));
  if (provided == MPI_THREAD_SERIALIZED || provided == MPI_THREAD_MULTIPLE) PetscFunctionReturn(PETSC_SUCCESS);
  for (size_t k = 0; k < PETSC_STATIC_ARRAY_LENGTH(levels); k++)
    if (levels[k].level == provided) name = levels[k].name;
  SETERRQ(PETSC_COMM_SELF, PETSC_ERR_SUP,
          "-mat_halo_mode task needs MPI_THREAD_SERIALIZED, and MPI grants %s: set PETSC_MPI_THREAD_REQUIRED before PetscInitialize(), in Python say "
          "`from mpi4py import MPI` before petsc4py.init(); or take -mat_halo_mode overlap",
          name);
}

/* PETSc numbers the messages of a communicator: what is counted on one rank is counted on all, before anything can fail. */
static PetscErrorCode Create(GpufmtHalo halo, Mat A, PetscErrorCode own)
{
  const int              backend = GpufmtBackendOf(A);
  const GpufmtHaloLinks *links;
  PetscMPIInt            tag;
  Task                  *t;

  PetscFunctionBegin;
  PetscCall(PetscObjectGetNewTag((PetscObject)A, &tag));
  PetscCall(own);
  links = &halo->links;
  PetscCall(PetscNew(&t));
  halo->data         = t;
  t->comm            = PetscObjectComm((PetscObject)A);
  t->first           = backend;
  t->tag             = tag;
  t->late            = -1;
  t->bytes[SENT]     = (size_t)links->to_begins[links->nto] * sizeof(PetscScalar);
  t->bytes[RECEIVED] = (size_t)halo->nghosts * sizeof(PetscScalar);
  PetscCall(CheckLevel());
  PetscCall(GpufmtHaloLimitGet(A, &t->limit));
  PetscCall(PartsMake(links, t));
  PetscCall(GpufmtHaloThreadHold(&t->held));
  PetscCall(SideMake(halo, backend));
  if (backend == GPUFMT_BACKEND_CUDA) PetscCall(DeviceMake(t));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Destroy(GpufmtHalo halo)
{
  Task *t = (Task *)halo->data;

  PetscFunctionBegin;
  if (!t) PetscFunctionReturn(PETSC_SUCCESS);
  GpufmtHaloThreadRelease(&t->held);
  if (t->late >= 0) {
    halo->data = NULL;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(RequestsFree(t));
  PetscCall(PetscFree3(t->parts, t->requests, t->ended));
  PetscCall(PetscFree2(t->copies[SENT], t->copies[RECEIVED]));
  for (int b = 0; b < GPUFMT_NUM_BACKENDS; b++) PetscCall(GpufmtLeaseDrop(&t->sides[b].lease));
  PetscCall(PetscFree(t->sides[GPUFMT_BACKEND_HOST].packed));
  PetscCall(GpufmtDeviceFree(&t->sides[GPUFMT_BACKEND_CUDA].packed, &t->sides[GPUFMT_BACKEND_CUDA].capacity));
  for (int k = 0; k < 2; k++) PetscCall(GpufmtPinnedReturn(&t->pinned[k]));
  PetscCall(GpufmtBesideDestroy(&t->beside));
  PetscCall(PetscFree(halo->data));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* packs what is sent of x, and says whether that is on the device */
static PetscErrorCode Pack(GpufmtHalo halo, Vec x, int *backend)
{
  Task              *t = (Task *)halo->data;
  const PetscScalar *array;
  PetscMemType       memtype;
  void              *slots[GPUFMT_NUM_SLOTS] = {NULL}, *stream = NULL;
  PetscErrorCode     ierr;

  PetscFunctionBegin;
  PetscCall(VecGetArrayReadAndMemType(x, &array, &memtype));
  *backend = PetscMemTypeDevice(memtype) ? GPUFMT_BACKEND_CUDA : GPUFMT_BACKEND_HOST;
  ierr     = SideMake(halo, *backend);
  if (!ierr && t->bytes[SENT]) {
    slots[GPUFMT_SLOT_A_VALUES] = (void *)array;
    slots[GPUFMT_SLOT_RESULT]   = t->sides[*backend].packed;
    if (*backend == GPUFMT_BACKEND_CUDA) ierr = GpufmtDeviceGet(NULL, &stream);
    if (!ierr) ierr = GpufmtReplay(&t->sides[*backend].pack, *backend, slots, stream);
  }
  PetscCall(VecRestoreArrayReadAndMemType(x, &array));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Others get what is not a number, where this rank has nothing to send. */
static PetscErrorCode Spoil(Task *t)
{
  void *stream, *packed = t->sides[t->first].packed;

  PetscFunctionBegin;
  if (t->first == GPUFMT_BACKEND_HOST) {
    if (packed) memset(packed, 0xff, t->bytes[SENT]);
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(GpufmtDeviceGet(NULL, &stream));
  PetscCall(GpufmtDeviceSpoil(packed, t->bytes[SENT], stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode LateCheck(const Task *t)
{
  PetscMPIInt rank;

  PetscFunctionBegin;
  if (PetscLikely(t->late < 0)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCallMPI(MPI_Comm_rank(t->comm, &rank));
  PetscCall(GpufmtHaloIsLate(t->limit, rank, t->late));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Begin(GpufmtHalo halo, Vec x)
{
  Task *t = (Task *)halo->data;
  void *sent, *received, *stream;
  int   backend = GPUFMT_BACKEND_HOST;

  PetscFunctionBegin;
  PetscCall(LateCheck(t));
  halo->own = Pack(halo, x, &backend);
  if (halo->own) {
    PetscCall(Spoil(t));
    backend = t->first;
  }
  PetscCall(VecGetArrayWriteAndMemType(halo->ghost, &t->ghosts, &t->memtype));
  t->on_device = (PetscBool)(backend == GPUFMT_BACKEND_CUDA || PetscMemTypeDevice(t->memtype));
  t->download = t->upload = NULL;
  sent                    = t->sides[backend].packed;
  received                = t->ghosts;
  if (t->on_device) {
    PetscCall(DeviceMake(t));
    PetscCall(GpufmtDeviceGet(NULL, &stream));
    PetscCall(GpufmtBesideBegin(&t->beside, stream));
    if (t->staged && backend == GPUFMT_BACKEND_CUDA) {
      t->download = sent;
      sent        = t->pinned[SENT];
    }
    if (t->staged && PetscMemTypeDevice(t->memtype)) {
      t->upload = received;
      received  = t->pinned[RECEIVED];
    }
  }
  PetscCall(RequestsMake(sent, received, t));
  GpufmtHaloThreadDo(Exchange, t);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode End(GpufmtHalo halo, Vec x, Vec *ghost)
{
  Task *t = (Task *)halo->data;
  void *stream;
  int   failed;

  PetscFunctionBegin;
  failed = GpufmtHaloThreadWait();
  PetscCall(VecRestoreArrayWriteAndMemType(halo->ghost, &t->ghosts));
  if (t->late >= 0) PetscCall(PetscObjectReference((PetscObject)halo->ghost));
  PetscCall(LateCheck(t));
  PetscCheck(!failed || !t->mpi, PETSC_COMM_SELF, PETSC_ERR_MPI, "MPI error %d in a halo exchange", t->mpi);
  PetscCheck(!failed, PETSC_COMM_SELF, PETSC_ERR_GPU, "CUDA error %d in a halo exchange", t->cuda);
  if (t->upload) {
    PetscCall(GpufmtDeviceGet(NULL, &stream));
    PetscCall(GpufmtBesideEnd(&t->beside, stream));
    PetscCall(PetscLogCpuToGpu((PetscLogDouble)t->bytes[RECEIVED]));
  }
  if (t->download) PetscCall(PetscLogGpuToCpu((PetscLogDouble)t->bytes[SENT]));
  *ghost = halo->ghost;
  PetscFunctionReturn(PETSC_SUCCESS);
}

const GpufmtHaloMode gpufmt_halo_task = {.name = "task", .create = Create, .destroy = Destroy, .begin = Begin, .end = End};
