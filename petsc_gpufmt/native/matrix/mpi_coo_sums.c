/* The sums of values at coordinates of a parallel matrix, and PETSc's note of the same: each is made of the other where it is wanted. The sums lie
   under the name of what PETSc's types for devices leave with a matrix, so that MatDuplicate() hands them on. */
#include "matrix/matrix.h"

static const char sums_name[] = "__PETSc_MatCOOStruct_Device", note_name[] = "__PETSc_MatCOOStruct_Host";

PetscErrorCode GpufmtParallelSumsDestroy(GpufmtParallelSums **out)
{
  GpufmtParallelSums *sums = *out;

  PetscFunctionBegin;
  *out = NULL;
  if (!sums) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtCooDrop(&sums->sent));
  for (int k = 0; k < 2; k++) PetscCall(GpufmtCooDrop(&sums->blocks[k]));
  PetscCall(PetscSFDestroy(&sums->exchange));
  PetscCall(PetscFree(sums->sent_places));
  PetscCall(PetscFree2(sums->sent_values, sums->received_values));
  PetscCall(PetscFree(sums));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Leaves `data` with A, on this rank alone: the container is no object of its communicator, whose ranks number their objects alike. */
static PetscErrorCode Compose(Mat A, const char name[], void *data, PetscCtxDestroyFn *destroy, PetscObjectId *id)
{
  PetscContainer container;

  PetscFunctionBegin;
  PetscCall(PetscContainerCreate(PETSC_COMM_SELF, &container));
  PetscCall(PetscContainerSetPointer(container, data));
  PetscCall(PetscContainerSetCtxDestroy(container, destroy));
  PetscCall(PetscObjectCompose((PetscObject)A, name, (PetscObject)container));
  PetscCall(PetscObjectGetId((PetscObject)container, id));
  PetscCall(PetscContainerDestroy(&container));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode ContextDestroy(GpufmtContextAddress data)
{
  return GpufmtParallelSumsDestroy((GpufmtParallelSums **)data);
}

/* the sums belong to A and to its copies from now on; *id: by which these are known */
PetscErrorCode GpufmtParallelSumsSet(Mat A, GpufmtParallelSums **sums, PetscObjectId *id)
{
  PetscFunctionBegin;
  PetscCall(Compose(A, sums_name, *sums, ContextDestroy, id));
  *sums = NULL;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtParallelSumsForget(Mat A)
{
  PetscFunctionBegin;
  PetscCall(PetscObjectCompose((PetscObject)A, sums_name, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Find(Mat A, GpufmtParallelSums **sums, PetscObjectId *id)
{
  PetscContainer container;

  PetscFunctionBegin;
  *sums = NULL;
  PetscCall(PetscObjectQuery((PetscObject)A, sums_name, (PetscObject *)&container));
  if (!container) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscContainerGetPointer(container, (void *)sums));
  PetscCall(PetscObjectGetId((PetscObject)container, id));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the sums of PETSc's note, without plans */
static PetscErrorCode OfNote(Mat A, PetscObjectId *id)
{
  GpufmtParallelCoordinates *note;
  GpufmtParallelSums        *sums;
  PetscErrorCode             ierr;

  PetscFunctionBegin;
  PetscCall(GpufmtCooFind(A, (void *)&note, id));
  PetscCall(PetscNew(&sums));
  sums->count     = note->count;
  sums->nsent     = note->nsent;
  sums->nreceived = note->nreceived;
  sums->exchange  = note->exchange;
  for (int k = 0; k < 2; k++) sums->nnz[k] = note->nnz[k];
  ierr = PetscObjectReference((PetscObject)sums->exchange);
  if (!ierr) ierr = GpufmtParallelSumsSet(A, &sums, id);
  PetscCall(GpufmtParallelSumsDestroy(&sums));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the sums of A, and the id by which the coordinates are known */
PetscErrorCode GpufmtParallelSumsGet(Mat A, GpufmtParallelSums **sums, PetscObjectId *id)
{
  PetscFunctionBegin;
  PetscCall(Find(A, sums, id));
  if (*sums) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(OfNote(A, id));
  PetscCall(Find(A, sums, id));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---- from the note ---- */

static PetscErrorCode BlocksPlan(Mat A, int backend, const GpufmtParallelCoordinates *note, GpufmtParallelSums *sums)
{
  const PetscCount *nterms[2] = {note->diag_nterms, note->offdiag_nterms};

  PetscFunctionBegin;
  for (int k = 0; k < 2; k++) {
    const GpufmtCooTerms terms = {
      .ntargets          = note->nnz[k],
      .nterms            = nterms[k][0] + nterms[k][1],
      .begins            = note->own[k][0],
      .places            = note->own[k][1],
      .nreceived_targets = note->nreceived_nnz[k],
      .received_targets  = note->received[k][0],
      .received_begins   = note->received[k][1],
      .received_places   = note->received[k][2],
      .sizes             = {note->count, note->nreceived}
    };

    PetscCall(GpufmtCooPlan(A, &terms, 0, backend, &sums->blocks[k]));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static inline PetscBool Holds(const GpufmtCooSum *sum, int backend)
{
  return (PetscBool)(GpufmtLeaseHolds(&sum->lease) && sum->backend == backend);
}

/* all plans, where there are none for this backend; and room for what is exchanged on the host */
PetscErrorCode GpufmtParallelSumsPlan(Mat A, int backend, GpufmtParallelSums *sums)
{
  GpufmtParallelCoordinates *note = NULL;
  PetscObjectId              id;

  PetscFunctionBegin;
  if (!Holds(&sums->blocks[0], backend) || !Holds(&sums->blocks[1], backend)) {
    PetscCall(GpufmtParallelCooNote(A));
    PetscCall(GpufmtCooFind(A, (void *)&note, &id));
    PetscCall(BlocksPlan(A, backend, note, sums));
  }
  if (!Holds(&sums->sent, backend)) {
    GpufmtCooTerms sent = {
      .ntargets = sums->nsent, .nterms = sums->nsent, .places = sums->sent_places, .sizes = {sums->count, 0}
    };

    if (sums->nsent && !sent.places) {
      PetscCall(GpufmtCooFind(A, (void *)&note, &id));
      sent.places = note->sent;
    }
    PetscCall(GpufmtCooPlan(A, &sent, 0, backend, &sums->sent));
  }
  if (backend == GPUFMT_BACKEND_HOST && !sums->sent_values)
    PetscCall(PetscMalloc2(sums->nsent, &sums->sent_values, sums->nreceived, &sums->received_values));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---- the note ---- */

static PetscErrorCode NoteDestroy(GpufmtContextAddress data)
{
  GpufmtParallelCoordinates *note = *(GpufmtParallelCoordinates **)data;

  PetscFunctionBegin;
  PetscCall(PetscSFDestroy(&note->exchange));
  for (int k = 0; k < 2; k++) {
    for (int i = 0; i < 2; i++) PetscCall(PetscFree(note->own[k][i]));
    for (int i = 0; i < 3; i++) PetscCall(PetscFree(note->received[k][i]));
  }
  PetscCall(PetscFree(note->sent));
  PetscCall(PetscFree2(note->sent_values, note->received_values));
  PetscCall(PetscFree(note));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The sums of a block, of which terms from note->count on are received values: own terms close up, and the others get arrays of their own. */
static PetscErrorCode NoteBlock(const GpufmtCooSum *sum, int k, GpufmtParallelCoordinates *note)
{
  PetscCount *nterms = k ? note->offdiag_nterms : note->diag_nterms, *begins, *places, *nonzeros, *received_begins, *received;

  PetscFunctionBegin;
  PetscCall(GpufmtCooToCounts(sum->begins, sum->ntargets + 1, sum->backend, &note->own[k][0]));
  PetscCall(GpufmtCooToCounts(sum->index, sum->nterms, sum->backend, &note->own[k][1]));
  begins = note->own[k][0];
  places = note->own[k][1];
  for (PetscCount e = 0; e < sum->nterms; e++) nterms[1] += places[e] >= note->count;
  for (int i = 0; i < 3; i++) PetscCall(PetscMalloc1(nterms[1] + 1, &note->received[k][i])); /* at most as many nonzeros as terms */
  nonzeros           = note->received[k][0];
  received_begins    = note->received[k][1];
  received           = note->received[k][2];
  received_begins[0] = 0;
  nterms[1]          = 0;
  for (PetscCount t = 0, e = 0; t < sum->ntargets; t++) {
    const PetscCount end = begins[t + 1];

    begins[t] = nterms[0];
    for (; e < end; e++)
      if (places[e] < note->count) places[nterms[0]++] = places[e];
      else received[nterms[1]++] = places[e] - note->count;
    if (nterms[1] == received_begins[note->nreceived_nnz[k]]) continue;
    nonzeros[note->nreceived_nnz[k]]          = t;
    received_begins[++note->nreceived_nnz[k]] = nterms[1];
  }
  begins[sum->ntargets] = nterms[0];
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode NoteFill(const GpufmtParallelSums *sums, GpufmtParallelCoordinates *note)
{
  PetscFunctionBegin;
  note->count     = sums->count;
  note->nsent     = sums->nsent;
  note->nreceived = sums->nreceived;
  note->exchange  = sums->exchange;
  PetscCall(PetscObjectReference((PetscObject)note->exchange));
  for (int k = 0; k < 2; k++) {
    note->nnz[k] = sums->nnz[k];
    PetscCall(NoteBlock(&sums->blocks[k], k, note));
  }
  PetscCall(PetscMalloc1(note->nsent, &note->sent));
  PetscCall(PetscArraycpy(note->sent, sums->sent_places, note->nsent));
  PetscCall(PetscMalloc2(note->nsent, &note->sent_values, note->nreceived, &note->received_values));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Leaves with A what PETSc's MatSetPreallocationCOO() would have left, for PETSc's functions. */
PetscErrorCode GpufmtParallelCooNote(Mat A)
{
  GpufmtParallelCoordinates *note;
  GpufmtParallelSums        *sums;
  PetscObjectId              id;
  PetscObject                there;
  PetscErrorCode             ierr;

  PetscFunctionBegin;
  PetscCall(PetscObjectQuery((PetscObject)A, note_name, &there));
  PetscCall(Find(A, &sums, &id));
  if (!sums || there) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCheck(GpufmtLeaseHolds(&sums->blocks[0].lease) && GpufmtLeaseHolds(&sums->blocks[1].lease), PETSC_COMM_SELF, PETSC_ERR_ORDER,
             "The coordinates of MatSetPreallocationCOO() are gone, because Python, which sorted them, has ended: call it again");
  PetscCall(PetscNew(&note));
  ierr = NoteFill(sums, note);
  if (ierr) PetscCall(NoteDestroy((GpufmtContextAddress)&note));
  PetscCall(ierr);
  PetscCall(Compose(A, note_name, note, NoteDestroy, &id));
  PetscFunctionReturn(PETSC_SUCCESS);
}
