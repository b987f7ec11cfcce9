/* For petsc_gpufmt/device_arrays.py: entries of vectors, and values of matrices, in the memory that they are in, to be read or written there by others
   than this library. An access has a beginning and an end; what is queued meanwhile on the stream that it names comes after what PETSc has queued. */
#include "matrix/matrix.h"

enum { READ, WRITE, READ_WRITE };

/* mirrored by device_arrays.Access */
typedef struct {
  void   *arrays[2]; /* of a parallel matrix: of the diagonal and of the off-diagonal block */
  int64_t counts[2];
  int64_t on_device, device;
  void   *stream;
  void   *held; /* of a matrix: a Held */
} Access;

typedef struct {
  int              mode, backend;
  Mat              blocks[2]; /* the second NULL: the matrix is sequential */
  PetscObjectState patterns[2];
  GpufmtCsrValues  read[2];
} Held;

static PetscErrorCode NamePlace(PetscBool on_device, Access *access)
{
  int device = 0;

  PetscFunctionBegin;
  access->on_device = on_device;
  if (on_device) {
    PetscCheck(GpufmtDeviceUsable(), PETSC_COMM_SELF, PETSC_ERR_SUP,
               "an array on the device cannot be used without NVIDIA's driver: see petsc-gpufmt info");
    PetscCall(GpufmtDeviceGet(&device, &access->stream));
  }
  access->device = device;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---- vectors ---- */

static PetscErrorCode VecBegin(Vec v, int mode, Access *access)
{
  PetscScalar *array;
  PetscMemType memtype;
  PetscInt     count, lock;

  PetscFunctionBegin;
  PetscCheck(((PetscObject)v)->type_name, PETSC_COMM_SELF, PETSC_ERR_ARG_WRONGSTATE, "the vector has no entries yet: give it sizes and a type first");
  PetscCall(VecGetLocalSize(v, &count));
  PetscCall(VecLockGet(v, &lock));
  PetscCheck(mode == READ || !lock, PETSC_COMM_SELF, PETSC_ERR_ARG_WRONGSTATE,
             "the vector is locked: a solver or another access reads or writes it, so take it to be read, by \"r\"");
  if (mode == READ) PetscCall(VecGetArrayReadAndMemType(v, (const PetscScalar **)&array, &memtype));
  else if (mode == WRITE) PetscCall(VecGetArrayWriteAndMemType(v, &array, &memtype));
  else PetscCall(VecGetArrayAndMemType(v, &array, &memtype));
  access->arrays[0] = array;
  access->counts[0] = count;
  PetscCall(NamePlace((PetscBool)PetscMemTypeDevice(memtype), access));
  PetscCall(PetscObjectReference((PetscObject)v)); /* it may be destroyed meanwhile */
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* raises the state of the vector unless it was read */
static PetscErrorCode VecEnd(Vec v, int mode, Access *access)
{
  PetscScalar *array = (PetscScalar *)access->arrays[0];

  PetscFunctionBegin;
  if (mode == READ) PetscCall(VecRestoreArrayReadAndMemType(v, (const PetscScalar **)&array));
  else if (mode == WRITE) PetscCall(VecRestoreArrayWriteAndMemType(v, &array));
  else PetscCall(VecRestoreArrayAndMemType(v, &array));
  PetscCall(VecDestroy(&v));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---- matrices ---- */

/* Values that are written on a device stay there, in managed arrays: in ordinary ones they would be downloaded each time. Those of before are kept,
   for an access that fails. */
static PetscErrorCode EnterManaged(Mat block, int backend, PetscCount count)
{
  GpufmtManaged     *managed;
  const PetscScalar *values;
  PetscErrorCode     ierr = PETSC_SUCCESS;

  PetscFunctionBegin;
  PetscCall(GpufmtCooReserve(block, backend, INSERT_VALUES, &managed));
  if (!managed) PetscFunctionReturn(PETSC_SUCCESS);
  if (count) {
    PetscCall(MatSeqAIJGetArrayRead(block, &values));
    ierr = GpufmtManagedCopyFromHost(managed->values, values, (size_t)count * sizeof(PetscScalar));
    PetscCall(MatSeqAIJRestoreArrayRead(block, &values));
  }
  if (!ierr) ierr = GpufmtCooEnter(block, &managed);
  if (ierr) PetscCall(GpufmtManagedRelease(&managed));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode WriteBegin(Mat block, int mode, int backend, PetscCount count, void **array)
{
  GpufmtDeviceValues *values = &GpufmtSeqData(block)->arrays.values;
  void               *stream;

  PetscFunctionBegin;
  PetscCall(EnterManaged(block, backend, count));
  if (backend == GPUFMT_BACKEND_HOST) {
    PetscCall(MatSeqAIJGetArray(block, (PetscScalar **)array));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(GpufmtDeviceGet(NULL, &stream));
  if (mode == READ_WRITE) PetscCall(GpufmtDeviceValuesUpdate(values, block, count, stream));
  else PetscCall(GpufmtDeviceValuesWrite(values, block, count, array));
  *array        = values->array;
  values->valid = PETSC_FALSE; /* until they are written */
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* where the values of a block are to be written now; NULL: nowhere on the device, or it has another type */
static PetscErrorCode FindArray(Mat block, int backend, PetscScalar **array)
{
  GpufmtArrays  *arrays = GpufmtArraysOf(block);
  GpufmtManaged *managed;

  PetscFunctionBegin;
  *array = NULL;
  if (backend == GPUFMT_BACKEND_HOST) {
    PetscCall(MatSeqAIJGetCSRAndMemType(block, NULL, NULL, array, NULL));
  } else if (arrays) {
    PetscCall(GpufmtManagedOf(block, &managed));
    if (managed) *array = managed->values;
    else if (!arrays->values.managed) *array = (PetscScalar *)arrays->values.array;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode WriteEnd(const Held *held, const Access *access, int k)
{
  Mat              block = held->blocks[k];
  PetscObjectState pattern;
  PetscScalar     *array;

  PetscFunctionBegin;
  PetscCall(FindArray(block, held->backend, &array));
  PetscCall(MatGetNonzeroState(block, &pattern));
  PetscCheck(access->arrays[k] == array && held->patterns[k] == pattern && access->counts[k] == (int64_t)GpufmtEntries(block), PETSC_COMM_SELF,
             PETSC_ERR_ARG_WRONGSTATE,
             "the matrix got other arrays while its values were written, so they are lost: change its pattern or its type before or after that");
  if (held->backend == GPUFMT_BACKEND_CUDA)
    PetscCall(GpufmtDeviceValuesWritten(&GpufmtSeqData(block)->arrays.values, block, (PetscCount)access->counts[k], access->stream));
  else PetscCall(MatSeqAIJRestoreArray(block, &array));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode BlockBegin(Mat block, Held *held, int k, Access *access)
{
  PetscFunctionBegin;
  access->counts[k] = (int64_t)GpufmtEntries(block);
  if (held->mode == READ) {
    PetscCall(GpufmtCsrValuesGet(block, held->backend, &held->read[k]));
    access->arrays[k] = held->read[k].array;
  } else PetscCall(WriteBegin(block, held->mode, held->backend, (PetscCount)access->counts[k], &access->arrays[k]));
  PetscCall(MatGetNonzeroState(block, &held->patterns[k])); /* that of managed arrays, if it has just got these */
  held->blocks[k] = block;
  PetscCall(PetscObjectReference((PetscObject)block)); /* a new pattern may destroy it meanwhile */
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Release(Held *held)
{
  PetscFunctionBegin;
  for (int k = 0; k < 2; k++) {
    if (held->blocks[k] && held->mode == READ) PetscCall(GpufmtCsrValuesRestore(held->blocks[k], &held->read[k]));
    PetscCall(MatDestroy(&held->blocks[k]));
  }
  PetscCall(PetscFree(held));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MatBegin(Mat A, int mode, Access *access)
{
  Mat            blocks[2] = {A, NULL};
  Held          *held;
  PetscErrorCode ierr = PETSC_SUCCESS;

  PetscFunctionBegin;
  PetscCall(GpufmtCheckOurs(A));
  PetscCheck(A->assembled, PETSC_COMM_SELF, PETSC_ERR_ARG_WRONGSTATE,
             "the matrix is not assembled: give it values and call its method assemble(), or set_values_coo(), first");
  if (!GpufmtSeqData(A)) PetscCall(MatMPIAIJGetSeqAIJ(A, &blocks[0], &blocks[1], NULL));
  PetscCall(PetscNew(&held));
  held->mode    = mode;
  held->backend = GpufmtBackendOf(blocks[0]);
  for (int k = 0; k < 2 && !ierr; k++)
    if (blocks[k]) ierr = BlockBegin(blocks[k], held, k, access);
  if (!ierr) ierr = NamePlace((PetscBool)(held->backend == GPUFMT_BACKEND_CUDA), access);
  if (ierr) (void)Release(held);
  PetscCall(ierr);
  if (blocks[0] != A && mode != READ) ((Mat_Gpufmt *)A->spptr)->managed_blocks = PETSC_TRUE; /* there may be some */
  PetscCall(PetscObjectReference((PetscObject)A));
  access->held = held;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* raises the states of the matrix and of its blocks unless it was read */
static PetscErrorCode MatEnd(Mat A, Access *access)
{
  Held          *held = (Held *)access->held;
  PetscErrorCode ierr = PETSC_SUCCESS;

  PetscFunctionBegin;
  for (int k = 0; k < 2 && held->mode != READ && !ierr; k++)
    if (held->blocks[k]) ierr = WriteEnd(held, access, k);
  if (held->mode != READ && held->blocks[0] != A) PetscCall(PetscObjectStateIncrease((PetscObject)A));
  PetscCall(Release(held));
  PetscCall(MatDestroy(&A));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---- what Python calls ---- */

/* The entries of a vector that this rank has. Not collective, like the three below. */
PETSC_EXTERN PetscErrorCode GpufmtVecAccessBegin(Vec v, int mode, Access *access, GpufmtMessage message)
{
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(PetscPushErrorHandler(GpufmtKeepMessage, message));
  ierr = VecBegin(v, mode, access);
  PetscCall(PetscPopErrorHandler());
  PetscFunctionReturn(ierr);
}

PETSC_EXTERN PetscErrorCode GpufmtVecAccessEnd(Vec v, int mode, Access *access, GpufmtMessage message)
{
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(PetscPushErrorHandler(GpufmtKeepMessage, message));
  ierr = VecEnd(v, mode, access);
  PetscCall(PetscPopErrorHandler());
  PetscFunctionReturn(ierr);
}

/* The values of a matrix of ours, in the order of CSR. Their pattern stays. */
PETSC_EXTERN PetscErrorCode GpufmtMatAccessBegin(Mat A, int mode, Access *access, GpufmtMessage message)
{
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(PetscPushErrorHandler(GpufmtKeepMessage, message));
  ierr = MatBegin(A, mode, access);
  PetscCall(PetscPopErrorHandler());
  PetscFunctionReturn(ierr);
}

PETSC_EXTERN PetscErrorCode GpufmtMatAccessEnd(Mat A, int mode, Access *access, GpufmtMessage message)
{
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(PetscPushErrorHandler(GpufmtKeepMessage, message));
  ierr = MatEnd(A, access);
  PetscCall(PetscPopErrorHandler());
  PetscFunctionReturn(ierr);
}
