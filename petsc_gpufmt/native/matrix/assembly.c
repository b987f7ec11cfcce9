/* For petsc_gpufmt/assembly.py: MatSetPreallocationCOO() and MatSetValuesCOO() with arrays that petsc4py does not take. What is wrong on one rank is
   an error on all, with a message that petsc4py's handler would keep to itself. */
#include "matrix/matrix.h"

static const char *const legacy_stream = (const char *)1; /* another name of NULL */

PetscErrorCode GpufmtCheckOurs(Mat A)
{
  PetscFunctionBegin;
  PetscCheck(GpufmtFormatFind(((PetscObject)A)->type_name), PETSC_COMM_SELF, PETSC_ERR_SUP,
             "this function is for matrices of this package, and the matrix is of type %s: use the matrix's own method", ((PetscObject)A)->type_name);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* waits for a stream on which arrays of the device may still be computed, unless it is that of what follows; NULL: they are there */
static PetscErrorCode AwaitArrays(void *stream)
{
  void *current;

  PetscFunctionBegin;
  PetscCheck(GpufmtDeviceUsable(), PETSC_COMM_SELF, PETSC_ERR_SUP,
             "the array is on a device, and PETSc has none here: it was configured without CUDA, or finds no GPU, or was told -device_enable none");
  PetscCall(GpufmtDeviceGet(NULL, &current));
  if (stream == legacy_stream) stream = NULL;
  if (stream != current) PetscCall(GpufmtDeviceSynchronize(stream)); /* synchronize! */
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode CheckValues(Mat A, int64_t count, PetscBool on_device, void *stream)
{
  PetscCount expected;

  PetscFunctionBegin;
  PetscCall(GpufmtCheckOurs(A));
  if (GpufmtSeqData(A)) PetscCall(GpufmtSeqCooCount(A, &expected));
  else PetscCall(GpufmtParallelCooCount(A, &expected));
  PetscCheck(count == (int64_t)expected, PETSC_COMM_SELF, PETSC_ERR_ARG_SIZ, "%" PetscInt64_FMT " values for %" PetscCount_FMT " coordinates",
             (PetscInt64)count, expected);
  if (on_device) PetscCall(AwaitArrays(stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode SetValues(Mat A, const PetscScalar values[], int64_t count, InsertMode mode, PetscBool on_device, void *stream)
{
  PetscErrorCode ierr;

  PetscFunctionBegin;
  ierr = CheckValues(A, count, on_device, stream);
  PetscCall(GpufmtCooAgree(A, ierr));
  PetscCall(MatSetValuesCOO(A, values, mode));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode CheckCoordinates(Mat A, PetscBool on_device, void *streams[2])
{
  PetscFunctionBegin;
  PetscCall(GpufmtCheckOurs(A));
  for (int k = 0; k < 2 && on_device; k++) PetscCall(AwaitArrays(streams[k]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode SetCoordinates(Mat A, PetscInt rows[], PetscInt columns[], int64_t count, PetscBool on_device, void *streams[2])
{
  PetscErrorCode ierr;

  PetscFunctionBegin;
  ierr = CheckCoordinates(A, on_device, streams);
  PetscCall(GpufmtCooAgree(A, ierr));
  PetscCall(MatSetPreallocationCOO(A, (PetscCount)count, rows, columns));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* a handler of errors that keeps the message of the first one for Python */
PetscErrorCode GpufmtKeepMessage(MPI_Comm comm, int line, const char function[], const char file[], PetscErrorCode code, PetscErrorType type,
                                 const char message[], void *kept)
{
  const char *text = message;

  if (type != PETSC_ERROR_INITIAL) return code;
  if (!text) (void)PetscErrorMessage(code, &text, NULL);
  if (text) (void)PetscStrncpy((char *)kept, text, GPUFMT_MESSAGE_LENGTH);
  return code;
}

/* Values for all `count` coordinates of this rank, on the host, or on the device, where they may still be computed on `stream`. Collective. */
PETSC_EXTERN PetscErrorCode GpufmtSetValuesCOO(Mat A, const void *values, int64_t count, int add, int on_device, void *stream, GpufmtMessage message)
{
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(PetscPushErrorHandler(GpufmtKeepMessage, message));
  ierr = SetValues(A, (const PetscScalar *)values, count, add ? ADD_VALUES : INSERT_VALUES, (PetscBool)on_device, stream);
  PetscCall(PetscPopErrorHandler());
  PetscFunctionReturn(ierr);
}

/* Likewise rows and columns; those on the host may change. Collective. */
PETSC_EXTERN PetscErrorCode GpufmtSetPreallocationCOO(Mat A, void *rows, void *columns, int64_t count, int on_device, void *row_stream,
                                                      void *column_stream, GpufmtMessage message)
{
  void          *streams[2] = {row_stream, column_stream};
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(PetscPushErrorHandler(GpufmtKeepMessage, message));
  ierr = SetCoordinates(A, (PetscInt *)rows, (PetscInt *)columns, count, (PetscBool)on_device, streams);
  PetscCall(PetscPopErrorHandler());
  PetscFunctionReturn(ierr);
}
