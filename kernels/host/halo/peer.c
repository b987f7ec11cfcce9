/* A halo exchange through memory that ranks share; the parameters are those of kernels/halo/peer.cu. Ranks may be more than processors: who waits lets
   others run. */
#include "common/host.h"

typedef scalar_t entry_t;
#include "common/peers.h"

HOST_KERNEL(peer_send)
{
  const PeerMessage *messages = PARAM(const PeerMessage *, 0);
  const uint64_t     exchange = *PARAM(const PeerArrivals *, 1)->exchange + 1;
  const scalar_t    *source   = PARAM(const scalar_t *, 2);

  for (const PeerMessage *message = messages; message < messages + grid[1]; message++) {
    scalar_t *target = message->target + (offset_t)(exchange & 1) * message->stride;

    for (offset_t e = 0; e < message->count; e++) {
      const offset_t place = message->index ? (offset_t)message->index[e] : message->first + e;

      target[e] = source ? source[place] : (scalar_t)NAN;
    }
    atomic_store_explicit(message->flag, exchange, memory_order_release);
  }
}

HOST_KERNEL(peer_wait)
{
  const PeerArrivals *arrivals = PARAM(const PeerArrivals *, 0);
  const uint64_t      exchange = *arrivals->exchange + 1, failure = WaitForNeighbours(arrivals, exchange);

  *arrivals->exchange = exchange;
  if (!failure) return;
  for (offset_t e = 0; e < arrivals->count; e++) arrivals->arrived[(offset_t)(exchange & 1) * arrivals->stride + e] = (scalar_t)NAN;
}

HOST_KERNEL(peer_add)
{
  const PeerMessage  *messages = PARAM(const PeerMessage *, 0);
  const PeerArrivals *arrivals = PARAM(const PeerArrivals *, 1);
  scalar_t           *result   = PARAM(scalar_t *, 2);
  const scalar_t     *sums     = arrivals->arrived + (offset_t)(*arrivals->exchange & 1) * arrivals->stride;

  for (const PeerMessage *message = messages; message < messages + grid[1]; message++)
    for (offset_t e = 0; e < message->count; e++) result[message->index[e]] += sums[message->first + e];
}

HOST_KERNEL(peer_sums)
{
  const Ranks     ranks    = PARAM(Ranks, 0);
  const scalar_t *parts    = PARAM(const scalar_t *, 1);
  scalar_t       *sums     = PARAM(scalar_t *, 2);
  const uint64_t  exchange = *ranks.arrivals->exchange + 1;

  SumOverRanks(&ranks, exchange, (int)PARAM(offset_t, 3), parts, sums);
  *ranks.arrivals->exchange = exchange;
}
