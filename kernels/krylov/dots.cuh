// Dot products of one vector with many. All sums have a fixed order.
#pragma once
#include "common/reduce.cuh"

// What number of each warp adds up to, known to the thread that asks.
template <int WARPS>
__device__ __forceinline__ scalar_t over_warps(const scalar_t (&of_warps)[WARPS])
{
  scalar_t sum = 0;

#pragma unroll
  for (int w = 0; w < WARPS; w++) sum += of_warps[w];
  return sum;
}

// parts[k gridDim.x + block] = the sum of x[row] V_k[row] over each gridDim.x-th tile of BLOCK_THREADS rows, for each k < count; vectors[k] says where V_k
// is. BATCH of them share a look at x. Bytes a row: (1 + 1 / BATCH) sizeof(scalar_t) a vector. All threads of a block call it, and wait for each other last.
template <int BLOCK_THREADS, int BATCH>
__device__ __forceinline__ void block_dots(offset_t nrows, int count, const offset_t *__restrict__ vectors, const scalar_t *__restrict__ x,
                                           scalar_t *__restrict__ parts)
{
  __shared__ scalar_t of_warps[BATCH][BLOCK_THREADS / WARP];

  for (int first = 0; first < count; first += BATCH) {
    const int       n = min(BATCH, count - first);
    const scalar_t *batch[BATCH];
    scalar_t        sums[BATCH];

#pragma unroll
    for (int k = 0; k < BATCH; k++) {
      batch[k] = k < n ? (const scalar_t *)__ldg(vectors + first + k) : nullptr;
      sums[k]  = 0;
    }
    for (offset_t row = (offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x; row < nrows; row += (offset_t)gridDim.x * BLOCK_THREADS) {
      const scalar_t factor = __ldg(x + row);

#pragma unroll
      for (int k = 0; k < BATCH; k++)
        if (k < n) sums[k] += factor * __ldg(batch[k] + row);
    }
#pragma unroll
    for (int k = 0; k < BATCH; k++) {
      const scalar_t sum = group_sum(sums[k]);

      if (threadIdx.x % WARP == 0) of_warps[k][threadIdx.x / WARP] = sum;
    }
    __syncthreads();
    if ((int)threadIdx.x < n) parts[(offset_t)(first + threadIdx.x) * gridDim.x + blockIdx.x] = over_warps(of_warps[threadIdx.x]);
    __syncthreads();
  }
}

// sums[k] = the sum of nparts numbers from parts[k nparts] on, for each k < count. A warp a sum; the threads of one block call it. The parts may come from
// other blocks of the launch.
template <int BLOCK_THREADS, class Sum>
__device__ __forceinline__ void add_parts(int count, int nparts, const scalar_t *parts, Sum *__restrict__ sums)
{
  for (int k = threadIdx.x / WARP; k < count; k += BLOCK_THREADS / WARP) {
    scalar_t sum = 0;

    for (int p = threadIdx.x % WARP; p < nparts; p += WARP) sum += __ldcg(parts + (offset_t)k * nparts + p);
    sum = group_sum(sum);
    if (threadIdx.x % WARP == 0) sums[k] = sum;
  }
}
