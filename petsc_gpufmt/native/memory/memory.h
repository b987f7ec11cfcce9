/* Where the arrays of sequential matrices lie: uploads, values on the device, managed arrays. */
#pragma once
#include <petsc/private/matimpl.h>
#include "runtime/runtime.h"

/* The values of a matrix as they are now. Those of two matrices may be counted alike: MatHeaderReplace() and MatHeaderMerge() move the data and
   the id to another matrix, which goes on counting from its own state, and a new matrix may lie where an old one was. The nonzero state moves
   with the data. */
typedef struct {
  const struct _p_Mat *matrix;
  PetscObjectId        id;
  PetscObjectState     state;
} GpufmtVersion;

static inline GpufmtVersion GpufmtVersionOf(Mat A)
{
  return (GpufmtVersion){.matrix = A, .id = ((PetscObject)A)->id, .state = ((PetscObject)A)->state};
}

static inline PetscBool GpufmtVersionIsOf(const GpufmtVersion *v, Mat A)
{
  return (PetscBool)(v->state == ((PetscObject)A)->state && v->matrix == A && v->id == ((PetscObject)A)->id);
}

/* Managed arrays of a sequential matrix. One allocation holds the values, then the columns, aligned for either, whichever is wider, and then a copy
   of the row pointer, which the host never touches. Another one holds the row pointer that the host may read, and lengths of rows, if there are many. */
typedef struct _GpufmtManaged GpufmtManaged;
struct _GpufmtManaged {
  PetscScalar   *values;
  PetscInt      *rowptr, *colidx, *copied_rowptr; /* the first on the host, or managed; the last NULL: there is no copy */
  PetscInt      *lengths[2];                      /* of rows, that there is room for, and that are there; NULL: of few rows, PETSc has its own */
  PetscInt       longest, nonempty;               /* of these lengths: the largest, and how many are not 0 */
  PetscInt       nrows;
  PetscCount     nnz;
  GpufmtMemory   memory, rows; /* that has the values, and what is managed of the rows */
  PetscBool      internal;     /* no user sees the matrix that gets them: of the row pointer the host has the last entry alone */
  PetscBool      on_device;    /* nor are they managed: nothing on the host can read them */
  int            references;
  GpufmtManaged *previous, *next;
};

/* CSR values of a matrix on the device */
typedef struct {
  void         *array;
  size_t        capacity; /* bytes */
  PetscBool     managed;  /* the array is that of the matrix itself */
  PetscBool     valid;    /* they are those of `version` */
  PetscBool     computed; /* by a numeric phase, or inserted, and not looked at since */
  GpufmtVersion version;
} GpufmtDeviceValues;

/* the pattern of a matrix as the planner may hold it on a backend, by its number there */
typedef struct {
  int64_t          number; /* from an answer; below 0: of GpufmtPatternHeld(); 0: none */
  int              backend;
  PetscObjectState state; /* of the pattern */
} GpufmtHeldPattern;

/* what A->spptr of a sequential matrix of ours begins with */
typedef struct {
  const void        *mark;    /* by which it is known */
  GpufmtDeviceValues values;  /* of a matrix that sparse products read or make */
  GpufmtManaged     *managed; /* the arrays of a result of these; else they are PETSc's own */
  GpufmtHeldPattern  held;
} GpufmtArrays;

static inline PetscBool GpufmtBoundToCPU(Mat A)
{
#if PetscDefined(HAVE_DEVICE)
  return A->boundtocpu;
#else
  return PETSC_FALSE;
#endif
}

/* where a matrix is worked with */
static inline int GpufmtBackendOf(Mat A)
{
  return GpufmtDeviceUsable() && !GpufmtBoundToCPU(A) ? GPUFMT_BACKEND_CUDA : GPUFMT_BACKEND_HOST;
}

