/* A halo exchange through memory that ranks share; the parameters are those of kernels/halo/peer.cu. Ranks may be more than processors: who waits lets
   others run. */
#include "common/host.h"
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

typedef _Atomic uint64_t flag_t;

typedef struct {
  scalar_t      *target;
  offset_t       stride;
  flag_t        *flag;
  const index_t *index;
  offset_t       first, count;
  offset_t       done; /* not used */
} Message;

typedef struct {
  flag_t        *flags;
  offset_t       spacing;
  offset_t       nneighbours, rank;
  offset_t       limit; /* nanoseconds */
  scalar_t      *arrived;
  offset_t       stride, count;
  offset_t       nranks;
  flag_t *const *failures;
  flag_t        *failure, *report;
  uint64_t      *exchange; /* number of the last one */
} Arrivals;

HOST_KERNEL(peer_send)
{
  const Message  *messages = PARAM(const Message *, 0);
  const uint64_t  exchange = *PARAM(const Arrivals *, 1)->exchange + 1;
  const scalar_t *source   = PARAM(const scalar_t *, 2);

  for (const Message *message = messages; message < messages + grid[1]; message++) {
    scalar_t *target = message->target + (offset_t)(exchange & 1) * message->stride;

    for (offset_t e = 0; e < message->count; e++) {
      const offset_t place = message->index ? (offset_t)message->index[e] : message->first + e;

      target[e] = source ? source[place] : (scalar_t)NAN;
    }
    atomic_store_explicit(message->flag, exchange, memory_order_release);
  }
}

static int64_t Now(void)
{
  struct timespec now;

  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* 0: the flags of all neighbours have come */
static uint64_t LookForFlags(const Arrivals *arrivals, uint64_t exchange)
{
  const offset_t *ranks = (const offset_t *)(arrivals + 1);

  for (offset_t n = 0; n < arrivals->nneighbours; n++) {
    flag_t *const flag  = arrivals->flags + ranks[n] * arrivals->spacing;
    int64_t       begin = 0;

    while (atomic_load_explicit(flag, memory_order_acquire) < exchange) {
      const uint64_t failure = atomic_load(arrivals->failure);

      if (failure) return failure;
      if (!begin) begin = Now();
      if (arrivals->limit && Now() - begin > arrivals->limit) return (uint64_t)(arrivals->rank + 1) << 32 | (uint64_t)(ranks[n] + 1);
      (void)sched_yield();
    }
  }
  return atomic_load(arrivals->failure);
}

/* the same, and all ranks are told what has failed */
static uint64_t Wait(const Arrivals *arrivals, uint64_t exchange)
{
  const uint64_t failure = LookForFlags(arrivals, exchange);

  if (!failure) return 0;
  for (offset_t r = 0; r < arrivals->nranks; r++) atomic_store(arrivals->failures[r], failure);
  atomic_store(arrivals->report, failure);
  return failure;
}

HOST_KERNEL(peer_wait)
{
  const Arrivals *arrivals = PARAM(const Arrivals *, 0);
  const uint64_t  exchange = *arrivals->exchange + 1, failure = Wait(arrivals, exchange);

  *arrivals->exchange = exchange;
  if (!failure) return;
  for (offset_t e = 0; e < arrivals->count; e++) arrivals->arrived[(offset_t)(exchange & 1) * arrivals->stride + e] = (scalar_t)NAN;
}

HOST_KERNEL(peer_add)
{
  const Message  *messages = PARAM(const Message *, 0);
  const Arrivals *arrivals = PARAM(const Arrivals *, 1);
  scalar_t       *result   = PARAM(scalar_t *, 2);
  const scalar_t *sums     = arrivals->arrived + (offset_t)(*arrivals->exchange & 1) * arrivals->stride;

  for (const Message *message = messages; message < messages + grid[1]; message++)
    for (offset_t e = 0; e < message->count; e++) result[message->index[e]] += sums[message->first + e];
}

/* block[0]: so many numbers of each rank arrive */
HOST_KERNEL(peer_sums)
{
  const Message  *messages = PARAM(const Message *, 0);
  const Arrivals *arrivals = PARAM(const Arrivals *, 1);
  const scalar_t *parts    = PARAM(const scalar_t *, 2);
  scalar_t       *sums     = PARAM(scalar_t *, 3);
  const offset_t  n        = PARAM(offset_t, 4);
  const uint64_t  exchange = *arrivals->exchange + 1;
  const offset_t  odd      = (offset_t)(exchange & 1);
  const scalar_t *arrived  = arrivals->arrived + odd * arrivals->stride;
  uint64_t        failure;

  for (const Message *message = messages; message < messages + arrivals->nranks; message++) {
    for (offset_t k = 0; k < n; k++) message->target[odd * message->stride + k] = parts[k];
    atomic_store_explicit(message->flag, exchange, memory_order_release);
  }
  failure = Wait(arrivals, exchange);
  for (offset_t k = 0; k < n; k++) {
    scalar_t sum = arrived[k];

    for (offset_t r = 1; r < arrivals->nranks; r++) sum += arrived[r * block[0] + k];
    sums[k] = failure ? (scalar_t)NAN : sum;
  }
  *arrivals->exchange = exchange;
}
