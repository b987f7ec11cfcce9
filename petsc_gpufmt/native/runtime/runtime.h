/* The planner, and the device that its plans run on. */
#pragma once
#include <petscmat.h>
#include <pthread.h>
#include <stdbool.h>
#include "gpufmt_plan.h"

#if PETSC_VERSION_LT(3, 24, 0)
  #error "petsc_gpufmt needs PETSc 3.24 or newer"
#endif

#define GPUFMT_HIDDEN PETSC_VISIBILITY_INTERNAL

/* the right to use what the planner has made, until it is given back or all that was made is gone */
typedef struct {
  int64_t token;
  int64_t generation; /* 0: nothing is held */
} GpufmtLease;

/* planner.c */
GPUFMT_HIDDEN extern PetscLogEvent GPUFMT_Plan;
GPUFMT_HIDDEN extern PetscLogEvent GPUFMT_Compile;
GPUFMT_HIDDEN PetscErrorCode GpufmtPlannerAsk(int ask, int backend, PetscLogEvent, Mat, GpufmtPlace *request, GpufmtOutcome *answer, GpufmtLease *);
GPUFMT_HIDDEN PetscErrorCode GpufmtPlannerRelease(int64_t token);
GPUFMT_HIDDEN PetscErrorCode GpufmtPlannerReleaseAll(void);
GPUFMT_HIDDEN void           GpufmtPlannerFreePool(void);
GPUFMT_HIDDEN void           GpufmtPlannerEnd(void);
GPUFMT_HIDDEN PetscBool      GpufmtPlannerPresent(void);
GPUFMT_HIDDEN bool           GpufmtPlannerPrepare(const GpufmtPlace *, const char format[]);
GPUFMT_HIDDEN void           GpufmtPlannerNameKernels(const GpufmtPlace *, const char format[], int64_t block_size);

/* blake2b.c */
enum { GPUFMT_DIGEST_BYTES = 32 };
GPUFMT_HIDDEN void GpufmtBlake2b(const char key[], size_t key_length, const char bytes[], size_t nbytes, unsigned char digest[GPUFMT_DIGEST_BYTES]);

/* module_file.c; backends/native_library.py calls these too */
PETSC_EXTERN char *GpufmtModuleFileRead(const char path[], const char format[], const char folder[], size_t *nbytes);
PETSC_EXTERN void  GpufmtModuleFileFree(char *contents);

/* kernels.c */
GPUFMT_HIDDEN void GpufmtKernelsStart(int device, void *context);
GPUFMT_HIDDEN void GpufmtKernelsEnd(void);

/* lease.c */
GPUFMT_HIDDEN extern int64_t gpufmt_generation;
GPUFMT_HIDDEN void           GpufmtLeaseTake(GpufmtLease *, int64_t token);
GPUFMT_HIDDEN void           GpufmtLeaseMove(GpufmtLease *from, GpufmtLease *to);
GPUFMT_HIDDEN PetscErrorCode GpufmtLeaseDrop(GpufmtLease *);
GPUFMT_HIDDEN PetscErrorCode GpufmtLeasesForget(PetscBool release);

static inline PetscBool GpufmtLeaseHolds(const GpufmtLease *lease)
{
  return (PetscBool)(lease->generation == gpufmt_generation);
}

/* start.c */
GPUFMT_HIDDEN extern PetscLogEvent GPUFMT_Start;
GPUFMT_HIDDEN PetscErrorCode       GpufmtStartEarly(Mat, const char format[]);
GPUFMT_HIDDEN PetscBool            GpufmtStartIsHere(void);
GPUFMT_HIDDEN PetscBool            GpufmtStartRuns(void);
GPUFMT_HIDDEN void                 GpufmtStartJoin(void);
GPUFMT_HIDDEN void                 GpufmtStartEnd(void);

/* python.c */
#define GPUFMT_MESSAGE_LENGTH 1024
typedef char                 GpufmtMessage[GPUFMT_MESSAGE_LENGTH];
GPUFMT_HIDDEN PetscBool      GpufmtPythonPresent(void);
GPUFMT_HIDDEN PetscBool      GpufmtPythonFind(void);
GPUFMT_HIDDEN int            GpufmtPythonRun(GpufmtMessage);
GPUFMT_HIDDEN int            GpufmtPythonImport(const char module[], GpufmtMessage);
GPUFMT_HIDDEN PetscErrorCode GpufmtPythonStart(void);
GPUFMT_HIDDEN void          *GpufmtPythonPause(void);
GPUFMT_HIDDEN void           GpufmtPythonGoOn(void *);
GPUFMT_HIDDEN void           GpufmtPythonStay(void);
GPUFMT_HIDDEN PetscBool      GpufmtPythonTakeInterrupt(void);
GPUFMT_HIDDEN void           GpufmtPythonInterrupt(void);
GPUFMT_HIDDEN void           GpufmtPythonHoldInterrupts(void);
GPUFMT_HIDDEN void           GpufmtPythonHearInterrupts(void);

