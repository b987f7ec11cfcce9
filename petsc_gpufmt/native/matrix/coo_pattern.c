/* The pattern of a sequential matrix from coordinates, sorted by the planner on the device: PETSc sorts them on the host, with one core. */
#include "matrix/matrix.h"

static const char note[] = "__PETSc_MatCOOStruct_Host"; /* the name of what PETSc leaves with a matrix */

/* where the planner sorts; `wanted` is false where PETSc is to do it */
PetscErrorCode GpufmtCooSortPlace(Mat A, PetscCount count, const PetscInt rows[], const PetscInt columns[], int *backend, PetscBool *wanted)
{
  PetscBool diagonal_first;

  PetscFunctionBegin;
  *backend = GpufmtBackendOf(A);
  PetscCall(PetscStrcmp(((PetscObject)A)->name, "_internal_COO_mat_for_hypre", &diagonal_first)); /* in each row, on which hypre relies */
  *wanted = (PetscBool)(GpufmtManagedPossible(*backend) && !A->structure_only && !diagonal_first && count <= PETSC_INT_MAX &&
                        GpufmtDeviceHas(rows) == GpufmtDeviceHas(columns));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* managed arrays with the pattern of an answer, and zeros */
static PetscErrorCode CreateArrays(PetscInt nrows, const GpufmtCooAnswer *answer, int backend, GpufmtManaged **managed)
{
  const PetscBool on_device = (PetscBool)(backend == GPUFMT_BACKEND_CUDA);
  PetscErrorCode  ierr;

  PetscFunctionBegin;
  PetscCall(GpufmtManagedCreate(nrows, (PetscCount)answer->nnz, (const PetscInt *)answer->rowptr, on_device, PETSC_FALSE, managed));
  ierr = GpufmtManagedSetColumns(*managed, (const PetscInt *)answer->colidx, on_device);
  if (!ierr) ierr = GpufmtManagedZeroValues(*managed);
  if (!ierr) ierr = GpufmtManagedSettle(on_device); /* the planner's columns go */
  if (ierr) PetscCall(GpufmtManagedRelease(managed));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Has coordinates sorted, during an event of A: managed arrays with the pattern, and the plan of the sums. What `sum` held goes. */
PetscErrorCode GpufmtCooSort(Mat A, int backend, GpufmtCooRequest *request, GpufmtCooSum *sum, GpufmtManaged **managed)
{
  GpufmtCooAnswer answer  = {0};
  GpufmtLease     pattern = {0};
  PetscErrorCode  ierr;

  PetscFunctionBegin;
  PetscCall(GpufmtPlannerAsk(GPUFMT_ASK_COO, backend, GPUFMT_Plan, A, &request->place, &answer.outcome, &pattern));
  ierr = CreateArrays((PetscInt)request->block.nrows, &answer, backend, managed);
  PetscCall(GpufmtLeaseDrop(&pattern));
  PetscCall(GpufmtCooDrop(sum));
  *sum = (GpufmtCooSum){.backend = backend, .plan = answer.sum, .begins = answer.begins, .index = answer.index};
  GpufmtLeaseTake(&sum->lease, answer.token);
  PetscCall(ierr);
  sum->ntargets = (PetscInt)answer.nnz; /* at most as many as there are entries */
  sum->nterms   = (PetscInt)answer.nterms;
  PetscCall(PetscInfo(A, "%s\n", answer.summary));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A takes the arrays, and is not assembled then, as after PETSc's function. If it has collected first values so far, it has no arrays: PETSc would make
   some, of many rows for longer than it takes to sort coordinates, and they are only wanted if ours cannot be taken. */
static PetscErrorCode Enter(Mat A, GpufmtManaged *managed)
{
  const PetscBool collects = A->hash_active;
  PetscErrorCode  ierr     = PETSC_SUCCESS;

  PetscFunctionBegin;
  if (collects) ierr = MatSeqAIJSetPreallocation(A, MAT_SKIP_ALLOCATION, NULL);
  if (!ierr) {
    GpufmtOptionsRemember(&GpufmtSeqData(A)->options, MAT_NEW_NONZERO_LOCATION_ERR, PETSC_TRUE); /* as PETSc's function leaves it */
    ierr = GpufmtManagedEnter(A, managed);
  }
  if (ierr && collects) PetscCall(MatSeqAIJSetPreallocation(A, 0, NULL));
  A->assembled = A->was_assembled = PETSC_FALSE;
  A->nonzerostate++;
  PetscCall(ierr);
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
  GpufmtManaged   *managed = NULL;
  GpufmtCooRequest request = {
    .block = {.nrows = A->rmap->n, .ncols = A->cmap->n},
      .nentries = count, .sizes = {count,               0                  },
      .rows = rows, .cols = columns
  };
  PetscErrorCode ierr;
  int            backend;

  PetscFunctionBegin;
  PetscCall(GpufmtCooSortPlace(A, count, rows, columns, &backend, done));
  *done = (PetscBool)(*done && GpufmtManagedMayEnter(A));
  if (!*done) PetscFunctionReturn(PETSC_SUCCESS);
  request.on_device = GpufmtDeviceHas(rows);
  PetscCall(GpufmtCooSort(A, backend, &request, sum, &managed));
  ierr = Enter(A, managed);
  PetscCall(GpufmtManagedRelease(&managed));
  PetscCall(ierr);
  sum->entered = sum->sorted = PETSC_TRUE;
  sum->count                 = count;
  PetscCall(GpufmtCooForget(A));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* `count` numbers of a backend as PETSc's counts; `from` NULL: 0, 1, 2, ... */
PetscErrorCode GpufmtCooToCounts(const void *from, PetscInt count, int backend, PetscCount **out)
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
  ierr                = GpufmtCooToCounts(sum->begins, sum->ntargets + 1, sum->backend, &coordinates->begins);
  if (!ierr) ierr = GpufmtCooToCounts(sum->index, sum->nterms, sum->backend, &coordinates->places);
  if (ierr) PetscCall(CoordinatesDestroy((GpufmtContextAddress)&coordinates));
  PetscCall(ierr);
  PetscCall(PetscObjectContainerCompose((PetscObject)A, note, coordinates, CoordinatesDestroy));
  PetscFunctionReturn(PETSC_SUCCESS);
}
