// Sums over all threads of a launch in a fixed order: the block that comes last adds up what the others have left.
#pragma once
#include "common/reduce.cuh"

// The number of a thread in its block, which may have any shape.
__device__ __forceinline__ int thread_in_block()
{
  return (int)((threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
}

// The sums over the threads of a block of whole warps
template <int N, int BLOCK_THREADS>
__device__ __forceinline__ void sums_of_warps(const scalar_t (&values)[N], scalar_t (&sums)[N])
{
  constexpr int       WARPS = BLOCK_THREADS / WARP;
  __shared__ scalar_t of_warps[N][WARPS];
  const int           thread = thread_in_block();

  __syncthreads(); // what is there may be of another sum
#pragma unroll
  for (int k = 0; k < N; k++) {
    const scalar_t sum = group_sum(values[k]);

    if (thread % WARP == 0) of_warps[k][thread / WARP] = sum;
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < N; k++) {
    sums[k] = 0;
#pragma unroll
    for (int w = 0; w < WARPS; w++) sums[k] += of_warps[k][w];
  }
}

// The same where the last warp is not whole: by halves
template <int N, int BLOCK_THREADS>
__device__ __forceinline__ void sums_of_threads(const scalar_t (&values)[N], scalar_t (&sums)[N])
{
  __shared__ scalar_t of_threads[N][BLOCK_THREADS];
  const int           thread = thread_in_block();

  __syncthreads(); // what is there may be of another sum
#pragma unroll
  for (int k = 0; k < N; k++) of_threads[k][thread] = values[k];
  __syncthreads();
  for (int left = BLOCK_THREADS; left > 1; left = (left + 1) / 2) {
#pragma unroll
    for (int k = 0; k < N; k++)
      if (thread < left / 2) of_threads[k][thread] += of_threads[k][thread + (left + 1) / 2];
    __syncthreads();
  }
#pragma unroll
  for (int k = 0; k < N; k++) sums[k] = of_threads[k][0];
}

// The sums over the BLOCK_THREADS threads of a block, known to all of them. All of them call it.
template <int N, int BLOCK_THREADS>
__device__ __forceinline__ void block_sums(const scalar_t (&values)[N], scalar_t (&sums)[N])
{
  if constexpr (BLOCK_THREADS % WARP == 0) sums_of_warps<N, BLOCK_THREADS>(values, sums);
  else sums_of_threads<N, BLOCK_THREADS>(values, sums);
}
// Whether this block comes last of `count`. What the first threads of the others have written before is there then, for loads past the first-level
// cache. All threads of a block call it; *ticket is 0 before and after.
__device__ __forceinline__ bool comes_last(unsigned *ticket, unsigned count)
{
  __shared__ bool last;

  if (thread_in_block() == 0) {
    __threadfence(); // before the ticket says that it is there
    last = atomicAdd(ticket, 1u) + 1 == count;
    __threadfence(); // before that of others is read
    if (last) *ticket = 0;
  }
  __syncthreads();
  return last;
}

// The sums over the threads of all blocks. All call it; it is true in the block that comes last, which alone has `totals`. `parts` has N numbers for
// each block, and *ticket is 0 before and after.
template <int N, int BLOCK_THREADS>
__device__ __forceinline__ bool last_block_sums(const scalar_t (&values)[N], scalar_t *parts, unsigned *ticket, scalar_t (&totals)[N])
{
  const int thread = thread_in_block();
  scalar_t  sums[N];

  block_sums<N, BLOCK_THREADS>(values, sums);
  if (thread == 0) {
#pragma unroll
    for (int k = 0; k < N; k++) parts[(offset_t)k * gridDim.x + blockIdx.x] = sums[k];
  }
  if (!comes_last(ticket, gridDim.x)) return false;
#pragma unroll
  for (int k = 0; k < N; k++) {
    sums[k] = 0;
    for (unsigned block = thread; block < gridDim.x; block += BLOCK_THREADS) sums[k] += __ldcg(parts + (offset_t)k * gridDim.x + block);
  }
  block_sums<N, BLOCK_THREADS>(sums, totals);
  return true;
}

// Where a product leaves the sum over its grid. Waiting for a ticket keeps a block on its multiprocessor: where blocks follow each other, they leave their parts
// alone, and a launch of its own adds them up (grid_sum.cu).
struct GridSum {
  scalar_t *parts;  // [nblocks]; null: no sum is wanted
  unsigned *ticket; // 0 before and after; null: *result is made later
  scalar_t *result;
};

// `value` of all threads of a one-dimensional grid, all of which call it.
template <int BLOCK_THREADS>
__device__ __forceinline__ void grid_sum(scalar_t value, const GridSum &sum)
{
  const scalar_t values[1] = {value};
  scalar_t       totals[1];

  if (sum.ticket) {
    if (last_block_sums<1, BLOCK_THREADS>(values, sum.parts, sum.ticket, totals) && thread_in_block() == 0) *sum.result = totals[0];
  } else {
    block_sums<1, BLOCK_THREADS>(values, totals);
    if (thread_in_block() == 0) sum.parts[blockIdx.x] = totals[0];
  }
}
