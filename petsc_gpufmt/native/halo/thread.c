/* The thread that drives exchanges: one for all matrices, from the first that wants it to the last. It runs one function at a time, which calls
   nothing of PETSc's. To be woken takes as long as a short exchange, so who waits looks for a while before it sleeps. */
#define _GNU_SOURCE /* pthread_setname_np() */
#include "halo/halo.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { ROUNDS = 200 }; /* some 50 us on a core of its own */

static pthread_t       thread;
static pthread_mutex_t lock    = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t  changed = PTHREAD_COND_INITIALIZER;
static int             holders = 0;
static int             life    = 1; /* of PETSc */

static struct {
  int (*function)(void *);
  void *argument;
  int   result;
  bool  ends;
} work;                          /* under the lock */
static atomic_bool busy = false; /* there is a function to run; changes under the lock */

static void LookFor(bool value)
{
  for (int k = 0; k < ROUNDS && atomic_load(&busy) != value; k++) (void)sched_yield();
}

static void *Run(void *unused)
{
  (void)pthread_setname_np(pthread_self(), "gpufmt halo"); /* for debuggers and tests */
  (void)pthread_mutex_lock(&lock);
  while (!work.ends) {
    if (busy) {
      int (*function)(void *) = work.function;
      void *argument          = work.argument;
      int   result;

      (void)pthread_mutex_unlock(&lock);
      result = (*function)(argument);
      (void)pthread_mutex_lock(&lock);
      work.result = result;
      busy        = false;
      (void)pthread_cond_broadcast(&changed);
      (void)pthread_mutex_unlock(&lock);
      LookFor(true);
      (void)pthread_mutex_lock(&lock);
    } else (void)pthread_cond_wait(&changed, &lock);
  }
  (void)pthread_mutex_unlock(&lock);
  return NULL;
}

/* Someone more wants the thread, and gives *held back. */
PetscErrorCode GpufmtHaloThreadHold(int *held)
{
  int failed;

  PetscFunctionBegin;
  if (!holders) {
    work.ends = false;
    failed    = GpufmtThreadCreate(&thread, NULL, Run, NULL);
    PetscCheck(!failed, PETSC_COMM_SELF, PETSC_ERR_SYS, "The system gives no thread for the halo exchange (error %d): take -mat_halo_mode overlap",
               failed);
  }
  holders++;
  *held = life;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static void Join(void)
{
  (void)pthread_mutex_lock(&lock);
  work.ends = true;
  (void)pthread_cond_broadcast(&changed);
  (void)pthread_mutex_unlock(&lock);
  (void)pthread_join(thread, NULL);
}

/* *held is 0 if the thread is not held */
void GpufmtHaloThreadRelease(int *held)
{
  if (*held == life && !--holders) Join();
  *held = 0;
}

/* PETSc ends, and matrices that the user leaked hold the thread */
void GpufmtHaloThreadEnd(void)
{
  if (holders) Join();
  holders = 0;
  life++;
}

void GpufmtHaloThreadDo(int (*function)(void *), void *argument)
{
  (void)pthread_mutex_lock(&lock);
  work.function = function;
  work.argument = argument;
  busy          = true;
  (void)pthread_cond_broadcast(&changed);
  (void)pthread_mutex_unlock(&lock);
}

/* waits for the function, and returns what it has returned */
int GpufmtHaloThreadWait(void)
{
  int result;

  LookFor(false);
  (void)pthread_mutex_lock(&lock);
  while (busy) (void)pthread_cond_wait(&changed, &lock);
  result = work.result;
  (void)pthread_mutex_unlock(&lock);
  return result;
}
