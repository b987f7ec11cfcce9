// What ranks write into memory of each other, and how they wait for it: halo exchanges, and sums over ranks within other kernels. The protocol is in
// docs/design/halo.md; Entry is the type of what is exchanged.
#pragma once
#include "common/sums.cuh"

typedef unsigned long long count_t;

constexpr int MOST_SUMS = 8; // GPUFMT_MOST_SUMS of native/gpufmt_plan.h

// What one rank sends to another in each exchange: entries [first, first + count) of those that it sends. The library makes it (gpufmt_plan.h).
template <class Entry>
struct PeerMessage {
  Entry         *target; // in the memory of the other, for even exchanges; for odd ones so many entries further on
  offset_t       stride;
  count_t       *flag;  // likewise: what this rank raises
  const index_t *index; // [count] entry e is source[index[e]], ascending; null: source[first + e]
  offset_t       first, count;
  alignas(8) unsigned done; // blocks, 0 before and after
};

// what a rank waits for
template <class Entry>
struct PeerArrivals {
  const count_t  *flags; // in the memory of this rank; that of rank r is so many words further on
  offset_t        spacing;
  offset_t        nneighbours; // that raise them; their ranks follow the structure
  offset_t        rank;        // this one
  offset_t        limit;       // ticks of clock64() after which a flag is given up; 0: none
  Entry          *arrived;
  offset_t        stride, count; // entries of `arrived`: for even exchanges [0, count), for odd ones so many further on
  offset_t        nranks;
  count_t *const *failures; // [nranks] a word of each rank, not 0 once an exchange of any of them has failed
  const count_t  *failure;  // that of this one
  count_t        *report;   // the same for the host of this rank
  count_t        *exchange; // number of the last one, whatever was exchanged
};

// what is exchanged where something has failed
template <class Entry>
__device__ __forceinline__ Entry not_a_number()
{
  const typename RealOf<Entry>::type zero = 0;

  return Entry(zero / zero);
}

// Waits for the flags of all neighbours, a thread a flag. If one does not come in time, or an exchange of another rank has failed, all ranks are
// told so. All threads of a block of BLOCK_THREADS call it, each with its number, and get 0, or what has failed. Of a launch any number of blocks may.
template <int BLOCK_THREADS, class Entry>
__device__ __forceinline__ count_t wait_for_neighbours(const PeerArrivals<Entry> *arrivals, count_t exchange, int thread)
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
    __threadfence_system(); // before what has arrived is read, behind the barrier by other threads too
  }
  if (failure) failed = failure;
  __syncthreads();
  if (!failed) return 0;
#pragma unroll 1
  for (offset_t r = thread; r < arrivals->nranks; r += BLOCK_THREADS) *(volatile count_t *)arrivals->failures[r] = failed;
  if (thread == 0) *(volatile count_t *)arrivals->report = failed;
  return failed;
}

// Sums over ranks are exchanges in which all are neighbours, this rank too: there is a message to each, and MOST_SUMS numbers of each arrive.
template <class Number>
struct Ranks {
  const PeerMessage<Number> *__restrict__ messages; // [nranks]
  const PeerArrivals<Number> *__restrict__ arrivals;

  // the number of the exchange that comes next
  __device__ __forceinline__ count_t next() const { return *arrivals->exchange + 1; }
};

// Sends part(k), k < n <= MOST_SUMS, to all ranks. The threads of one block call it.
template <int BLOCK_THREADS, class Number, class Part>
__device__ __forceinline__ void send_parts(const Ranks<Number> &ranks, count_t exchange, int n, const Part part)
{
  const int      thread = thread_in_block(), k = thread % MOST_SUMS;
  const offset_t nranks = ranks.arrivals->nranks, odd = offset_t(exchange & 1);

  for (offset_t r = thread / MOST_SUMS; r < nranks && k < n; r += BLOCK_THREADS / MOST_SUMS) {
    const PeerMessage<Number> &message = ranks.messages[r];

    message.target[odd * message.stride + k] = part(k);
  }
  __syncthreads();
  for (offset_t r = thread; r < nranks; r += BLOCK_THREADS) {
    __threadfence_system(); // after the numbers of the block, which the barrier puts before this
    *(volatile count_t *)ranks.messages[r].flag = exchange;
  }
  __syncthreads(); // nobody waits before all flags are raised
}

// sums[k] = the sum of the parts k of all ranks, in their order, or NaN, for k < n. All threads of a block call it, and find the sums there. Any number of
// blocks may, while one has sent the parts of this rank.
template <int BLOCK_THREADS, class Number>
__device__ __forceinline__ void receive_sums(const Ranks<Number> &ranks, count_t exchange, int n, Number *sums)
{
  const int      k      = thread_in_block();
  const bool     failed = wait_for_neighbours<BLOCK_THREADS>(ranks.arrivals, exchange, k);
  const offset_t nranks = ranks.arrivals->nranks;

  if (k < n) {
    const Number *arrived = ranks.arrivals->arrived + offset_t(exchange & 1) * ranks.arrivals->stride + k;
    Number        sum     = __ldcg(arrived);

#pragma unroll 4
    for (offset_t r = 1; r < nranks; r++) sum += __ldcg(arrived + r * MOST_SUMS);
    sums[k] = failed ? not_a_number<Number>() : sum;
  }
  __syncthreads();
}
