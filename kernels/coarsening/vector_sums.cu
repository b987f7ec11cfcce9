// Sums over vectors for estimates of eigenvalues (petsc_gpufmt/coarsening/vector_sums.py). All have a fixed order.
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

// parts[k gridDim.x + block] = the sum of x[row] V_k[row] over each gridDim.x-th tile of BLOCK_THREADS rows. vectors[0] says how many V_k there are,
// and vectors[1 + k] where. BATCH of them share a look at x. Bytes a row: (1 + 1 / BATCH) sizeof(scalar_t) a vector.
template <int BLOCK_THREADS, int BATCH>
__global__ void __launch_bounds__(BLOCK_THREADS)
  vector_dots(offset_t nrows, const offset_t *__restrict__ vectors, const scalar_t *__restrict__ x, scalar_t *__restrict__ parts)
{
  __shared__ scalar_t of_warps[BATCH][BLOCK_THREADS / WARP];
  const int           count = (int)__ldg(vectors);

  for (int first = 0; first < count; first += BATCH) {
    const int       n = min(BATCH, count - first);
    const scalar_t *batch[BATCH];
    scalar_t        sums[BATCH];

#pragma unroll
    for (int k = 0; k < BATCH; k++) {
      batch[k] = k < n ? (const scalar_t *)__ldg(vectors + 1 + first + k) : nullptr;
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

// parts[block] = how many rows of each gridDim.x-th tile of BLOCK_THREADS have an x[row] that is not above 0
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS) vector_not_positive(offset_t nrows, const scalar_t *__restrict__ x, scalar_t *__restrict__ parts)
{
  __shared__ scalar_t of_warps[BLOCK_THREADS / WARP];
  scalar_t            sum = 0;

  for (offset_t row = (offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x; row < nrows; row += (offset_t)gridDim.x * BLOCK_THREADS)
    sum += __ldg(x + row) > 0 ? 0 : 1; // a number that is none is not above 0
  sum = group_sum(sum);
  if (threadIdx.x % WARP == 0) of_warps[threadIdx.x / WARP] = sum;
  __syncthreads();
  if (threadIdx.x == 0) parts[blockIdx.x] = over_warps(of_warps);
}

// sums[k] = the sum of nparts numbers from parts[k nparts] on, for each k < vectors[0], or for 0 alone if `vectors` is null. A warp a sum, one block.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS)
  vector_totals(int nparts, const offset_t *__restrict__ vectors, const scalar_t *__restrict__ parts, scalar_t *__restrict__ sums)
{
  const int count = vectors ? (int)__ldg(vectors) : 1;

  for (int k = threadIdx.x / WARP; k < count; k += BLOCK_THREADS / WARP) {
    scalar_t sum = 0;

    for (int p = threadIdx.x % WARP; p < nparts; p += WARP) sum += __ldg(parts + k * nparts + p);
    sum = group_sum(sum);
    if (threadIdx.x % WARP == 0) sums[k] = sum;
  }
}
