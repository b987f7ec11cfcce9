/* A CUDA driver without a device: a thread of its own carries out copies from pinned memory and events, late and in their order. Others are over
   when they are called for, as those of pageable memory may be. */
#pragma once
#include "runtime/driver.h"
#include <pthread.h>
#include <unistd.h>

#define Check(what) PetscCheckAbort(what, PETSC_COMM_SELF, PETSC_ERR_PLIB, "not so: %s", #what)

enum { OPERATIONS = 1 << 16, INVALID_HANDLE = 400 };

typedef struct {
  void       *to;
  const void *from;
  size_t      bytes;
} Operation; /* an event has no bytes */

static Operation       operations[OPERATIONS]; /* in the order of calls: all streams are one */
static int             begun = 0, done = 0, delay = 0, copies_till_failure = -1, events_till_failure = -1, waits_till_failure = -1;
static bool            held = false;
static pthread_mutex_t bus  = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t  news = PTHREAD_COND_INITIALIZER;
static char           *pinned;
static size_t          pinned_bytes, user_pinned_bytes;
static const char     *user_pinned;
static int             nevents = 0, nallocations = 0, ndirect = 0, nstreams = 0, nwaits = 0;
static void           *current_context = (void *)0xC0, *current_stream = (void *)0x50;

PetscErrorCode PetscGetCurrentCUDAStream(void **stream)
{
  *stream = current_stream;
  return PETSC_SUCCESS;
}

void GpufmtPlannerFreePool(void) { }

PetscBool GpufmtManagedContains(const void *address)
{
  return PETSC_FALSE;
}

static const void *host_rowptr, *copied_rowptr;

const void *GpufmtManagedRowptr(const void *host, size_t bytes)
{
  return host == host_rowptr ? copied_rowptr : NULL;
}

static bool Within(const void *p, const char *first, size_t bytes)
{
  return (const char *)p >= first && (const char *)p < first + bytes;
}

static void *Bus(void *unused)
{
  for (;;) {
    Operation operation;

    (void)pthread_mutex_lock(&bus);
    while (held || done == begun) (void)pthread_cond_wait(&news, &bus);
    operation = operations[done % OPERATIONS];
    (void)pthread_mutex_unlock(&bus);
    if (delay && operation.bytes) (void)usleep((useconds_t)(delay * (1 + done % 3)));
    if (operation.bytes) memcpy(operation.to, operation.from, operation.bytes);
    (void)pthread_mutex_lock(&bus);
    done++;
    (void)pthread_cond_broadcast(&news);
    (void)pthread_mutex_unlock(&bus);
  }
  return NULL;
}

static int Queue(Operation operation)
{
  int number;

  (void)pthread_mutex_lock(&bus);
  operations[begun % OPERATIONS] = operation;
  number                         = ++begun;
  Check(begun - done < OPERATIONS);
  (void)pthread_cond_broadcast(&news);
  (void)pthread_mutex_unlock(&bus);
  return number;
}

static void AwaitOperation(int number)
{
  (void)pthread_mutex_lock(&bus);
  while (done < number) (void)pthread_cond_wait(&news, &bus);
  (void)pthread_mutex_unlock(&bus);
}

static void Hold(bool on)
{
  (void)pthread_mutex_lock(&bus);
  held = on;
  (void)pthread_cond_broadcast(&news);
  (void)pthread_mutex_unlock(&bus);
}

static bool Fails(int *calls_till_failure)
{
  return *calls_till_failure >= 0 && (*calls_till_failure)-- == 0;
}

static CudaResult Init(unsigned flags)
{
  return 0;
}

static CudaResult DeviceGetCount(int *count)
{
  *count = 1;
  return 0;
}

static CudaResult CtxGetCurrent(void **current)
{
  *current = current_context;
  return 0;
}

/* of whichever thread: there is one context at a time */
static CudaResult CtxSetCurrent(void *context)
{
  return context == current_context ? 0 : INVALID_HANDLE;
}

static CudaResult GetErrorString(CudaResult code, const char **text)
{
  *text = "made by the test";
  return 0;
}

static CudaResult MemAlloc(DevicePointer *p, size_t bytes)
{
  *p = (DevicePointer)malloc(bytes);
  return 0;
}

static CudaResult MemFree(DevicePointer p)
{
  free((void *)p);
  return 0;
}

static CudaResult MemGetInfo(size_t *available, size_t *total)
{
  *available = *total = (size_t)1 << 30;
  return 0;
}

static CudaResult MemAllocHost(void **p, size_t bytes)
{
  nallocations++;
  pinned       = (char *)malloc(bytes);
  pinned_bytes = bytes;
  *p           = pinned;
  return 0;
}

static CudaResult MemFreeHost(void *p)
{
  Check(p == pinned && done == begun);
  free(pinned);
  pinned_bytes = 0;
  return 0;
}

static CudaResult StreamSynchronize(void *stream)
{
  int number;

  (void)pthread_mutex_lock(&bus);
  number = begun;
  (void)pthread_mutex_unlock(&bus);
  AwaitOperation(number);
  return 0;
}

