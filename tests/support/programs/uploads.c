/* Uploads, through a driver whose copies come late: what is done too early is found in the arrays that arrive. */
#define PETSC_HAVE_CUDA 1
#define _GNU_SOURCE
#include <dirent.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>

static int nprocessors = 5;

static int Processors(cpu_set_t *set)
{
  CPU_ZERO(set);
  for (int k = 0; k < nprocessors; k++) CPU_SET(k, set);
  return 0;
}
#define sched_getaffinity(pid, size, set) Processors(set)

/* the files under test; they are compiled for devices whatever the PETSc at hand is for */
#include "runtime/beside.c"
#include "runtime/device.c"
#include "runtime/events.c"
#include "runtime/kept.c"
#include "runtime/staging.c"
#include "runtime/thread.c"
#include "memory/device_values.c"
#include "memory/upload.c"
#include "memory/upload_beside.c"

#include "late_driver.h"

static PetscErrorCode Bind(Mat A, PetscBool to_host)
{
  return PETSC_SUCCESS;
}
PetscErrorCode (*gpufmt_seq_bind)(Mat, PetscBool) = Bind;

PetscErrorCode GpufmtManagedOf(Mat A, GpufmtManaged **managed)
{
  *managed = NULL;
  return PETSC_SUCCESS;
}

PetscErrorCode GpufmtManagedPrefetchValues(const GpufmtManaged *m, void *stream)
{
  return PETSC_SUCCESS;
}

enum { MOST_BYTES = 40 << 20 };
static const size_t smallest = (size_t)1 << 19; /* for threads, here: no less than of a download */

static char *host, *device;

static void Fill(char *bytes, size_t n, unsigned seed)
{
  for (size_t k = 0; k < n; k += 64) memset(bytes + k, (int)((seed + k / 64 * 2654435761u) >> 13), PetscMin(n - k, 64));
}

static bool Arrived(const char *bytes, size_t n, unsigned seed)
{
  static char expected[MOST_BYTES];

  Fill(expected, n, seed);
  return !memcmp(bytes, expected, n);
}

static int ThreadsNow(void)
{
  DIR *folder = opendir("/proc/self/task");
  int  n      = -2; /* . and .. */

  Check(folder);
  while (readdir(folder)) n++;
  (void)closedir(folder);
  return n;
}

/* a thread that was joined may still be among them for a moment */
static bool ThreadsBecome(int n)
{
  for (int k = 0; k < 1000 && ThreadsNow() != n; k++) (void)usleep(1000);
  return ThreadsNow() == n;
}

static void End(void)
{
  Check(!GpufmtUploadFinalize());
}

static void BeginAnew(void)
{
  End();
  GpufmtStagingMake();
  Check(GpufmtStagingServesUpload(smallest));
}

static void AwaitSleep(void)
{
  while (atomic_load(&asleep) < nthreads) (void)usleep(100);
}

/* arrays that follow each other, and change as soon as they may */
static void Sizes(void)
{
  const size_t ring_bytes = PIECES * piece_bytes;
  const size_t sizes[]    = {1, smallest - 1, smallest, smallest + 1, ring_bytes - 3, 5 * piece_bytes, ring_bytes, 2 * ring_bytes + 5};

  BeginAnew();
  for (delay = 0; delay <= 40; delay += 20)
    for (int asleep_before = 0; asleep_before < 2; asleep_before++) {
      size_t offset = 0;

      memset(device, 0, MOST_BYTES);
      for (unsigned k = 0; k < PETSC_STATIC_ARRAY_LENGTH(sizes); k++) {
        if (asleep_before) AwaitSleep();
        Fill(host + k, sizes[k], k);
        Check(!GpufmtUpload(device + offset, host + k, sizes[k], current_stream));
        memset(host + k, 0xEE, sizes[k]);
        offset += sizes[k];
      }
      Check(offset <= MOST_BYTES);
      Check(!GpufmtDeviceSynchronize(current_stream));
      for (unsigned k = PETSC_STATIC_ARRAY_LENGTH(sizes); k-- > 0;) {
        offset -= sizes[k];
        Check(Arrived(device + offset, sizes[k], k));
      }
    }
  Check(!GpufmtUpload(device, host, 0, current_stream));
  End();
}

