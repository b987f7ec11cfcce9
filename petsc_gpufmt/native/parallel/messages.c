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

static PetscErrorCode MessagesBegin(const GpufmtMessages *m, MPI_Datatype type, size_t size, const PetscInt to_begins[], const void *sent,
                                    const PetscInt from_begins[], void *came)
{
  PetscFunctionBegin;
  for (PetscMPIInt k = 0; k < m->nfrom; k++)
    PetscCallMPI(MPIU_Irecv((char *)came + (size_t)from_begins[k] * size, from_begins[k + 1] - from_begins[k], type, m->from[k], m->tag, m->comm,
                            &m->requests[k]));
  for (PetscMPIInt k = 0; k < m->nto; k++)
    PetscCallMPI(MPIU_Isend((const char *)sent + (size_t)to_begins[k] * size, to_begins[k + 1] - to_begins[k], type, m->to[k], m->tag, m->comm,
                            &m->requests[m->nfrom + k]));
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
  PetscCall(MessagesBegin(m, MPIU_INT, sizeof(PetscInt), to_begins, sent, from_begins, came));
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
  x->gather  = answer.values;
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
  PetscCall(GpufmtColumnsRead(from, backend, x->nsent, entries, columns, &scattered));
  PetscCall(CountEntries(from, &nnz));
  if (k < x->nsent) PetscCall(PlanGather(x, nnz, entries, scattered, columns)); /* else they are not far apart */
  if (on_device) PetscCall(GpufmtDeviceReserve((size_t)x->nsent * sizeof(PetscScalar), &x->packed, &x->capacity));
  PetscCall(PetscMalloc2(staged || (!on_device && x->gathers) ? x->nsent : 0, &x->sent, staged ? x->ncome : 0, &x->came));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Pack(GpufmtValueExchange *x, const PetscScalar values[], PetscScalar packed[], void *stream)
{
  void *slots[GPUFMT_NUM_SLOTS] = {[GPUFMT_SLOT_A_VALUES] = (void *)values, [GPUFMT_SLOT_RESULT] = packed};

  PetscFunctionBegin;
  PetscCheck(GpufmtLeaseHolds(&x->lease), PETSC_COMM_SELF, PETSC_ERR_ORDER,
             "Parallel sparse product: its plan is gone, because Python, which made it, has ended; make the product anew with MAT_INITIAL_MATRIX");
  PetscCall(GpufmtReplay(&x->gather, x->backend, slots, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What is sent leaves managed memory, which MPI may not know. */
static PetscErrorCode BeginOnDevice(GpufmtValueExchange *x, Mat from, PetscInt nfrom, Mat to, PetscInt nto)
{
  GpufmtDeviceValues *values = GpufmtDeviceValuesOf(from, NULL);
  const size_t        bytes  = (size_t)x->nsent * sizeof(PetscScalar);
  void               *stream;

  PetscFunctionBegin;
  PetscCall(GpufmtDeviceGet(NULL, &stream));
  PetscCall(GpufmtDeviceValuesUpdate(values, from, nfrom, stream));
  PetscCall(GpufmtDeviceValuesWrite(GpufmtDeviceValuesOf(to, NULL), to, nto, &x->leaf));
  if (x->gathers) PetscCall(Pack(x, (const PetscScalar *)values->array, (PetscScalar *)x->packed, stream));
  else PetscCall(GpufmtDeviceCopy(x->packed, (const PetscScalar *)values->array + x->first, bytes, stream));
  if (x->staged) PetscCall(GpufmtDeviceDownload(x->sent, x->packed, bytes, stream)); /* synchronize! */
  else PetscCall(GpufmtDeviceSynchronize(stream)); /* synchronize! MPI sends what is packed, and writes where launches may have read */
  PetscCall(MessagesBegin(&x->messages, MPIU_SCALAR, sizeof(PetscScalar), x->messages.to_begins, x->staged ? x->sent : x->packed,
                          x->messages.from_begins, x->staged ? x->came : x->leaf));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode BeginOnHost(GpufmtValueExchange *x, Mat from, Mat to)
{
  const PetscScalar *values;

  PetscFunctionBegin;
  PetscCall(MatSeqAIJGetArrayRead(from, &values));
  PetscCall(MatSeqAIJGetArrayWrite(to, (PetscScalar **)&x->leaf));
  x->root = values;
  if (x->gathers) PetscCall(Pack(x, values, x->sent, NULL));
  PetscCall(MessagesBegin(&x->messages, MPIU_SCALAR, sizeof(PetscScalar), x->messages.to_begins,
                          x->gathers ? x->sent : PetscSafePointerPlusOffset(values, x->first), x->messages.from_begins, x->leaf));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The values of rows that come from other ranks; collective. Both matrices are of our types. */
PetscErrorCode GpufmtValuesBegin(GpufmtValueExchange *x, Mat from, Mat to)
{
  PetscInt nfrom, nto;

  PetscFunctionBegin;
  PetscCall(CountEntries(from, &nfrom));
  PetscCall(CountEntries(to, &nto));
  if (x->backend == GPUFMT_BACKEND_CUDA) PetscCall(BeginOnDevice(x, from, nfrom, to, nto));
  else PetscCall(BeginOnHost(x, from, to));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtValuesEnd(GpufmtValueExchange *x, Mat from, Mat to)
{
  void *stream;

  PetscFunctionBegin;
  PetscCall(MessagesEnd(&x->messages));
  if (x->backend == GPUFMT_BACKEND_CUDA) {
    PetscCall(GpufmtDeviceGet(NULL, &stream));
    if (x->staged) PetscCall(GpufmtDeviceUpload(x->leaf, x->came, (size_t)x->ncome * sizeof(PetscScalar), stream));
    PetscCall(GpufmtDeviceValuesStay(GpufmtDeviceValuesOf(to, NULL), to));
  } else {
    PetscCall(MatSeqAIJRestoreArrayWrite(to, (PetscScalar **)&x->leaf));
    PetscCall(PetscObjectStateIncrease((PetscObject)to));
    PetscCall(MatSeqAIJRestoreArrayRead(from, (const PetscScalar **)&x->root));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtValuesDestroy(GpufmtValueExchange **out)
{
  GpufmtValueExchange *x = *out;

  PetscFunctionBegin;
  if (!x) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscFree5(x->messages.to, x->messages.from, x->messages.to_begins, x->messages.from_begins, x->messages.requests));
  PetscCall(GpufmtLeaseDrop(&x->lease));
  PetscCall(GpufmtDeviceFree(&x->packed, &x->capacity));
  PetscCall(PetscFree2(x->sent, x->came));
  PetscCall(PetscFree(*out));
  PetscFunctionReturn(PETSC_SUCCESS);
}
