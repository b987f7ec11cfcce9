/* A halo exchange through memory that ranks share; the parameters are those of kernels/halo/peer.cu. Ranks may be more than processors: who waits lets
   others run. */
#include "common/host.h"
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

typedef _Atomic uint64_t flag_t;

typedef struct {
  scalar_t *target;
  offset_t  stride;
  flag_t   *flag;
  offset_t  first, count;
} Message;

typedef struct {
  const Message  *messages;
  const offset_t *blocks; /* not used, as `tickets` */
  offset_t        nmessages;
  const index_t  *index;
  unsigned       *tickets;
} Sender;

typedef struct {
  flag_t *const  *flags;
  offset_t        nflags;
  const offset_t *ranks;
  offset_t        rank;
  offset_t        limit; /* nanoseconds */
  scalar_t       *arrived;
  offset_t        stride, count;
  flag_t *const  *failures;
  offset_t        nranks;
  flag_t         *report;
} Receiver;

HOST_KERNEL(peer_send)
{
  const Sender    sender   = PARAM(Sender, 0);
  const scalar_t *source   = PARAM(const scalar_t *, 1);
  const uint64_t  exchange = PARAM(uint64_t, 2);

  for (offset_t m = 0; m < sender.nmessages; m++) {
    const Message *message = &sender.messages[m];
    scalar_t      *target  = message->target + (offset_t)(exchange & 1) * message->stride;

    for (offset_t e = 0; e < message->count; e++) target[e] = source[sender.index ? (offset_t)sender.index[message->first + e] : message->first + e];
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
static uint64_t Wait(const Receiver *receiver, uint64_t exchange)
{
  flag_t *const own = receiver->failures[receiver->rank];

  for (offset_t n = 0; n < receiver->nflags; n++) {
    int64_t begin = 0;

    while (atomic_load_explicit(receiver->flags[n], memory_order_acquire) < exchange) {
      const uint64_t failure = atomic_load(own);

      if (failure) return failure;
      if (!begin) begin = Now();
      if (receiver->limit && Now() - begin > receiver->limit) return (uint64_t)(receiver->rank + 1) << 32 | (uint64_t)(receiver->ranks[n] + 1);
      (void)sched_yield();
    }
  }
  return atomic_load(own);
}

HOST_KERNEL(peer_wait)
{
  const Receiver receiver = PARAM(Receiver, 0);
  const uint64_t exchange = PARAM(uint64_t, 1), failure = Wait(&receiver, exchange);

  if (!failure) return;
  for (offset_t r = 0; r < receiver.nranks; r++) atomic_store(receiver.failures[r], failure);
  atomic_store(receiver.report, failure);
  for (offset_t e = 0; e < receiver.count; e++) receiver.arrived[(offset_t)(exchange & 1) * receiver.stride + e] = (scalar_t)NAN;
}

HOST_KERNEL(peer_add)
{
  const offset_t  nrows = PARAM(offset_t, 0);
  const index_t  *rows = PARAM(const index_t *, 1), *begins = PARAM(const index_t *, 2), *places = PARAM(const index_t *, 3);
  const scalar_t *sums   = PARAM(const scalar_t *, 4) + (offset_t)(PARAM(uint64_t, 7) & 1) * PARAM(offset_t, 5);
  scalar_t       *result = PARAM(scalar_t *, 6);

  for (offset_t k = 0; k < nrows; k++) {
    scalar_t sum = result[rows[k]];

    for (index_t e = begins[k]; e < begins[k + 1]; e++) sum += sums[places[e]];
    result[rows[k]] = sum;
  }
}
