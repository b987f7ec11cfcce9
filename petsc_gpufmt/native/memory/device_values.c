/* The CSR values of a sequential matrix on the device, for sparse products: where its arrays are managed, there; else in a copy, which is not
   sent again while it is current. */
#include "memory/memory.h"

/* whether the device has the values of A. MatProductNumeric() increases the state of its result once more after our numeric phase, and
   composite products of PETSc call that phase without it, so the first look after a numeric phase takes either state. */
static PetscErrorCode IsCurrent(Mat A, GpufmtDeviceValues *v, PetscBool *current)
{
  PetscFunctionBegin;
  if (v->computed && ((PetscObject)A)->state == v->version.state + 1) v->version.state++;
  v->computed = PETSC_FALSE;
  *current    = (PetscBool)(v->valid && GpufmtVersionIsOf(&v->version, A));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static struct {
  Mat                 matrix;
  GpufmtDeviceValues *values;
} sending[GPUFMT_MAX_UPLOADS]; /* values that are under way */
static int nsending = 0;

/* none of these values is under way any more */
static PetscErrorCode Await(const GpufmtDeviceValues *v)
{
  PetscFunctionBegin;
  for (int k = 0; k < nsending; k++)
    if (sending[k].values == v) PetscCall(GpufmtDeviceValuesEnd()); /* of all: none is left */
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the place of `count` values of A on the device; `current`: they are there. The host may have touched managed values that are not, so
   their pages are called. */
static PetscErrorCode Locate(GpufmtDeviceValues *v, Mat A, PetscCount count, void *stream, PetscBool *current)
{
  GpufmtManaged *managed;

  PetscFunctionBegin;
  PetscCall(Await(v));
  PetscCall(GpufmtManagedOf(A, &managed));
  if (v->managed ? !managed || v->array != managed->values : managed != NULL) PetscCall(GpufmtDeviceValuesDestroy(v));
  PetscCall(IsCurrent(A, v, current));
  v->managed = (PetscBool)(managed != NULL);
  if (*current) PetscFunctionReturn(PETSC_SUCCESS);
  v->valid = PETSC_FALSE;
  if (managed) {
    v->array = managed->values;
    PetscCall(GpufmtManagedPrefetchValues(managed, stream));
  } else PetscCall(GpufmtDeviceReserve((size_t)count * sizeof(PetscScalar), &v->array, &v->capacity));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Makes v->array the `count` values of A as they are now, with an upload if it has to be. Where v->managed, the host may write them next, so
   the launch that reads them is followed by a synchronization. */
PetscErrorCode GpufmtDeviceValuesUpdate(GpufmtDeviceValues *v, Mat A, PetscCount count, void *stream)
{
  const PetscScalar *values;
  PetscBool          current = PETSC_FALSE;

  PetscFunctionBegin;
  PetscCall(Locate(v, A, count, stream, &current));
  if (current) PetscFunctionReturn(PETSC_SUCCESS);
  if (!v->managed) {
    PetscCall(MatSeqAIJGetArrayRead(A, &values));
    PetscCall(GpufmtDeviceUpload(v->array, values, (size_t)count * sizeof(PetscScalar), stream));
    PetscCall(MatSeqAIJRestoreArrayRead(A, &values));
  }
  v->version = GpufmtVersionOf(A);
  v->valid   = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Begins uploads of the values of some matrices of ours, of counts[k] each, that are not on the device: they do not change until
   GpufmtDeviceValuesEnd(), or until the first that wants them. Others, and managed ones, are left to GpufmtDeviceValuesUpdate(). */
PetscErrorCode GpufmtDeviceValuesBegin(int n, const Mat matrices[], const PetscCount counts[], void *stream)
{
  GpufmtUploadJob jobs[GPUFMT_MAX_UPLOADS] = {{NULL}};
  Mat             found[GPUFMT_MAX_UPLOADS];
  int             nfound = 0;

  PetscFunctionBegin;
  PetscCall(GpufmtDeviceValuesEnd());
  for (int k = 0; k < n; k++) {
    GpufmtArrays      *arrays  = GpufmtArraysOf(matrices[k]);
    PetscBool          current = PETSC_FALSE, twice = PETSC_FALSE;
    const PetscScalar *values;

    for (int j = 0; j < nfound; j++)
      if (found[j] == matrices[k]) twice = PETSC_TRUE;
    if (!arrays || twice) continue;
    PetscCall(Locate(&arrays->values, matrices[k], counts[k], stream, &current));
    if (current || arrays->values.managed) continue;
    PetscCall(MatSeqAIJGetArrayRead(matrices[k], &values));
    jobs[nfound]    = (GpufmtUploadJob){.dev = arrays->values.array, .host = values, .bytes = (size_t)counts[k] * sizeof(PetscScalar)};
    found[nfound++] = matrices[k];
    PetscCall(MatSeqAIJRestoreArrayRead(matrices[k], &values));
  }
  PetscCall(GpufmtUploadsBegin(nfound, jobs, stream));
  for (nsending = 0; nsending < nfound; nsending++) {
    sending[nsending].matrix = found[nsending];
    sending[nsending].values = &GpufmtArraysOf(found[nsending])->values;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* what was begun is on the device for what follows on the stream */
PetscErrorCode GpufmtDeviceValuesEnd(void)
{
  const int n = nsending;

  PetscFunctionBegin;
  nsending = 0;
  PetscCall(GpufmtUploadsEnd());
  for (int k = 0; k < n; k++) {
    sending[k].values->version = GpufmtVersionOf(sending[k].matrix);
    sending[k].values->valid   = PETSC_TRUE;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* where a launch may write all `count` values of A; GpufmtDeviceValuesComputed() follows it */
PetscErrorCode GpufmtDeviceValuesWrite(GpufmtDeviceValues *v, Mat A, PetscCount count, void **array)
{
  PetscBool current = PETSC_FALSE;
  void     *stream;

  PetscFunctionBegin;
  PetscCall(GpufmtDeviceGet(NULL, &stream));
  PetscCall(Locate(v, A, count, stream, &current));
  v->valid = PETSC_FALSE;
  *array   = v->array;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the launch that wrote them is over, or its result is with the host */
static PetscErrorCode Settle(const GpufmtDeviceValues *v, Mat A, PetscCount count, void *stream)
{
  GpufmtManaged *managed;
  PetscScalar   *values;

  PetscFunctionBegin;
  if (v->managed) {
    PetscCall(GpufmtManagedOf(A, &managed));
    if (!managed->internal) PetscCall(GpufmtDeviceSynchronize(stream)); /* synchronize! the host may read or write next */
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(MatSeqAIJGetArrayWrite(A, &values));
  PetscCall(GpufmtDeviceDownload(values, v->array, (size_t)count * sizeof(PetscScalar), stream));
  PetscCall(MatSeqAIJRestoreArrayWrite(A, &values));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The launch into GpufmtDeviceValuesWrite()'s array has been made: these are the values of A now, and are downloaded unless they are managed.
   The state is raised last: who looks at it must not take old values for new ones. */
PetscErrorCode GpufmtDeviceValuesComputed(GpufmtDeviceValues *v, Mat A, PetscCount count, void *stream)
{
  PetscFunctionBegin;
  PetscCall(Settle(v, A, count, stream));
  PetscCall(MatAssemblyBegin(A, MAT_FINAL_ASSEMBLY));
  PetscCall(MatAssemblyEnd(A, MAT_FINAL_ASSEMBLY));
  v->version = GpufmtVersionOf(A);
  v->valid = v->computed = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The same where PETSc goes on to assemble A, which raises its state once more. */
PetscErrorCode GpufmtDeviceValuesInserted(GpufmtDeviceValues *v, Mat A, PetscCount count, void *stream)
{
  PetscFunctionBegin;
  PetscCall(Settle(v, A, count, stream));
  PetscCall(PetscObjectStateIncrease((PetscObject)A));
  v->version = GpufmtVersionOf(A);
  v->valid = v->computed = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The same where nothing follows: the state of A is raised once. */
PetscErrorCode GpufmtDeviceValuesWritten(GpufmtDeviceValues *v, Mat A, PetscCount count, void *stream)
{
  PetscFunctionBegin;
  PetscCall(Settle(v, A, count, stream));
  PetscCall(GpufmtDeviceValuesStay(v, A));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Values were computed on the device for a matrix that no user sees: they are current there and nowhere else. */
PetscErrorCode GpufmtDeviceValuesStay(GpufmtDeviceValues *values, Mat A)
{
  PetscFunctionBegin;
  PetscCall(PetscObjectStateIncrease((PetscObject)A));
  values->version = GpufmtVersionOf(A);
  values->valid   = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtDeviceValuesDestroy(GpufmtDeviceValues *v)
{
  PetscFunctionBegin;
  PetscCall(Await(v));
  v->valid = v->computed = PETSC_FALSE;
  if (v->managed) v->array = NULL; /* belongs to the matrix */
  v->managed = PETSC_FALSE;
  PetscCall(GpufmtDeviceFree(&v->array, &v->capacity));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the copy of a matrix's values on the device: kept with a matrix of ours, so that all products and refreshes share it, else with the product */
GpufmtDeviceValues *GpufmtDeviceValuesOf(Mat A, GpufmtDeviceValues *own)
{
  GpufmtArrays *arrays = GpufmtArraysOf(A);

  return arrays ? &arrays->values : own;
}
