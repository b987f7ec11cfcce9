/* Vectors of solvers where these are: plans are replayed there. */
#include "ksp/ksp.h"

/* Where this rank uses the arrays of all vectors: on the host, or on its device. Not usable: they are of another type, or of several. */
PetscErrorCode GpufmtKspBackendHere(PetscInt n, const Vec vectors[], int *backend, PetscBool *usable)
{
  PetscInt nhost = 0, ndevice = 0;

  PetscFunctionBegin;
  for (PetscInt k = 0; k < n; k++) {
    PetscBool on_host, on_device;

    PetscCall(PetscObjectTypeCompareAny((PetscObject)vectors[k], &on_host, VECSEQ, VECMPI, VECSTANDARD, VECSHARED, ""));
    PetscCall(PetscObjectTypeCompareAny((PetscObject)vectors[k], &on_device, VECSEQCUDA, VECMPICUDA, ""));
#if PetscDefined(HAVE_DEVICE)
    if (on_device && vectors[k]->boundtocpu) {
      on_host   = PETSC_TRUE;
      on_device = PETSC_FALSE;
    }
#endif
    nhost += on_host;
    ndevice += on_device;
  }
  *backend = ndevice ? GPUFMT_BACKEND_CUDA : GPUFMT_BACKEND_HOST;
  *usable  = (PetscBool)(ndevice ? ndevice == n && GpufmtDeviceUsable() : nhost == n);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The same on all ranks. Not usable either: on one rank alone they are elsewhere, as -vec_bind_below may leave them. Collective. */
PetscErrorCode GpufmtKspBackend(PetscInt n, const Vec vectors[], int *backend, PetscBool *usable)
{
  int flags[3];

  PetscFunctionBegin;
  PetscCall(GpufmtKspBackendHere(n, vectors, backend, usable));
  flags[0] = !*usable;
  flags[1] = *backend;
  flags[2] = -*backend;
  PetscCall(GpufmtAgree((PetscObject)vectors[0], "A look at vectors", PETSC_SUCCESS, PETSC_STATIC_ARRAY_LENGTH(flags), flags));
  *usable = (PetscBool)(!flags[0] && flags[1] == -flags[2]); /* the largest and the smallest */
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode ArrayGet(int backend, const GpufmtKspVector *v, PetscScalar **array)
{
  const PetscScalar *read = NULL;
  PetscMemType       memtype;

  PetscFunctionBegin;
  if (backend == GPUFMT_BACKEND_HOST) {
    if (v->access == GPUFMT_READ) PetscCall(VecGetArrayRead(v->vec, &read));
    else if (v->access == GPUFMT_WRITE) PetscCall(VecGetArrayWrite(v->vec, array));
    else PetscCall(VecGetArray(v->vec, array));
  } else {
    if (v->access == GPUFMT_READ) PetscCall(VecGetArrayReadAndMemType(v->vec, &read, &memtype));
    else if (v->access == GPUFMT_WRITE) PetscCall(VecGetArrayWriteAndMemType(v->vec, array, &memtype));
    else PetscCall(VecGetArrayAndMemType(v->vec, array, &memtype));
  }
  if (v->access == GPUFMT_READ) *array = (PetscScalar *)read;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode ArrayRestore(int backend, const GpufmtKspVector *v, PetscScalar **array)
{
  const PetscScalar *read = *array;

  PetscFunctionBegin;
  if (backend == GPUFMT_BACKEND_HOST) {
    if (v->access == GPUFMT_READ) PetscCall(VecRestoreArrayRead(v->vec, &read));
    else if (v->access == GPUFMT_WRITE) PetscCall(VecRestoreArrayWrite(v->vec, array));
    else PetscCall(VecRestoreArray(v->vec, array));
  } else {
    if (v->access == GPUFMT_READ) PetscCall(VecRestoreArrayReadAndMemType(v->vec, &read));
    else if (v->access == GPUFMT_WRITE) PetscCall(VecRestoreArrayWriteAndMemType(v->vec, array));
    else PetscCall(VecRestoreArrayAndMemType(v->vec, array));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Replays a plan with vectors in their slots, or adds it to a graph. All are on the backend. */
PetscErrorCode GpufmtKspRun(int backend, const GpufmtPlan *plan, PetscInt n, const GpufmtKspVector vectors[], GpufmtGraph graph,
                            const GpufmtLease *lease)
{
  PetscScalar   *arrays[GPUFMT_NUM_SLOTS] = {NULL};
  void          *slots[GPUFMT_NUM_SLOTS] = {NULL}, *stream = NULL;
  PetscErrorCode ierr = PETSC_SUCCESS; /* a failure leaves the vectors usable */
  PetscInt       nhad = 0;

  PetscFunctionBegin;
  for (; !ierr && nhad < n; nhad += !ierr) {
    slots[vectors[nhad].slot] = vectors[nhad].word;
    if (!vectors[nhad].vec) continue;
    ierr                      = ArrayGet(backend, &vectors[nhad], &arrays[nhad]);
    slots[vectors[nhad].slot] = arrays[nhad];
  }
  if (!ierr && backend == GPUFMT_BACKEND_CUDA) ierr = GpufmtDeviceGet(NULL, &stream);
  if (!ierr) ierr = graph ? GpufmtGraphAdd(graph, plan, slots, lease) : GpufmtReplay(plan, backend, slots, stream);
  for (PetscInt k = nhad - 1; k >= 0; k--)
    if (vectors[k].vec) PetscCall(ArrayRestore(backend, &vectors[k], &arrays[k]));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What a call of PETSc has left locked in a failure is free again, but for the locks that there were before. */
PetscErrorCode GpufmtKspUnlock(Vec vec, PetscInt locks)
{
  PetscInt now;

  PetscFunctionBegin;
  PetscCall(VecLockGet(vec, &now));
  for (; now > locks; now--) PetscCall(VecLockReadPop(vec));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* where the array of a vector is after such an access to it */
static PetscErrorCode ArrayFind(int backend, GpufmtKspVector v, PetscScalar **array)
{
  PetscScalar *there = NULL;

  PetscFunctionBegin;
  PetscCall(ArrayGet(backend, &v, &there));
  *array = there;
  PetscCall(ArrayRestore(backend, &v, &there));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* where the array of a vector is on the backend; what is in it goes */
PetscErrorCode GpufmtKspArrayPlace(int backend, Vec vec, PetscScalar **array)
{
  return ArrayFind(backend, GpufmtWrites(0, vec), array);
}

/* where the array of a vector is; it may not be used */
PetscErrorCode GpufmtKspArrayLook(int backend, Vec vec, const PetscScalar **array)
{
  PetscScalar *there = NULL;

  PetscFunctionBegin;
  PetscCall(ArrayFind(backend, GpufmtReads(0, vec), &there));
  *array = there;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* what is queued has changed it */
PetscErrorCode GpufmtKspArrayChanged(int backend, Vec vec)
{
  PetscScalar *array;

  return ArrayFind(backend, GpufmtChanges(0, vec), &array);
}

/* VecCopy() on the backend. PETSc's alone leaves a vector that comes from the host there, and each solve would send a copy of it. */
PetscErrorCode GpufmtKspCopy(int backend, Vec from, Vec to)
{
  const PetscScalar *read;
  PetscScalar       *written;

  PetscFunctionBegin;
  PetscCall(GpufmtKspArrayLook(backend, from, &read));
  PetscCall(GpufmtKspArrayPlace(backend, to, &written));
  PetscCall(VecCopy(from, to));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Whether a preconditioner does nothing but to multiply by a diagonal, which is PETSc's own vector, or by 1: then it is NULL. It is looked up in each
   solve, so that it is what PETSc would take. A null space would be removed from what the preconditioner makes, which takes all of it. */
PetscErrorCode GpufmtKspDiagonal(KSP ksp, Vec *diagonal, PetscBool *is_diagonal)
{
  Mat          A;
  MatNullSpace null_space;
  PetscBool    is_none, is_jacobi;
  Vec          vectors[2];
  int          backend;

  PetscFunctionBegin;
  *diagonal = NULL;
  PetscCall(PetscObjectTypeCompare((PetscObject)ksp->pc, PCNONE, &is_none));
  PetscCall(PetscObjectTypeCompare((PetscObject)ksp->pc, PCJACOBI, &is_jacobi));
  PetscCall(PCGetOperators(ksp->pc, &A, NULL));
  PetscCall(MatGetNullSpace(A, &null_space));
  *is_diagonal = (PetscBool)((is_none || is_jacobi) && !null_space);
  if (!*is_diagonal || is_none) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PCSetUp(ksp->pc)); /* before 3.26 KSPSetUp() leaves that of a changed matrix to PCApply() */
  vectors[1] = ksp->work[0];   /* which solves begin by writing */
  if (!((GpufmtJacobiContext *)ksp->pc->data)->diagonal) PetscCall(PCApply(ksp->pc, ksp->vec_rhs, vectors[1]));
  vectors[0] = ((GpufmtJacobiContext *)ksp->pc->data)->diagonal;
  PetscCall(
    GpufmtKspBackendHere(PETSC_STATIC_ARRAY_LENGTH(vectors), vectors, &backend, is_diagonal)); /* it may lie elsewhere than vectors of the solve */
  if (*is_diagonal) *diagonal = vectors[0];
  PetscFunctionReturn(PETSC_SUCCESS);
}
