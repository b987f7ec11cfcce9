/* Copies of large pageable arrays to the device and back go through pinned memory. One core cannot fill the bus, so threads that stay share the
   copying on the host.

   The pinned memory is a ring of pieces. Pieces are numbered on through all arrays; whoever takes number k copies that piece of the array to or
   from place k of the ring. The thread that uploads takes pieces too, and calls the driver alone: it sends what is filled, in order, as many
   pieces at once as there are, with an event after which their places are free. It returns when all is sent: the last copies go on, and who
   needs their places waits for the events. A download lets the device fill the ring, and pieces are taken after the event. */
#define _GNU_SOURCE /* sched_getaffinity() */
#include "runtime/driver.h"

#if PetscDefined(HAVE_CUDA)
  #include <pthread.h>
  #include <sched.h>
  #include <semaphore.h>
  #include <stdatomic.h>
  #include <unistd.h>

enum {
  THREADS      = 7, /* beside the one that uploads */
  PIECES       = 64,
  MOST_AT_ONCE = PIECES / 4, /* so that places become free while others are sent */
  IDLE_ROUNDS  = 200         /* some 50 us: the next array of a plan comes sooner, and to be woken takes as long */
};
static const size_t piece_bytes = (size_t)1 << 17; /* 10 us for one core, 3 us on the bus: the last thread is not late by more */

/* An upload below 32 MB is as fast by the driver's own way, which one core takes: the array is in a cache then, or the memory of the host is the
   limit. One below 64 MB gains less than it takes to make ring and threads. A download is not as fast: its threads share the first touch of the
   array's pages. They are awake after some 40 us, in which the driver copies 0.4 MB. */
static size_t smallest_upload = (size_t)1 << 25, smallest_made_for = (size_t)1 << 26, smallest_download = (size_t)1 << 19;

static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool     ready  = false;
static bool            lent   = false; /* to a thread beside PETSc's, which asks nobody */
static pid_t           process;        /* that has made all this: a child has neither the threads nor the context */
static void           *context;

static char  *ring;
static void  *events[PIECES]; /* after a copy, at the place of its first piece */
static size_t after[PIECES];  /* number after its last piece, likewise */

static pthread_t   threads[THREADS];
static int         nthreads;
static sem_t       wake;
static atomic_int  asleep = 0; /* threads that nobody has begun to wake */
static atomic_bool ending = false;

static char         *array; /* that is copied now, or was last */
static size_t        array_bytes, array_first;
static bool          downloads;
static atomic_size_t next = 0, limit = 0;    /* number of the piece that is taken next; those from here on cannot be taken yet */
static atomic_size_t copied[PIECES];         /* number after that of the piece that was copied here last */
static size_t        sent = 0, returned = 0; /* numbers of the first piece that the device was not told of; that it may not have done */

/* Takes a piece and copies it. Nothing of the array changes before all that were taken are copied. */
static bool CopyNext(void)
{
  size_t k = atomic_load(&next), offset;
  char  *here, *there;

  do {
    if (k >= atomic_load(&limit)) return false;
  } while (!atomic_compare_exchange_weak(&next, &k, k + 1));
  offset = (k - array_first) * piece_bytes;
  here   = ring + k % PIECES * piece_bytes;
  there  = array + offset;
  memcpy(downloads ? there : here, downloads ? here : there, PetscMin(array_bytes - offset, piece_bytes));
  atomic_store(&copied[k % PIECES], k + 1);
  return true;
}

/* Of the threads asleep, up to `most` are no longer; how many. Each is to be sent to the semaphore, or is the caller. */
static int Claim(int most)
{
  int n = atomic_load(&asleep), claimed;

  do claimed = PetscMin(n, most);
  while (claimed && !atomic_compare_exchange_weak(&asleep, &n, n - claimed));
  return claimed;
}

static void Wake(int most)
{
  for (int n = Claim(most); n > 0; n--) (void)sem_post(&wake);
}

/* Either this thread sees that there is work, or who has it sees this thread asleep. */
static void Sleep(void)
{
  atomic_fetch_add(&asleep, 1);
  if ((atomic_load(&next) < atomic_load(&limit) || atomic_load(&ending)) && Claim(1)) return;
  while (sem_wait(&wake)) continue;
}