/* kept.c */
enum { GPUFMT_MOST_KEPT = 32 };
typedef struct {
  void  *address;  /* NULL: none */
  size_t capacity; /* bytes */
} GpufmtMemory;
typedef struct {
  PetscErrorCode (*free)(void *address);
  size_t       most, bytes; /* that are kept, at most and now */
  int          count;
  GpufmtMemory memory[GPUFMT_MOST_KEPT]; /* what came first is first */
} GpufmtKept;
GPUFMT_HIDDEN GpufmtMemory   GpufmtKeptTake(GpufmtKept *, size_t bytes);
GPUFMT_HIDDEN PetscErrorCode GpufmtKeptAdd(GpufmtKept *, GpufmtMemory *);
GPUFMT_HIDDEN void           GpufmtKeptLimit(GpufmtKept *, size_t available, size_t total);
GPUFMT_HIDDEN PetscErrorCode GpufmtKeptForget(GpufmtKept *);

/* device.c */
GPUFMT_HIDDEN PetscBool      GpufmtDeviceUsable(void);
GPUFMT_HIDDEN PetscErrorCode GpufmtDeviceGet(int *device, void **stream);
GPUFMT_HIDDEN PetscBool      GpufmtDeviceHas(const void *array);
GPUFMT_HIDDEN PetscBool      GpufmtDeviceToChoose(void);
GPUFMT_HIDDEN PetscErrorCode GpufmtDeviceKnown(int *device, void **context);
GPUFMT_HIDDEN bool           GpufmtDeviceEnter(int device, void *context);
GPUFMT_HIDDEN PetscErrorCode GpufmtDeviceSettle(void);
GPUFMT_HIDDEN PetscErrorCode GpufmtDeviceLaunch(const GpufmtLaunch *, void *stream);
GPUFMT_HIDDEN PetscErrorCode GpufmtDeviceReserve(size_t bytes, void **buffer, size_t *capacity);
GPUFMT_HIDDEN PetscErrorCode GpufmtDeviceFree(void **buffer, size_t *capacity);
GPUFMT_HIDDEN PetscErrorCode GpufmtDeviceTrim(void);
GPUFMT_HIDDEN PetscErrorCode GpufmtDeviceDownload(void *host, const void *dev, size_t bytes, void *stream);
GPUFMT_HIDDEN PetscErrorCode GpufmtDeviceCopy(void *to, const void *from, size_t bytes, void *stream);
GPUFMT_HIDDEN PetscErrorCode GpufmtDeviceSpoil(void *array, size_t bytes, void *stream);
GPUFMT_HIDDEN PetscErrorCode GpufmtDeviceSynchronize(void *stream);
GPUFMT_HIDDEN PetscErrorCode GpufmtNoDevice(void);

/* beside.c */
typedef struct {
  void *context, *stream, *before, *after, *copied[2]; /* of CUDA; the last two are of downloads with even and odd numbers */
} GpufmtBeside;
GPUFMT_HIDDEN PetscErrorCode GpufmtBesideCreate(GpufmtBeside *);
GPUFMT_HIDDEN PetscErrorCode GpufmtBesideDestroy(GpufmtBeside *);
GPUFMT_HIDDEN PetscErrorCode GpufmtBesideBegin(GpufmtBeside *, void *stream);
GPUFMT_HIDDEN PetscErrorCode GpufmtBesideEnd(GpufmtBeside *, void *stream);
GPUFMT_HIDDEN PetscErrorCode GpufmtBesideFollow(GpufmtBeside *, void *stream);
GPUFMT_HIDDEN PetscErrorCode GpufmtBesideJoin(GpufmtBeside *, void *stream);
GPUFMT_HIDDEN int            GpufmtBesideEnter(const GpufmtBeside *);
GPUFMT_HIDDEN int            GpufmtBesideDownload(const GpufmtBeside *, int number, void *host, const void *dev, size_t bytes);
GPUFMT_HIDDEN int            GpufmtBesideAwait(const GpufmtBeside *, int number);
GPUFMT_HIDDEN int            GpufmtBesideUpload(const GpufmtBeside *, void *dev, const void *host, size_t bytes);
GPUFMT_HIDDEN PetscErrorCode GpufmtPinnedTake(size_t bytes, void **host);
GPUFMT_HIDDEN PetscErrorCode GpufmtPinnedReturn(void **host);

