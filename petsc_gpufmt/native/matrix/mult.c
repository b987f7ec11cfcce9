/* The products of the sequential type: operands are taken where they are, and a plan is replayed there. */
#include "matrix/matrix.h"

typedef struct {
  Vec          vec;
  PetscScalar *array;
  PetscMemType memtype;
  PetscInt     size;
} Operand;

/* array access in the place where the vector is; x and y are read, z is written, or both where z is y */
static PetscErrorCode OperandGet(Operand *o, int slot, PetscBool read_write, PetscBool on_host)
{
  const PetscScalar *a = NULL;

  PetscFunctionBegin;
  if (on_host) {
    o->memtype = PETSC_MEMTYPE_HOST;
    if (slot != GPUFMT_SLOT_Z) {
      PetscCall(VecGetArrayRead(o->vec, &a));
      o->array = (PetscScalar *)a;
    } else if (read_write) PetscCall(VecGetArray(o->vec, &o->array));
    else PetscCall(VecGetArrayWrite(o->vec, &o->array));
  } else {
    if (slot != GPUFMT_SLOT_Z) {
      PetscCall(VecGetArrayReadAndMemType(o->vec, &a, &o->memtype));
      o->array = (PetscScalar *)a;
    } else if (read_write) PetscCall(VecGetArrayAndMemType(o->vec, &o->array, &o->memtype));
    else PetscCall(VecGetArrayWriteAndMemType(o->vec, &o->array, &o->memtype));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode OperandRestore(Operand *o, int slot, PetscBool read_write, PetscBool on_host)
{
  const PetscScalar *a = o->array;

  PetscFunctionBegin;
  if (on_host) {
    if (slot != GPUFMT_SLOT_Z) PetscCall(VecRestoreArrayRead(o->vec, &a));
    else if (read_write) PetscCall(VecRestoreArray(o->vec, &o->array));
    else PetscCall(VecRestoreArrayWrite(o->vec, &o->array));
  } else {
    if (slot != GPUFMT_SLOT_Z) PetscCall(VecRestoreArrayReadAndMemType(o->vec, &a));
    else if (read_write) PetscCall(VecRestoreArrayAndMemType(o->vec, &o->array));
    else PetscCall(VecRestoreArrayWriteAndMemType(o->vec, &o->array));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* a row of k entries takes k - 1 additions, unless they are added to something */
static PetscLogDouble MultFlops(const GpufmtStore *store, PetscInt nnz, PetscBool add)
{
  return 2.0 * (PetscLogDouble)nnz - (add ? 0.0 : (PetscLogDouble)store->answer.nonempty_rows);
}

/* z = A x, or z = y + A x; ops[] hold the arrays, wherever they are */
static PetscErrorCode MultRun(Mat A, PetscBool transposed, PetscBool add, Operand ops[3])
{
  Mat_Gpufmt     *gpufmt  = (Mat_Gpufmt *)A->spptr;
  int             backend = GPUFMT_BACKEND_HOST;
  GpufmtStore    *store;
  const PetscInt *rowptr;
  const int       plan                    = !add ? GPUFMT_PLAN_MULT : ops[GPUFMT_SLOT_Y].vec ? GPUFMT_PLAN_MULTADD : GPUFMT_PLAN_ADD;
  void           *slots[GPUFMT_NUM_SLOTS] = {NULL}, *stream = NULL;

  PetscFunctionBegin;
  for (int s = 0; s < 3; s++)
    if (ops[s].vec && PetscMemTypeDevice(ops[s].memtype)) backend = GPUFMT_BACKEND_CUDA;
  PetscCall(GpufmtStoreGet(A, gpufmt, backend, transposed, &store));
  store->mults++;
  if (backend == GPUFMT_BACKEND_CUDA) PetscCall(GpufmtDeviceGet(NULL, &stream));
  for (int s = 0; s < 3; s++) {
    const size_t bytes = (size_t)ops[s].size * sizeof(PetscScalar);

    if (!ops[s].vec) continue; /* no y, or y is z */
    slots[s] = ops[s].array;
    if (backend == GPUFMT_BACKEND_CUDA && PetscMemTypeHost(ops[s].memtype)) { /* vectors of both kinds: stage the host ones */
      PetscCall(GpufmtDeviceReserve(bytes, &gpufmt->scratch[s], &gpufmt->scratch_bytes[s]));
      if (s != GPUFMT_SLOT_Z || (add && !ops[GPUFMT_SLOT_Y].vec)) PetscCall(GpufmtDeviceUpload(gpufmt->scratch[s], ops[s].array, bytes, stream));
      slots[s] = gpufmt->scratch[s];
    }
  }
  if (!ops[GPUFMT_SLOT_Y].vec) slots[GPUFMT_SLOT_Y] = slots[GPUFMT_SLOT_Z];
  PetscCall(GpufmtReplay(&store->answer.plans[plan], backend, slots, stream));
  PetscCall(MatSeqAIJGetCSRAndMemType(A, &rowptr, NULL, NULL, NULL));
  PetscCall(GpufmtLogFlops(backend, MultFlops(store, rowptr[A->rmap->n], add)));
  if (slots[GPUFMT_SLOT_Z] != ops[GPUFMT_SLOT_Z].array)
    PetscCall(GpufmtDeviceDownload(ops[GPUFMT_SLOT_Z].array, slots[GPUFMT_SLOT_Z], (size_t)ops[GPUFMT_SLOT_Z].size * sizeof(PetscScalar), stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The ghost vector of a parallel matrix belongs to PETSc and comes out on the host in some creation paths; an off-diagonal block
   that meets it beside device vectors moves it to the device for good. */
#if PetscDefined(HAVE_CUDA)
static PetscErrorCode GhostToDevice(Vec ghost, Vec other, PetscBool keep)
{
  PetscBool on_host, on_device;
  Vec       copy;

  PetscFunctionBegin;
  PetscCall(PetscObjectTypeCompare((PetscObject)ghost, VECSEQ, &on_host));
  if (!on_host) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscObjectTypeCompareAny((PetscObject)other, &on_device, VECSEQCUDA, VECMPICUDA, ""));
  if (!on_device || other->boundtocpu) PetscFunctionReturn(PETSC_SUCCESS);
  if (keep) {
    PetscCall(VecDuplicate(ghost, &copy));
    PetscCall(VecCopy(ghost, copy));
  }
  PetscCall(VecSetType(ghost, VECSEQCUDA));
  if (keep) {
    PetscCall(VecCopy(copy, ghost));
    PetscCall(VecDestroy(&copy));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
#endif

static PetscErrorCode MultTry(Mat A, Vec x, Vec y, Vec z, PetscBool transposed)
{
  const PetscBool add = (PetscBool)(y != NULL), in_place = (PetscBool)(y == z);
  PetscBool       on_host = PETSC_TRUE;
  Operand         ops[3]  = {
    {.vec = x,                   .size = x->map->n},
    {.vec = in_place ? NULL : y, .size = z->map->n},
    {.vec = z,                   .size = z->map->n}
  };
  PetscErrorCode ierr;

  PetscFunctionBegin;
#if PetscDefined(HAVE_CUDA)
  on_host = (PetscBool)(A->boundtocpu || !GpufmtDeviceUsable());
  if (!on_host && ((Mat_Gpufmt *)A->spptr)->offdiag) PetscCall(transposed ? GhostToDevice(z, x, add) : GhostToDevice(x, z, PETSC_TRUE));
#endif
  for (int s = 0; s < 3; s++)
    if (ops[s].vec) PetscCall(OperandGet(&ops[s], s, (PetscBool)(add && in_place), on_host));
  ierr = MultRun(A, transposed, add, ops); /* a failure leaves the vectors usable */
  for (int s = 2; s >= 0; s--)
    if (ops[s].vec) PetscCall(OperandRestore(&ops[s], s, (PetscBool)(add && in_place), on_host));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Inside the product of a parallel matrix a failure is kept for its end, since other ranks wait for what this one sends. If it was to send
   sums, these are no numbers: an application that goes on elsewhere is not to take what is there for them. */
static PetscErrorCode Mult(Mat A, Vec x, Vec y, Vec z, PetscBool transposed)
{
  Mat_Gpufmt    *gpufmt = GpufmtSeqData(A);
  PetscErrorCode ierr;

  PetscFunctionBegin;
  if (PetscUnlikely(!gpufmt)) {
    if (y) PetscCall((transposed ? *gpufmt_seq_parent->multtransposeadd : *gpufmt_seq_parent->multadd)(A, x, y, z));
    else PetscCall((transposed ? *gpufmt_seq_parent->multtranspose : *gpufmt_seq_parent->mult)(A, x, z));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (gpufmt->failure && *gpufmt->failure) PetscFunctionReturn(PETSC_SUCCESS); /* in the other block */
  ierr = MultTry(A, x, y, z, transposed);
  if (PetscUnlikely(ierr && gpufmt->failure)) {
    *gpufmt->failure = ierr;
    if (gpufmt->offdiag && transposed) (void)VecSet(z, NAN);
    ierr = PETSC_SUCCESS;
  }
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatMult_SeqAIJGpufmt(Mat A, Vec x, Vec z)
{
  return Mult(A, x, NULL, z, PETSC_FALSE);
}

PetscErrorCode MatMultAdd_SeqAIJGpufmt(Mat A, Vec x, Vec y, Vec z)
{
  return Mult(A, x, y, z, PETSC_FALSE);
}

PetscErrorCode MatMultTranspose_SeqAIJGpufmt(Mat A, Vec x, Vec z)
{
  return Mult(A, x, NULL, z, PETSC_TRUE);
}

PetscErrorCode MatMultTransposeAdd_SeqAIJGpufmt(Mat A, Vec x, Vec y, Vec z)
{
  return Mult(A, x, y, z, PETSC_TRUE);
}
