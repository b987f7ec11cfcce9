/* Uploads. A large one from pageable memory is bound by the one processor core that copies it into pinned memory: here several threads
   do so, each with two pinned pieces in turn. All copies go to one stream. */
#define _GNU_SOURCE /* sched_getaffinity() */
#include "memory/memory.h"
#include "runtime/driver.h"

#if PetscDefined(HAVE_CUDA)
  #include <pthread.h>
  #include <sched.h>

enum { UPLOAD_THREADS = 8 };
static const size_t upload_piece     = (size_t)1 << 21;
static const size_t upload_threshold = (size_t)1 << 22, pinning_threshold = (size_t)1 << 24; /* worth threads; worth the pinned pieces */

static void *upload_pinned = NULL; /* 2 pieces a thread */

typedef struct {
  pthread_t     thread;
  void         *context, *stream;
  char         *pinned; /* 2 pieces */
  const char   *host;
  DevicePointer dev;
  size_t        bytes;
  CudaResult    result;
} UploadPart;

static void *UploadPartRun(void *argument)
{
  UploadPart *part      = (UploadPart *)argument;
  void       *events[2] = {NULL, NULL};
  CudaResult  result    = gpufmt_driver.CtxSetCurrent(part->context);

  for (int k = 0; k < 2 && !result; k++) result = gpufmt_driver.EventCreate(&events[k], CUDA_EVENT_DISABLE_TIMING);
  for (size_t offset = 0, k = 0; offset < part->bytes && !result; offset += upload_piece, k ^= 1) {
    const size_t n = part->bytes - offset < upload_piece ? part->bytes - offset : upload_piece;

    if (offset >= 2 * upload_piece) result = gpufmt_driver.EventSynchronize(events[k]); /* the piece is free again */
    if (result) break;
    memcpy(part->pinned + k * upload_piece, part->host + offset, n);
    result = gpufmt_driver.MemcpyHtoDAsync(part->dev + offset, part->pinned + k * upload_piece, n, part->stream);
    if (!result) result = gpufmt_driver.EventRecord(events[k], part->stream);
  }
  for (int k = 0; k < 2; k++)
    if (events[k]) {
      if (!result) result = gpufmt_driver.EventSynchronize(events[k]); /* synchronize! the pinned pieces are used again by the next upload */
      (void)gpufmt_driver.EventDestroy(events[k]);
    }
  if (result) (void)gpufmt_driver.StreamSynchronize(part->stream); /* synchronize! copies that no event follows use the pieces */
  part->result = result;
  return NULL;
}

/* how many threads an upload may use: one a processor that this rank may run on */
static int UploadThreads(void)
{
  cpu_set_t set;

  if (sched_getaffinity(0, sizeof(set), &set)) return 1;
  return CPU_COUNT(&set) < UPLOAD_THREADS ? CPU_COUNT(&set) : UPLOAD_THREADS;
}