/* readback.c */
typedef struct {
  int     backend;
  size_t  bytes;
  char   *host;      /* two copies of the block, number n at (n mod 2) * bytes; pinned if it is on the device */
  void   *copied[2]; /* events of CUDA, likewise */
  int64_t nqueued, ntaken;
} GpufmtReadback;
GPUFMT_HIDDEN PetscErrorCode GpufmtReadbackCreate(int backend, size_t bytes, GpufmtReadback *);
GPUFMT_HIDDEN PetscErrorCode GpufmtReadbackDestroy(GpufmtReadback *);
GPUFMT_HIDDEN PetscErrorCode GpufmtReadbackQueue(GpufmtReadback *, const void *block, void *stream);
GPUFMT_HIDDEN PetscErrorCode GpufmtReadbackIsThere(const GpufmtReadback *, PetscBool *there);
GPUFMT_HIDDEN PetscErrorCode GpufmtReadbackTake(GpufmtReadback *, const void **host);

/* thread.c */
GPUFMT_HIDDEN int GpufmtThreadCreate(pthread_t *, const pthread_attr_t *, void *(*run)(void *), void *argument);

/* pages.c */
GPUFMT_HIDDEN void GpufmtPagesMayBeLarge(void *array, size_t bytes);

/* shared_memory.c */
enum { GPUFMT_HANDLE_BYTES = 64, GPUFMT_IDENTITY_BYTES = 16 };
GPUFMT_HIDDEN PetscErrorCode GpufmtDeviceIdentity(char identity[GPUFMT_IDENTITY_BYTES]);
GPUFMT_HIDDEN PetscErrorCode GpufmtDeviceTicks(double seconds, int64_t *ticks);
GPUFMT_HIDDEN PetscErrorCode GpufmtDeviceClear(void *address, size_t bytes, void *stream);
GPUFMT_HIDDEN const char    *GpufmtSharedMake(size_t bytes, void **address, char handle[GPUFMT_HANDLE_BYTES]);
GPUFMT_HIDDEN const char    *GpufmtSharedOpen(const char handle[GPUFMT_HANDLE_BYTES], void **address);
GPUFMT_HIDDEN void           GpufmtSharedClose(void *address);
GPUFMT_HIDDEN void           GpufmtSharedFree(void *address);

/* agree.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtAgreeOn(MPI_Comm, const char what[], PetscErrorCode own, int n, int flags[]);
GPUFMT_HIDDEN PetscErrorCode GpufmtAgree(PetscObject, const char what[], PetscErrorCode own, int n, int flags[]);

/* replay.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtReplay(const GpufmtPlan *, int backend, void *const slots[GPUFMT_NUM_SLOTS], void *stream);

/* option_text.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtOptionTextCheck(const char prefix[], const char option[], const char text[]);

/* events.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtEventsPause(void);
GPUFMT_HIDDEN PetscErrorCode GpufmtEventsResume(void);

/* flops.c */
GPUFMT_HIDDEN PetscErrorCode GpufmtLogFlops(int backend, PetscLogDouble flops);

/* graph.c */
typedef struct _GpufmtGraph *GpufmtGraph;
GPUFMT_HIDDEN PetscErrorCode GpufmtGraphCreate(int backend, GpufmtGraph *);
GPUFMT_HIDDEN PetscErrorCode GpufmtGraphDestroy(GpufmtGraph *);
GPUFMT_HIDDEN PetscErrorCode GpufmtGraphAdd(GpufmtGraph, const GpufmtPlan *, void *const slots[GPUFMT_NUM_SLOTS], const GpufmtLease *);
GPUFMT_HIDDEN PetscErrorCode GpufmtGraphInstantiate(GpufmtGraph, int repeats, const void *stop, void *stream);
GPUFMT_HIDDEN PetscErrorCode GpufmtGraphLaunch(GpufmtGraph, void *stream);
GPUFMT_HIDDEN PetscBool      GpufmtGraphIsCurrent(GpufmtGraph);
GPUFMT_HIDDEN PetscBool      GpufmtGraphLoops(GpufmtGraph);
GPUFMT_HIDDEN void           GpufmtGraphsForget(int64_t token);
