/* Pages that a thread touches ahead: all of them, and none of an array that somebody has taken. */
#define _GNU_SOURCE
#include <petscsys.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>

static int  nprocessors = 2, nthreads = 0, refused = 0;
static long page_bytes = 0; /* unless the system's */

static int Processors(cpu_set_t *set)
{
  CPU_ZERO(set);
  for (int k = 0; k < nprocessors; k++) CPU_SET(k, set);
  return 0;
}

static int Create(pthread_t *thread, void *(*run)(void *))
{
  sigset_t blocked;

  PetscCheckAbort(!pthread_sigmask(SIG_SETMASK, NULL, &blocked) && sigismember(&blocked, SIGINT), PETSC_COMM_SELF, PETSC_ERR_PLIB, "signals");
  if (refused) return EAGAIN;
  nthreads++;
  return (pthread_create)(thread, NULL, run, NULL);
}
#define sched_getaffinity(pid, size, set)               Processors(set)
#define pthread_create(thread, attributes, run, unused) Create(thread, run)

#define sysconf(name) (page_bytes ? page_bytes : (sysconf)(name))

#include "runtime/pages_ahead.c" /* the file under test */

#define Check(what) PetscCheckAbort(what, PETSC_COMM_SELF, PETSC_ERR_PLIB, "not so: %s", #what)

enum { NARRAYS = 3, ROUNDS = 300 };
static const size_t most_bytes = 5 * ((size_t)1 << 18);

static char *memory[NARRAYS]; /* which begin in the middle of a page */
static void *arrays[NARRAYS];

static void Fill(char value)
{
  for (int k = 0; k < NARRAYS; k++) memset(memory[k], value, most_bytes + 4096);
}

/* pages of an array that have a zero in it, and those that have not */
static void CountPages(const char *array, size_t bytes, size_t count[2])
{
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);

  count[0] = count[1] = 0;
  for (size_t k = 0; k < bytes;) {
    const size_t length = PetscMin(bytes - k, page - ((uintptr_t)array + k) % page);

    count[memchr(array + k, 0, length) == NULL]++;
    k += length;
  }
}

static bool AllTouched(size_t bytes)
{
  for (int k = 0; k < NARRAYS; k++) {
    size_t count[2];

    CountPages(arrays[k], bytes, count);
    if (count[1]) return false;
    for (size_t b = bytes; b < most_bytes; b++) /* nothing behind it was written */
      if (((char *)arrays[k])[b] != 1) return false;
  }
  return true;
}

static bool NothingTouched(void)
{
  for (int k = 0; k < NARRAYS; k++)
    if (memchr(arrays[k], 0, most_bytes)) return false;
  return true;
}

static void Touched(void)
{
  const size_t sizes[] = {1, 100, 4096, 4097, 1 << 18, (1 << 18) + 1, most_bytes - 3, most_bytes};

  for (size_t n = 0; n < PETSC_STATIC_ARRAY_LENGTH(sizes); n++) {
    Fill(1);
    GpufmtPagesAheadBegin(NARRAYS, arrays, sizes[n]);
    Check(!pthread_join(ahead.thread, NULL)); /* with none taken */
    ahead.runs = false;
    Check(AllTouched(sizes[n]));
    GpufmtPagesAheadEnd();
    Check(!GpufmtPagesAheadTake());
  }
  Check(nthreads == PETSC_STATIC_ARRAY_LENGTH(sizes));
}

/* at any time, and at once, and when the thread is done; it is slow enough to be met in an array */
static void Taken(void)
{
  page_bytes = 4;
  for (int round = 0; round < ROUNDS; round++) {
    Fill(1);
    GpufmtPagesAheadBegin(NARRAYS, arrays, most_bytes);
    for (int k = 0; k < NARRAYS; k++) {
      if (round % 3) (void)usleep((useconds_t)(round % 50));
      Check(GpufmtPagesAheadTake() == arrays[k]);
      memset(arrays[k], 2 + k, most_bytes);
    }
    Check(!GpufmtPagesAheadTake());
    GpufmtPagesAheadEnd();
    for (int k = 0; k < NARRAYS; k++)
      for (size_t b = 0; b < most_bytes; b++) Check(((char *)arrays[k])[b] == 2 + k);
  }
}

/* whatever the thread has done by then */
static void Left(void)
{
  page_bytes = 4;
  for (int round = 0; round < ROUNDS; round++) {
    GpufmtPagesAheadBegin(NARRAYS, arrays, most_bytes);
    if (round % 3) (void)usleep((useconds_t)(round % 50));
    if (round % 2) Check(GpufmtPagesAheadTake() == arrays[0]);
    GpufmtPagesAheadEnd();
    Fill(1);
    Check(NothingTouched() && !GpufmtPagesAheadTake());
  }
}

/* there is no thread, and the arrays are as they were */
static void Alone(void)
{
  for (int times = 0; times < 2; times++) {
    nprocessors = times ? 2 : 1;
    refused     = times;
    Fill(1);
    GpufmtPagesAheadBegin(NARRAYS, arrays, most_bytes);
    for (int k = 0; k < NARRAYS; k++) Check(GpufmtPagesAheadTake() == arrays[k]);
    GpufmtPagesAheadEnd();
    Check(!nthreads && NothingTouched());
  }
  GpufmtPagesAheadBegin(0, arrays, most_bytes);
  Check(!GpufmtPagesAheadTake());
  GpufmtPagesAheadEnd();
}

/* a child takes them wherever the thread of its parent was, and waits for none */
static void Fork(void)
{
  for (int round = 0; round < 20; round++) {
    pid_t child;
    int   status;

    GpufmtPagesAheadBegin(NARRAYS, arrays, most_bytes);
    (void)usleep((useconds_t)(20 * round));
    child = fork();
    Check(child >= 0);
    if (!child) {
      (void)alarm(20);
      for (int k = 0; k < NARRAYS; k++) Check(GpufmtPagesAheadTake() == arrays[k]);
      GpufmtPagesAheadEnd();
      (void)kill(getpid(), SIGKILL); /* ThreadSanitizer would miss the threads of the parent */
    }
    Check(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    for (int k = 0; k < NARRAYS; k++) Check(GpufmtPagesAheadTake() == arrays[k]);
    GpufmtPagesAheadEnd();
  }
}

/* the program ends while the thread works */
static void Exit(void)
{
  GpufmtPagesAheadBegin(NARRAYS, arrays, most_bytes);
}

int main(int argc, char **argv)
{
  static const struct {
    const char *name;
    void (*run)(void);
  } tests[] = {
    {"touched", Touched},
    {"taken",   Taken  },
    {"left",    Left   },
    {"alone",   Alone  },
    {"fork",    Fork   },
    {"exit",    Exit   }
  };

  for (int k = 0; k < NARRAYS; k++) {
    memory[k] = malloc(most_bytes + 4096);
    arrays[k] = memory[k] + 1000 * k;
  }
  for (size_t k = 0; k < PETSC_STATIC_ARRAY_LENGTH(tests); k++)
    if (!strcmp(argv[argc - 1], tests[k].name)) {
      tests[k].run();
      printf("passed\n");
    }
  return 0;
}