static void *Work(void *unused)
{
  while (!atomic_load(&ending)) {
    for (int idle = 0; idle < IDLE_ROUNDS && !atomic_load(&ending); idle++) {
      if (CopyNext()) idle = 0;
      else (void)sched_yield();
    }
    Sleep();
  }
  return NULL;
}

/* ---- by the thread that uploads or downloads ---- */

static void Begin(char *host, size_t bytes, bool down)
{
  array       = host;
  array_bytes = bytes;
  array_first = sent;
  downloads   = down;
}

/* pieces up to number `end` may be taken */
static void Offer(size_t end)
{
  const size_t before = atomic_load(&limit);

  if (end == before) return;
  atomic_store(&limit, end);
  Wake((int)(end - before) - 1); /* one is for this thread */
}

/* synchronize! waits for the first copy of the device that was not waited for */
static CudaResult AwaitFirst(void)
{
  const CudaResult result = gpufmt_driver.EventSynchronize(events[returned % PIECES]);

  returned = after[returned % PIECES];
  return result;
}

/* synchronize! and for the others */
static CudaResult AwaitAll(void)
{
  CudaResult result = 0;

  while (returned < sent) {
    const CudaResult code = AwaitFirst();

    if (!result) result = code;
  }
  return result;
}

/* those before `end` that are beside each other in the ring and not too many for one copy end here */
static size_t OneCopy(size_t end)
{
  return PetscMin(end, PetscMin(sent + MOST_AT_ONCE, (sent / PIECES + 1) * PIECES));
}

/* the first number from `k` on, before `end`, that is not copied on the host */
static size_t Copied(size_t k, size_t end)
{
  while (k < end && atomic_load(&copied[k % PIECES]) == k + 1) k++;
  return k;
}

/* pieces up to number `end` are copied by the device */
static CudaResult Send(size_t end, DevicePointer dev, void *stream)
{
  const size_t place = sent % PIECES, offset = (sent - array_first) * piece_bytes;
  const size_t bytes = PetscMin(array_bytes - offset, (end - sent) * piece_bytes);
  char *const  here  = ring + place * piece_bytes;
  CudaResult   result;

  if (downloads) result = gpufmt_driver.MemcpyDtoHAsync(here, dev + offset, bytes, stream);
  else result = gpufmt_driver.MemcpyHtoDAsync(dev + offset, here, bytes, stream);
  if (!result) result = gpufmt_driver.EventRecord(events[place], stream);
  if (result) return result;
  sent         = end;
  after[place] = end;
  return 0;
}

/* After an error: the array is left alone, of which pieces before number `k` are copied, and all places are free. Numbers that
   were copied do not come again. */
static void Abandon(size_t k, void *stream)
{
  const size_t taken = atomic_exchange(&next, SIZE_MAX);

  while ((k = Copied(k, taken)) < taken) (void)sched_yield();
  (void)AwaitAll();
  (void)gpufmt_driver.StreamSynchronize(stream); /* synchronize! a copy that no event follows uses its pieces */
  sent     = atomic_load(&limit);
  returned = sent;
  atomic_store(&next, sent);
}

/* Sends an array of the host, which may change when this returns; what follows on the stream finds it on the device. Where
   GpufmtStagingServesUpload(). */
CudaResult GpufmtStagingUpload(DevicePointer dev, const void *host, size_t bytes, void *stream)
{
  const size_t end    = sent + (bytes + piece_bytes - 1) / piece_bytes;
  CudaResult   result = 0;

  Begin((char *)host, bytes, false);
  Offer(PetscMin(end, returned + PIECES));
  while (!result && sent < end) {
    const size_t filled = Copied(sent, OneCopy(end));

    if (filled > sent) result = Send(filled, dev, stream);
    else if (CopyNext()) continue;
    else if (returned < sent && atomic_load(&limit) < end) {
      result = AwaitFirst();
      if (!result) Offer(PetscMin(end, returned + PIECES));
    } else (void)sched_yield(); /* the next piece is being copied */
  }
  if (result) Abandon(sent, stream);
  return result;
}