static PetscErrorCode UploadInParts(DevicePointer dev, const char *host, size_t bytes, int nparts, void *stream)
{
  UploadPart   parts[UPLOAD_THREADS];
  const size_t share = (bytes / nparts + upload_piece) / upload_piece * upload_piece;
  void        *context;
  int          started = 0;
  CudaResult   result  = 0;

  PetscFunctionBegin;
  CallDriver("cuCtxGetCurrent", gpufmt_driver.CtxGetCurrent(&context));
  for (size_t offset = 0; offset < bytes; offset += share, started++) {
    UploadPart *part = &parts[started];

    *part = (UploadPart){.context = context,
                         .stream  = stream,
                         .pinned  = (char *)upload_pinned + 2 * started * upload_piece,
                         .host    = host + offset,
                         .dev     = dev + offset,
                         .bytes   = bytes - offset < share ? bytes - offset : share};
    if (pthread_create(&part->thread, NULL, UploadPartRun, part)) { /* no more threads: do it here */
      part->thread = pthread_self();
      (void)UploadPartRun(part);
    }
  }
  for (int k = 0; k < started; k++) {
    if (!pthread_equal(parts[k].thread, pthread_self())) (void)pthread_join(parts[k].thread, NULL);
    if (!result) result = parts[k].result;
  }
  CallDriver("upload", result);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* whether CUDA has pinned the array, or made it: the copy of such a one goes on after the call, that of others has left the array by then */
static PetscBool KnownToCuda(const void *host)
{
  int      attribute = CUDA_POINTER_MEMORY_TYPE;
  unsigned type      = 0; /* stays so for an address that CUDA does not know, which is no error for this function */
  void    *answer    = &type;

  return (PetscBool)(!gpufmt_driver.PointerGetAttributes(1, &attribute, &answer, (DevicePointer)host) && type);
}

/* Makes the pinned pieces at the first large upload, from when on smaller ones use them too; without them uploads are slower and nothing else.
   As PETSc's own start of CUDA, that is left out of the events in progress. */
static PetscErrorCode MakePinned(void)
{
  PetscFunctionBegin;
  if (upload_pinned) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscLogEventsPause());
  if (gpufmt_driver.MemAllocHost(&upload_pinned, UPLOAD_THREADS * 2 * upload_piece)) upload_pinned = NULL;
  PetscCall(PetscLogEventsResume());
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* synchronize! returns when the host array may be changed */
PetscErrorCode GpufmtDeviceUpload(void *dev, const void *host, size_t bytes, void *stream)
{
  const int nparts = bytes < upload_threshold ? 1 : UploadThreads();

  PetscFunctionBegin;
  if (!bytes) PetscFunctionReturn(PETSC_SUCCESS);
  if (GpufmtManagedContains(host)) { /* on the device, most likely: reading it here would bring it to the host */
    PetscCall(GpufmtDeviceCopy(dev, host, bytes, stream));
    PetscCall(GpufmtDeviceSynchronize(stream)); /* synchronize! the caller may free or change what was copied */
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (bytes >= pinning_threshold && nparts > 1) PetscCall(MakePinned());
  if (nparts > 1 && upload_pinned) PetscCall(UploadInParts((DevicePointer)dev, (const char *)host, bytes, nparts, stream));
  else {
    CallDriver("cuMemcpyHtoD", gpufmt_driver.MemcpyHtoDAsync((DevicePointer)dev, host, bytes, stream));
    if (KnownToCuda(host)) PetscCall(GpufmtDeviceSynchronize(stream)); /* synchronize! */
  }
  PetscCall(PetscLogCpuToGpu((PetscLogDouble)bytes));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtUploadFinalize(void)
{
  PetscFunctionBegin;
  if (upload_pinned) CallDriver("cuMemFreeHost", gpufmt_driver.MemFreeHost(upload_pinned));
  upload_pinned = NULL;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* for petsc_gpufmt/backends/native_library.py */
PETSC_EXTERN PetscErrorCode GpufmtUpload(void *dev, const void *host, size_t bytes, void *stream)
{
  void *current;

  PetscFunctionBegin;
  PetscCheck(GpufmtDeviceUsable(), PETSC_COMM_SELF, PETSC_ERR_SUP, "No usable CUDA device: is the driver loaded, and -device_enable not none?");
  PetscCall(GpufmtDeviceGet(NULL, &current)); /* makes the context that pinning needs */
  PetscCall(GpufmtDeviceUpload(dev, host, bytes, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

#else

PETSC_EXTERN PetscErrorCode GpufmtUpload(void *dev, const void *host, size_t bytes, void *stream)
{
  return GpufmtNoDevice();
}

PetscErrorCode GpufmtDeviceUpload(void *dev, const void *host, size_t bytes, void *stream)
{
  return GpufmtNoDevice();
}

PetscErrorCode GpufmtUploadFinalize(void)
{
  return PETSC_SUCCESS;
}
#endif
