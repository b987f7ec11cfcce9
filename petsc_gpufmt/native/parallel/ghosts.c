/* Numbers of rows that other ranks look at: arrays with an entry for each row of this rank, and then for each of its ghosts, which are the columns of
   the off-diagonal block of a matrix. Their entries come from the ranks that have these rows. What is sent is gathered where the arrays are, and goes
   as messages of the host: they are short, and an MPI that takes arrays of the device opens them for each message, which may take ten times as long as
   a copy. PetscSF would load kernels of its own, 1.2 ms for each kind of entry. */
#include "parallel/parallel.h"

struct _GpufmtGhosts {
  int            backend;
  VecScatter     scatter; /* of the matrix, which has another one when its ghosts are others; NULL: it is not a parallel one */
  GpufmtMessages messages;
  PetscInt       nrows, nsent, nghosts;
  size_t         bytes; /* of a row, in all arrays that are exchanged at once, at most */
  GpufmtLease    lease;
  GpufmtPlan     gather;
  void          *packed; /* what is sent, where the arrays are */
  size_t         capacity;
  char          *sent, *came; /* on the host */
};

PetscErrorCode GpufmtGhostsDestroy(GpufmtGhosts *out)
{
  GpufmtGhosts g = *out;

  PetscFunctionBegin;
  if (!g) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(VecScatterDestroy(&g->scatter));
  PetscCall(GpufmtMessagesFree(&g->messages));
  PetscCall(GpufmtLeaseDrop(&g->lease));
  PetscCall(GpufmtDeviceFree(&g->packed, &g->capacity));
  PetscCall(PetscFree2(g->sent, g->came));
  PetscCall(PetscFree(*out));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* whose rows the ghosts are, where the matrix's scatter does not tell; collective */
static PetscErrorCode LinksMake(Mat A, PetscInt nghosts, const PetscInt ghosts[], PetscSF *sf)
{
  PetscFunctionBegin;
  PetscCall(PetscSFCreate(PetscObjectComm((PetscObject)A), sf));
  PetscCall(PetscSFSetType(*sf, PETSCSFBASIC));
  PetscCall(PetscSFSetGraphLayout(*sf, A->rmap, nghosts, NULL, PETSC_OWN_POINTER, ghosts));
  PetscCall(PetscSFSetUp(*sf));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Plan(GpufmtGhosts g, const PetscInt rows[])
{
  GpufmtGatherRequest request = {.nnz = g->nrows, .nentries = g->nsent, .entries = rows};
  GpufmtGatherAnswer  answer  = {0};

  PetscFunctionBegin;
  PetscCall(GpufmtPlannerAsk(GPUFMT_ASK_GATHER, g->backend, -1, NULL, &request.place, &answer.outcome, &g->lease));
  g->gather = answer.gather;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode New(Mat A, int backend, size_t bytes, GpufmtGhosts *out)
{
  PetscFunctionBegin;
  PetscCall(PetscNew(out));
  (*out)->backend = backend;
  (*out)->nrows   = A->rmap->n;
  (*out)->bytes   = bytes;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* all that exchanges of a parallel matrix need, on this rank */
static PetscErrorCode Prepare(VecScatter scatter, PetscSF links_of, PetscMPIInt tag, PetscInt nghosts, GpufmtGhosts g)
{
  GpufmtMessages *m = &g->messages;
  GpufmtHaloLinks links;

  PetscFunctionBegin;
  PetscCall(PetscObjectReference((PetscObject)scatter));
  g->scatter = scatter;
  g->nghosts = nghosts;
  PetscCall(GpufmtHaloLinksFind(links_of, &links));
  PetscCall(GpufmtMessagesReserve(links.nto, links.nfrom, m));
  m->comm = PetscObjectComm((PetscObject)scatter);
  m->tag  = tag;
  PetscCall(PetscArraycpy(m->to, links.to, links.nto));
  PetscCall(PetscArraycpy(m->from, links.from, links.nfrom));
  PetscCall(PetscArraycpy(m->to_begins, links.to_begins, links.nto + 1));
  PetscCall(PetscArraycpy(m->from_begins, links.from_begins, links.nfrom + 1));
  g->nsent = m->to_begins[m->nto];
  PetscCall(PetscMalloc2((size_t)g->nsent * g->bytes, &g->sent, (size_t)g->nghosts * g->bytes, &g->came));
  if (g->backend == GPUFMT_BACKEND_CUDA) PetscCall(GpufmtDeviceReserve((size_t)g->nsent * g->bytes, &g->packed, &g->capacity));
  if (g->nsent) PetscCall(Plan(g, links.indices));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* PETSc numbers the messages of a communicator, and its objects: what is counted on one rank is counted on all, before anything can fail. */
static PetscErrorCode Create(Mat A, int backend, size_t bytes, VecScatter scatter, GpufmtGhosts *out)
{
  PetscSF         made = NULL;
  PetscMPIInt     tag;
  PetscBool       known;
  Mat             offdiag;
  const PetscInt *ghosts;
  PetscErrorCode  ierr;

  PetscFunctionBegin;
  PetscCall(PetscObjectGetNewTag((PetscObject)A, &tag));
  PetscCall(MatMPIAIJGetSeqAIJ(A, NULL, &offdiag, &ghosts));
  PetscCall(GpufmtHaloLinksAreKnown(scatter, &known));
  if (!known) PetscCall(LinksMake(A, offdiag->cmap->n, ghosts, &made));
  ierr = New(A, backend, bytes, out);
  if (!ierr) ierr = Prepare(scatter, known ? scatter : made, tag, offdiag->cmap->n, *out);
  ierr = GpufmtAgree((PetscObject)A, "The set-up of an exchange of ghosts", ierr, 0, NULL);
  PetscCall(PetscSFDestroy(&made));
  if (ierr) PetscCall(GpufmtGhostsDestroy(out));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Exchanges of arrays with so many `words` of 32 bits for each row of the matrix at once, at most: those that are there, if they are of this matrix as it
   is, or else new ones in their place. Collective; what fails on one rank fails on all. */
PetscErrorCode GpufmtGhostsUpdate(Mat A, int backend, PetscInt words, GpufmtGhosts *out)
{
  const size_t    bytes = (size_t)words * sizeof(uint32_t);
  GpufmtHaloParts parts;
  Mat             diag, offdiag;
  PetscBool       parallel;

  PetscFunctionBegin;
  PetscCall(PetscStrbeginswith(((PetscObject)A)->type_name, MATMPIAIJ, &parallel));
  if (parallel) {
    PetscCall(GpufmtParallelParts(A, &diag, &offdiag, &parts));
    if (*out && (*out)->scatter == parts.scatter && (*out)->backend == backend && (*out)->bytes >= bytes) PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(GpufmtGhostsDestroy(out));
  if (parallel) PetscCall(Create(A, backend, bytes, parts.scatter, out));
  else PetscCall(New(A, backend, bytes, out));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* what is sent of the arrays, one after another, comes to the host */
static PetscErrorCode Pack(GpufmtGhosts g, int n, const GpufmtGhostArray arrays[])
{
  const PetscBool on_device = (PetscBool)(g->backend == GPUFMT_BACKEND_CUDA);
  char           *to        = on_device ? (char *)g->packed : g->sent;
  size_t          bytes     = 0;
  void           *stream    = NULL;

  PetscFunctionBegin;
  if (!g->nsent) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCheck(GpufmtLeaseHolds(&g->lease), PETSC_COMM_SELF, PETSC_ERR_ORDER,
             "The plan of an exchange of ghosts is gone, because Python, which made it, has ended: set up before the interpreter exits");
  if (on_device) PetscCall(GpufmtDeviceGet(NULL, &stream));
  for (int k = 0; k < n; k++) {
    void *slots[GPUFMT_NUM_SLOTS] = {[GPUFMT_SLOT_A_VALUES] = arrays[k].array,
                                     [GPUFMT_SLOT_RESULT]   = to + bytes,
                                     [GPUFMT_SLOT_ALPHA]    = (void *)(intptr_t)arrays[k].words};

    PetscCall(GpufmtReplay(&g->gather, g->backend, slots, stream));
    bytes += (size_t)g->nsent * (size_t)arrays[k].words * sizeof(uint32_t);
  }
  if (on_device) PetscCall(GpufmtDeviceDownload(g->sent, g->packed, bytes, stream)); /* synchronize! */
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the messages of one array: what is sent of it, and what comes */
static PetscErrorCode Exchange(GpufmtGhosts g, int64_t words, const char sent[], char came[])
{
  MPI_Datatype row;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Type_contiguous((PetscMPIInt)words, MPI_UINT32_T, &row));
  PetscCallMPI(MPI_Type_commit(&row));
  PetscCall(GpufmtMessagesExchangeEntries(&g->messages, row, (size_t)words * sizeof(uint32_t), sent, came));
  PetscCallMPI(MPI_Type_free(&row));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The entries of ghosts in `n` arrays come from the ranks that have these rows; collective. A rank that fails here, or has failed before, *own, must not
   leave others waiting: its messages go nevertheless, and what others have of it is for them to throw away. */
PetscErrorCode GpufmtGhostsExchange(GpufmtGhosts g, int n, const GpufmtGhostArray arrays[], PetscErrorCode *own)
{
  size_t bytes = 0; /* of a row in the arrays before */

  PetscFunctionBegin;
  if (!g->scatter) PetscFunctionReturn(PETSC_SUCCESS);
  for (int k = 0; k < n; k++) bytes += (size_t)arrays[k].words * sizeof(uint32_t);
  PetscCheck(bytes <= g->bytes, PETSC_COMM_SELF, PETSC_ERR_ARG_OUTOFRANGE,
             "Ghosts of %zu bytes for each row are to be exchanged, at most %zu were said", bytes, g->bytes);
  if (!*own) *own = Pack(g, n, arrays);
  bytes = 0;
  for (int k = 0; k < n; k++) {
    const size_t own_bytes = (size_t)arrays[k].words * sizeof(uint32_t);
    char        *came      = g->came + (size_t)g->nghosts * bytes;

    PetscCall(Exchange(g, arrays[k].words, g->sent + (size_t)g->nsent * bytes, came));
    if (!*own) {
      void *there = PetscSafePointerPlusOffset((char *)arrays[k].array, (size_t)g->nrows * own_bytes);

      *own = GpufmtCopyToBackend(g->backend, there, came, (size_t)g->nghosts * own_bytes);
    }
    bytes += own_bytes;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