/* synchronize! fetches an array of the device, likewise */
CudaResult GpufmtStagingDownload(void *host, DevicePointer dev, size_t bytes, void *stream)
{
  CudaResult   result = AwaitAll(); /* of uploads, which have places */
  const size_t end    = sent + (bytes + piece_bytes - 1) / piece_bytes;
  size_t       done   = sent; /* pieces before this number are in the array */

  Begin((char *)host, bytes, true);
  while (!result && done < end) {
    const size_t room = OneCopy(PetscMin(end, done + PIECES));

    if (room > sent) result = Send(room, dev, stream);
    else if (!CopyNext()) {
      if (returned < sent) {
        result = AwaitFirst();
        if (!result) Offer(returned);
      } else (void)sched_yield(); /* the last pieces are being copied */
    }
    done = Copied(done, sent);
  }
  if (result) Abandon(done, stream);
  return result;
}

/* synchronize! waits until all that was uploaded has arrived, for those who read it on another stream */
CudaResult GpufmtStagingSettle(void)
{
  return lent ? 0 : AwaitAll(); /* what came before had arrived */
}

/* Another thread uploads with ring and threads until GpufmtStagingTakeBack(): nobody else does meanwhile. synchronize! What was uploaded so far has arrived. */
CudaResult GpufmtStagingLend(void)
{
  const CudaResult result = AwaitAll();

  lent = !result;
  return result;
}

void GpufmtStagingTakeBack(void)
{
  lent = false;
}

/* ---- beginning and end ---- */

static void StartThreads(int most)
{
  atomic_store(&ending, false);
  (void)sem_init(&wake, 0, 0);
  for (nthreads = 0; nthreads < most && !GpufmtThreadCreate(&threads[nthreads], NULL, Work, NULL);) nthreads++;
}

static void EndThreads(void)
{
  atomic_store(&ending, true);
  Wake(THREADS);
  for (; nthreads; nthreads--) (void)pthread_join(threads[nthreads - 1], NULL);
  (void)sem_destroy(&wake);
}

static CudaResult FreeRing(void)
{
  CudaResult result = 0;

  for (int k = 0; k < PIECES; k++) {
    if (events[k]) (void)gpufmt_driver.EventDestroy(events[k]);
    events[k] = NULL;
  }
  if (ring) result = gpufmt_driver.MemFreeHost(ring);
  ring = NULL;
  return result;
}

static bool MakeRing(void)
{
  CudaResult result = gpufmt_driver.MemAllocHost((void **)&ring, PIECES * piece_bytes);

  if (result) ring = NULL;
  for (int k = 0; k < PIECES && !result; k++) result = gpufmt_driver.EventCreate(&events[k], CUDA_EVENT_DISABLE_TIMING);
  if (result) (void)FreeRing();
  return !result;
}

/* one for each other processor that this rank may run on */
static int ThreadsHere(void)
{
  cpu_set_t set;

  if (sched_getaffinity(0, sizeof(set), &set)) return 0;
  return PetscMin(CPU_COUNT(&set) - 1, THREADS);
}

/* Makes ring and threads for the current context, in some 3 ms. Without them, where there is one processor or no memory, uploads are slower and
   nothing else. Any thread may call this. */
void GpufmtStagingMake(void)
{
  const int most = ThreadsHere();

  (void)pthread_mutex_lock(&making);
  if (most && !atomic_load(&ready) && !gpufmt_driver.CtxGetCurrent(&context) && context && MakeRing()) {
    StartThreads(most);
    process = getpid();
    atomic_store(&ready, true);
  }
  (void)pthread_mutex_unlock(&making);
}

/* whether this process has ring and threads, for the current context */
static bool IsReady(void)
{
  void *current;

  return !lent && atomic_load(&ready) && process == getpid() && !gpufmt_driver.CtxGetCurrent(&current) && current == context;
}

/* whether a copy of so many bytes is for this file, and can be */
bool GpufmtStagingServesUpload(size_t bytes)
{
  return bytes >= smallest_upload && IsReady();
}

bool GpufmtStagingServesDownload(size_t bytes)
{
  return bytes >= smallest_download && IsReady();
}

/* whether it would be, if GpufmtStagingMake() were called: that takes as long as a large upload gains, and the next one gains it too */
bool GpufmtStagingWanted(size_t bytes)
{
  return bytes >= smallest_made_for && !IsReady();
}

/* synchronize! ends what GpufmtStagingMake() has made in this process */
CudaResult GpufmtStagingEnd(void)
{
  CudaResult result, freed;

  if (!atomic_load(&ready) || process != getpid()) return 0;
  EndThreads();
  result = AwaitAll();
  freed  = FreeRing();
  atomic_store(&ready, false);
  return result ? result : freed;
}

#else

void GpufmtStagingMake(void) { }
#endif