static CudaResult MemcpyHtoDAsync(DevicePointer to, const void *from, size_t bytes, void *stream)
{
  if (Fails(&copies_till_failure)) {
    (void)usleep(3000); /* in which other threads go on */
    return INVALID_HANDLE;
  }
  if (Within(from, pinned, pinned_bytes) || Within(from, user_pinned, user_pinned_bytes)) {
    (void)Queue((Operation){.to = (void *)to, .from = from, .bytes = bytes});
    return 0;
  }
  (void)StreamSynchronize(stream); /* in its order */
  ndirect++;
  memcpy((void *)to, from, bytes);
  return 0;
}

static CudaResult MemcpyDtoHAsync(void *to, DevicePointer from, size_t bytes, void *stream)
{
  if (Fails(&copies_till_failure)) return INVALID_HANDLE;
  (void)Queue((Operation){.to = to, .from = (const void *)from, .bytes = bytes});
  if (!Within(to, pinned, pinned_bytes)) ndirect++;
  return 0;
}

static CudaResult MemcpyDtoDAsync(DevicePointer to, DevicePointer from, size_t bytes, void *stream)
{
  (void)Queue((Operation){.to = (void *)to, .from = (const void *)from, .bytes = bytes});
  return 0;
}

static CudaResult EventCreate(void **event, unsigned flags)
{
  nevents++;
  *event = calloc(1, sizeof(int));
  return 0;
}

static CudaResult EventRecord(void *event, void *stream)
{
  if (Fails(&events_till_failure)) return INVALID_HANDLE;
  *(int *)event = Queue((Operation){.bytes = 0});
  return 0;
}

static CudaResult EventSynchronize(void *event)
{
  if (Fails(&waits_till_failure)) return INVALID_HANDLE;
  Check(*(int *)event); /* has been recorded */
  AwaitOperation(*(int *)event);
  return 0;
}

static CudaResult EventQuery(void *event)
{
  CudaResult code;

  (void)pthread_mutex_lock(&bus);
  code = done < *(int *)event ? CUDA_NOT_READY : 0;
  (void)pthread_mutex_unlock(&bus);
  return code;
}

static CudaResult CtxGetStreamPriorityRange(int *least, int *greatest)
{
  *least = *greatest = 0;
  return 0;
}

static CudaResult StreamCreateWithPriority(void **stream, unsigned flags, int priority)
{
  nstreams++;
  *stream = calloc(1, sizeof(int));
  return 0;
}

static CudaResult StreamDestroy(void *stream)
{
  nstreams--;
  free(stream);
  return 0;
}

static CudaResult StreamWaitEvent(void *stream, void *event, unsigned flags)
{
  Check(*(int *)event); /* has been recorded */
  nwaits++;
  return 0;
}

static CudaResult EventDestroy(void *event)
{
  nevents--;
  free(event);
  return 0;
}

static CudaResult PointerGetAttributes(unsigned n, int attributes[], void *answers[], DevicePointer p)
{
  *(unsigned *)answers[0] = Within((void *)p, user_pinned, user_pinned_bytes);
  return 0;
}

static CudaResult CtxSynchronize(void)
{
  return StreamSynchronize(current_stream);
}

static void StartDriver(void)
{
  pthread_t thread;

  gpufmt_driver = (GpufmtDriver){.tried                     = PETSC_TRUE,
                                 .loaded                    = PETSC_TRUE,
                                 .Init                      = Init,
                                 .DeviceGetCount            = DeviceGetCount,
                                 .CtxGetCurrent             = CtxGetCurrent,
                                 .CtxSetCurrent             = CtxSetCurrent,
                                 .CtxSynchronize            = CtxSynchronize,
                                 .GetErrorString            = GetErrorString,
                                 .MemAllocHost              = MemAllocHost,
                                 .MemFreeHost               = MemFreeHost,
                                 .MemcpyHtoDAsync           = MemcpyHtoDAsync,
                                 .MemcpyDtoHAsync           = MemcpyDtoHAsync,
                                 .MemcpyDtoDAsync           = MemcpyDtoDAsync,
                                 .StreamSynchronize         = StreamSynchronize,
                                 .StreamWaitEvent           = StreamWaitEvent,
                                 .StreamDestroy             = StreamDestroy,
                                 .CtxGetStreamPriorityRange = CtxGetStreamPriorityRange,
                                 .StreamCreateWithPriority  = StreamCreateWithPriority,
                                 .MemAlloc                  = MemAlloc,
                                 .MemFree                   = MemFree,
                                 .MemGetInfo                = MemGetInfo,
                                 .EventCreate               = EventCreate,
                                 .EventRecord               = EventRecord,
                                 .EventQuery                = EventQuery,
                                 .EventSynchronize          = EventSynchronize,
                                 .EventDestroy              = EventDestroy,
                                 .PointerGetAttributes      = PointerGetAttributes};
  Check(!pthread_create(&thread, NULL, Bus, NULL));
}