/* what was uploaded comes back, with uploads under way before it, and the pinned memory is the next upload's */
static void Downloads(void)
{
  const size_t ring_bytes = PIECES * piece_bytes;
  const size_t sizes[]    = {1, smallest - 1, smallest, ring_bytes - 3, ring_bytes + 1, 3 * ring_bytes + 5};

  BeginAnew();
  for (delay = 0; delay <= 40; delay += 20)
    for (unsigned k = 0; k < PETSC_STATIC_ARRAY_LENGTH(sizes); k++) {
      if (k % 2) AwaitSleep();
      Fill(host, sizes[k], k);
      Check(!GpufmtUpload(device, host, sizes[k], current_stream));
      memset(host, 0xEE, sizes[k]);
      ndirect = 0;
      Check(!GpufmtDeviceDownload(host + k, device, sizes[k], current_stream));
      Check(Arrived(host + k, sizes[k], k) && ndirect == (sizes[k] < smallest));
    }
  delay = 0;
  Check(!GpufmtDeviceDownload(host, device, 0, current_stream));
  End();
  ndirect = 0;
  Check(!GpufmtDeviceDownload(host, device, ring_bytes, current_stream));
  Check(Arrived(host, ring_bytes, PETSC_STATIC_ARRAY_LENGTH(sizes) - 1) && ndirect == 1);
}

static void *LetGo(void *unused)
{
  (void)usleep(20000);
  Hold(false);
  return NULL;
}

/* what fits into the ring is not waited for, except by another stream */
static void Streams(void)
{
  const size_t bytes = 4 << 20;
  pthread_t    thread;
  void        *stream;

  BeginAnew();
  Check(!GpufmtDeviceGet(NULL, &stream));
  memset(device, 0, bytes);
  Hold(true);
  Fill(host, bytes, 1);
  Check(!GpufmtUpload(device, host, bytes, stream));
  Check(!Arrived(device, bytes, 1));
  Check(!GpufmtDeviceGet(NULL, &stream));
  Check(!pthread_create(&thread, NULL, LetGo, NULL));
  current_stream = (void *)0x51;
  Check(!GpufmtDeviceGet(NULL, &stream));
  Check(Arrived(device, bytes, 1));
  Check(!pthread_join(thread, NULL));

  Hold(true); /* and by the end, before the ring goes */
  Fill(host, bytes, 2);
  Check(!GpufmtUpload(device, host, bytes, stream));
  Check(!pthread_create(&thread, NULL, LetGo, NULL));
  End();
  Check(Arrived(device, bytes, 2));
  Check(!pthread_join(thread, NULL));
}

/* threads and ring are made by the first upload that is large, once, and leave nothing */
static void Making(void)
{
  const size_t large  = 2 * smallest;
  const int    before = ThreadsNow();

  smallest_upload   = large;
  smallest_made_for = 2 * large;
  End();
  nallocations = ndirect = 0;
  for (int k = 0; k < 100; k++) Check(!GpufmtUpload(device, host, 2 * large - 1, current_stream));
  Check(ThreadsBecome(before) && !nallocations && ndirect == 100);
  for (int k = 0; k < 3; k++) Check(!GpufmtUpload(device, host, k ? large : 2 * large, current_stream));
  Check(ThreadsBecome(before + nprocessors - 1) && nevents == PIECES && nallocations == 1 && ndirect == 100);
  Check(!GpufmtUpload(device, host, large - 1, current_stream) && ndirect == 101);
  Check(!GpufmtDeviceDownload(host, device, smallest, current_stream) && ndirect == 101);
  End();
  Check(ThreadsBecome(before) && !nevents && !pinned_bytes);
  End();

  nprocessors = 1;
  Check(!GpufmtUpload(device, host, 2 * large, current_stream));
  Check(ThreadsBecome(before) && nallocations == 1 && ndirect == 102);
  nprocessors = 100;
  Check(!GpufmtUpload(device, host, 2 * large, current_stream));
  Check(ThreadsBecome(before + THREADS));
  End();
  nprocessors     = 5;
  smallest_upload = smallest_made_for = smallest;
}

