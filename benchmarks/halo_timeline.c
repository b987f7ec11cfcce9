/* What halo_timeline.py knows of the host: stamps that plans make there, and when MPI starts messages and waits for them, which is asked by MPI's
   profiling interface. It is loaded before MPI is, so that all calls come here. Times are nanoseconds of CLOCK_MONOTONIC. */
#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

enum { STARTALL, WAITALL, TESTSOME, START };
enum { MOST_CALLS = 1 << 14 };

typedef struct {
  int64_t function, by_another_thread, begin, end;
} Call;

Call        timeline_calls[MOST_CALLS];
const long  timeline_most_calls = MOST_CALLS;
atomic_long timeline_ncalls     = 0; /* which may be more */

static pthread_t             thread;           /* that has begun a record */
static _Thread_local int64_t asking_since = 0; /* what has ended; 0: this thread does not ask */

static int64_t Now(void)
{
  struct timespec now;

  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

void timeline_begin(void)
{
  thread = pthread_self();
  atomic_store(&timeline_ncalls, 0);
}

static void Record(int64_t function, int64_t begin)
{
  const long k = atomic_fetch_add(&timeline_ncalls, 1);

  if (k < MOST_CALLS) timeline_calls[k] = (Call){function, !pthread_equal(thread, pthread_self()), begin, Now()};
}

int MPI_Startall(int count, MPI_Request requests[])
{
  const int64_t begin = Now();
  const int     code  = PMPI_Startall(count, requests);

  Record(STARTALL, begin);
  return code;
}

int MPI_Start(MPI_Request *request)
{
  const int64_t begin = Now();
  const int     code  = PMPI_Start(request);

  Record(START, begin);
  return code;
}

int MPI_Waitall(int count, MPI_Request requests[], MPI_Status statuses[])
{
  const int64_t begin = Now();
  const int     code  = PMPI_Waitall(count, requests, statuses);

  Record(WAITALL, begin);
  return code;
}

/* Who asks again and again what has ended does so until something has. */
int MPI_Testsome(int count, MPI_Request requests[], int *ended, int indices[], MPI_Status statuses[])
{
  const int64_t begin = Now();
  const int     code  = PMPI_Testsome(count, requests, ended, indices, statuses);

  if (!asking_since) asking_since = begin;
  if (!code && !*ended) return code;
  if (!code && *ended != MPI_UNDEFINED) Record(TESTSOME, asking_since);
  asking_since = 0;
  return code;
}

/* as the kernel of this name in halo_timeline.cu */
void timeline_stamp(const uint32_t grid[3], const uint32_t block[3], void **params)
{
  int64_t      *stamps   = *(int64_t **)params[0];
  const int64_t capacity = *(int64_t *)params[1], k = stamps[0]++;

  (void)grid;
  (void)block;
  if (k >= capacity) return;
  stamps[1 + 2 * k] = *(int64_t *)params[2];
  stamps[2 + 2 * k] = Now();
}
