/* Rows that one rank takes from another or sends to it: their pattern once, and who sends which values. Ranks agree on errors before each collective
   call, which finds all memory there. */
#include "parallel/parallel.h"

/* what one rank asks another for, which owns these rows, or sends it: they are neighbours among all of its rows */
typedef struct {
  PetscInt nrows, nentries; /* entries of rows that are sent */
} Parcel;

enum { PARCEL_INTS = sizeof(Parcel) / sizeof(PetscInt), ROW_INTS = 2 /* number and length of a row that is sent */ };

/* what is not needed once the rows are there */
typedef struct {
  const PetscInt *from_rowptr; /* of the rows on this rank that others take, from the first of them on, or are sent */
  PetscInt       *copy;        /* of it, or NULL */
  PetscMPIInt     nowners, nothers;
  PetscMPIInt    *owners, *others;         /* ranks that own some of the rows; those that have found this rank as an owner, ascending */
  Parcel         *parcels, *came;          /* for owners, and from others */
  PetscInt       *owner_rows, *other_rows; /* where the rows of each parcel begin */
  PetscInt       *asked;                   /* rows that others ask for */
  PetscInt       *sent_lengths, *lengths;  /* of rows that go, and that come */
  PetscInt       *entries;                 /* that others ask for, by their numbers here */
  PetscInt       *sent_ints, *ints;        /* of each parcel that is sent: numbers and lengths of its rows, then the columns of these */
  PetscInt       *to_ints, *from_ints;     /* where those of each parcel begin */
  PetscInt       *sent_columns;
  PetscInt       *rowptr, *colidx; /* of the rows that come: columns in the parallel matrix, then their places */
} Pieces;

