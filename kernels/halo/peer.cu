// A halo exchange through memory that ranks have mapped of each other (petsc_gpufmt/halo/peer.py, docs/design/halo.md).
//
// Exchanges have numbers 1, 2, ... A rank writes its entries into the memory of those who need them, and then raises its flag there to the number of
// the exchange. It goes on when the flags of all neighbours have come so far in its own memory. What arrives has two places, for even and for odd
// numbers. Flags are words of 64 bits that one rank writes and one reads: a fence of the system before a flag is raised, and after it is seen, orders
// them and what was sent.
//
// The number is in memory of the device, where the kernel that waits counts it: a launch that was recorded once can run many times.
#include "common/peers.cuh"
#include "common/search.cuh"

typedef PeerMessage<scalar_t>  Message;
typedef PeerArrivals<scalar_t> Arrivals;

// Sends all messages, blockIdx.y one each; without a source, what is not a number. A thread has ITEMS entries on the way, a block apart; the last block of a message raises the flag. Bytes
// an entry: 2 sizeof(scalar_t), and sizeof(index_t) unless `index` is null.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS)
  peer_send(Message *messages, const Arrivals *__restrict__ arrivals, const scalar_t *__restrict__ source)
{
  constexpr int  ITEMS    = 4;
  const count_t  exchange = __ldg(arrivals->exchange) + 1;
  Message *const message  = messages + blockIdx.y;
  const offset_t first = __ldg(&message->first), count = __ldg(&message->count), begin = (offset_t)blockIdx.x * (ITEMS * BLOCK_THREADS);
  const index_t *index   = message->index;
  const unsigned nblocks = count ? (unsigned)((count - 1) / (ITEMS * BLOCK_THREADS)) + 1 : 1; // one has the flag, if not entries
  scalar_t      *target  = message->target + offset_t(exchange & 1) * __ldg(&message->stride);
  offset_t       place[ITEMS];
  scalar_t       entry[ITEMS];

  if (blockIdx.x >= nblocks) return; // of a shorter message
#pragma unroll
  for (int k = 0; k < ITEMS; k++) {
    const offset_t e = begin + threadIdx.x + k * BLOCK_THREADS;

    place[k] = e >= count ? -1 : index ? offset_t(__ldg(index + e)) : first + e;
  }
#pragma unroll
  for (int k = 0; k < ITEMS; k++) entry[k] = place[k] >= 0 && source ? __ldg(source + place[k]) : not_a_number<scalar_t>();
#pragma unroll
  for (int k = 0; k < ITEMS; k++)
    if (place[k] >= 0) target[begin + threadIdx.x + k * BLOCK_THREADS] = entry[k];
  __syncthreads();
  if (threadIdx.x) return;
  __threadfence_system(); // after the entries of the block, which the barrier puts before this
  if (nblocks > 1) {
    if (atomicAdd(&message->done, 1u) + 1 < nblocks) return;
    message->done = 0;
    __threadfence_system(); // after those of the other blocks
  }
  *(volatile count_t *)message->flag = exchange;
}

// The flags of all neighbours have come, or what should have arrived is NaN. One block.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS) peer_wait(const Arrivals *__restrict__ arrivals)
{
  const count_t exchange = *arrivals->exchange + 1;
  const bool    failed   = wait_for_neighbours<BLOCK_THREADS>(arrivals, exchange, threadIdx.x); // all threads know the number

  if (threadIdx.x == 0) *arrivals->exchange = exchange;
  if (!failed) return;
#pragma unroll 1
  for (offset_t e = threadIdx.x; e < arrivals->count; e += BLOCK_THREADS)
    arrivals->arrived[offset_t(exchange & 1) * arrivals->stride + e] = not_a_number<scalar_t>();
}

// the entry of all that are sent which is that of `row` in a message; -1: there is none
__device__ __forceinline__ offset_t entry_of(const Message &message, index_t row)
{
  const index_t *index = message.index;
  const offset_t count = message.count, e = partition_point(offset_t(0), count, [&](offset_t k) { return __ldg(index + k) < row; });

  return e < count && __ldg(index + e) == row ? message.first + e : -1;
}

// result[index[e]] += sum e, for all entries that the messages send, in the order of messages, after peer_wait. blockIdx.y = message, a thread an entry: that of the
// first message with a row adds those of the others, too. Bytes an entry: 3 sizeof(scalar_t) + sizeof(index_t).
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS)
  peer_add(const Message *__restrict__ messages, const Arrivals *__restrict__ arrivals, scalar_t *result)
{
  const Message  *message = messages + blockIdx.y;
  const offset_t  e       = (offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x;
  const scalar_t *sums    = arrivals->arrived + offset_t(__ldg(arrivals->exchange) & 1) * arrivals->stride;

  if (e >= message->count) return;
  const index_t row = __ldg(message->index + e);
  for (unsigned m = 0; m < blockIdx.y; m++)
    if (entry_of(messages[m], row) >= 0) return;
  scalar_t sum = result[row] + __ldg(sums + message->first + e);
  for (unsigned m = blockIdx.y + 1; m < gridDim.y; m++) {
    const offset_t other = entry_of(messages[m], row);

    if (other >= 0) sum += __ldg(sums + other);
  }
  result[row] = sum;
}

// sums[k] = the sum of parts[k] of all ranks, for k < n, as in common/peers.cuh; or NaN. `sums` may be `parts`. It waits and counts by itself. One block of
// MOST_SUMS x RANKS threads. Bytes: 2 sizeof(scalar_t) a number and rank.
template <int RANKS>
__global__ void __launch_bounds__((MOST_SUMS * RANKS)) peer_sums(const Ranks<scalar_t> ranks, const scalar_t *parts, scalar_t *sums, offset_t n)
{
  constexpr int THREADS  = MOST_SUMS * RANKS;
  const count_t exchange = ranks.next();

  send_parts<THREADS>(ranks, exchange, (int)n, [&](int k) { return parts[k]; });
  receive_sums<THREADS>(ranks, exchange, (int)n, sums);
  if (thread_in_block() == 0) *ranks.arrivals->exchange = exchange;
}
