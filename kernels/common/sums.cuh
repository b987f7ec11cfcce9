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

constexpr unsigned GROUP_BLOCKS = 1024; // whose parts one block adds up

// Where the sum over a large grid is made: the last block of each group of neighbours leaves the sum of their parts, the last of these blocks adds up
// those. So no thread adds more than GROUP_BLOCKS / BLOCK_THREADS numbers one after the other, up to GROUP_BLOCKS^2 blocks.
struct GridSum {
  scalar_t *parts;   // [nblocks + ngroups] of the blocks, then of the groups
  unsigned *tickets; // [ngroups + 1] of the groups, then of all; 0 before and after
  scalar_t *result;
};

// What one block has of `count` parts
template <int BLOCK_THREADS>
__device__ __forceinline__ scalar_t sum_of_parts(const scalar_t *parts, unsigned count)
{
  scalar_t value[1] = {0}, total[1];

  for (unsigned part = thread_in_block(); part < count; part += BLOCK_THREADS) value[0] += __ldcg(parts + part);
  block_sums<1, BLOCK_THREADS>(value, total);
  return total[0];
}

// *result = the sum over the threads of all blocks of a one-dimensional grid, all of which call it.
template <int BLOCK_THREADS>
__device__ __forceinline__ void grid_sum(scalar_t value, const GridSum &sum)
{
  const unsigned group = blockIdx.x / GROUP_BLOCKS, first = group * GROUP_BLOCKS, ngroups = (gridDim.x + GROUP_BLOCKS - 1) / GROUP_BLOCKS;
  const unsigned nblocks   = min(gridDim.x - first, GROUP_BLOCKS);
  const scalar_t values[1] = {value};
  scalar_t       totals[1];

  block_sums<1, BLOCK_THREADS>(values, totals);
  if (thread_in_block() == 0) sum.parts[blockIdx.x] = totals[0];
  if (!comes_last(sum.tickets + group, nblocks)) return;
  scalar_t total = sum_of_parts<BLOCK_THREADS>(sum.parts + first, nblocks);

  if (ngroups > 1) {
    if (thread_in_block() == 0) sum.parts[gridDim.x + group] = total;
    if (!comes_last(sum.tickets + ngroups, ngroups)) return;
    total = sum_of_parts<BLOCK_THREADS>(sum.parts + gridDim.x, ngroups);
  }
  if (thread_in_block() == 0) *sum.result = total;
}
