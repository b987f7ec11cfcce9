/* Values given in the order of coordinates. MatSetPreallocationCOO() notes where the values of each nonzero will lie among those given. Of that a plan
   of sums is made, which MatSetValuesCOO() replays on the device: values from there stay there, those of the host are uploaded once, and the sums
   lie in managed arrays under the data of aij. Where there is no device, PETSc's function adds them up, in the same order. */
#include "matrix/matrix.h"

static PetscErrorCode (*parent_preallocation)(Mat, PetscCount, PetscInt[], PetscInt[]) = NULL;
static PetscErrorCode (*parent_values)(Mat, const PetscScalar[], InsertMode)           = NULL;

/* ---- what both types need ---- */

/* Coordinates as PETSc's functions take them: a copy on the host of such as are on the device. */
PetscErrorCode GpufmtCooToHost(PetscCount count, PetscInt rows[], PetscInt columns[], PetscInt *copies[2])
{
  const PetscInt *given[2] = {rows, columns};
  void           *stream;

  PetscFunctionBegin;
  copies[0] = copies[1] = NULL;
  for (int k = 0; k < 2; k++) {
    if (!GpufmtDeviceHas(given[k])) continue;
    PetscCall(GpufmtDeviceGet(NULL, &stream));
    PetscCall(PetscMalloc1(count, &copies[k]));
    PetscCall(GpufmtDeviceDownload(copies[k], given[k], (size_t)count * sizeof(PetscInt), stream));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* what MatSetPreallocationCOO() has left with the matrix, or with the one that this is a copy of */
PetscErrorCode GpufmtCooFind(Mat A, void *coordinates, PetscObjectId *id)
{
  PetscContainer container;

  PetscFunctionBegin;
  PetscCall(PetscObjectQuery((PetscObject)A, "__PETSc_MatCOOStruct_Host", (PetscObject *)&container));
  PetscCheck(container, PETSC_COMM_SELF, PETSC_ERR_ARG_WRONGSTATE,
             "MatSetValuesCOO(): the matrix has no coordinates that values could belong to: call MatSetPreallocationCOO() first");
  PetscCall(PetscContainerGetPointer(container, coordinates));
  PetscCall(PetscObjectGetId((PetscObject)container, id));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* an error if a sequential matrix has not the pattern of its coordinates any more */
PetscErrorCode GpufmtCooCheck(Mat A, PetscCount nnz)
{
  const PetscInt *rowptr;

  PetscFunctionBegin;
  PetscCall(MatSeqAIJGetCSRAndMemType(A, &rowptr, NULL, NULL, NULL));
  PetscCheck(rowptr[A->rmap->n] == nnz, PETSC_COMM_SELF, PETSC_ERR_ARG_WRONGSTATE,
             "MatSetValuesCOO(): the pattern has changed since MatSetPreallocationCOO(), from %" PetscCount_FMT " nonzeros to %" PetscInt_FMT
             ": call MatSetPreallocationCOO() again",
             nnz, rowptr[A->rmap->n]);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* where the given values are, and where they are to be added up */
PetscErrorCode GpufmtCooPlace(Mat A, const PetscScalar given[], PetscCount count, GpufmtCooValues *values)
{
  PetscFunctionBegin;
  PetscCheck(given || !count, PETSC_COMM_SELF, PETSC_ERR_ARG_NULL,
             "MatSetValuesCOO(): there are %" PetscCount_FMT " coordinates, and the array of values is NULL", count);
  *values         = (GpufmtCooValues){.given = given, .count = count, .on_device = GpufmtDeviceHas(given)};
  values->backend = GpufmtBackendOf(A);
  values->ours    = (PetscBool)(values->backend == GPUFMT_BACKEND_CUDA || GpufmtManagedPossible(GPUFMT_BACKEND_HOST));
  PetscCheck(!values->on_device || values->backend == GPUFMT_BACKEND_CUDA, PETSC_COMM_SELF, PETSC_ERR_SUP,
             "MatSetValuesCOO(): the values are on the device, and the matrix is bound to the CPU: give it values on the host, or call "
             "MatBindToCPU() with PETSC_FALSE");
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The terms of all sums, one after another: own values first, then those that were received, which are counted on from the given ones. */
static PetscErrorCode ListTerms(const GpufmtCooTerms *terms, PetscInt begins[], PetscInt index[])
{
  PetscCount e = 0, r = 0;

  PetscFunctionBegin;
  for (PetscCount t = 0; t < terms->ntargets; t++) {
    if (begins) begins[t] = (PetscInt)e; /* at most `nterms`, which is a PetscInt */
    for (PetscCount k = terms->begins ? terms->begins[t] : t; k < (terms->begins ? terms->begins[t + 1] : t + 1); k++)
      index[e++] = (PetscInt)terms->places[k];
    if (r == terms->nreceived_targets || terms->received_targets[r] != t) continue;
    for (PetscCount k = terms->received_begins[r]; k < terms->received_begins[r + 1]; k++)
      index[e++] = (PetscInt)(terms->sizes[0] + terms->received_places[k]);
    r++;
  }
  if (begins) begins[terms->ntargets] = (PetscInt)e;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the plan of the sums for coordinates with this id, kept as long as they are the same */
PetscErrorCode GpufmtCooPlan(Mat A, const GpufmtCooTerms *terms, PetscObjectId id, int backend, GpufmtCooSum *sum)
{
  GpufmtEntrySumRequest request = {0};
  GpufmtEntrySumAnswer  answer  = {0};
  PetscInt             *begins = NULL, *index = NULL;
  PetscErrorCode        ierr;

  PetscFunctionBegin;
  if (PetscLikely(GpufmtLeaseHolds(&sum->lease) && sum->id == id && sum->backend == backend)) PetscFunctionReturn(PETSC_SUCCESS);
  if (sum->id != id) sum->entered = PETSC_FALSE;
  PetscCall(GpufmtCooDrop(sum));
  sum->id      = id;
  sum->backend = backend;
  PetscCall(PetscIntCast(terms->sizes[0] + terms->sizes[1], &sum->nterms)); /* numbers of entries are indices */
  PetscCall(PetscIntCast(terms->nterms, &sum->nterms));
  PetscCall(PetscIntCast(terms->ntargets, &sum->ntargets));
  if (sum->nterms != sum->ntargets) PetscCall(PetscMalloc1(sum->ntargets + 1, &begins)); /* else each has one: none has no term */
  PetscCall(PetscMalloc1(sum->nterms, &index));
  PetscCall(ListTerms(terms, begins, index));
  request.ntargets = sum->ntargets;
  request.nterms   = sum->nterms;
  request.begins   = begins;
  request.index    = index;
  for (int k = 0; k < 2; k++) request.sizes[k] = terms->sizes[k];
  ierr      = GpufmtPlannerAsk(GPUFMT_ASK_ENTRY_SUM, backend, GPUFMT_Plan, A, &request.place, &answer.outcome, &sum->lease);
  sum->plan = answer.sum;
  PetscCall(PetscFree(begins));
  PetscCall(PetscFree(index));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Brings the values to where they are added up. What was taken for that goes by GpufmtCooRelease(). */
PetscErrorCode GpufmtCooStage(GpufmtCooValues *values)
{
  const size_t bytes = (size_t)values->count * sizeof(PetscScalar);
  void        *stream;

  PetscFunctionBegin;
  values->array = values->given;
  if (values->backend == GPUFMT_BACKEND_HOST || values->on_device) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtDeviceGet(NULL, &stream));
  PetscCall(GpufmtDeviceReserve(bytes, &values->staged, &values->capacity));
  PetscCall(GpufmtDeviceUpload(values->staged, values->given, bytes, stream));
  values->array = (const PetscScalar *)values->staged;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtCooRelease(GpufmtCooValues *values)
{
  PetscFunctionBegin;
  PetscCall(GpufmtDeviceFree(&values->staged, &values->capacity));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Managed arrays for a sequential matrix whose values all come new, by GpufmtCooEnter(), once for the same coordinates: who takes them away by a
   change on the host is likely to do so again. NULL: it keeps those that it has. */
PetscErrorCode GpufmtCooReserve(Mat A, int backend, InsertMode mode, GpufmtManaged **out)
{
  const PetscBool entered = GpufmtSeqData(A)->coo.entered;
  const PetscInt *rowptr, *colidx;
  GpufmtManaged  *managed;
  PetscErrorCode  ierr;

  PetscFunctionBegin;
  *out = NULL;
  PetscCall(GpufmtManagedOf(A, &managed));
  if (managed || GpufmtSeqData(A)->pinned || !GpufmtManagedMayEnter(A) || mode == ADD_VALUES || entered || !GpufmtManagedPossible(backend))
    PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(MatSeqAIJGetCSRAndMemType(A, &rowptr, &colidx, NULL, NULL));
  PetscCall(GpufmtManagedCreate(A->rmap->n, rowptr[A->rmap->n], rowptr, PETSC_FALSE, PETSC_FALSE, out));
  ierr = GpufmtManagedSetColumns(*out, colidx, PETSC_FALSE);
  if (ierr) PetscCall(GpufmtManagedRelease(out));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* All that may fail for want of memory is over: A takes the arrays, if there are any. Its values are unknown until they are added up. */
PetscErrorCode GpufmtCooEnter(Mat A, GpufmtManaged **managed)
{
  PetscFunctionBegin;
  if (!*managed) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtManagedEnter(A, *managed));
  PetscCall(GpufmtManagedRelease(managed));
  GpufmtSeqData(A)->coo.entered = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* adds up the values of a sequential matrix */
PetscErrorCode GpufmtCooRun(Mat A, const GpufmtCooSum *sum, const PetscScalar *given, const void *received, InsertMode mode)
{
  GpufmtDeviceValues  *values = &GpufmtSeqData(A)->arrays.values;
  const PetscBool      add    = (PetscBool)(mode == ADD_VALUES);
  const PetscLogDouble flops  = (PetscLogDouble)sum->nterms - (add ? 0 : sum->ntargets);
  PetscScalar         *array;
  void                *slots[GPUFMT_NUM_SLOTS] = {NULL}, *stream;

  PetscFunctionBegin;
  slots[GPUFMT_SLOT_A_VALUES] = (void *)given;
  slots[GPUFMT_SLOT_B_VALUES] = (void *)received;
  if (sum->backend == GPUFMT_BACKEND_HOST) {
    PetscCall(MatSeqAIJGetArray(A, &array));
    slots[GPUFMT_SLOT_RESULT] = array;
    slots[GPUFMT_SLOT_Y]      = add ? array : NULL;
    PetscCall(GpufmtReplay(&sum->plan, sum->backend, slots, NULL));
    PetscCall(MatSeqAIJRestoreArray(A, &array));
    PetscCall(PetscLogFlops(flops));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(GpufmtDeviceGet(NULL, &stream));
  if (add) PetscCall(GpufmtDeviceValuesUpdate(values, A, sum->ntargets, stream));
  else PetscCall(GpufmtDeviceValuesWrite(values, A, sum->ntargets, &slots[GPUFMT_SLOT_RESULT]));
  slots[GPUFMT_SLOT_RESULT] = values->array;
  slots[GPUFMT_SLOT_Y]      = add ? values->array : NULL;
  values->valid             = PETSC_FALSE; /* if the launch fails */
  PetscCall(GpufmtReplay(&sum->plan, sum->backend, slots, stream));
  PetscCall(PetscLogGpuFlops(flops));
  PetscCall(GpufmtDeviceValuesInserted(values, A, sum->ntargets, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---- sequential matrices ---- */

static PetscErrorCode MatSetPreallocationCOO_SeqAIJGpufmt(Mat A, PetscCount count, PetscInt rows[], PetscInt columns[])
{
  PetscInt      *copies[2];
  PetscErrorCode ierr;
  PetscBool      done;

  PetscFunctionBegin;
  if (!GpufmtSeqData(A)) {
    PetscCall((*parent_preallocation)(A, count, rows, columns));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(GpufmtCooAssemble(A, count, rows, columns, &done));
  if (done) PetscFunctionReturn(PETSC_SUCCESS);
  ierr = GpufmtCooToHost(count, rows, columns, copies);
  if (!ierr) ierr = (*parent_preallocation)(A, count, copies[0] ? copies[0] : rows, copies[1] ? copies[1] : columns);
  for (int k = 0; k < 2; k++) PetscCall(PetscFree(copies[k]));
  PetscCall(ierr);
  GpufmtSeqData(A)->coo.sorted = PETSC_FALSE;
  GpufmtOptionsRemember(&GpufmtSeqData(A)->options, MAT_NEW_NONZERO_LOCATION_ERR, PETSC_TRUE); /* as PETSc's function leaves it */
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The coordinates as PETSc describes them; NULL: the planner has sorted them, and its plan is there, for values that are added up at a place. */
static PetscErrorCode Find(Mat A, const GpufmtCooValues *values, const GpufmtSeqCoordinates **coordinates, PetscObjectId *id)
{
  GpufmtCooSum *sum = &GpufmtSeqData(A)->coo;

  PetscFunctionBegin;
  *coordinates = NULL;
  if (sum->sorted && (!values || (GpufmtLeaseHolds(&sum->lease) && values->ours && values->backend == sum->backend)))
    PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtCooNote(A));
  sum->sorted = PETSC_FALSE;
  PetscCall(GpufmtCooFind(A, (void *)coordinates, id));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* how many values MatSetValuesCOO() takes */
PetscErrorCode GpufmtSeqCooCount(Mat A, PetscCount *count)
{
  const GpufmtSeqCoordinates *coordinates;
  PetscObjectId               id;

  PetscFunctionBegin;
  PetscCall(Find(A, NULL, &coordinates, &id));
  *count = coordinates ? coordinates->count : GpufmtSeqData(A)->coo.count;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Prepare(Mat A, const GpufmtSeqCoordinates *coordinates, PetscObjectId id, InsertMode mode, GpufmtCooValues *values,
                              GpufmtManaged **managed)
{
  PetscFunctionBegin;
  if (coordinates) {
    const GpufmtCooTerms terms = {
      .ntargets = coordinates->nnz,
      .nterms   = coordinates->nterms,
      .begins   = coordinates->begins,
      .places   = coordinates->places,
      .sizes    = {coordinates->count, 0}
    };

    PetscCall(GpufmtCooPlan(A, &terms, id, values->backend, &GpufmtSeqData(A)->coo));
  }
  PetscCall(GpufmtCooReserve(A, values->backend, mode, managed));
  PetscCall(GpufmtCooStage(values));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MatSetValuesCOO_SeqAIJGpufmt(Mat A, const PetscScalar given[], InsertMode mode)
{
  const GpufmtSeqCoordinates *coordinates;
  GpufmtCooValues             values;
  GpufmtManaged              *managed = NULL;
  PetscObjectId               id      = 0;
  PetscCount                  count;
  PetscErrorCode              ierr;

  PetscFunctionBegin;
  if (!GpufmtSeqData(A)) {
    PetscCall((*parent_values)(A, given, mode));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(GpufmtSeqCooCount(A, &count));
  PetscCall(GpufmtCooPlace(A, given, count, &values));
  PetscCall(Find(A, &values, &coordinates, &id));
  PetscCall(GpufmtCooCheck(A, coordinates ? coordinates->nnz : GpufmtSeqData(A)->coo.ntargets));
  if (!values.ours) {
    PetscCall((*parent_values)(A, given, mode));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  ierr = Prepare(A, coordinates, id, mode, &values, &managed);
  if (!ierr) ierr = GpufmtCooEnter(A, &managed);
  if (!ierr) ierr = GpufmtCooRun(A, &GpufmtSeqData(A)->coo, values.array, NULL, mode);
  PetscCall(GpufmtManagedRelease(&managed));
  PetscCall(GpufmtCooRelease(&values));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* gives a matrix these functions, or the parent's */
PetscErrorCode GpufmtSeqCooSet(Mat A, PetscBool ours)
{
  PetscFunctionBegin;
  GpufmtComposeFunction(A, "MatSetPreallocationCOO_C", ours, MatSetPreallocationCOO_SeqAIJGpufmt, parent_preallocation);
  GpufmtComposeFunction(A, "MatSetValuesCOO_C", ours, MatSetValuesCOO_SeqAIJGpufmt, parent_values);
  PetscFunctionReturn(PETSC_SUCCESS);
}
