// A halo exchange through memory that ranks have mapped of each other (petsc_gpufmt/halo/peer.py, docs/design/halo.md).
//
// Exchanges have numbers 1, 2, ... A rank writes its entries into the memory of those who need them, and then raises its flag there to the number of
// the exchange. It goes on when the flags of all neighbours have come so far in its own memory. What arrives has two places, for even and for odd
// numbers. Flags are words of 64 bits that one rank writes and one reads: a fence of the system before a flag is raised, and after it is seen, orders
// them and what was sent.
//
// The number is in memory of the device, where the kernel that waits counts it: a launch that was recorded once can run many times.
#include "common/search.cuh"

typedef unsigned long long count_t;

// What one rank sends to another in each exchange: entries [first, first + count) of those that it sends. The library makes it (gpufmt_plan.h).
struct Message {
  scalar_t      *target; // in the memory of the other, for even exchanges; for odd ones so many entries further on
  offset_t       stride;
  count_t       *flag;  // likewise: what this rank raises
  const index_t *index; // [count] entry e is source[index[e]], ascending; null: source[first + e]
  offset_t       first, count;
  alignas(8) unsigned done; // blocks, 0 before and after
};

// what a rank waits for
struct Arrivals {
  const count_t  *flags; // in the memory of this rank; that of rank r is so many words further on
  offset_t        spacing;
  offset_t        nneighbours; // that raise them; their ranks follow the structure
  offset_t        rank;        // this one
  offset_t        limit;       // ticks of clock64() after which a flag is given up; 0: none
  scalar_t       *arrived;
  offset_t        stride, count; // entries of `arrived`: for even exchanges [0, count), for odd ones so many further on
  offset_t        nranks;
  count_t *const *failures; // [nranks] a word of each rank, not 0 once an exchange of any of them has failed
  const count_t  *failure;  // that of this one
  count_t        *report;   // the same for the host of this rank
  count_t        *exchange; // number of the last one, whatever was exchanged
};

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
  for (int k = 0; k < ITEMS; k++) entry[k] = place[k] >= 0 && source ? __ldg(source + place[k]) : scalar_t(real_t(0) / real_t(0));
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

// Waits for the flags of all neighbours, a thread a flag. If one does not come in time, or an exchange of another rank has failed, all ranks are
// told so. All threads of a block of BLOCK_THREADS call it, each with its number, and get 0, or what has failed.
template <int BLOCK_THREADS>
__device__ __forceinline__ count_t wait_for_neighbours(const Arrivals *arrivals, count_t exchange, int thread)
{
  __shared__ count_t      failed;
  const offset_t *const   ranks   = reinterpret_cast<const offset_t *>(arrivals + 1);
  const volatile count_t *own     = arrivals->failure;
  count_t                 failure = *own;

  if (thread == 0) failed = 0;
  __syncthreads();
  for (offset_t n = thread; n < arrivals->nneighbours && !failure; n += BLOCK_THREADS) {
    const offset_t          rank  = __ldg(ranks + n);
    const volatile count_t *flag  = arrivals->flags + rank * arrivals->spacing;
    const long long         begin = clock64();

    while (!failure && *flag < exchange) {
      failure = *own;
      if (!failure && arrivals->limit && clock64() - begin > arrivals->limit) failure = count_t(arrivals->rank + 1) << 32 | count_t(rank + 1);
    }
  }
  __threadfence_system(); // before what has arrived is read
  if (failure) failed = failure;
  __syncthreads();
  if (!failed) return 0;
#pragma unroll 1
  for (offset_t r = thread; r < arrivals->nranks; r += BLOCK_THREADS) *(volatile count_t *)arrivals->failures[r] = failed;
  if (thread == 0) *(volatile count_t *)arrivals->report = failed;
  return failed;
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
    arrivals->arrived[offset_t(exchange & 1) * arrivals->stride + e] = scalar_t(real_t(0) / real_t(0));
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

// sums[k] = the sum of parts[k] of all ranks, in the order of ranks, for k < n <= MOST; or NaN, as above. `sums` may be `parts`. There is a message to
// each rank, this one too, and MOST entries of each arrive. It waits and counts by itself. One block of MOST x RANKS threads: one for each number, and RANKS ranks at once. Bytes: 2 sizeof(scalar_t) a number and rank.
template <int MOST, int RANKS>
__global__ void __launch_bounds__((MOST * RANKS))
  peer_sums(const Message *__restrict__ messages, const Arrivals *__restrict__ arrivals, const scalar_t *parts, scalar_t *sums, offset_t n)
{
  const count_t  exchange = *arrivals->exchange + 1;
  const offset_t nranks = arrivals->nranks, odd = offset_t(exchange & 1), k = threadIdx.x;

  for (offset_t r = threadIdx.y; r < nranks && k < n; r += RANKS) messages[r].target[odd * __ldg(&messages[r].stride) + k] = parts[k];
  __syncthreads();
  for (offset_t r = threadIdx.y; r < nranks && k == 0; r += RANKS) {
    __threadfence_system(); // after the numbers of the block, which the barrier puts before this
    *(volatile count_t *)messages[r].flag = exchange;
  }
  __syncthreads(); // nobody waits before all flags are raised
  const bool failed = wait_for_neighbours<MOST * RANKS>(arrivals, exchange, threadIdx.y * MOST + threadIdx.x);
  if (threadIdx.y == 0 && k < n) {
    const scalar_t *arrived = arrivals->arrived + odd * arrivals->stride + k;
    scalar_t        sum     = __ldcg(arrived);

#pragma unroll 4
    for (offset_t r = 1; r < nranks; r++) sum += __ldcg(arrived + r * MOST);
    sums[k] = failed ? scalar_t(real_t(0) / real_t(0)) : sum;
    if (k == 0) *arrivals->exchange = exchange;
  }
}
