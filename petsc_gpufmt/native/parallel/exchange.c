/* Rows that one rank takes from another or sends to it: once their pattern, then their values as often as they are new, from device to
   device where they are there. Ranks agree on errors before each collective call, which finds all memory there. */
#include "parallel/parallel.h"

typedef struct {
  PetscInt first, length; /* in the entries of the owner's rows, or in the rows that it sends */
} Segment;

/* what one rank sends another, which owns these rows: they are neighbours among those that it sends */
typedef struct {
  PetscInt first_row, nrows, first_entry, nentries;
} Parcel;

enum { SEGMENT_INTS = sizeof(Segment) / sizeof(PetscInt), PARCEL_INTS = sizeof(Parcel) / sizeof(PetscInt) };

/* Integers that leaves take from roots on other ranks: an item for each leaf that asks. Roots are many, and those that are asked for far apart:
   PetscSFBcast() would take an array of all of them. */
typedef struct {
  PetscInt           width; /* integers of an item */
  PetscMPIInt        nto, nfrom;
  const PetscMPIInt *to, *from;
  const PetscInt    *to_begins, *from_begins; /* of the items of each rank */
  PetscInt           nasked, ncome;
  const PetscInt    *roots, *leaves; /* [nasked], [ncome] */
  PetscInt          *sent, *came;    /* [nasked * width], [ncome * width] */
  MPI_Request       *requests;       /* [nto + nfrom] */
} Asked;

/* what is not needed once the rows are there */
typedef struct {
  const PetscInt *from_rowptr;  /* of the rows on this rank that others take */
  PetscSF         row_exchange; /* one leaf for each row that comes */
  Asked           asked_rows, asked_columns;
  PetscMPIInt     nto, nfrom, *to, *from;
  Parcel         *parcels; /* for the ranks `to`, from the ranks `from` */
  Parcel         *received;
  Segment        *rows, *entries;         /* that come, from the ranks `from` */
  PetscInt (*sent_sizes)[2], (*sizes)[2]; /* number and length of rows */
  PetscInt *row_begins, *entry_begins;    /* of the segments that come */
  PetscInt *rowptr;                       /* of the rows that are sent here */
  PetscInt *colidx;                       /* of the rows that come: columns in the parallel matrix, then their places */
} Pieces;