static void *Make(void *unused)
{
  GpufmtStagingMake();
  return NULL;
}

/* the thread of the early start and the first upload, at once */
static void MakingTwice(void)
{
  const int before = ThreadsNow();
  pthread_t thread;

  for (int k = 0; k < 20; k++) {
    nallocations = 0;
    Check(!pthread_create(&thread, NULL, Make, NULL));
    GpufmtStagingMake();
    Check(GpufmtStagingServesUpload(smallest));
    Check(!pthread_join(thread, NULL));
    Check(nallocations == 1 && ThreadsBecome(before + nprocessors - 1));
    End();
  }
}

/* after an error the array is the caller's at once, who may unmap it, and the next upload is complete */
static void Errors(void)
{
  const size_t bytes      = 20 << 20;
  int *const   failures[] = {&copies_till_failure, &events_till_failure, &waits_till_failure};

  BeginAnew();
  Check(!PetscPushErrorHandler(PetscReturnErrorHandler, NULL));
  for (int n = 0; n < 24; n++) {
    char *array = (char *)mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    Check(array != MAP_FAILED);
    delay            = n % 2 ? 100 : 0;
    *failures[n % 3] = n / 6;
    if (n % 6 < 3) Check(GpufmtUpload(device, array, bytes, current_stream) == PETSC_ERR_GPU);
    else Check(GpufmtDeviceDownload(array, device, bytes, current_stream) == PETSC_ERR_GPU);
    Check(!munmap(array, bytes) && done == begun);
    Check(sent == returned && sent == atomic_load(&limit) && sent == atomic_load(&next) && sent == Copied(sent, sent + PIECES));
    Fill(host, bytes, (unsigned)n);
    Check(!GpufmtUpload(device, host, bytes, current_stream));
    Check(!GpufmtDeviceSynchronize(current_stream));
    Check(Arrived(device, bytes, (unsigned)n));
  }
  Check(!PetscPopErrorHandler());
  delay = 0;
  End();
}

/* a child has neither the threads nor the context: its uploads are the driver's matter, and it ends nothing that is not its own */
static void Fork(void)
{
  const size_t bytes = 2 << 20;
  int          status;
  pid_t        child;

  BeginAnew();
  Fill(host, bytes, 5);
  Check(!GpufmtUpload(device, host, bytes, current_stream) && !GpufmtDeviceSynchronize(current_stream));
  child = fork();
  if (!child) {
    ndirect = 0;
    GpufmtStagingMake();
    Check(!GpufmtStagingServesUpload(smallest) && !GpufmtUpload(device, host, bytes, current_stream) && ndirect == 1);
    End();
    Check(pinned_bytes);
    _exit(0);
  }
  Check(child > 0 && waitpid(child, &status, 0) == child && !status);
  memset(device, 0, bytes);
  Check(!GpufmtUpload(device, host, bytes, current_stream) && !GpufmtDeviceSynchronize(current_stream));
  Check(Arrived(device, bytes, 5));
  End();
}

/* pinned arrays go as they are, and may change when that is over; another context has no part in the ring */
static void Others(void)
{
  const size_t bytes = 2 << 20;

  BeginAnew();
  delay             = 2000;
  user_pinned       = host;
  user_pinned_bytes = bytes;
  ndirect           = 0;
  Fill(host, bytes, 6);
  Check(!GpufmtUpload(device, host, bytes, current_stream));
  memset(host, 0xEE, bytes);
  Check(Arrived(device, bytes, 6) && sent == returned);
  Check(!GpufmtDeviceDownload(host, device, bytes, current_stream) && ndirect == 1);
  delay             = 0;
  ndirect           = 0;
  user_pinned_bytes = 0;
  current_context   = (void *)0xC1;
  Check(!GpufmtUpload(device, host, bytes, current_stream) && ndirect == 1);
  current_context = (void *)0xC0;
  Check(!GpufmtUpload(device, host, bytes, current_stream) && ndirect == 1);
  End();
}

