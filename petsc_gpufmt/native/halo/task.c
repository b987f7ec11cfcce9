/* A mode in which a thread drives the exchange while this one computes the local part. What is sent is packed before, on the host or behind what
   the device has to do. The thread waits for that, starts persistent messages and ends them. A device has its own stream for copies to MPI that
   cannot read its memory. */
#include "halo/halo.h"

#if !PetscDefined(HAVE_MPIUNI)
  #undef MPI_Waitall /* that of PETSc counts messages, which its own thread alone may do */
#endif

enum { SENT, RECEIVED };

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
  GpufmtBeside beside;
  PetscBool    staged;    /* there is `pinned` */
  void        *pinned[2]; /* SENT, RECEIVED; MPI takes these in the place of memory of the device */
  MPI_Request *requests;  /* receives come first */
  int          nrequests;
  void        *given[2];          /* addresses that the requests are for */
  PetscScalar *ghosts;            /* this and what follows are of the exchange under way */
  PetscMemType memtype;           /* of them */
  PetscBool    on_device;         /* something is */
  void        *download, *upload; /* from where to `pinned`, to where from there; NULL: no */
  size_t       bytes[2];
  int          cuda, mpi; /* codes of errors */
} Task;

/* by the thread */
static int Exchange(void *data)
{
  Task *t = (Task *)data;

  t->cuda = t->on_device ? GpufmtBesideEnter(&t->beside) : 0;
  if (t->download && !t->cuda) t->cuda = GpufmtBesideDownload(&t->beside, t->pinned[SENT], t->download, t->bytes[SENT]);
  t->mpi = t->nrequests ? MPI_Startall(t->nrequests, t->requests) : 0; /* after an error, too: other ranks wait */
  if (t->nrequests && !t->mpi) t->mpi = MPI_Waitall(t->nrequests, t->requests, MPI_STATUSES_IGNORE);
  if (t->upload && !t->cuda) t->cuda = GpufmtBesideUpload(&t->beside, t->upload, t->pinned[RECEIVED], t->bytes[RECEIVED]);
  return t->cuda || t->mpi;
}

static PetscErrorCode RequestsFree(Task *t)
{
  PetscFunctionBegin;
  for (int k = 0; k < t->nrequests; k++) PetscCallMPI(MPI_Request_free(&t->requests[k]));
  t->nrequests = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* messages from and to these addresses */
static PetscErrorCode RequestsMake(const GpufmtHaloLinks *links, void *sent, void *received, Task *t)
{
  PetscFunctionBegin;
  if (t->given[SENT] == sent && t->given[RECEIVED] == received) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(RequestsFree(t));
  for (PetscMPIInt k = 0; k < links->nfrom; k++) {
    PetscScalar *first = (PetscScalar *)received + links->from_begins[k];
    PetscMPIInt  n;

    PetscCall(PetscMPIIntCast(links->from_begins[k + 1] - links->from_begins[k], &n));
    PetscCallMPI(MPI_Recv_init(first, n, MPIU_SCALAR, links->from[k], t->tag, t->comm, &t->requests[t->nrequests++]));
  }
  for (PetscMPIInt k = 0; k < links->nto; k++) {
    PetscScalar *first = (PetscScalar *)sent + links->to_begins[k];
    PetscMPIInt  n;

    PetscCall(PetscMPIIntCast(links->to_begins[k + 1] - links->to_begins[k], &n));
    PetscCallMPI(MPI_Send_init(first, n, MPIU_SCALAR, links->to[k], t->tag, t->comm, &t->requests[t->nrequests++]));
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
  const GpufmtHaloLinks *links   = &halo->links;
  const int              backend = GpufmtBackendOf(A);
  PetscMPIInt            tag;
  Task                  *t;

  PetscFunctionBegin;
  PetscCall(PetscObjectGetNewTag((PetscObject)A, &tag));
  PetscCall(own);
  PetscCall(PetscNew(&t));
  halo->data         = t;
  t->comm            = PetscObjectComm((PetscObject)A);
  t->tag             = tag;
  t->bytes[SENT]     = (size_t)links->to_begins[links->nto] * sizeof(PetscScalar);
  t->bytes[RECEIVED] = (size_t)halo->nghosts * sizeof(PetscScalar);
  PetscCall(CheckLevel());
  PetscCall(PetscMalloc1(links->nfrom + links->nto, &t->requests));
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
  PetscCall(RequestsFree(t));
  PetscCall(PetscFree(t->requests));
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

static PetscErrorCode Begin(GpufmtHalo halo, Vec x)
{
  Task *t = (Task *)halo->data;
  void *sent, *received, *stream;
  int   backend = GPUFMT_BACKEND_HOST;

  PetscFunctionBegin;
  PetscCall(Pack(halo, x, &backend));
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
  PetscCall(RequestsMake(&halo->links, sent, received, t));
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

const GpufmtHaloMode gpufmt_halo_task = {.name = "task", .links = PETSC_TRUE, .create = Create, .destroy = Destroy, .begin = Begin, .end = End};
