/* What ranks write into memory that they share, and how they wait for it: see kernels/common/peers.cuh. Who includes this has defined entry_t, the type of what is
   exchanged. Ranks may be more than processors: who waits lets others run. */
#pragma once
#include "common/host.h"
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

enum { MOST_SUMS = 8 }; /* GPUFMT_MOST_SUMS of native/gpufmt_plan.h */

typedef _Atomic uint64_t flag_t;

typedef struct {
  entry_t       *target;
  offset_t       stride;
  flag_t        *flag;
  const index_t *index;
  offset_t       first, count;
  offset_t       done; /* not used */
} PeerMessage;

typedef struct {
  flag_t        *flags;
  offset_t       spacing;
  offset_t       nneighbours, rank;
  offset_t       limit; /* nanoseconds */
  entry_t       *arrived;
  offset_t       stride, count;
  offset_t       nranks;
  flag_t *const *failures;
  flag_t        *failure, *report;
  uint64_t      *exchange; /* number of the last one */
} PeerArrivals;

static inline int64_t Now(void)
{
  struct timespec now;

  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* 0: the flags of all neighbours have come */
static inline uint64_t LookForFlags(const PeerArrivals *arrivals, uint64_t exchange)
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
static inline uint64_t WaitForNeighbours(const PeerArrivals *arrivals, uint64_t exchange)
{
  const uint64_t failure = LookForFlags(arrivals, exchange);

  if (!failure) return 0;
  for (offset_t r = 0; r < arrivals->nranks; r++) atomic_store(arrivals->failures[r], failure);
  atomic_store(arrivals->report, failure);
  return failure;
}

typedef struct {
  const PeerMessage  *messages; /* [nranks] */
  const PeerArrivals *arrivals;
} Ranks;

/* sums[k], k < n <= MOST_SUMS, become the sums of the parts of all ranks, in their order, or NaN; they may be the parts of this one */
static inline void SumOverRanks(const Ranks *ranks, uint64_t exchange, int n, const entry_t *parts, entry_t *sums)
{
  const PeerArrivals *arrivals = ranks->arrivals;
  const offset_t      odd      = (offset_t)(exchange & 1);
  const entry_t      *arrived  = arrivals->arrived + odd * arrivals->stride;
  uint64_t            failure;

  for (const PeerMessage *message = ranks->messages; message < ranks->messages + arrivals->nranks; message++) {
    for (int k = 0; k < n; k++) message->target[odd * message->stride + k] = parts[k];
    atomic_store_explicit(message->flag, exchange, memory_order_release);
  }
  failure = WaitForNeighbours(arrivals, exchange);
  for (int k = 0; k < n; k++) {
    entry_t sum = arrived[k];

    for (offset_t r = 1; r < arrivals->nranks; r++) sum += arrived[r * MOST_SUMS + k];
    sums[k] = failure ? (entry_t)NAN : sum;
  }
}
