/* A copy of the CSR values of a sequential matrix on the device, for sparse products: values that are there already are not sent again. */
#include "gpufmt_impl.h"

/* whether the copy holds the values of A. MatProductNumeric() increases the state of its result once more after our numeric phase, and
   composite products of PETSc call that phase without it, so the first look after a numeric phase takes either state. */
static PetscErrorCode IsCurrent(Mat A, GpufmtDeviceValues *v, PetscBool *current)
{
  PetscObjectState state;

  PetscFunctionBegin;
  PetscCall(PetscObjectStateGet((PetscObject)A, &state));
  if (v->computed && state == v->state + 1) v->state = state;
  v->computed = PETSC_FALSE;
  *current    = (PetscBool)(v->valid && v->state == state);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* device memory for `count` values, their contents undefined */
PetscErrorCode GpufmtDeviceValuesReserve(GpufmtDeviceValues *v, PetscCount count)
{
  PetscFunctionBegin;
  v->valid = v->computed = PETSC_FALSE;
  PetscCall(GpufmtDeviceReserve((size_t)count * sizeof(PetscScalar), &v->array, &v->capacity));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* makes the copy one of the `count` values of A as they are now, with an upload if it has to be */
PetscErrorCode GpufmtDeviceValuesUpdate(GpufmtDeviceValues *v, Mat A, PetscCount count, void *stream)
{
  const PetscScalar *values;
  PetscBool          current = PETSC_FALSE;

  PetscFunctionBegin;
  PetscCall(IsCurrent(A, v, &current));
  if (current) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GpufmtDeviceValuesReserve(v, count));
  PetscCall(MatSeqAIJGetArrayRead(A, &values));
  PetscCall(GpufmtDeviceUpload(v->array, values, (size_t)count * sizeof(PetscScalar), stream));
  PetscCall(MatSeqAIJRestoreArrayRead(A, &values));
  PetscCall(PetscObjectStateGet((PetscObject)A, &v->state));
  v->valid = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the copy was computed on the device and A has the same values: called at the end of a numeric phase */
PetscErrorCode GpufmtDeviceValuesComputed(GpufmtDeviceValues *v, Mat A)
{
  PetscFunctionBegin;
  PetscCall(PetscObjectStateGet((PetscObject)A, &v->state));
  v->valid = v->computed = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtDeviceValuesDestroy(GpufmtDeviceValues *v)
{
  PetscFunctionBegin;
  v->valid = v->computed = PETSC_FALSE;
  PetscCall(GpufmtDeviceFree(&v->array, &v->capacity));
  PetscFunctionReturn(PETSC_SUCCESS);
}
