/* A small block of a backend comes to the host, while what is queued after it runs. Two copies may be on their way. */
#include "runtime/driver.h"

#if PetscDefined(HAVE_CUDA)

static PetscErrorCode Make(GpufmtReadback *r)
{
  PetscFunctionBegin;
  PetscCall(GpufmtPinnedTake(2 * r->bytes, (void **)&r->host));
  for (int k = 0; k < 2; k++) CallDriver("cuEventCreate", gpufmt_driver.EventCreate(&r->copied[k], CUDA_EVENT_DISABLE_TIMING));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Copy(GpufmtReadback *r, void *copy, const void *block, void *stream)
{
  PetscFunctionBegin;
  CallDriver("cuMemcpyDtoH", gpufmt_driver.MemcpyDtoHAsync(copy, (DevicePointer)block, r->bytes, stream));
  CallDriver("cuEventRecord", gpufmt_driver.EventRecord(r->copied[r->nqueued & 1], stream));
  PetscCall(PetscLogGpuToCpu((PetscLogDouble)r->bytes));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode IsThere(const GpufmtReadback *r, PetscBool *there)
{
  const CudaResult code = gpufmt_driver.EventQuery(r->copied[r->ntaken & 1]);

  PetscFunctionBegin;
  *there = (PetscBool)(code != CUDA_NOT_READY);
  if (*there) CallDriver("cuEventQuery", code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Await(const GpufmtReadback *r)
{
  PetscFunctionBegin;
  CallDriver("cuEventSynchronize", gpufmt_driver.EventSynchronize(r->copied[r->ntaken & 1])); /* synchronize! what was queued before the copy alone */
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Return(GpufmtReadback *r)
{
  PetscFunctionBegin;
  for (int k = 0; k < 2; k++)
    if (r->copied[k]) CallDriver("cuEventDestroy", gpufmt_driver.EventDestroy(r->copied[k]));
  PetscCall(GpufmtPinnedReturn((void **)&r->host));
  PetscFunctionReturn(PETSC_SUCCESS);
}

#else

static PetscErrorCode Make(GpufmtReadback *r)
{
  return GpufmtNoDevice();
}

static PetscErrorCode Copy(GpufmtReadback *r, void *copy, const void *block, void *stream)
{
  return GpufmtNoDevice();
}

static PetscErrorCode IsThere(const GpufmtReadback *r, PetscBool *there)
{
  return GpufmtNoDevice();
}

static PetscErrorCode Await(const GpufmtReadback *r)
{
  return GpufmtNoDevice();
}

static PetscErrorCode Return(GpufmtReadback *r)
{
  return PETSC_SUCCESS; /* there is nothing */
}

#endif

/* for a block of so many bytes; after a failure there is something to destroy, too */
PetscErrorCode GpufmtReadbackCreate(int backend, size_t bytes, GpufmtReadback *r)
{
  PetscFunctionBegin;
  *r = (GpufmtReadback){.backend = backend, .bytes = bytes};
  if (backend == GPUFMT_BACKEND_CUDA) PetscCall(Make(r));
  else PetscCall(PetscMalloc1(2 * bytes, &r->host));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* waits for what is on its way */
PetscErrorCode GpufmtReadbackDestroy(GpufmtReadback *r)
{
  PetscFunctionBegin;
  if (r->backend == GPUFMT_BACKEND_CUDA) {
    for (; r->ntaken < r->nqueued; r->ntaken++) PetscCall(Await(r));
    PetscCall(Return(r));
  } else PetscCall(PetscFree(r->host));
  *r = (GpufmtReadback){0};
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Copies the block as what is queued on the stream so far leaves it. */
PetscErrorCode GpufmtReadbackQueue(GpufmtReadback *r, const void *block, void *stream)
{
  char *const copy = r->host + (size_t)(r->nqueued & 1) * r->bytes;

  PetscFunctionBegin;
  PetscCheck(r->nqueued - r->ntaken < 2, PETSC_COMM_SELF, PETSC_ERR_ORDER, "A third copy was queued while two are on their way: take one before");
  if (r->backend == GPUFMT_BACKEND_CUDA) PetscCall(Copy(r, copy, block, stream));
  else PetscCall(PetscMemcpy(copy, block, r->bytes));
  r->nqueued++;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* whether the oldest that is on its way can be taken without a wait */
PetscErrorCode GpufmtReadbackIsThere(const GpufmtReadback *r, PetscBool *there)
{
  PetscFunctionBegin;
  *there = (PetscBool)(r->ntaken < r->nqueued);
  if (*there && r->backend == GPUFMT_BACKEND_CUDA) PetscCall(IsThere(r, there));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the oldest that is on its way, once it is there; its contents stay until the next is queued */
PetscErrorCode GpufmtReadbackTake(GpufmtReadback *r, const void **host)
{
  PetscFunctionBegin;
  PetscCheck(r->ntaken < r->nqueued, PETSC_COMM_SELF, PETSC_ERR_ORDER, "A copy was to be taken, but none is on its way: queue one before");
  if (r->backend == GPUFMT_BACKEND_CUDA) PetscCall(Await(r));
  *host = r->host + (size_t)(r->ntaken++ & 1) * r->bytes;
  PetscFunctionReturn(PETSC_SUCCESS);
}