static PetscErrorCode AskedFree(Asked *a)
{
  PetscFunctionBegin;
  PetscCall(PetscFree3(a->sent, a->came, a->requests));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PiecesFree(const GpufmtRows *from, Pieces *p)
{
  PetscFunctionBegin;
  if (p->from_rowptr) PetscCall(GpufmtPatternRestore(from->matrix, &p->from_rowptr, NULL));
  PetscCall(PetscSFDestroy(&p->row_exchange));
  PetscCall(AskedFree(&p->asked_rows));
  PetscCall(AskedFree(&p->asked_columns));
  PetscCall(PetscFree2(p->to, p->parcels));
  PetscCall(PetscFree(p->from));
  PetscCall(PetscFree(p->received));
  PetscCall(PetscFree2(p->rows, p->entries));
  PetscCall(PetscFree2(p->sent_sizes, p->sizes));
  PetscCall(PetscFree(p->row_begins));
  PetscCall(PetscFree(p->entry_begins));
  PetscCall(PetscFree(p->rowptr));
  PetscCall(PetscFree(p->colidx));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* who asks for which roots; collective */
static PetscErrorCode AskedFind(PetscSF exchange, Asked *a)
{
  PetscFunctionBegin;
  PetscCall(PetscSFSetUp(exchange));
  PetscCall(PetscSFGetLeafRanks(exchange, &a->nto, &a->to, &a->to_begins, &a->roots));
  PetscCall(PetscSFGetRootRanks(exchange, &a->nfrom, &a->from, &a->from_begins, &a->leaves, NULL));
  a->nasked = a->nto ? a->to_begins[a->nto] : 0;
  a->ncome  = a->nfrom ? a->from_begins[a->nfrom] : 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode AskedReserve(PetscInt width, Asked *a)
{
  PetscFunctionBegin;
  a->width = width;
  PetscCall(PetscMalloc3(width * a->nasked, &a->sent, width * a->ncome, &a->came, a->nto + a->nfrom, &a->requests));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* what is in a->sent, an item for each of a->roots, comes to the leaves; collective */
static PetscErrorCode AskedBring(PetscSF exchange, Asked *a, PetscInt leaves[])
{
  const MPI_Comm comm = PetscObjectComm((PetscObject)exchange);
  PetscMPIInt    tag;

  PetscFunctionBegin;
  PetscCall(PetscObjectGetNewTag((PetscObject)exchange, &tag));
  for (PetscMPIInt k = 0; k < a->nfrom; k++) {
    const PetscInt first = a->from_begins[k] * a->width, last = a->from_begins[k + 1] * a->width;

    PetscCallMPI(MPIU_Irecv(a->came + first, last - first, MPIU_INT, a->from[k], tag, comm, &a->requests[k]));
  }
  for (PetscMPIInt k = 0; k < a->nto; k++) {
    const PetscInt first = a->to_begins[k] * a->width, last = a->to_begins[k + 1] * a->width;

    PetscCallMPI(MPIU_Isend(a->sent + first, last - first, MPIU_INT, a->to[k], tag, comm, &a->requests[a->nfrom + k]));
  }
  PetscCallMPI(MPI_Waitall(a->nfrom + a->nto, a->requests, MPI_STATUSES_IGNORE));
  for (PetscInt k = 0; k < a->ncome; k++)
    for (PetscInt w = 0; w < a->width; w++) leaves[a->leaves[k] * a->width + w] = a->came[k * a->width + w];
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* one leaf for each entry of the segments, one segment after the other; *begins [count + 1]: the first leaf of each */
static PetscErrorCode SetLeaves(PetscSF exchange, PetscInt count, const Segment segments[], const PetscMPIInt owners[], PetscInt nroots,
                                PetscInt **begins)
{
  PetscSFNode *remote;
  PetscInt64   n = 0;

  PetscFunctionBegin;
  for (PetscInt k = 0; k < count; k++) n += segments[k].length;
  PetscCheck(n <= PETSC_INT_MAX, PETSC_COMM_SELF, PETSC_ERR_SUP,
             "A parallel product needs rows of other ranks with %" PetscInt64_FMT " entries, PetscInt counts to %" PetscInt_FMT
             ": use more ranks or configure PETSc with --with-64-bit-indices",
             n, PETSC_INT_MAX);
  PetscCall(PetscMalloc1(count + 1, begins));
  PetscCall(PetscMalloc1((PetscInt)n, &remote));
  (*begins)[0] = 0;
  for (PetscInt k = 0; k < count; k++) {
    for (PetscInt j = 0; j < segments[k].length; j++) {
      remote[(*begins)[k] + j].rank  = owners[k];
      remote[(*begins)[k] + j].index = segments[k].first + j;
    }
    (*begins)[k + 1] = (*begins)[k] + segments[k].length;
  }
  PetscCall(PetscSFSetGraph(exchange, nroots, (PetscInt)n, NULL, PETSC_OWN_POINTER, remote, PETSC_OWN_POINTER));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Collective: PETSc numbers the objects of a communicator, so one that failed to come to be on one rank would confuse all later messages. */
static PetscErrorCode CreateExchanges(Mat C, Pieces *p, GpufmtRows *to)
{
  PetscFunctionBegin;
  PetscCall(PetscSFCreate(PetscObjectComm((PetscObject)C), &p->row_exchange));
  PetscCall(PetscSFCreate(PetscObjectComm((PetscObject)C), &to->exchange));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* columns of the rows `from` on this rank that other ranks ask for */
static PetscErrorCode ReadColumns(const GpufmtRows *from, int backend, Asked *a)
{
  PetscFunctionBegin;
  PetscCall(AskedReserve(1, a));
  PetscCall(GpufmtColumnsRead(from->matrix, backend, a->nasked, a->roots, a->sent));
  for (PetscInt k = 0; k < a->nasked; k++) a->sent[k] = from->columns[a->sent[k]];
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the columns of the rows that an exchange brings, from those of the rows `from` on each rank; collective, and so are its errors */
static PetscErrorCode ReceiveColumns(Mat C, const GpufmtRows *from, int backend, PetscSF exchange, Pieces *p)
{
  PetscFunctionBegin;
  PetscCall(AskedFind(exchange, &p->asked_columns));
  PetscCall(GpufmtFailTogether(C, ReadColumns(from, backend, &p->asked_columns)));
  PetscCall(AskedBring(exchange, &p->asked_columns, p->colidx));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode CreateReceived(PetscInt nrows, const PetscInt rowptr[], MatType type, int backend, Pieces *p, GpufmtRows *to)
{
  PetscInt ncols;

  PetscFunctionBegin;
  PetscCall(GpufmtColumnsCompact(rowptr[nrows], p->colidx, &ncols, &to->columns));
  PetscCall(GpufmtCreateInternal(type, backend, nrows, ncols, rowptr, p->colidx, &to->matrix));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---- rows that are asked for ---- */

static PetscErrorCode AskBegin(Mat parallel, PetscInt count, const PetscInt rows[], const GpufmtRows *local, Pieces *p)
{
  PetscFunctionBegin;
  PetscCall(GpufmtPatternGet(local->matrix, &p->from_rowptr, NULL));
  PetscCall(PetscSFSetGraphLayout(p->row_exchange, parallel->rmap, count, NULL, PETSC_OWN_POINTER, rows));
  PetscCall(PetscMalloc2(0, &p->rows, count, &p->entries));
  PetscCall(PetscMalloc1(count, &p->from));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* where the entries of the rows lie on their owners; collective, and so are its errors */
static PetscErrorCode AskForEntries(Mat C, PetscInt count, Pieces *p)
{
  Asked             *a = &p->asked_rows;
  const PetscSFNode *remote;

  PetscFunctionBegin;
  PetscCall(AskedFind(p->row_exchange, a));
  PetscCall(GpufmtFailTogether(C, AskedReserve(SEGMENT_INTS, a)));
  for (PetscInt k = 0; k < a->nasked; k++) {
    const PetscInt row = a->roots[k];

    ((Segment *)a->sent)[k] = (Segment){p->from_rowptr[row], p->from_rowptr[row + 1] - p->from_rowptr[row]};
  }
  PetscCall(AskedBring(p->row_exchange, a, (PetscInt *)p->entries));
  PetscCall(PetscSFGetGraph(p->row_exchange, NULL, NULL, NULL, &remote));
  for (PetscInt k = 0; k < count; k++) p->from[k] = (PetscMPIInt)remote[k].rank;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode AskEnd(PetscInt count, const GpufmtRows *local, Pieces *p, GpufmtRows *remote)
{
  PetscFunctionBegin;
  PetscCall(SetLeaves(remote->exchange, count, p->entries, p->from, p->from_rowptr[local->matrix->rmap->n], &p->entry_begins));
  PetscCall(PetscMalloc1(p->entry_begins[count], &p->colidx));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode GetRemote(Mat C, Mat parallel, PetscInt count, const PetscInt rows[], const GpufmtRows *local, MatType type, int backend,
                                Pieces *p, GpufmtRows *remote)
{
  PetscFunctionBegin;
  PetscCall(CreateExchanges(C, p, remote));
  PetscCall(GpufmtFailTogether(C, AskBegin(parallel, count, rows, local, p)));
  PetscCall(AskForEntries(C, count, p));
  PetscCall(GpufmtFailTogether(C, AskEnd(count, local, p, remote)));
  PetscCall(ReceiveColumns(C, local, backend, remote->exchange, p));
  PetscCall(GpufmtFailTogether(C, CreateReceived(count, p->entry_begins, type, backend, p, remote)));
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

static PetscErrorCode MakeParcels(PetscLayout layout, const PetscInt rows[], const GpufmtRows *sent, Pieces *p)
{
  const PetscInt nrows = sent->matrix->rmap->n;

  PetscFunctionBegin;
  PetscCall(GpufmtPatternGet(sent->matrix, &p->from_rowptr, NULL));
  PetscCall(PetscMalloc2(layout->size, &p->to, layout->size, &p->parcels));
  for (PetscInt k = 0, end; k < nrows; k = end) {
    PetscMPIInt owner;

    PetscCall(PetscLayoutFindOwner(layout, rows[k], &owner));
    for (end = k; end < nrows && rows[end] < layout->range[owner + 1];) end++;
    p->to[p->nto]        = owner;
    p->parcels[p->nto++] = (Parcel){k, end - k, p->from_rowptr[k], p->from_rowptr[end] - p->from_rowptr[k]};
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the parcels for this rank in the order of those who send them, so that sums do not depend on who comes first */
static PetscErrorCode SortParcels(Pieces *p)
{
  PetscMPIInt *order;

  PetscFunctionBegin;
  PetscCall(PetscMalloc2(p->nfrom, &p->rows, p->nfrom, &p->entries));
  PetscCall(PetscMalloc1(p->nfrom, &order));
  for (PetscMPIInt k = 0; k < p->nfrom; k++) order[k] = k;
  PetscCall(PetscSortMPIIntWithArray(p->nfrom, p->from, order));
  for (PetscMPIInt k = 0; k < p->nfrom; k++) {
    const Parcel *parcel = &p->received[order[k]];

    p->rows[k]    = (Segment){parcel->first_row, parcel->nrows};
    p->entries[k] = (Segment){parcel->first_entry, parcel->nentries};
  }
  PetscCall(PetscFree(order));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode SendPrepare(const PetscInt rows[], const GpufmtRows *sent, Pieces *p, GpufmtRows *received)
{
  const PetscInt nsent = sent->matrix->rmap->n;
  PetscInt       nrows;

  PetscFunctionBegin;
  PetscCall(SortParcels(p));
  PetscCall(SetLeaves(p->row_exchange, p->nfrom, p->rows, p->from, nsent, &p->row_begins));
  PetscCall(SetLeaves(received->exchange, p->nfrom, p->entries, p->from, p->from_rowptr[nsent], &p->entry_begins));
  nrows = p->row_begins[p->nfrom];
  PetscCall(PetscMalloc2(nsent, &p->sent_sizes, nrows, &p->sizes));
  for (PetscInt k = 0; k < nsent; k++) {
    p->sent_sizes[k][0] = rows[k];
    p->sent_sizes[k][1] = p->from_rowptr[k + 1] - p->from_rowptr[k];
  }
  PetscCall(PetscMalloc1(nrows, &received->rows));
  PetscCall(PetscMalloc1(nrows + 1, &p->rowptr));
  PetscCall(PetscMalloc1(p->entry_begins[p->nfrom], &p->colidx));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* numbers, lengths and columns of the rows that come; collective */
static PetscErrorCode ReceiveRows(Mat C, const GpufmtRows *sent, int backend, Pieces *p, GpufmtRows *received)
{
  PetscFunctionBegin;
  PetscCall(PetscSFBcastBegin(p->row_exchange, MPIU_2INT, p->sent_sizes, p->sizes, MPI_REPLACE));
  PetscCall(PetscSFBcastEnd(p->row_exchange, MPIU_2INT, p->sent_sizes, p->sizes, MPI_REPLACE));
  p->rowptr[0] = 0;
  for (PetscInt k = 0; k < p->row_begins[p->nfrom]; k++) {
    received->rows[k] = p->sizes[k][0];
    p->rowptr[k + 1]  = p->rowptr[k] + p->sizes[k][1];
  }
  PetscCall(ReceiveColumns(C, sent, backend, received->exchange, p));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Send(Mat C, PetscLayout layout, const PetscInt rows[], const GpufmtRows *sent, MatType type, int backend, Pieces *p,
                           GpufmtRows *received)
{
  PetscFunctionBegin;
  PetscCall(CreateExchanges(C, p, received));
  PetscCall(GpufmtFailTogether(C, MakeParcels(layout, rows, sent, p)));
  PetscCall(
    PetscCommBuildTwoSided(PetscObjectComm((PetscObject)C), PARCEL_INTS, MPIU_INT, p->nto, p->to, p->parcels, &p->nfrom, &p->from, &p->received));
  PetscCall(GpufmtFailTogether(C, SendPrepare(rows, sent, p, received)));
  PetscCall(ReceiveRows(C, sent, backend, p, received));
  PetscCall(GpufmtFailTogether(C, CreateReceived(p->row_begins[p->nfrom], p->rowptr, type, backend, p, received)));
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

/* The values of rows that come from other ranks; collective. Both matrices are of our types. */
PetscErrorCode GpufmtRowsExchangeBegin(int backend, const GpufmtRows *from, GpufmtRows *to)
{
  const PetscMemType place = backend == GPUFMT_BACKEND_CUDA ? PETSC_MEMTYPE_CUDA : PETSC_MEMTYPE_HOST;

  PetscFunctionBegin;
  if (backend == GPUFMT_BACKEND_CUDA) {
    GpufmtDeviceValues *values = GpufmtDeviceValuesOf(from->matrix, NULL);
    PetscInt            nfrom, nto;
    void               *stream;

    PetscCall(GpufmtDeviceGet(NULL, &stream));
    PetscCall(CountEntries(from->matrix, &nfrom));
    PetscCall(CountEntries(to->matrix, &nto));
    PetscCall(GpufmtDeviceValuesUpdate(values, from->matrix, nfrom, stream));
    to->root = values->array;
    PetscCall(GpufmtDeviceValuesWrite(GpufmtDeviceValuesOf(to->matrix, NULL), to->matrix, nto, &to->leaf));
  } else {
    PetscCall(MatSeqAIJGetArrayRead(from->matrix, (const PetscScalar **)&to->root));
    PetscCall(MatSeqAIJGetArrayWrite(to->matrix, (PetscScalar **)&to->leaf));
  }
  PetscCall(PetscSFBcastWithMemTypeBegin(to->exchange, MPIU_SCALAR, place, to->root, place, to->leaf, MPI_REPLACE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtRowsExchangeEnd(int backend, const GpufmtRows *from, GpufmtRows *to)
{
  PetscFunctionBegin;
  PetscCall(PetscSFBcastEnd(to->exchange, MPIU_SCALAR, to->root, to->leaf, MPI_REPLACE));
  if (backend == GPUFMT_BACKEND_CUDA) PetscCall(GpufmtDeviceValuesStay(GpufmtDeviceValuesOf(to->matrix, NULL), to->matrix));
  else {
    PetscCall(MatSeqAIJRestoreArrayWrite(to->matrix, (PetscScalar **)&to->leaf));
    PetscCall(PetscObjectStateIncrease((PetscObject)to->matrix));
    PetscCall(MatSeqAIJRestoreArrayRead(from->matrix, (const PetscScalar **)&to->root));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
