/* Rows that one rank takes from another or sends to it: their pattern once, and who sends which values. Ranks agree on errors before each collective
   call, which finds all memory there. */
#include "parallel/parallel.h"

/* what one rank sends another, which owns these rows: they are neighbours among those that it sends */
typedef struct {
  PetscInt nrows, nentries;
} Parcel;

enum { PARCEL_INTS = sizeof(Parcel) / sizeof(PetscInt), ROW_INTS = 2 /* number and length of a row that is sent */ };

/* what is not needed once the rows are there */
typedef struct {
  const PetscInt    *from_rowptr;  /* of the rows on this rank that others take */
  PetscSF            row_exchange; /* of rows that are asked for, one leaf for each */
  PetscMPIInt        nto, nfrom;   /* ranks that ask, and that are asked */
  const PetscMPIInt *to, *from;
  const PetscInt    *to_rows, *from_rows, *asked; /* where the rows of each rank begin; the rows that others ask for, by their places here */
  PetscInt          *sent_lengths, *lengths;      /* of rows that go, and that come */
  PetscInt          *entries;                     /* that others ask for, by their numbers here */
  PetscMPIInt       *owners, *senders;            /* ranks that rows are sent to, and that send some */
  Parcel            *parcels, *received, *came;   /* for these, from these, and from these in their order */
  PetscInt          *to_ints, *from_ints;         /* where the integers of each of them begin */
  PetscInt          *sent_ints, *ints;            /* of each: numbers and lengths of its rows, then the columns of these */
  PetscInt          *sent_columns;
  PetscInt          *rowptr, *colidx; /* of the rows that come: columns in the parallel matrix, then their places */
} Pieces;

