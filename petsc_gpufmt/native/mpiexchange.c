/* Rows that one rank takes from another or sends to it: once their pattern, then their values as often as they are new, from device to
   device where they are there. */
#include <petsc/private/hashmapi.h>
#include "mpirows.h"

typedef struct {
  PetscInt first, length; /* in the entries of the owner's rows */
} Segment;

/* the roots that leaves on any rank refer to: no others need a value */
static PetscErrorCode AskedRoots(PetscSF sf, PetscInt *n, const PetscInt **roots)
{
  const PetscMPIInt *ranks;
  const PetscInt    *begins;
  PetscMPIInt        nranks;

  PetscFunctionBegin;
  PetscCall(PetscSFSetUp(sf));
  PetscCall(PetscSFGetLeafRanks(sf, &nranks, &ranks, &begins, roots));
  *n = nranks ? begins[nranks] : 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* where the entries of the asked rows lie on their owners */
static PetscErrorCode GetSegments(Mat parallel, PetscInt count, const PetscInt rows[], const PetscInt local_rowptr[], Segment **segments, PetscMPIInt **owners)
{
  const PetscInt    *asked;
  const PetscSFNode *remote;
  PetscInt           nasked;
  Segment           *own;
  PetscSF            sf;

  PetscFunctionBegin;
  PetscCall(PetscSFCreate(PetscObjectComm((PetscObject)parallel), &sf));
  PetscCall(PetscSFSetGraphLayout(sf, parallel->rmap, count, NULL, PETSC_OWN_POINTER, rows));
  PetscCall(PetscMalloc1(parallel->rmap->n, &own));
  PetscCall(AskedRoots(sf, &nasked, &asked));
  for (PetscInt k = 0; k < nasked; k++) own[asked[k]] = (Segment){local_rowptr[asked[k]], local_rowptr[asked[k] + 1] - local_rowptr[asked[k]]};
  PetscCall(PetscMalloc1(count, segments));
  PetscCall(PetscSFBcastBegin(sf, MPIU_2INT, own, *segments, MPI_REPLACE));
  PetscCall(PetscSFBcastEnd(sf, MPIU_2INT, own, *segments, MPI_REPLACE));
  PetscCall(PetscFree(own));
  PetscCall(PetscSFGetGraph(sf, NULL, NULL, NULL, &remote));
  PetscCall(PetscMalloc1(count, owners));
  for (PetscInt k = 0; k < count; k++) (*owners)[k] = (PetscMPIInt)remote[k].rank;
  PetscCall(PetscSFDestroy(&sf));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* one leaf for each entry of the segments, one segment after the other; *begins [count + 1]: the first leaf of each */
static PetscErrorCode CreateExchange(MPI_Comm comm, PetscInt count, const Segment segments[], const PetscMPIInt owners[], PetscInt nroots, PetscInt **begins, PetscSF *exchange)
{
  PetscSFNode *remote;
  PetscInt64   n = 0;

  PetscFunctionBegin;
  for (PetscInt k = 0; k < count; k++) n += segments[k].length;
  PetscCheck(n <= PETSC_INT_MAX, PETSC_COMM_SELF, PETSC_ERR_SUP, "A parallel product needs rows of other ranks with %" PetscInt64_FMT " entries, PetscInt counts to %" PetscInt_FMT ": use more ranks or configure PETSc with --with-64-bit-indices", n, PETSC_INT_MAX);
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
  PetscCall(PetscSFCreate(comm, exchange));
  PetscCall(PetscSFSetGraph(*exchange, nroots, (PetscInt)n, NULL, PETSC_OWN_POINTER, remote, PETSC_OWN_POINTER));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* columns of the parallel matrix by their places among those that occur */
static PetscErrorCode CompactColumns(PetscInt nnz, PetscInt colidx[], PetscInt *ncols, PetscInt **columns)
{
  PetscInt   n = 0;
  PetscHMapI places;

  PetscFunctionBegin;
  PetscCall(PetscHMapICreate(&places));
  for (PetscInt k = 0; k < nnz; k++) PetscCall(PetscHMapISet(places, colidx[k], 0));
  PetscCall(PetscHMapIGetSize(places, ncols));
  PetscCall(PetscMalloc1(*ncols, columns));
  PetscCall(PetscHMapIGetKeys(places, &n, *columns));
  PetscCall(PetscSortInt(n, *columns));
  for (PetscInt k = 0; k < n; k++) PetscCall(PetscHMapISet(places, (*columns)[k], k));
  for (PetscInt k = 0; k < nnz; k++) PetscCall(PetscHMapIGet(places, colidx[k], &colidx[k]));
  PetscCall(PetscHMapIDestroy(&places));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the pattern of the rows that an exchange brings, from that of the rows `from` on each rank */
static PetscErrorCode ReceivePattern(const GpufmtRows *from, PetscInt nrows, const PetscInt rowptr[], MatType type, int backend, GpufmtRows *to)
{
  const PetscInt *from_rowptr, *from_colidx, *asked;
  PetscInt       *colidx, *sent, ncols, nasked;

  PetscFunctionBegin;
  PetscCall(GpufmtPatternGet(from->matrix, &from_rowptr, &from_colidx));
  PetscCall(PetscMalloc1(from_rowptr[from->matrix->rmap->n], &sent));
  PetscCall(AskedRoots(to->exchange, &nasked, &asked)); /* a few of many columns, which may lie on the device */
  for (PetscInt k = 0; k < nasked; k++) sent[asked[k]] = from->columns[from_colidx[asked[k]]];
  PetscCall(GpufmtPatternRestore(from->matrix, &from_rowptr, &from_colidx));
  PetscCall(PetscMalloc1(rowptr[nrows], &colidx));
  PetscCall(PetscSFBcastBegin(to->exchange, MPIU_INT, sent, colidx, MPI_REPLACE));
  PetscCall(PetscSFBcastEnd(to->exchange, MPIU_INT, sent, colidx, MPI_REPLACE));
  PetscCall(PetscFree(sent));
  PetscCall(CompactColumns(rowptr[nrows], colidx, &ncols, &to->columns));
  PetscCall(GpufmtCreateInternal(type, backend, nrows, ncols, rowptr, colidx, &to->matrix));
  PetscCall(PetscFree(colidx));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The given rows, of any ranks. Collective; `local` are the rows of this rank, from which the others take what they asked for. */
PetscErrorCode GpufmtRowsGetRemote(Mat parallel, PetscInt count, const PetscInt rows[], const GpufmtRows *local, MatType type, int backend, GpufmtRows *remote)
{
  const PetscInt *local_rowptr;
  PetscInt       *rowptr;
  PetscMPIInt    *owners;
  Segment        *segments;

  PetscFunctionBegin;
  PetscCall(GpufmtPatternGet(local->matrix, &local_rowptr, NULL));
  PetscCall(GetSegments(parallel, count, rows, local_rowptr, &segments, &owners));
  PetscCall(CreateExchange(PetscObjectComm((PetscObject)parallel), count, segments, owners, local_rowptr[local->matrix->rmap->n], &rowptr, &remote->exchange));
  PetscCall(GpufmtPatternRestore(local->matrix, &local_rowptr, NULL));
  PetscCall(PetscFree(segments));
  PetscCall(PetscFree(owners));
  PetscCall(ReceivePattern(local, count, rowptr, type, backend, remote));
  PetscCall(PetscFree(rowptr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* what one rank sends another, which owns these rows: they are neighbours among those that it sends */
typedef struct {
  PetscInt first_row, nrows, first_entry, nentries;
} Parcel;

enum {
  PARCEL_INTS = sizeof(Parcel) / sizeof(PetscInt)
};

static PetscErrorCode MakeParcels(PetscLayout layout, PetscInt nrows, const PetscInt rows[], const PetscInt rowptr[], PetscMPIInt *n, PetscMPIInt **ranks, Parcel **parcels)
{
  PetscFunctionBegin;
  PetscCall(PetscMalloc2(layout->size, ranks, layout->size, parcels));
  *n = 0;
  for (PetscInt k = 0, end; k < nrows; k = end) {
    PetscMPIInt owner;

    PetscCall(PetscLayoutFindOwner(layout, rows[k], &owner));
    for (end = k; end < nrows && rows[end] < layout->range[owner + 1];) end++;
    (*ranks)[*n]     = owner;
    (*parcels)[*n] = (Parcel){k, end - k, rowptr[k], rowptr[end] - rowptr[k]};
    (*n)++;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The parcels for this rank, in the order of those who send them, so that sums do not depend on who comes first. Collective. */
static PetscErrorCode SwapParcels(MPI_Comm comm, PetscMPIInt nto, const PetscMPIInt to[], const Parcel sent[], PetscMPIInt *nfrom, PetscMPIInt **from, Segment **rows, Segment **entries)
{
  PetscMPIInt *order;
  Parcel      *received;

  PetscFunctionBegin;
  PetscCall(PetscCommBuildTwoSided(comm, PARCEL_INTS, MPIU_INT, nto, to, sent, nfrom, from, &received));
  PetscCall(PetscMalloc1(*nfrom, &order));
  PetscCall(PetscMalloc2(*nfrom, rows, *nfrom, entries));
  for (PetscMPIInt k = 0; k < *nfrom; k++) order[k] = k;
  PetscCall(PetscSortMPIIntWithArray(*nfrom, *from, order));
  for (PetscMPIInt k = 0; k < *nfrom; k++) {
    const Parcel *parcel = &received[order[k]];

    (*rows)[k]    = (Segment){parcel->first_row, parcel->nrows};
    (*entries)[k] = (Segment){parcel->first_entry, parcel->nentries};
  }
  PetscCall(PetscFree(order));
  PetscCall(PetscFree(received));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* numbers and lengths of the rows that come; *rowptr: what they make */
static PetscErrorCode ReceiveRows(PetscSF sf, PetscInt nsent, const PetscInt sent_rows[], const PetscInt sent_rowptr[], PetscInt nrows, PetscInt **rows, PetscInt **rowptr)
{
  PetscInt(*sent)[2], (*received)[2];

  PetscFunctionBegin;
  PetscCall(PetscMalloc2(nsent, &sent, nrows, &received));
  for (PetscInt k = 0; k < nsent; k++) {
    sent[k][0] = sent_rows[k];
    sent[k][1] = sent_rowptr[k + 1] - sent_rowptr[k];
  }
  PetscCall(PetscSFBcastBegin(sf, MPIU_2INT, sent, received, MPI_REPLACE));
  PetscCall(PetscSFBcastEnd(sf, MPIU_2INT, sent, received, MPI_REPLACE));
  PetscCall(PetscMalloc1(nrows, rows));
  PetscCall(PetscMalloc1(nrows + 1, rowptr));
  (*rowptr)[0] = 0;
  for (PetscInt k = 0; k < nrows; k++) {
    (*rows)[k]       = received[k][0];
    (*rowptr)[k + 1] = (*rowptr)[k] + received[k][1];
  }
  PetscCall(PetscFree2(sent, received));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Sends rows, with their numbers in ascending order, to the ranks that own them in `layout`. Collective. */
PetscErrorCode GpufmtRowsSend(MPI_Comm comm, PetscLayout layout, const PetscInt rows[], const GpufmtRows *sent, MatType type, int backend, GpufmtRows *received)
{
  const PetscInt  nsent = sent->matrix->rmap->n;
  const PetscInt *sent_rowptr;
  PetscInt       *row_begins, *entry_begins, *rowptr;
  PetscMPIInt     nto = 0, nfrom = 0, *to, *from;
  Parcel         *parcels;
  Segment        *row_segments, *entry_segments;
  PetscSF         row_exchange;

  PetscFunctionBegin;
  PetscCall(GpufmtPatternGet(sent->matrix, &sent_rowptr, NULL));
  PetscCall(MakeParcels(layout, nsent, rows, sent_rowptr, &nto, &to, &parcels));
  PetscCall(SwapParcels(comm, nto, to, parcels, &nfrom, &from, &row_segments, &entry_segments));
  PetscCall(PetscFree2(to, parcels));
  PetscCall(CreateExchange(comm, nfrom, row_segments, from, nsent, &row_begins, &row_exchange));
  PetscCall(CreateExchange(comm, nfrom, entry_segments, from, sent_rowptr[nsent], &entry_begins, &received->exchange));
  PetscCall(ReceiveRows(row_exchange, nsent, rows, sent_rowptr, row_begins[nfrom], &received->rows, &rowptr));
  PetscCall(GpufmtPatternRestore(sent->matrix, &sent_rowptr, NULL));
  PetscCall(ReceivePattern(sent, row_begins[nfrom], rowptr, type, backend, received));
  PetscCall(PetscSFDestroy(&row_exchange));
  PetscCall(PetscFree2(row_segments, entry_segments));
  PetscCall(PetscFree(row_begins));
  PetscCall(PetscFree(entry_begins));
  PetscCall(PetscFree(rowptr));
  PetscCall(PetscFree(from));
  PetscFunctionReturn(PETSC_SUCCESS);
}

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