/* a row pointer of which the device has a copy is not sent */
static void RowPointers(void)
{
  const size_t bytes = 2 << 20;

  BeginAnew();
  host_rowptr   = host;
  copied_rowptr = device + bytes;
  Fill(host, bytes, 7);
  Fill(device + bytes, bytes, 8);
  Check(!GpufmtUpload(device, host, bytes, current_stream) && !GpufmtDeviceSynchronize(current_stream));
  Check(Arrived(device, bytes, 8));
  host_rowptr = NULL;
  Check(!GpufmtUpload(device, host, bytes, current_stream) && !GpufmtDeviceSynchronize(current_stream));
  Check(Arrived(device, bytes, 7));
  End();
}

/* several arrays beside this thread: they arrive, and an error of one is known at the end */
static void Beside(void)
{
  const size_t          bytes  = 6 << 20;
  const GpufmtUploadJob jobs[] = {
    {device,             host,             bytes        },
    {device + bytes,     host + bytes,     smallest - 1 },
    {device + 2 * bytes, host + 2 * bytes, 3 * bytes + 5}
  };

  BeginAnew();
  for (delay = 0; delay <= 40; delay += 20) {
    memset(device, 0, MOST_BYTES);
    for (unsigned k = 0; k < PETSC_STATIC_ARRAY_LENGTH(jobs); k++) Fill((char *)jobs[k].host, jobs[k].bytes, k);
    Fill(host + 6 * bytes, smallest, 9);
    Check(!GpufmtUploadsBegin(PETSC_STATIC_ARRAY_LENGTH(jobs), jobs, current_stream));
    Check(beside.runs && nwaits == 1); /* for what was queued before */
    ndirect = 0;
    Check(!GpufmtUpload(device + 6 * bytes, host + 6 * bytes, smallest, current_stream)); /* by this thread alone */
    Check(!GpufmtDeviceDownload(host + 6 * bytes, device + 6 * bytes, smallest, current_stream));
    Check(beside.runs && ndirect == 2 && Arrived(device + 6 * bytes, smallest, 9) && Arrived(host + 6 * bytes, smallest, 9));
    Check(!GpufmtUploadsEnd() && !beside.runs && nwaits == 2); /* what is queued next waits for them */
    nwaits = 0;
    Check(GpufmtStagingServesUpload(smallest));
    memset(host, 0xEE, MOST_BYTES);
    Check(!GpufmtDeviceSynchronize(current_stream));
    for (unsigned k = 0; k < PETSC_STATIC_ARRAY_LENGTH(jobs); k++) Check(Arrived((char *)jobs[k].dev, jobs[k].bytes, k));
  }
  delay = 0;
  Check(!PetscPushErrorHandler(PetscReturnErrorHandler, NULL));
  copies_till_failure = 1;
  Check(!GpufmtUploadsBegin(1, jobs, current_stream));
  Check(GpufmtUploadsEnd() == PETSC_ERR_GPU);
  Check(!GpufmtUploadsEnd() && !GpufmtUploadsBegin(0, jobs, current_stream) && !beside.runs && GpufmtStagingServesUpload(smallest));
  Check(!PetscPopErrorHandler() && nstreams == 1);
  Check(!GpufmtDeviceSynchronize(current_stream)); /* events, too, are over when the ring goes */
  End();
  Check(!nstreams && !nevents);
}

enum { ROWS = 1 << 17 };

/* a diagonal matrix as of ours, with values that are on the host alone */
static void MakeMatrix(GpufmtArrays *arrays, unsigned seed, Mat *A)
{
  PetscScalar *values;

  Check(!MatCreateSeqAIJ(PETSC_COMM_SELF, ROWS, ROWS, 1, NULL, A));
  for (PetscInt i = 0; i < ROWS; i++) Check(!MatSetValue(*A, i, i, 1.0, INSERT_VALUES));
  Check(!MatAssemblyBegin(*A, MAT_FINAL_ASSEMBLY) && !MatAssemblyEnd(*A, MAT_FINAL_ASSEMBLY));
  Check(!MatSeqAIJGetArray(*A, &values));
  Fill((char *)values, ROWS * sizeof(PetscScalar), seed);
  Check(!MatSeqAIJRestoreArray(*A, &values));
  *arrays              = (GpufmtArrays){.mark = &gpufmt_seq_bind};
  (*A)->spptr          = arrays;
  (*A)->ops->bindtocpu = Bind;
}

