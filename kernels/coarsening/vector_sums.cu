// Sums over vectors for estimates of eigenvalues (petsc_gpufmt/coarsening/vector_sums.py). All have a fixed order.
#include "common/dots.cuh"

// parts[k gridDim.x + block] = what the block has of x V_k, see block_dots(). vectors[0] says how many V_k there are, and vectors[1 + k] where.
template <int BLOCK_THREADS, int BATCH>
__global__ void __launch_bounds__(BLOCK_THREADS)
  vector_dots(offset_t nrows, const offset_t *__restrict__ vectors, const scalar_t *__restrict__ x, scalar_t *__restrict__ parts)
{
  block_dots<BLOCK_THREADS, BATCH>(nrows, (int)__ldg(vectors), vectors + 1, x, parts);
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
  add_parts<BLOCK_THREADS>(vectors ? (int)__ldg(vectors) : 1, nparts, parts, sums);
}
