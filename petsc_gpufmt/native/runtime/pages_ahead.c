/* Pages of new arrays on the host, made ahead: a thread touches them first, while who will want them waits for the device or plans. It does nothing
   else, nothing of PETSc's nor of CUDA's. */
#define _GNU_SOURCE /* CPU_COUNT() */
#include "runtime/runtime.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

enum { NOWHERE = -1 };

/* Who takes an array waits until the thread is done with a piece of it. */
static const size_t piece_bytes = (size_t)1 << 18;

static struct {
  int       narrays;
  void     *arrays[GPUFMT_MOST_AHEAD]; /* in the order in which they are touched, and taken */
  size_t    bytes, page;
  pthread_t thread;
  bool      runs;
  pid_t     process; /* that has the thread */
} ahead;             /* the thread reads it; nothing changes while it runs */

static atomic_int taken; /* arrays that the thread is not to touch any more */
static atomic_int at;    /* the array in which it is */

static void Touch(char *array, size_t first, size_t last)
{
  volatile char *const bytes = array;

  for (size_t k = first; k < last; k += ahead.page) bytes[k] = 0;
  bytes[last - 1] = 0; /* on the last page, unless the array begins with one */
}

/* It says where it is before it looks whether it may be there, and who takes an array does so the other way round: one of them sees the other. */
static void *Run(void *unused)
{
  for (int k = 0; k < ahead.narrays; k++)
    for (size_t first = 0; first < ahead.bytes; first += piece_bytes) {
      atomic_store(&at, k);
      if (atomic_load(&taken) > k) break;
      Touch((char *)ahead.arrays[k], first, PetscMin(first + piece_bytes, ahead.bytes));
      atomic_store(&at, NOWHERE);
    }
  atomic_store(&at, NOWHERE);
  return NULL;
}

/* a child of fork() has none */
static bool RunsHere(void)
{
  return ahead.runs && ahead.process == getpid();
}

/* On one processor the thread would take the time of those for whom it works. */
static bool HasProcessor(void)
{
  cpu_set_t set;

  return !sched_getaffinity(0, sizeof(set), &set) && CPU_COUNT(&set) > 1;
}

/* These arrays of so many bytes will be wanted, in this order. Where there is no thread to be had, they are as they are. GpufmtPagesAheadEnd()
   follows, before others begin. */
void GpufmtPagesAheadBegin(int narrays, void *const arrays[], size_t bytes)
{
  static bool noted = false;
  sigset_t    all, before;

  ahead.narrays = narrays;
  ahead.bytes   = bytes;
  ahead.page    = (size_t)sysconf(_SC_PAGESIZE);
  ahead.process = getpid();
  for (int k = 0; k < narrays; k++) ahead.arrays[k] = arrays[k];
  atomic_store(&taken, 0);
  atomic_store(&at, NOWHERE);
  if (!narrays || !bytes || !HasProcessor()) return;
  if (!noted) noted = !atexit(GpufmtPagesAheadEnd); /* the process may end without PetscFinalize() */
  (void)sigfillset(&all);
  (void)pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the threads of the application */
  ahead.runs = !pthread_create(&ahead.thread, NULL, Run, NULL);
  (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* The next of the arrays, which the thread leaves to the caller, with or without all its pages; NULL: all were taken. */
void *GpufmtPagesAheadTake(void)
{
  const int k = atomic_load(&taken);

  if (k >= ahead.narrays) return NULL;
  atomic_store(&taken, k + 1);
  while (RunsHere() && atomic_load(&at) == k) (void)sched_yield();
  return ahead.arrays[k];
}

/* Nobody takes more of them. The thread ends, soon after it is done with a piece. */
void GpufmtPagesAheadEnd(void)
{
  atomic_store(&taken, ahead.narrays);
  if (RunsHere()) (void)pthread_join(ahead.thread, NULL);
  ahead.runs = false;
}