static void DestroyMatrix(Mat *A)
{
  Check(!GpufmtDeviceValuesDestroy(&((GpufmtArrays *)(*A)->spptr)->values));
  (*A)->spptr = NULL;
  Check(!MatDestroy(A));
}

static bool HasValues(const GpufmtArrays *arrays, unsigned seed)
{
  Check(!GpufmtDeviceSynchronize(current_stream));
  return arrays->values.valid && Arrived((const char *)arrays->values.array, ROWS * sizeof(PetscScalar), seed);
}

/* values of matrices that are under way: whoever wants them waits, and they may go before that, or not arrive */
static void Values(void)
{
  const PetscCount counts[] = {ROWS, ROWS};
  GpufmtArrays     arrays[2];
  Mat              matrices[2];

  Check(!PetscInitializeNoArguments());
  BeginAnew();
  for (delay = 0; delay <= 40; delay += 20) {
    for (unsigned k = 0; k < 2; k++) MakeMatrix(&arrays[k], k, &matrices[k]);
    Check(!GpufmtDeviceValuesBegin(2, matrices, counts, current_stream) && beside.runs && !arrays[0].values.valid);
    Check(!GpufmtDeviceValuesUpdate(&arrays[0].values, matrices[0], ROWS, current_stream) && !beside.runs);
    Check(HasValues(&arrays[0], 0) && HasValues(&arrays[1], 1));
    Check(!GpufmtDeviceValuesBegin(2, matrices, counts, current_stream) && !beside.runs); /* they are there */

    Check(!PetscObjectStateIncrease((PetscObject)matrices[0]) && !PetscObjectStateIncrease((PetscObject)matrices[1]));
    Check(!GpufmtDeviceValuesBegin(1, matrices, counts, current_stream) && beside.runs);
    Check(!GpufmtDeviceValuesBegin(1, matrices + 1, counts, current_stream) && HasValues(&arrays[0], 0));
    DestroyMatrix(&matrices[1]);
    Check(!beside.runs);

    Check(!PetscObjectStateIncrease((PetscObject)matrices[0]) && !PetscPushErrorHandler(PetscReturnErrorHandler, NULL));
    copies_till_failure = 0; /* all may be one copy */
    Check(!GpufmtDeviceValuesBegin(1, matrices, counts, current_stream));
    Check(GpufmtDeviceValuesUpdate(&arrays[0].values, matrices[0], ROWS, current_stream) == PETSC_ERR_GPU && !arrays[0].values.valid);
    Check(!PetscPopErrorHandler() && !GpufmtDeviceValuesEnd() && !arrays[0].values.valid);
    Check(!GpufmtDeviceValuesUpdate(&arrays[0].values, matrices[0], ROWS, current_stream) && HasValues(&arrays[0], 0));
    DestroyMatrix(&matrices[0]);
  }
  delay = 0;
  End();
  Check(!GpufmtDeviceTrim() && !PetscFinalize());
}

int main(int argc, char **argv)
{
  static const struct {
    const char *name;
    void (*run)(void);
  } tests[] = {
    {"sizes",        Sizes      },
    {"downloads",    Downloads  },
    {"streams",      Streams    },
    {"making",       Making     },
    {"making twice", MakingTwice},
    {"errors",       Errors     },
    {"fork",         Fork       },
    {"others",       Others     },
    {"row pointers", RowPointers},
    {"beside",       Beside     },
    {"values",       Values     }
  };

  Check(smallest_upload == (size_t)32 << 20 && smallest_made_for == (size_t)64 << 20 && smallest_download == smallest);
  smallest_upload = smallest_made_for = smallest;
  StartDriver();
  host   = (char *)malloc(MOST_BYTES);
  device = (char *)malloc(MOST_BYTES);
  for (size_t k = 0; k < PETSC_STATIC_ARRAY_LENGTH(tests); k++)
    if (!strcmp(argv[1], tests[k].name)) {
      tests[k].run();
      printf("passed\n");
    }
  free(host);
  free(device);
  return 0;
}
