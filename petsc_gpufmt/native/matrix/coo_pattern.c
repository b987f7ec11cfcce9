/* The pattern of a sequential matrix from coordinates, sorted by the planner on the device: PETSc sorts them on the host, with one core. */
#include "matrix/matrix.h"

static const char note[] = "__PETSc_MatCOOStruct_Host"; /* the name of what PETSc leaves with a matrix */

/* where the planner sorts; `wanted` is false where PETSc is to do it */
PetscErrorCode GpufmtCooSortPlace(Mat A, PetscCount count, int *backend, PetscBool *wanted)
{
  PetscBool diagonal_first;

  PetscFunctionBegin;
  *backend = GpufmtBackendOf(A);
  PetscCall(PetscStrcmp(((PetscObject)A)->name, "_internal_COO_mat_for_hypre", &diagonal_first)); /* in each row, on which hypre relies */
  *wanted = (PetscBool)(GpufmtManagedPossible(*backend) && !A->structure_only && !diagonal_first && count <= PETSC_INT_MAX);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* managed arrays with the pattern of an answer, and zeros */
static PetscErrorCode CreateArrays(Mat A, const GpufmtCooAnswer *answer, int backend, GpufmtManaged **managed)
{
  const PetscBool on_device = (PetscBool)(backend == GPUFMT_BACKEND_CUDA);
  PetscErrorCode  ierr;

  PetscFunctionBegin;
  PetscCall(GpufmtManagedCreate(A->rmap->n, (PetscCount)answer->nnz, (const PetscInt *)answer->rowptr, on_device, managed));
  ierr = GpufmtManagedSetColumns(*managed, (const PetscInt *)answer->colidx, on_device);
  if (!ierr) ierr = GpufmtManagedZeroValues(*managed);
  if (!ierr) ierr = GpufmtManagedSettle(on_device); /* the planner's columns go */
  if (ierr) PetscCall(GpufmtManagedRelease(managed));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A takes the arrays; a matrix that is no block is not assembled then, as after PETSc's function */
static PetscErrorCode Enter(Mat A, const GpufmtCooAnswer *answer, int backend, PetscBool block)
{
  GpufmtManaged *managed;
  PetscErrorCode ierr = PETSC_SUCCESS;

  PetscFunctionBegin;
  PetscCall(CreateArrays(A, answer, backend, &managed));
  if (A->hash_active) ierr = MatSeqAIJSetPreallocation(A, 0, NULL); /* it collects first values no more */
  if (!ierr) {
    if (!block) GpufmtOptionsRemember(&GpufmtSeqData(A)->options, MAT_NEW_NONZERO_LOCATION_ERR, PETSC_TRUE); /* as PETSc's function leaves it */
    ierr = GpufmtManagedEnter(A, managed);
  }
  if (!block) A->assembled = A->was_assembled = PETSC_FALSE;
  A->nonzerostate++;
  PetscCall(GpufmtManagedRelease(&managed));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* has coordinates sorted: A takes the pattern, and the plan of its sums */
static PetscErrorCode Sort(Mat A, int backend, GpufmtCooRequest *request, PetscBool block)
{
  GpufmtCooSum   *sum     = &((Mat_Gpufmt *)A->spptr)->coo;
  GpufmtCooAnswer answer  = {0};
  GpufmtLease     pattern = {0};
  PetscErrorCode  ierr;

  PetscFunctionBegin;
  PetscCall(GpufmtPlannerAsk(GPUFMT_ASK_COO, backend, GPUFMT_Plan, A, &request->place, &answer.outcome, &pattern));
  ierr = Enter(A, &answer, backend, block);
  PetscCall(GpufmtLeaseDrop(&pattern));
  PetscCall(GpufmtCooDrop(sum));
  *sum = (GpufmtCooSum){.backend = backend, .plan = answer.sum, .begins = answer.begins, .index = answer.index};
  GpufmtLeaseTake(&sum->lease, answer.token);
  PetscCall(ierr);
  sum->ntargets = (PetscInt)answer.nnz; /* at most as many as there are entries */
  sum->nterms   = (PetscInt)answer.nterms;
  sum->entered  = PETSC_TRUE;
  PetscCall(PetscInfo(A, "%s\n", answer.summary));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* PETSc's note of earlier coordinates goes. */
PetscErrorCode GpufmtCooForget(Mat A)
{
  PetscFunctionBegin;
  PetscCall(PetscObjectCompose((PetscObject)A, note, NULL));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* MatSetPreallocationCOO() with coordinates of the device or of the host; `done` is false where PETSc is to do it */
PetscErrorCode GpufmtCooAssemble(Mat A, PetscCount count, const PetscInt rows[], const PetscInt columns[], PetscBool *done)
{
  GpufmtCooSum    *sum     = &((Mat_Gpufmt *)A->spptr)->coo;
  GpufmtCooRequest request = {.nrows = A->rmap->n, .ncols = A->cmap->n, .nentries = count, .ngiven = count, .rows = rows, .cols = columns};
  int              backend;

  PetscFunctionBegin;
  PetscCall(GpufmtCooSortPlace(A, count, &backend, done));
  *done = (PetscBool)(*done && GpufmtManagedMayEnter(A) && GpufmtDeviceHas(rows) == GpufmtDeviceHas(columns));
  if (!*done) PetscFunctionReturn(PETSC_SUCCESS);
  request.on_device = GpufmtDeviceHas(rows);
  PetscCall(Sort(A, backend, &request, PETSC_FALSE));
  sum->count  = count;
  sum->sorted = PETSC_TRUE;
  PetscCall(GpufmtCooForget(A));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* `count` numbers of a backend as PETSc's counts; `from` NULL: 0, 1, 2, ... */
static PetscErrorCode ToCounts(const void *from, PetscInt count, int backend, PetscCount **out)
{
  PetscInt      *copy = NULL;
  PetscErrorCode ierr = PETSC_SUCCESS;
  void          *stream;

  PetscFunctionBegin;
  PetscCall(PetscMalloc1(count, out));
  if (from && backend == GPUFMT_BACKEND_CUDA) {
    PetscCall(PetscMalloc1(count, &copy));
    ierr = GpufmtDeviceGet(NULL, &stream);
    if (!ierr) ierr = GpufmtDeviceDownload(copy, from, (size_t)count * sizeof(PetscInt), stream);
    from = copy;
  }
  for (PetscInt k = 0; k < count && !ierr; k++) (*out)[k] = from ? ((const PetscInt *)from)[k] : k;
  PetscCall(PetscFree(copy));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The same for the block of a parallel matrix, of `n` coordinates on the host; values of the first `ngiven` are given, those of the others received.
   Sum t is of those with the numbers places[begins[t]], ...; the caller frees both arrays, after a failure too. */
PetscErrorCode GpufmtCooSortBlock(Mat A, int backend, PetscObjectId id, PetscCount n, PetscCount ngiven, const PetscInt rows[],
                                  const PetscInt columns[], PetscCount **begins, PetscCount **places)
{
  GpufmtCooSum    *sum     = &((Mat_Gpufmt *)A->spptr)->coo;
  GpufmtCooRequest request = {.nrows = A->rmap->n, .ncols = A->cmap->n, .nentries = n, .ngiven = ngiven, .rows = rows, .cols = columns};

  PetscFunctionBegin;
  PetscCall(Sort(A, backend, &request, PETSC_TRUE));
  sum->id = id;
  PetscCall(ToCounts(sum->begins, sum->ntargets + 1, backend, begins));
  PetscCall(ToCounts(sum->index, sum->nterms, backend, places));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* of a matrix that becomes one of ours: new nonzeros are an error, as PETSc leaves it with coordinates */
PetscErrorCode GpufmtCooFound(Mat A)
{
  PetscObject there;

  PetscFunctionBegin;
  PetscCall(PetscObjectQuery((PetscObject)A, note, &there));
  if (there) GpufmtOptionsRemember(&((Mat_Gpufmt *)A->spptr)->options, MAT_NEW_NONZERO_LOCATION_ERR, PETSC_TRUE);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The sums go, unless another matrix has them too. */
PetscErrorCode GpufmtCooDrop(GpufmtCooSum *sum)
{
  PetscFunctionBegin;
  if (sum->sharers && --*sum->sharers) {
    sum->lease   = (GpufmtLease){0};
    sum->sharers = NULL;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(PetscFree(sum->sharers));
  PetscCall(GpufmtLeaseDrop(&sum->lease));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A copy of a matrix takes values at the same coordinates. */
PetscErrorCode GpufmtCooShare(Mat from, Mat to)
{
  GpufmtCooSum *sum = &((Mat_Gpufmt *)from->spptr)->coo, *copy = &((Mat_Gpufmt *)to->spptr)->coo;

  PetscFunctionBegin;
  if (!sum->sorted || !GpufmtLeaseHolds(&sum->lease)) PetscFunctionReturn(PETSC_SUCCESS);
  if (!sum->sharers) {
    PetscCall(PetscMalloc1(1, &sum->sharers));
    *sum->sharers = 1;
  }
  ++*sum->sharers;
  *copy         = *sum;
  copy->entered = PETSC_FALSE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode CoordinatesDestroy(GpufmtContextAddress data)
{
  GpufmtSeqCoordinates *coordinates = *(GpufmtSeqCoordinates **)data;

  PetscFunctionBegin;
  PetscCall(PetscFree(coordinates->begins));
  PetscCall(PetscFree(coordinates->places));
  PetscCall(PetscFree(coordinates));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Leaves with A what PETSc's MatSetPreallocationCOO() would have left, for PETSc's functions. */
PetscErrorCode GpufmtCooNote(Mat A)
{
  const GpufmtCooSum   *sum = &((Mat_Gpufmt *)A->spptr)->coo;
  GpufmtSeqCoordinates *coordinates;
  PetscObject           there;
  PetscErrorCode        ierr;

  PetscFunctionBegin;
  PetscCall(PetscObjectQuery((PetscObject)A, note, &there));
  if (!sum->sorted || there) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCheck(GpufmtLeaseHolds(&sum->lease), PETSC_COMM_SELF, PETSC_ERR_ORDER,
             "The coordinates of MatSetPreallocationCOO() are gone, because Python, which sorted them, has ended: call it again");
  PetscCall(PetscNew(&coordinates));
  coordinates->nnz    = sum->ntargets;
  coordinates->count  = sum->count;
  coordinates->nterms = sum->nterms;
  ierr                = ToCounts(sum->begins, sum->ntargets + 1, sum->backend, &coordinates->begins);
  if (!ierr) ierr = ToCounts(sum->index, sum->nterms, sum->backend, &coordinates->places);
  if (ierr) PetscCall(CoordinatesDestroy((GpufmtContextAddress)&coordinates));
  PetscCall(ierr);
  PetscCall(PetscObjectContainerCompose((PetscObject)A, note, coordinates, CoordinatesDestroy));
  PetscFunctionReturn(PETSC_SUCCESS);
}
