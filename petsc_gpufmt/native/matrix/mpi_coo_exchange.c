/* Coordinates of a parallel matrix that do not lie in the diagonal block of the rank that gives them: they come to the host, few as a rule, and those
   in rows of other ranks are sent there. */
#include "matrix/matrix.h"

enum { PARCEL_INTS = sizeof(GpufmtCooParcel) / sizeof(PetscInt) };

PetscErrorCode GpufmtCooExchangeFree(GpufmtCooExchange *e)
{
  PetscFunctionBegin;
  PetscCall(GpufmtLeaseDrop(&e->lease));
  PetscCall(PetscSFDestroy(&e->forward));
  PetscCall(PetscFree(e->owners));
  PetscCall(PetscFree(e->sent));
  PetscCall(PetscFree(e->sent_places));
  PetscCall(PetscFree2(e->to, e->parcels));
  PetscCall(PetscFree(e->from));
  PetscCall(PetscFree(e->arriving));
  PetscCall(PetscFree3(e->received, e->rows, e->columns));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* who owns the rows of the entries outside; those that are left out belong to nobody */
static PetscErrorCode FindOwners(Mat A, GpufmtCooExchange *e)
{
  const PetscInt *rows = (const PetscInt *)e->outside.rows, *columns = (const PetscInt *)e->outside.cols;
  const PetscInt *numbers = (const PetscInt *)e->outside.numbers;
  const PetscBool ignores = ((const GpufmtParallelData *)A->data)->donotstash;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1(e->outside.count, &e->owners));
  for (PetscInt k = 0; k < e->outside.count; k++) {
    PetscCheck(rows[k] < A->rmap->N && columns[k] < A->cmap->N, PETSC_COMM_SELF, PETSC_ERR_ARG_OUTOFRANGE,
               "entry %" PetscInt_FMT " of the coordinates is in row %" PetscInt_FMT " and column %" PetscInt_FMT ", the matrix is %" PetscInt_FMT
               " x %" PetscInt_FMT,
               numbers[k], rows[k], columns[k], A->rmap->N, A->cmap->N);
    PetscCall(PetscLayoutFindOwner(A->rmap, rows[k], &e->owners[k]));
    if (e->owners[k] == e->rank) continue;
    PetscCheck(!A->nooffprocentries, PETSC_COMM_SELF, PETSC_ERR_USER_INPUT,
               "entry %" PetscInt_FMT " of the coordinates is in row %" PetscInt_FMT " of another rank, and MAT_NO_OFF_PROC_ENTRIES is set",
               numbers[k], rows[k]);
    if (ignores) e->owners[k] = -1;
    else e->nsent++;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* what is sent, rank by rank, in the order given */
static PetscErrorCode MakeParcels(Mat A, GpufmtCooExchange *e)
{
  const PetscInt *rows = (const PetscInt *)e->outside.rows, *columns = (const PetscInt *)e->outside.cols;
  const PetscInt *numbers = (const PetscInt *)e->outside.numbers;
  PetscInt       *next, n = 0;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1(e->nsent, &e->sent));
  PetscCall(PetscMalloc1(e->nsent, &e->sent_places));
  PetscCall(PetscMalloc2(A->rmap->size, &e->to, A->rmap->size, &e->parcels));
  PetscCall(PetscCalloc1(A->rmap->size, &next));
  for (PetscInt k = 0; k < e->outside.count; k++)
    if (e->owners[k] >= 0 && e->owners[k] != e->rank) next[e->owners[k]]++;
  for (PetscMPIInt r = 0; r < A->rmap->size; r++) {
    const PetscInt count = next[r];

    next[r] = n;
    if (!count) continue;
    e->to[e->nto]        = r;
    e->parcels[e->nto++] = (GpufmtCooParcel){n, count};
    n += count;
  }
  for (PetscInt k = 0; k < e->outside.count; k++)
    if (e->owners[k] >= 0 && e->owners[k] != e->rank) {
      const PetscInt place = next[e->owners[k]]++;

      e->sent[place]        = (GpufmtCooPair){rows[k], columns[k]};
      e->sent_places[place] = numbers[k];
    }
  PetscCall(PetscFree(next));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode FindOutside(Mat A, int backend, PetscCount n, const PetscInt rows[], const PetscInt columns[], GpufmtCooExchange *e)
{
  GpufmtOutsideRequest request = {.block = e->block, .nentries = n, .rows = rows, .cols = columns, .on_device = GpufmtDeviceHas(rows)};

  PetscFunctionBegin;
  PetscCall(GpufmtPlannerAsk(GPUFMT_ASK_OUTSIDE, backend, GPUFMT_Plan, A, &request.place, &e->outside.outcome, &e->lease));
  PetscCall(FindOwners(A, e));
  PetscCall(MakeParcels(A, e));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* room for what arrives, in the order of those who send it */
static PetscErrorCode PrepareToReceive(GpufmtCooExchange *e)
{
  PetscSFNode *remote;
  PetscInt64   all = 0;

  PetscFunctionBegin;
  for (PetscMPIInt k = 0; k < e->nfrom; k++) all += e->arriving[k].count;
  PetscCheck(all <= PETSC_INT_MAX, PETSC_COMM_SELF, PETSC_ERR_SUP,
             "Other ranks send %" PetscInt64_FMT " coordinates, PetscInt counts to %" PetscInt_FMT
             ": use more ranks or configure PETSc with --with-64-bit-indices",
             all, PETSC_INT_MAX);
  e->nreceived = (PetscInt)all;
  PetscCall(PetscMalloc3(e->nreceived, &e->received, e->nreceived, &e->rows, e->nreceived, &e->columns));
  PetscCall(PetscMalloc1(e->nreceived, &remote));
  for (PetscInt k = 0, n = 0; k < e->nfrom; k++)
    for (PetscInt j = 0; j < e->arriving[k].count; j++) remote[n++] = (PetscSFNode){.rank = e->from[k], .index = e->arriving[k].first + j};
  PetscCall(PetscSFSetGraph(e->forward, e->nsent, e->nreceived, NULL, PETSC_OWN_POINTER, remote, PETSC_OWN_POINTER));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Finds what lies outside of the diagonal block, and sends what belongs to others; *exchange brings values the same way, as PETSc's does. Collective, and
   so are its errors. */
PetscErrorCode GpufmtCooExchangeRun(Mat A, int backend, PetscCount n, const PetscInt rows[], const PetscInt columns[], GpufmtCooExchange *e,
                                    PetscSF *exchange)
{
  PetscErrorCode own;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_rank(PetscObjectComm((PetscObject)A), &e->rank));
  e->block = (GpufmtCooBlock){A->rmap->rstart, A->rmap->n, A->cmap->rstart, A->cmap->n};
  PetscCall(PetscSFCreate(PetscObjectComm((PetscObject)A), &e->forward)); /* before anything can fail: PETSc numbers the objects of ranks */
  PetscCall(GpufmtCooAgree(A, FindOutside(A, backend, n, rows, columns, e)));
  own = GpufmtParcelsExchange(PetscObjectComm((PetscObject)A), PARCEL_INTS, e->nto, e->to, e->parcels, &e->nfrom, &e->from, &e->arriving);
  if (!own) own = PrepareToReceive(e);
  PetscCall(GpufmtCooAgree(A, own));
  PetscCall(PetscSFBcastBegin(e->forward, MPIU_2INT, e->sent, e->received, MPI_REPLACE));
  PetscCall(PetscSFBcastEnd(e->forward, MPIU_2INT, e->sent, e->received, MPI_REPLACE));
  for (PetscInt k = 0; k < e->nreceived; k++) {
    e->rows[k]    = e->received[k].row;
    e->columns[k] = e->received[k].column;
  }
  PetscCall(PetscSFCreateInverseSF(e->forward, exchange));
  PetscFunctionReturn(PETSC_SUCCESS);
}