/* managed_memory.c */
GPUFMT_HIDDEN PetscBool      GpufmtManagedPossible(int backend);
GPUFMT_HIDDEN PetscErrorCode GpufmtManagedTake(size_t bytes, GpufmtMemory *);
GPUFMT_HIDDEN PetscErrorCode GpufmtManagedReturn(GpufmtMemory *);
GPUFMT_HIDDEN PetscErrorCode GpufmtManagedForgetKept(void);
GPUFMT_HIDDEN PetscErrorCode GpufmtManagedPrefetch(void *array, size_t bytes, void *stream);
GPUFMT_HIDDEN PetscErrorCode GpufmtManagedClear(void *array, size_t bytes);
GPUFMT_HIDDEN PetscErrorCode GpufmtManagedCopyFromHost(void *to, const void *from, size_t bytes);

/* row_lengths.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtRowLengths(int backend, PetscInt nrows, const PetscInt rowptr[], PetscInt *const lengths[2], PetscInt seen[2]);
GPUFMT_HIDDEN PetscErrorCode GpufmtRowLengthsForget(void);

/* rows.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtRowsKnown(PetscBool *);
GPUFMT_HIDDEN PetscErrorCode GpufmtCreateWithArrays(MPI_Comm, PetscInt ncols, const GpufmtManaged *, Mat *);
GPUFMT_HIDDEN PetscErrorCode GpufmtRowsLeave(Mat, const GpufmtManaged *, PetscBool copied);
GPUFMT_HIDDEN PetscErrorCode GpufmtRowsCompress(Mat, PetscInt nonzero);

/* managed.c */
GPUFMT_HIDDEN extern PetscErrorCode (*gpufmt_seq_bind)(Mat, PetscBool);
GPUFMT_HIDDEN PetscErrorCode GpufmtManagedCreate(PetscInt nrows, PetscCount nnz, const PetscInt rowptr[], PetscBool on_device, PetscBool internal,
                                                 GpufmtManaged **);
GPUFMT_HIDDEN GpufmtManaged *GpufmtManagedReference(GpufmtManaged *);
GPUFMT_HIDDEN PetscErrorCode GpufmtManagedRelease(GpufmtManaged **);
GPUFMT_HIDDEN PetscErrorCode GpufmtManagedForget(void);
GPUFMT_HIDDEN PetscBool      GpufmtManagedContains(const void *);
GPUFMT_HIDDEN const void    *GpufmtManagedRowptr(const void *host, size_t bytes);
GPUFMT_HIDDEN PetscErrorCode GpufmtManagedSetColumns(GpufmtManaged *, const PetscInt colidx[], PetscBool on_device);
GPUFMT_HIDDEN PetscErrorCode GpufmtManagedZeroValues(GpufmtManaged *);
GPUFMT_HIDDEN PetscErrorCode GpufmtManagedSettle(PetscBool on_device);
GPUFMT_HIDDEN PetscErrorCode GpufmtManagedPrefetchValues(const GpufmtManaged *, void *stream);
GPUFMT_HIDDEN PetscErrorCode GpufmtManagedDigest(const GpufmtManaged *, uint64_t *digest);
GPUFMT_HIDDEN PetscErrorCode GpufmtManagedOf(Mat, GpufmtManaged **);

/* What belongs to a sequential matrix of ours, else NULL; asked at each MatSetValues(), so no names are compared. Parallel types of PETSc's own, such as aijsell,
   take blocks for plain ones: they put data of theirs in the place of ours, and leave most of our operations, which then do what the parent's do. */
static inline GpufmtArrays *GpufmtArraysOf(Mat A)
{
  GpufmtArrays *arrays = A->ops->bindtocpu == gpufmt_seq_bind ? (GpufmtArrays *)A->spptr : NULL;

  return arrays && arrays->mark == &gpufmt_seq_bind ? arrays : NULL;
}

/* The planner holds the pattern of A on a backend, or has held it, under a number. */
static inline void GpufmtPatternHold(Mat A, int backend, int64_t number)
{
  GpufmtArrays *arrays = GpufmtArraysOf(A);

  if (arrays) arrays->held = (GpufmtHeldPattern){.number = number, .backend = backend, .state = A->nonzerostate};
}

