// A halo exchange through memory that ranks have mapped of each other (petsc_gpufmt/halo/peer.py, docs/design/halo.md).
//
// Exchanges have numbers 1, 2, ... A rank writes its entries into the memory of those who need them, and then raises its flag there to the number of
// the exchange. It goes on when the flags of all neighbours have come so far in its own memory. What arrives has two places, for even and for odd
// numbers. Flags are words of 64 bits that one rank writes and one reads: a fence of the system before a flag is raised, and after it is seen, orders
// them and what was sent.
#include "common/common.cuh"

typedef unsigned long long count_t;

// what one rank sends to another in each exchange: entries [first, first + count) of those that it sends
struct Message {
  scalar_t *target; // in the memory of the other, for even exchanges; for odd ones so many entries further on
  offset_t  stride;
  count_t  *flag; // likewise: what this rank raises
  offset_t  first, count;
};

struct Sender {
  const Message *__restrict__ messages;
  const offset_t *__restrict__ blocks; // [nmessages + 1] the first block of each; each has one at least, for the flag
  offset_t nmessages;
  const index_t *__restrict__ index; // entry e of those that are sent is source[index[e]]; null: source[e]
  unsigned *tickets;                 // [nmessages] zeros, as they are again afterwards
};

// Sends all messages. A thread has ITEMS entries on the way, a block apart; the last block of a message raises the flag. Bytes an entry:
// 2 sizeof(scalar_t), and sizeof(index_t) unless `index` is null.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS) peer_send(Sender sender, const scalar_t *__restrict__ source, count_t exchange)
{
  constexpr int ITEMS = 4;
  int           m     = 0;

  while (m + 1 < sender.nmessages && blockIdx.x >= __ldg(sender.blocks + m + 1)) m++;
  const Message *message = sender.messages + m;
  const offset_t block = blockIdx.x - __ldg(sender.blocks + m), nblocks = __ldg(sender.blocks + m + 1) - __ldg(sender.blocks + m);
  const offset_t first = __ldg(&message->first), count = __ldg(&message->count), begin = block * (ITEMS * BLOCK_THREADS) + threadIdx.x;
  scalar_t      *target = message->target + offset_t(exchange & 1) * __ldg(&message->stride);
  offset_t       place[ITEMS];
  scalar_t       entry[ITEMS];

#pragma unroll
  for (int k = 0; k < ITEMS; k++) {
    const offset_t e = begin + k * BLOCK_THREADS;

    place[k] = e >= count ? -1 : sender.index ? offset_t(__ldg(sender.index + first + e)) : first + e;
  }
#pragma unroll
  for (int k = 0; k < ITEMS; k++) entry[k] = place[k] >= 0 ? __ldg(source + place[k]) : scalar_t(0);
#pragma unroll
  for (int k = 0; k < ITEMS; k++)
    if (place[k] >= 0) target[begin + k * BLOCK_THREADS] = entry[k];
  __syncthreads();
  if (threadIdx.x) return;
  __threadfence_system(); // after the entries of the block, which the barrier puts before this
  if (nblocks > 1) {
    if (atomicAdd(sender.tickets + m, 1u) + 1 < nblocks) return;
    sender.tickets[m] = 0;
    __threadfence_system(); // after those of the other blocks
  }
  *(volatile count_t *)message->flag = exchange;
}

struct Receiver {
  const count_t *const *flags; // [nflags] that the neighbours raise, in the memory of this rank
  offset_t              nflags;
  const offset_t       *ranks; // [nflags] of the neighbours
  offset_t              rank;  // this one
  offset_t              limit; // ticks of clock64() after which a flag is given up; 0: none
  scalar_t             *arrived;
  offset_t              stride, count; // entries of `arrived`: for even exchanges [0, count), for odd ones so many further on
  count_t *const       *failures;      // [nranks] a word of each rank, not 0 once an exchange of any of them has failed
  offset_t              nranks;
  count_t              *report; // the same for the host of this rank
};

// Waits for the flags of all neighbours, a thread a flag. If one does not come in time, or an exchange of another rank has failed, all ranks are
// told so, and what should have arrived is NaN. One block.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS) peer_wait(Receiver receiver, count_t exchange)
{
  __shared__ count_t      failed;
  const volatile count_t *own     = receiver.failures[receiver.rank];
  count_t                 failure = *own;

  if (threadIdx.x == 0) failed = 0;
  __syncthreads();
  for (offset_t n = threadIdx.x; n < receiver.nflags && !failure; n += BLOCK_THREADS) {
    const volatile count_t *flag  = receiver.flags[n];
    const long long         begin = clock64();

    while (!failure && *flag < exchange) {
      failure = *own;
      if (!failure && receiver.limit && clock64() - begin > receiver.limit)
        failure = count_t(receiver.rank + 1) << 32 | count_t(receiver.ranks[n] + 1);
    }
  }
  __threadfence_system(); // before what has arrived is read
  if (failure) failed = failure;
  __syncthreads();
  if (!failed) return;
  for (offset_t r = threadIdx.x; r < receiver.nranks; r += BLOCK_THREADS) *(volatile count_t *)receiver.failures[r] = failed;
  if (threadIdx.x == 0) *(volatile count_t *)receiver.report = failed;
  for (offset_t e = threadIdx.x; e < receiver.count; e += BLOCK_THREADS)
    receiver.arrived[offset_t(exchange & 1) * receiver.stride + e] = scalar_t(0) / scalar_t(0);
}

// result[rows[k]] += sums that have arrived at places[begins[k]], ..., in the order of their ranks. A thread a row. Bytes a row that k ranks send
// sums for: (k + 2) (sizeof(scalar_t) + sizeof(index_t)).
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS)
  peer_add(offset_t nrows, const index_t *__restrict__ rows, const index_t *__restrict__ begins, const index_t *__restrict__ places,
           const scalar_t *__restrict__ arrived, offset_t stride, scalar_t *result, count_t exchange)
{
  const offset_t  k    = (offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x;
  const scalar_t *sums = arrived + offset_t(exchange & 1) * stride;

  if (k >= nrows) return;
  const index_t row = __ldg(rows + k), end = __ldg(begins + k + 1);
  scalar_t      sum = result[row];
#pragma unroll 1 // most rows go to one rank
  for (index_t e = __ldg(begins + k); e < end; e++) sum += __ldg(sums + __ldg(places + e));
  result[row] = sum;
}