static PetscErrorCode PiecesFree(const GpufmtRows *from, Pieces *p)
{
  PetscFunctionBegin;
  if (p->from_rowptr) PetscCall(GpufmtPatternRestore(from->matrix, &p->from_rowptr, NULL));
  PetscCall(PetscSFDestroy(&p->row_exchange));
  PetscCall(PetscFree2(p->sent_lengths, p->lengths));
  PetscCall(PetscFree(p->entries));
  PetscCall(PetscFree2(p->owners, p->parcels));
  PetscCall(PetscFree(p->senders));
  PetscCall(PetscFree(p->received));
  PetscCall(PetscFree(p->came));
  PetscCall(PetscFree2(p->to_ints, p->from_ints));
  PetscCall(PetscFree2(p->sent_ints, p->ints));
  PetscCall(PetscFree(p->sent_columns));
  PetscCall(PetscFree(p->rowptr));
  PetscCall(PetscFree(p->colidx));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* room for messages of the product C, of a number that it has alone on its communicator */
static PetscErrorCode CreateMessages(Mat C, PetscMPIInt tag, GpufmtRows *to)
{
  PetscFunctionBegin;
  PetscCall(PetscNew(&to->exchange));
  to->exchange->messages.comm = PetscObjectComm((PetscObject)C);
  to->exchange->messages.tag  = tag;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* `n` entries and `more` integers beside them must be counted by a PetscInt */
static PetscErrorCode CheckCount(PetscInt64 n, PetscInt64 more)
{
  PetscFunctionBegin;
  PetscCheck(n + more <= PETSC_INT_MAX, PETSC_COMM_SELF, PETSC_ERR_SUP,
             "A parallel product needs rows of other ranks with %" PetscInt64_FMT " entries, PetscInt counts to %" PetscInt_FMT
             ": use more ranks or configure PETSc with --with-64-bit-indices",
             n, PETSC_INT_MAX);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* readies the values of some entries of rows on this rank, NULL: of all; `columns` are those of the parallel matrix */
static PetscErrorCode Prepare(const GpufmtRows *from, int backend, const PetscInt entries[], PetscInt columns[], GpufmtValueExchange *exchange)
{
  PetscFunctionBegin;
  PetscCall(GpufmtValuesPrepare(from->matrix, backend, entries, columns, exchange));
  for (PetscInt k = 0; k < exchange->nsent; k++) columns[k] = from->columns[columns[k]];
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode CreateReceived(PetscInt nrows, MatType type, int backend, Pieces *p, GpufmtRows *to)
{
  PetscInt ncols;

  PetscFunctionBegin;
  PetscCall(GpufmtColumnsCompact(p->rowptr[nrows], p->colidx, &ncols, &to->columns));
  PetscCall(GpufmtCreateInternal(type, backend, nrows, ncols, p->rowptr, p->colidx, &to->matrix));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---- rows that are asked for ---- */

static PetscErrorCode AskBegin(Mat C, Mat parallel, PetscMPIInt tag, PetscInt count, const PetscInt rows[], const GpufmtRows *local, Pieces *p,
                               GpufmtRows *remote)
{
  PetscFunctionBegin;
  PetscCall(CreateMessages(C, tag, remote));
  PetscCall(GpufmtPatternGet(local->matrix, &p->from_rowptr, NULL));
  PetscCall(PetscSFSetGraphLayout(p->row_exchange, parallel->rmap, count, NULL, PETSC_OWN_POINTER, rows));
  PetscCall(PetscMalloc1(count + 1, &p->rowptr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* who asks for which rows; rows are asked for in ascending order, so those of one owner are neighbours. Collective. */
static PetscErrorCode FindAsked(Pieces *p)
{
  PetscFunctionBegin;
  PetscCall(PetscSFSetUp(p->row_exchange));
  PetscCall(PetscSFGetLeafRanks(p->row_exchange, &p->nto, &p->to, &p->to_rows, &p->asked));
  PetscCall(PetscSFGetRootRanks(p->row_exchange, &p->nfrom, &p->from, &p->from_rows, NULL, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode AskReserve(PetscInt count, Pieces *p, GpufmtRows *remote)
{
  const PetscInt  nasked   = p->nto ? p->to_rows[p->nto] : 0;
  GpufmtMessages *messages = &remote->exchange->messages;

  PetscFunctionBegin;
  PetscCall(GpufmtMessagesReserve(p->nto, p->nfrom, messages));
  PetscCall(PetscArraycpy(messages->to, p->to, p->nto));
  PetscCall(PetscArraycpy(messages->from, p->from, p->nfrom));
  PetscCall(PetscMalloc2(nasked, &p->sent_lengths, count, &p->lengths));
  for (PetscInt k = 0; k < nasked; k++) p->sent_lengths[k] = p->from_rowptr[p->asked[k] + 1] - p->from_rowptr[p->asked[k]];
  PetscFunctionReturn(PETSC_SUCCESS);
}

static void CountAsked(PetscInt count, const Pieces *p, PetscInt64 *nsent, PetscInt64 *ncome)
{
  *nsent = *ncome = 0;
  for (PetscInt k = 0; k < (p->nto ? p->to_rows[p->nto] : 0); k++) *nsent += p->sent_lengths[k];
  for (PetscInt k = 0; k < count; k++) *ncome += p->lengths[k];
}

static PetscErrorCode AskEnd(PetscInt count, const GpufmtRows *local, int backend, Pieces *p, GpufmtRows *remote)
{
  GpufmtMessages *messages = &remote->exchange->messages;
  PetscInt64      nsent, ncome;
  PetscInt        n = 0;

  PetscFunctionBegin;
  CountAsked(count, p, &nsent, &ncome);
  PetscCall(CheckCount(PetscMax(nsent, ncome), 0));
  PetscCall(PetscMalloc1((PetscInt)nsent, &p->entries));
  PetscCall(PetscMalloc1((PetscInt)nsent, &p->sent_columns));
  PetscCall(PetscMalloc1((PetscInt)ncome, &p->colidx));
  p->rowptr[0] = 0;
  for (PetscInt k = 0; k < count; k++) p->rowptr[k + 1] = p->rowptr[k] + p->lengths[k];
  for (PetscMPIInt k = 0; k < p->nfrom; k++) messages->from_begins[k + 1] = p->rowptr[p->from_rows[k + 1]];
  for (PetscMPIInt k = 0; k < p->nto; k++) {
    for (PetscInt row = p->to_rows[k]; row < p->to_rows[k + 1]; row++)
      for (PetscInt entry = p->from_rowptr[p->asked[row]]; entry < p->from_rowptr[p->asked[row] + 1]; entry++) p->entries[n++] = entry;
    messages->to_begins[k + 1] = n;
  }
  PetscCall(Prepare(local, backend, p->entries, p->sent_columns, remote->exchange));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* PETSc numbers objects and messages of a communicator: what is counted on one rank is counted on all, before anything can fail. */
static PetscErrorCode GetRemote(Mat C, Mat parallel, PetscInt count, const PetscInt rows[], const GpufmtRows *local, MatType type, int backend,
                                Pieces *p, GpufmtRows *remote)
{
  const GpufmtMessages *messages;
  PetscMPIInt           tag;

  PetscFunctionBegin;
  PetscCall(PetscObjectGetNewTag((PetscObject)C, &tag));
  PetscCall(PetscSFCreate(PetscObjectComm((PetscObject)C), &p->row_exchange));
  PetscCall(GpufmtFailTogether(C, AskBegin(C, parallel, tag, count, rows, local, p, remote)));
  messages = &remote->exchange->messages;
  PetscCall(FindAsked(p));
  PetscCall(GpufmtFailTogether(C, AskReserve(count, p, remote)));
  PetscCall(GpufmtMessagesExchange(messages, p->to_rows, p->sent_lengths, p->from_rows, p->lengths));
  PetscCall(GpufmtFailTogether(C, AskEnd(count, local, backend, p, remote)));
  PetscCall(GpufmtMessagesExchange(messages, messages->to_begins, p->sent_columns, messages->from_begins, p->colidx));
  PetscCall(GpufmtFailTogether(C, CreateReceived(count, type, backend, p, remote)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The given rows, of any ranks, for the product C. Collective, and so are its errors; `local` are the rows of this rank, from which the
   others take what they asked for. */
PetscErrorCode GpufmtRowsGetRemote(Mat C, Mat parallel, PetscInt count, const PetscInt rows[], const GpufmtRows *local, MatType type, int backend,
                                   GpufmtRows *remote)
{
  Pieces         pieces = {0};
  PetscErrorCode ierr;

  PetscFunctionBegin;
  ierr = GetRemote(C, parallel, count, rows, local, type, backend, &pieces, remote);
  PetscCall(PiecesFree(local, &pieces));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---- rows that are sent ---- */

static PetscErrorCode MakeParcels(Mat C, PetscLayout layout, PetscMPIInt tag, const PetscInt rows[], const GpufmtRows *sent, Pieces *p,
                                  GpufmtRows *received)
{
  const PetscInt nrows = sent->matrix->rmap->n;

  PetscFunctionBegin;
  PetscCall(CreateMessages(C, tag, received));
  PetscCall(GpufmtPatternGet(sent->matrix, &p->from_rowptr, NULL));
  PetscCall(PetscMalloc2(layout->size, &p->owners, layout->size, &p->parcels));
  for (PetscInt k = 0, end; k < nrows; k = end) {
    PetscMPIInt owner;

    PetscCall(PetscLayoutFindOwner(layout, rows[k], &owner));
    for (end = k; end < nrows && rows[end] < layout->range[owner + 1];) end++;
    p->owners[p->nto]    = owner;
    p->parcels[p->nto++] = (Parcel){end - k, p->from_rowptr[end] - p->from_rowptr[k]};
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* parcels for this rank in the order of those who send them, so that sums do not depend on who comes first */
static PetscErrorCode SortParcels(Pieces *p)
{
  PetscMPIInt *order;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1(p->nfrom, &p->came));
  PetscCall(PetscMalloc1(p->nfrom, &order));
  for (PetscMPIInt k = 0; k < p->nfrom; k++) order[k] = k;
  PetscCall(PetscSortMPIIntWithArray(p->nfrom, p->senders, order));
  for (PetscMPIInt k = 0; k < p->nfrom; k++) p->came[k] = p->received[order[k]];
  PetscCall(PetscFree(order));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* where the entries of each parcel begin, and the integers: for each row its number and its length, then columns; *nrows: of all parcels */
static PetscErrorCode ListParcels(PetscMPIInt n, const Parcel parcels[], PetscInt entry_begins[], PetscInt int_begins[], PetscInt *nrows)
{
  PetscInt64 nentries = 0, n64 = 0;

  PetscFunctionBegin;
  for (PetscMPIInt k = 0; k < n; k++) {
    nentries += parcels[k].nentries;
    n64 += parcels[k].nrows;
  }
  PetscCall(CheckCount(nentries, ROW_INTS * n64));
  *nrows        = (PetscInt)n64;
  int_begins[0] = 0;
  for (PetscMPIInt k = 0; k < n; k++) {
    entry_begins[k + 1] = entry_begins[k] + parcels[k].nentries;
    int_begins[k + 1]   = int_begins[k] + ROW_INTS * parcels[k].nrows + parcels[k].nentries;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode FillParcels(const PetscInt rows[], const Pieces *p, const PetscInt entry_begins[])
{
  PetscInt row = 0;

  PetscFunctionBegin;
  for (PetscMPIInt k = 0; k < p->nto; k++) {
    PetscInt *to = p->sent_ints + p->to_ints[k];

    for (const PetscInt end = row + p->parcels[k].nrows; row < end; row++) {
      *to++ = rows[row];
      *to++ = p->from_rowptr[row + 1] - p->from_rowptr[row];
    }
    PetscCall(PetscArraycpy(to, p->sent_columns + entry_begins[k], p->parcels[k].nentries));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode SendPrepare(const PetscInt rows[], const GpufmtRows *sent, int backend, Pieces *p, GpufmtRows *received)
{
  GpufmtMessages *messages = &received->exchange->messages;
  const PetscInt  nsent    = p->from_rowptr[sent->matrix->rmap->n];
  PetscInt        nrows;

  PetscFunctionBegin;
  PetscCall(SortParcels(p));
  PetscCall(GpufmtMessagesReserve(p->nto, p->nfrom, messages));
  PetscCall(PetscArraycpy(messages->to, p->owners, p->nto));
  PetscCall(PetscArraycpy(messages->from, p->senders, p->nfrom));
  PetscCall(PetscMalloc2(p->nto + 1, &p->to_ints, p->nfrom + 1, &p->from_ints));
  PetscCall(ListParcels(p->nto, p->parcels, messages->to_begins, p->to_ints, &nrows));
  PetscCall(ListParcels(p->nfrom, p->came, messages->from_begins, p->from_ints, &nrows));
  PetscCall(PetscMalloc2(p->to_ints[p->nto], &p->sent_ints, p->from_ints[p->nfrom], &p->ints));
  PetscCall(PetscMalloc1(nsent, &p->sent_columns));
  PetscCall(Prepare(sent, backend, NULL, p->sent_columns, received->exchange));
  PetscCall(FillParcels(rows, p, messages->to_begins));
  PetscCall(PetscMalloc1(nrows, &received->rows));
  PetscCall(PetscMalloc1(nrows + 1, &p->rowptr));
  PetscCall(PetscMalloc1(messages->from_begins[p->nfrom], &p->colidx));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* numbers, lengths and columns of the rows that have come; returns how many there are */
static PetscInt TakeParcels(const GpufmtMessages *messages, Pieces *p, PetscInt rows[])
{
  PetscInt nrows = 0;

  p->rowptr[0] = 0;
  for (PetscMPIInt k = 0; k < p->nfrom; k++) {
    const PetscInt *from = p->ints + p->from_ints[k];

    for (PetscInt j = 0; j < p->came[k].nrows; j++, nrows++) {
      rows[nrows]          = *from++;
      p->rowptr[nrows + 1] = p->rowptr[nrows] + *from++;
    }
    for (PetscInt j = messages->from_begins[k]; j < messages->from_begins[k + 1]; j++) p->colidx[j] = *from++;
  }
  return nrows;
}

static PetscErrorCode Send(Mat C, PetscLayout layout, const PetscInt rows[], const GpufmtRows *sent, MatType type, int backend, Pieces *p,
                           GpufmtRows *received)
{
  const GpufmtMessages *messages;
  PetscMPIInt           tag;
  PetscInt              nrows;

  PetscFunctionBegin;
  PetscCall(PetscObjectGetNewTag((PetscObject)C, &tag));
  PetscCall(GpufmtFailTogether(C, MakeParcels(C, layout, tag, rows, sent, p, received)));
  messages = &received->exchange->messages;
  PetscCall(PetscCommBuildTwoSided(PetscObjectComm((PetscObject)C), PARCEL_INTS, MPIU_INT, p->nto, p->owners, p->parcels, &p->nfrom, &p->senders,
                                   &p->received));
  PetscCall(GpufmtFailTogether(C, SendPrepare(rows, sent, backend, p, received)));
  PetscCall(GpufmtMessagesExchange(messages, p->to_ints, p->sent_ints, p->from_ints, p->ints));
  nrows = TakeParcels(messages, p, received->rows);
  PetscCall(GpufmtFailTogether(C, CreateReceived(nrows, type, backend, p, received)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Sends rows of the product C, with their numbers in ascending order, to the ranks that own them in `layout`. Collective, and so are its
   errors. */
PetscErrorCode GpufmtRowsSend(Mat C, PetscLayout layout, const PetscInt rows[], const GpufmtRows *sent, MatType type, int backend,
                              GpufmtRows *received)
{
  Pieces         pieces = {0};
  PetscErrorCode ierr;

  PetscFunctionBegin;
  ierr = Send(C, layout, rows, sent, type, backend, &pieces, received);
  PetscCall(PiecesFree(sent, &pieces));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}