/* buffer.c: memory on a backend, for as long as something is computed there or is kept between products */
typedef struct {
  int    backend;
  void  *array;
  size_t capacity; /* bytes */
} GpufmtBuffer;
GPUFMT_HIDDEN PetscErrorCode GpufmtBufferReserve(int backend, size_t bytes, GpufmtBuffer *);
GPUFMT_HIDDEN PetscErrorCode GpufmtBufferClear(const GpufmtBuffer *, size_t bytes);
GPUFMT_HIDDEN PetscErrorCode GpufmtBufferCopy(const GpufmtBuffer *, const void *from, size_t bytes);
GPUFMT_HIDDEN PetscErrorCode GpufmtBufferFromHost(const GpufmtBuffer *, const void *from, size_t bytes);
GPUFMT_HIDDEN PetscErrorCode GpufmtBufferToHost(const GpufmtBuffer *, size_t bytes, void *to);
GPUFMT_HIDDEN PetscErrorCode GpufmtBufferFree(GpufmtBuffer *);

/* upload.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtDeviceUpload(void *dev, const void *host, size_t bytes, void *stream);
GPUFMT_HIDDEN PetscErrorCode GpufmtUploadPrepare(const void *host, size_t bytes, PetscBool *pageable);
GPUFMT_HIDDEN int            GpufmtUploadPageable(void *dev, const void *host, size_t bytes, bool staged, void *stream);
GPUFMT_HIDDEN PetscErrorCode GpufmtUploadFinalize(void);

/* copy.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtCopyToHost(int backend, void *to, const void *from, size_t bytes);
GPUFMT_HIDDEN PetscErrorCode GpufmtCopyToBackend(int backend, void *to, const void *from, size_t bytes);

/* upload_beside.c */
enum { GPUFMT_MAX_UPLOADS = 3 };
typedef struct {
  void       *dev;
  const void *host;
  size_t      bytes;
} GpufmtUploadJob;
GPUFMT_HIDDEN PetscErrorCode GpufmtUploadsBegin(int n, const GpufmtUploadJob[], void *stream);
GPUFMT_HIDDEN PetscErrorCode GpufmtUploadsEnd(void);
GPUFMT_HIDDEN PetscErrorCode GpufmtUploadsFinalize(void);

/* device_values.c */
GPUFMT_HIDDEN PetscErrorCode      GpufmtDeviceValuesUpdate(GpufmtDeviceValues *, Mat, PetscCount, void *stream);
GPUFMT_HIDDEN PetscErrorCode      GpufmtDeviceValuesBegin(int n, const Mat[], const PetscCount counts[], void *stream);
GPUFMT_HIDDEN PetscErrorCode      GpufmtDeviceValuesEnd(void);
GPUFMT_HIDDEN PetscErrorCode      GpufmtDeviceValuesWrite(GpufmtDeviceValues *, Mat, PetscCount, void **array);
GPUFMT_HIDDEN PetscErrorCode      GpufmtDeviceValuesComputed(GpufmtDeviceValues *, Mat, PetscCount, void *stream);
GPUFMT_HIDDEN PetscErrorCode      GpufmtDeviceValuesInserted(GpufmtDeviceValues *, Mat, PetscCount, void *stream);
GPUFMT_HIDDEN PetscErrorCode      GpufmtDeviceValuesWritten(GpufmtDeviceValues *, Mat, PetscCount, void *stream);
GPUFMT_HIDDEN PetscErrorCode      GpufmtDeviceValuesStay(GpufmtDeviceValues *, Mat);
GPUFMT_HIDDEN PetscErrorCode      GpufmtDeviceValuesDestroy(GpufmtDeviceValues *);
GPUFMT_HIDDEN GpufmtDeviceValues *GpufmtDeviceValuesOf(Mat, GpufmtDeviceValues *own);

/* digest.c */
typedef struct _GpufmtDigestion *GpufmtDigestion; /* digests of arrays in the making */
GPUFMT_HIDDEN PetscErrorCode     GpufmtDigest(const void *, size_t, uint64_t *digest);
GPUFMT_HIDDEN PetscErrorCode     GpufmtDigestBegin(const void *const arrays[2], const size_t bytes[2], GpufmtDigestion *);
GPUFMT_HIDDEN PetscErrorCode     GpufmtDigestEnd(GpufmtDigestion *, uint64_t *digest);
