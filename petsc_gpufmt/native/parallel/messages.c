/* Messages of rows between ranks: integers of their pattern once, then their values as often as they are new, from device to device where they are
   there. What one rank sends another lies in one piece, and so it arrives. PetscSF would be told where each entry lies, and take longer to set up
   than all else of an exchange. */
#include "parallel/parallel.h"

/* ranks and lengths are the caller's to fill in */
PetscErrorCode GpufmtMessagesReserve(PetscMPIInt nto, PetscMPIInt nfrom, GpufmtMessages *m)
{
  PetscFunctionBegin;
  PetscCall(PetscMalloc5(nto, &m->to, nfrom, &m->from, nto + 1, &m->to_begins, nfrom + 1, &m->from_begins, nto + nfrom, &m->requests));
  m->nto            = nto;
  m->nfrom          = nfrom;
  m->to_begins[0]   = 0;
  m->from_begins[0] = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtMessagesFree(GpufmtMessages *m)
{
  PetscFunctionBegin;
  PetscCall(PetscFree5(m->to, m->from, m->to_begins, m->from_begins, m->requests));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* `empty`: nothing is in the messages that are sent, which are shorter than others expect */
static PetscErrorCode MessagesBegin(const GpufmtMessages *m, MPI_Datatype type, size_t size, const PetscInt to_begins[], const void *sent,
                                    PetscBool empty, const PetscInt from_begins[], void *came)
{
  PetscFunctionBegin;
  for (PetscMPIInt k = 0; k < m->nfrom; k++)
    PetscCallMPI(MPIU_Irecv((char *)came + (size_t)from_begins[k] * size, from_begins[k + 1] - from_begins[k], type, m->from[k], m->tag, m->comm,
                            &m->requests[k]));
  for (PetscMPIInt k = 0; k < m->nto; k++)
    PetscCallMPI(MPIU_Isend((const char *)sent + (size_t)to_begins[k] * size, empty ? 0 : to_begins[k + 1] - to_begins[k], type, m->to[k], m->tag,
                            m->comm, &m->requests[m->nfrom + k]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MessagesEnd(const GpufmtMessages *m)
{
  PetscFunctionBegin;
  PetscCallMPI(MPI_Waitall(m->nfrom + m->nto, m->requests, MPI_STATUSES_IGNORE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Integers: sent[to_begins[k]], ... to rank m->to[k], and those that come. Collective. */
PetscErrorCode GpufmtMessagesExchange(const GpufmtMessages *m, const PetscInt to_begins[], const PetscInt sent[], const PetscInt from_begins[],
                                      PetscInt came[])
{
  PetscFunctionBegin;
  PetscCall(MessagesBegin(m, MPIU_INT, sizeof(PetscInt), to_begins, sent, PETSC_FALSE, from_begins, came));
  PetscCall(MessagesEnd(m));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Entries of a type, of so many bytes each, likewise. */
PetscErrorCode GpufmtMessagesExchangeEntries(const GpufmtMessages *m, MPI_Datatype type, size_t size, const void *sent, void *came)
{
  PetscFunctionBegin;
  PetscCall(MessagesBegin(m, type, size, m->to_begins, sent, PETSC_FALSE, m->from_begins, came));
  PetscCall(MessagesEnd(m));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---- values ---- */

static PetscErrorCode CountEntries(Mat A, PetscInt *nnz)
{
  const PetscInt *rowptr;

  PetscFunctionBegin;
  PetscCall(GpufmtPatternGet(A, &rowptr, NULL));
  *nnz = rowptr[A->rmap->n];
  PetscCall(GpufmtPatternRestore(A, &rowptr, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* has the values of entries gathered, and now the columns too, if `scattered` has those of all */
static PetscErrorCode PlanGather(GpufmtValueExchange *x, PetscInt nnz, const PetscInt entries[], const PetscInt scattered[], PetscInt columns[])
{
  GpufmtGatherRequest request = {.nnz = nnz, .nentries = x->nsent, .entries = entries, .colidx = scattered, .columns = columns};
  GpufmtGatherAnswer  answer  = {0};

  PetscFunctionBegin;
  PetscCall(GpufmtPlannerAsk(GPUFMT_ASK_GATHER, x->backend, -1, NULL, &request.place, &answer.outcome, &x->lease));
  x->gather  = answer.gather;
  x->gathers = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Takes all that the values need, whose messages are known: of the entries of `from` those with the numbers `entries` are sent, NULL: all. Their
   columns there are `columns`. */
PetscErrorCode GpufmtValuesPrepare(Mat from, int backend, const PetscInt entries[], PetscInt columns[], GpufmtValueExchange *x)
{
  const PetscBool on_device = (PetscBool)(backend == GPUFMT_BACKEND_CUDA), staged = (PetscBool)(on_device && !use_gpu_aware_mpi);
  const PetscInt *scattered;
  PetscInt        k = 0, nnz;

  PetscFunctionBegin;
  x->backend = backend;
  x->staged  = staged;
  x->nsent   = x->messages.to_begins[x->messages.nto];
  x->ncome   = x->messages.from_begins[x->messages.nfrom];
  x->first   = entries && x->nsent ? entries[0] : 0;
  while (k < x->nsent && (!entries || entries[k] == x->first + k)) k++;
  PetscCall(GpufmtColumnsRead(from, backend, x->nsent, x->first, k < x->nsent ? entries : NULL, columns, &scattered));
  PetscCall(CountEntries(from, &nnz));
  if (k < x->nsent) PetscCall(PlanGather(x, nnz, entries, scattered, columns));
  if (on_device) PetscCall(GpufmtDeviceReserve((size_t)x->nsent * sizeof(PetscScalar), &x->packed, &x->capacity));
  PetscCall(PetscMalloc2(staged || (!on_device && x->gathers) ? x->nsent : 0, &x->sent, staged ? x->ncome : 0, &x->came));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Pack(GpufmtValueExchange *x, const PetscScalar values[], PetscScalar packed[], void *stream)
{
  void *slots[GPUFMT_NUM_SLOTS] = {[GPUFMT_SLOT_A_VALUES] = (void *)values,
                                   [GPUFMT_SLOT_RESULT]   = packed,
                                   [GPUFMT_SLOT_ALPHA]    = (void *)(sizeof(PetscScalar) / sizeof(uint32_t))};

  PetscFunctionBegin;
  PetscCheck(GpufmtLeaseHolds(&x->lease), PETSC_COMM_SELF, PETSC_ERR_ORDER,
             "Parallel sparse product: its plan is gone, because Python, which made it, has ended; make the product anew with MAT_INITIAL_MATRIX");
  PetscCall(GpufmtReplay(&x->gather, x->backend, slots, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What is sent leaves managed memory, which MPI may not know. */
static PetscErrorCode SentOnDevice(GpufmtValueExchange *x, Mat from)
{
  GpufmtDeviceValues *values = GpufmtDeviceValuesOf(from, NULL);
  const size_t        bytes  = (size_t)x->nsent * sizeof(PetscScalar);
  PetscInt            nnz;
  void               *stream;

  PetscFunctionBegin;
  PetscCall(CountEntries(from, &nnz));
  PetscCall(GpufmtDeviceGet(NULL, &stream));
  PetscCall(GpufmtDeviceValuesUpdate(values, from, nnz, stream));
  if (x->gathers) PetscCall(Pack(x, (const PetscScalar *)values->array, (PetscScalar *)x->packed, stream));
  else PetscCall(GpufmtDeviceCopy(x->packed, (const PetscScalar *)values->array + x->first, bytes, stream));
  if (x->staged) PetscCall(GpufmtDeviceDownload(x->sent, x->packed, bytes, stream)); /* synchronize! */
  else PetscCall(GpufmtDeviceSynchronize(stream)); /* synchronize! MPI sends what is packed, and writes where launches may have read */
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode SentOnHost(GpufmtValueExchange *x, Mat from)
{
  const PetscScalar *values;

  PetscFunctionBegin;
  PetscCall(MatSeqAIJGetArrayRead(from, &values));
  x->root = values;
  if (x->gathers) PetscCall(Pack(x, values, x->sent, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* what is to be sent, once it is there */
static const void *Sent(const GpufmtValueExchange *x)
{
  if (x->backend == GPUFMT_BACKEND_CUDA) return x->staged ? x->sent : x->packed;
  return x->gathers ? x->sent : PetscSafePointerPlusOffset((const PetscScalar *)x->root, x->first);
}

/* where values arrive: in memory that has been there since the matrix was made */
static PetscErrorCode LeafFind(GpufmtValueExchange *x, Mat to)
{
  PetscInt nnz;

  PetscFunctionBegin;
  PetscCall(CountEntries(to, &nnz));
  if (x->backend == GPUFMT_BACKEND_CUDA) PetscCall(GpufmtDeviceValuesWrite(GpufmtDeviceValuesOf(to, NULL), to, nnz, &x->leaf));
  else PetscCall(MatSeqAIJGetArrayWrite(to, (PetscScalar **)&x->leaf));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The values of rows that come from other ranks; collective. Both matrices are of our types. A rank that fails here, or has failed before, *own, must
   not leave others waiting: its messages go nevertheless, with nothing in them. */
PetscErrorCode GpufmtValuesBegin(GpufmtValueExchange *x, Mat from, Mat to, PetscErrorCode *own)
{
  PetscBool empty;

  PetscFunctionBegin;
  x->root = NULL;
  PetscCall(LeafFind(x, to));
  if (!*own) *own = x->backend == GPUFMT_BACKEND_CUDA ? SentOnDevice(x, from) : SentOnHost(x, from);
  empty = (PetscBool)(*own != PETSC_SUCCESS);
  PetscCall(MessagesBegin(&x->messages, MPIU_SCALAR, sizeof(PetscScalar), x->messages.to_begins, empty ? NULL : Sent(x), empty,
                          x->messages.from_begins, x->staged ? x->came : x->leaf));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode CameOnDevice(GpufmtValueExchange *x, Mat to)
{
  void *stream;

  PetscFunctionBegin;
  PetscCall(GpufmtDeviceGet(NULL, &stream));
  if (x->staged) PetscCall(GpufmtDeviceUpload(x->leaf, x->came, (size_t)x->ncome * sizeof(PetscScalar), stream));
  PetscCall(GpufmtDeviceValuesStay(GpufmtDeviceValuesOf(to, NULL), to));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode CameOnHost(GpufmtValueExchange *x, Mat from, Mat to)
{
  PetscFunctionBegin;
  PetscCall(MatSeqAIJRestoreArrayWrite(to, (PetscScalar **)&x->leaf));
  PetscCall(PetscObjectStateIncrease((PetscObject)to));
  if (x->root) PetscCall(MatSeqAIJRestoreArrayRead(from, (const PetscScalar **)&x->root));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* whatever has failed on this rank, *own */
PetscErrorCode GpufmtValuesEnd(GpufmtValueExchange *x, Mat from, Mat to, PetscErrorCode *own)
{
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(MessagesEnd(&x->messages));
  ierr = x->backend == GPUFMT_BACKEND_CUDA ? CameOnDevice(x, to) : CameOnHost(x, from, to);
  if (!*own) *own = ierr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtValuesDestroy(GpufmtValueExchange **out)
{
  GpufmtValueExchange *x = *out;

  PetscFunctionBegin;
  if (!x) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtMessagesFree(&x->messages));
  PetscCall(GpufmtLeaseDrop(&x->lease));
  PetscCall(GpufmtDeviceFree(&x->packed, &x->capacity));
  PetscCall(PetscFree2(x->sent, x->came));
  PetscCall(PetscFree(*out));
  PetscFunctionReturn(PETSC_SUCCESS);
}