static PetscErrorCode PiecesFree(Pieces *p)
{
  PetscFunctionBegin;
  PetscCall(PetscFree(p->copy));
  PetscCall(PetscFree2(p->owners, p->parcels));
  PetscCall(PetscFree(p->others));
  PetscCall(PetscFree(p->came));
  PetscCall(PetscFree2(p->owner_rows, p->other_rows));
  PetscCall(PetscFree3(p->asked, p->sent_lengths, p->lengths));
  PetscCall(PetscFree(p->entries));
  PetscCall(PetscFree2(p->sent_ints, p->ints));
  PetscCall(PetscFree2(p->to_ints, p->from_ints));
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

/* who owns which of the rows, ascending; `rowptr`: they are sent, with so many entries */
static PetscErrorCode FindOwners(PetscLayout layout, PetscInt nrows, const PetscInt rows[], const PetscInt rowptr[], Pieces *p)
{
  PetscFunctionBegin;
  PetscCall(PetscMalloc2(layout->size, &p->owners, layout->size, &p->parcels));
  for (PetscInt k = 0, end; k < nrows; k = end) {
    PetscMPIInt owner;

    PetscCall(PetscLayoutFindOwner(layout, rows[k], &owner));
    for (end = k; end < nrows && rows[end] < layout->range[owner + 1];) end++;
    p->owners[p->nowners]    = owner;
    p->parcels[p->nowners++] = (Parcel){end - k, rowptr ? rowptr[end] - rowptr[k] : 0};
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Owners are told their parcels, and where the rows of all begin is counted. Collective; what fails in the end on this rank is for the caller to agree
   on. */
static PetscErrorCode TellOwners(Mat C, Pieces *p)
{
  PetscFunctionBegin;
  PetscCall(
    GpufmtParcelsExchange(PetscObjectComm((PetscObject)C), PARCEL_INTS, p->nowners, p->owners, p->parcels, &p->nothers, &p->others, &p->came));
  PetscCall(PetscMalloc2(p->nowners + 1, &p->owner_rows, p->nothers + 1, &p->other_rows));
  p->owner_rows[0] = p->other_rows[0] = 0;
  for (PetscMPIInt k = 0; k < p->nowners; k++) p->owner_rows[k + 1] = p->owner_rows[k] + p->parcels[k].nrows;
  for (PetscMPIInt k = 0; k < p->nothers; k++) p->other_rows[k + 1] = p->other_rows[k] + p->came[k].nrows;
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
  for (PetscInt k = 0; k < exchange->nsent; k++) columns[k] = GpufmtColumn(&from->columns, columns[k]);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode CreateReceived(PetscInt nrows, MatType type, int backend, Pieces *p, GpufmtRows *to)
{
  PetscInt ncols;

  PetscFunctionBegin;
  PetscCall(GpufmtColumnsCompact(p->rowptr[nrows], p->colidx, &ncols, &to->columns.others));
  to->columns.nothers = ncols;
  PetscCall(GpufmtCreateInternal(type, backend, nrows, ncols, p->rowptr, p->colidx, &to->matrix));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---- rows that are asked for ---- */

static PetscErrorCode AskBegin(Mat C, Mat parallel, PetscMPIInt tag, PetscInt count, const PetscInt rows[], Pieces *p, GpufmtRows *remote)
{
  PetscFunctionBegin;
  PetscCall(CreateMessages(C, tag, remote));
  PetscCall(FindOwners(parallel->rmap, count, rows, NULL, p));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode AskReserve(PetscInt count, Pieces *p, GpufmtRows *remote)
{
  GpufmtMessages *messages = &remote->exchange->messages;

  PetscFunctionBegin;
  PetscCall(GpufmtMessagesReserve(p->nothers, p->nowners, messages));
  PetscCall(PetscArraycpy(messages->to, p->others, p->nothers));
  PetscCall(PetscArraycpy(messages->from, p->owners, p->nowners));
  PetscCall(PetscCalloc3(p->other_rows[p->nothers], &p->asked, p->other_rows[p->nothers], &p->sent_lengths, count, &p->lengths));
  PetscCall(PetscMalloc1(count + 1, &p->rowptr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the lengths of the rows that others ask for, which are numbered from the first of them on */
static PetscErrorCode ReadLengths(Mat parallel, const GpufmtRows *local, int backend, Pieces *p)
{
  const PetscInt n     = p->other_rows[p->nothers];
  PetscInt       first = PETSC_INT_MAX, last = 0;

  PetscFunctionBegin;
  if (!n) PetscFunctionReturn(PETSC_SUCCESS);
  for (PetscInt k = 0; k < n; k++) {
    first = PetscMin(first, p->asked[k]);
    last  = PetscMax(last, p->asked[k]);
  }
  PetscCall(GpufmtRowptrRead(local->matrix, backend, first - parallel->rmap->rstart, last - parallel->rmap->rstart + 1, &p->from_rowptr, &p->copy));
  for (PetscInt k = 0; k < n; k++) {
    p->asked[k] -= first;
    p->sent_lengths[k] = p->from_rowptr[p->asked[k] + 1] - p->from_rowptr[p->asked[k]];
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Owners learn which rows are asked for, and answer with their lengths. Collective; *own is what fails on this rank alone. */
static PetscErrorCode AskForLengths(Mat parallel, const PetscInt rows[], const GpufmtRows *local, int backend, const GpufmtMessages *messages,
                                    Pieces *p, PetscErrorCode *own)
{
  const GpufmtMessages back = {.comm     = messages->comm,
                               .tag      = messages->tag,
                               .nto      = messages->nfrom,
                               .nfrom    = messages->nto,
                               .to       = messages->from,
                               .from     = messages->to,
                               .requests = messages->requests};

  PetscFunctionBegin;
  PetscCall(GpufmtMessagesExchange(&back, p->owner_rows, rows, p->other_rows, p->asked));
  *own = ReadLengths(parallel, local, backend, p);
  PetscCall(GpufmtMessagesExchange(messages, p->other_rows, p->sent_lengths, p->owner_rows, p->lengths));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static void CountAsked(PetscInt count, const Pieces *p, PetscInt64 *nsent, PetscInt64 *ncome)
{
  *nsent = *ncome = 0;
  for (PetscInt k = 0; k < p->other_rows[p->nothers]; k++) *nsent += p->sent_lengths[k];
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
  for (PetscMPIInt k = 0; k < p->nowners; k++) messages->from_begins[k + 1] = p->rowptr[p->owner_rows[k + 1]];
  for (PetscMPIInt k = 0; k < p->nothers; k++) {
    for (PetscInt row = p->other_rows[k]; row < p->other_rows[k + 1]; row++)
      for (PetscInt entry = p->from_rowptr[p->asked[row]]; entry < p->from_rowptr[p->asked[row] + 1]; entry++) p->entries[n++] = entry;
    messages->to_begins[k + 1] = n;
  }
  PetscCall(Prepare(local, backend, p->entries, p->sent_columns, remote->exchange));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* PETSc numbers the messages of a communicator: what is counted on one rank is counted on all, before anything can fail. */
static PetscErrorCode GetRemote(Mat C, Mat parallel, PetscInt count, const PetscInt rows[], const GpufmtRows *local, MatType type, int backend,
                                Pieces *p, GpufmtRows *remote, PetscErrorCode *own)
{
  const GpufmtMessages *messages;
  PetscMPIInt           tag;

  PetscFunctionBegin;
  PetscCall(PetscObjectGetNewTag((PetscObject)C, &tag));
  if (!*own) *own = AskBegin(C, parallel, tag, count, rows, p, remote);
  PetscCall(GpufmtFailTogether(C, *own));
  messages = &remote->exchange->messages;
  *own     = TellOwners(C, p);
  if (!*own) *own = AskReserve(count, p, remote);
  PetscCall(GpufmtFailTogether(C, *own));
  PetscCall(AskForLengths(parallel, rows, local, backend, messages, p, own));
  if (!*own) *own = AskEnd(count, local, backend, p, remote);
  PetscCall(GpufmtFailTogether(C, *own));
  PetscCall(GpufmtMessagesExchange(messages, messages->to_begins, p->sent_columns, messages->from_begins, p->colidx));
  *own = CreateReceived(count, type, backend, p, remote);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The given rows, of any ranks, for the product C; `local` are the rows of this rank, from which the others take what they asked for. Collective, and
   so are its errors, also those of this rank before, *own; that of its last step, in the end, is for the caller to agree on. */
PetscErrorCode GpufmtRowsGetRemote(Mat C, Mat parallel, PetscInt count, const PetscInt rows[], const GpufmtRows *local, MatType type, int backend,
                                   GpufmtRows *remote, PetscErrorCode *own)
{
  Pieces         pieces = {0};
  PetscErrorCode ierr;

  PetscFunctionBegin;
  ierr = GetRemote(C, parallel, count, rows, local, type, backend, &pieces, remote, own);
  PetscCall(PiecesFree(&pieces));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---- rows that are sent ---- */

static PetscErrorCode SendBegin(Mat C, PetscLayout layout, PetscMPIInt tag, const PetscInt rows[], const GpufmtRows *sent, int backend, Pieces *p,
                                GpufmtRows *received)
{
  const PetscInt nrows = sent->matrix->rmap->n;

  PetscFunctionBegin;
  PetscCall(CreateMessages(C, tag, received));
  PetscCall(GpufmtRowptrRead(sent->matrix, backend, 0, nrows, &p->from_rowptr, &p->copy));
  PetscCall(FindOwners(layout, nrows, rows, p->from_rowptr, p));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* where the entries of each parcel begin, and its integers */
static PetscErrorCode ListParcels(PetscMPIInt n, const Parcel parcels[], const PetscInt row_begins[], PetscInt entry_begins[], PetscInt int_begins[])
{
  PetscInt64 nentries = 0;

  PetscFunctionBegin;
  for (PetscMPIInt k = 0; k < n; k++) nentries += parcels[k].nentries;
  PetscCall(CheckCount(nentries, (PetscInt64)ROW_INTS * row_begins[n]));
  int_begins[0] = 0;
  for (PetscMPIInt k = 0; k < n; k++) {
    entry_begins[k + 1] = entry_begins[k] + parcels[k].nentries;
    int_begins[k + 1]   = ROW_INTS * row_begins[k + 1] + entry_begins[k + 1];
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode FillParcels(const PetscInt rows[], const Pieces *p, const PetscInt entry_begins[])
{
  PetscFunctionBegin;
  for (PetscMPIInt k = 0; k < p->nowners; k++) {
    PetscInt *to = p->sent_ints + p->to_ints[k];

    for (PetscInt row = p->owner_rows[k]; row < p->owner_rows[k + 1]; row++) {
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
  PetscInt        nrows;

  PetscFunctionBegin;
  PetscCall(GpufmtMessagesReserve(p->nowners, p->nothers, messages));
  PetscCall(PetscArraycpy(messages->to, p->owners, p->nowners));
  PetscCall(PetscArraycpy(messages->from, p->others, p->nothers));
  PetscCall(PetscMalloc2(p->nowners + 1, &p->to_ints, p->nothers + 1, &p->from_ints));
  PetscCall(ListParcels(p->nowners, p->parcels, p->owner_rows, messages->to_begins, p->to_ints));
  PetscCall(ListParcels(p->nothers, p->came, p->other_rows, messages->from_begins, p->from_ints));
  nrows = p->other_rows[p->nothers];
  PetscCall(PetscMalloc2(p->to_ints[p->nowners], &p->sent_ints, p->from_ints[p->nothers], &p->ints));
  PetscCall(PetscMalloc1(messages->to_begins[p->nowners], &p->sent_columns));
  PetscCall(Prepare(sent, backend, NULL, p->sent_columns, received->exchange));
  PetscCall(FillParcels(rows, p, messages->to_begins));
  PetscCall(PetscMalloc1(nrows, &received->rows));
  PetscCall(PetscMalloc1(nrows + 1, &p->rowptr));
  PetscCall(PetscMalloc1(messages->from_begins[p->nothers], &p->colidx));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* numbers, lengths and columns of the rows that have come */
static void TakeParcels(const GpufmtMessages *messages, Pieces *p, PetscInt rows[])
{
  p->rowptr[0] = 0;
  for (PetscMPIInt k = 0; k < p->nothers; k++) {
    const PetscInt *from = p->ints + p->from_ints[k];

    for (PetscInt row = p->other_rows[k]; row < p->other_rows[k + 1]; row++) {
      rows[row]          = *from++;
      p->rowptr[row + 1] = p->rowptr[row] + *from++;
    }
    for (PetscInt j = messages->from_begins[k]; j < messages->from_begins[k + 1]; j++) p->colidx[j] = *from++;
  }
}

static PetscErrorCode Send(Mat C, PetscLayout layout, const PetscInt rows[], const GpufmtRows *sent, MatType type, int backend, Pieces *p,
                           GpufmtRows *received, PetscErrorCode *own)
{
  const GpufmtMessages *messages;
  PetscMPIInt           tag;

  PetscFunctionBegin;
  PetscCall(PetscObjectGetNewTag((PetscObject)C, &tag));
  if (!*own) *own = SendBegin(C, layout, tag, rows, sent, backend, p, received);
  PetscCall(GpufmtFailTogether(C, *own));
  messages = &received->exchange->messages;
  *own     = TellOwners(C, p);
  if (!*own) *own = SendPrepare(rows, sent, backend, p, received);
  PetscCall(GpufmtFailTogether(C, *own));
  PetscCall(GpufmtMessagesExchange(messages, p->to_ints, p->sent_ints, p->from_ints, p->ints));
  TakeParcels(messages, p, received->rows);
  *own = CreateReceived(p->other_rows[p->nothers], type, backend, p, received);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Sends rows of the product C, with their numbers in ascending order, to the ranks that own them in `layout`. Collective; errors as of
   GpufmtRowsGetRemote(). */
PetscErrorCode GpufmtRowsSend(Mat C, PetscLayout layout, const PetscInt rows[], const GpufmtRows *sent, MatType type, int backend,
                              GpufmtRows *received, PetscErrorCode *own)
{
  Pieces         pieces = {0};
  PetscErrorCode ierr;

  PetscFunctionBegin;
  ierr = Send(C, layout, rows, sent, type, backend, &pieces, received, own);
  PetscCall(PiecesFree(&pieces));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}
