/* Threads beside those of the application. */
#include "runtime/runtime.h"
#include <signal.h>

/* As pthread_create(); signals are for the threads of the application. */
int GpufmtThreadCreate(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument)
{
  sigset_t all, before;
  int      failed;

  (void)sigfillset(&all);
  (void)pthread_sigmask(SIG_SETMASK, &all, &before);
  failed = pthread_create(thread, attributes, run, argument);
  (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
  return failed;
}
