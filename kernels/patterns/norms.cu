// Sums that norms of a matrix are made of (petsc_gpufmt/patterns/norms.py). All have a fixed order.
#include "common/reduce.cuh"

static constexpr int BATCH = 4; // entries that a thread reads at once

// parts[block] = the sum of |values[e]|^2 over each gridDim.x-th tile of BATCH BLOCK_THREADS entries. Bytes an entry: sizeof(scalar_t).
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS) sum_of_squares(index_t nnz, const scalar_t *__restrict__ values, scalar_t *__restrict__ parts)
{
  constexpr int TILE = BATCH * BLOCK_THREADS;
  real_t        sum  = 0;

  for (offset_t first = (offset_t)blockIdx.x * TILE + threadIdx.x; first < nnz; first += (offset_t)gridDim.x * TILE) {
    scalar_t value[BATCH];

#pragma unroll
    for (int k = 0; k < BATCH; k++) value[k] = first + k * BLOCK_THREADS < nnz ? load_once(values + first + k * BLOCK_THREADS) : scalar_t(0);
#pragma unroll
    for (int k = 0; k < BATCH; k++) sum += square(value[k]);
  }
  sum = over_block<BLOCK_THREADS>(sum, [](real_t number) { return group_sum(number); });
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

// sums[t] = sum over e in [begins[t], begins[t + 1]) of |values[index[e]]|, or |values[e]| where `index` is null, + added[t] unless that is null;
// it may be `sums`. ROW_THREADS a sum. Bytes an entry: sizeof(scalar_t), + sizeof(index_t) with `index`.
template <int BLOCK_THREADS, int ROW_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS)
  absolute_sums(index_t         ntargets, const index_t *__restrict__ begins, const index_t *__restrict__ index, const scalar_t *__restrict__ values,
                const scalar_t *added, scalar_t *sums)
{
  const offset_t t = ((offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x) / ROW_THREADS, end = t < ntargets ? __ldg(begins + t + 1) : 0;
  const int      lane = threadIdx.x % ROW_THREADS;
  real_t         sum  = 0;

  for (offset_t e = (t < ntargets ? (offset_t)__ldg(begins + t) : 0) + lane; e < end; e += ROW_THREADS) {
    sum += magnitude(index ? __ldg(values + load_once(index + e)) : load_once(values + e));
  }
  sum = group_sum(sum, ROW_THREADS);
  if (lane == 0 && t < ntargets) sums[t] = added ? added[t] + sum : sum;
}

// parts[block] = the largest of 0 and each gridDim.x-th tile of BLOCK_THREADS numbers; null: nothing is done
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS) largest_part(index_t n, const scalar_t *__restrict__ numbers, scalar_t *__restrict__ parts)
{
  real_t largest = 0;

  if (!parts) return;
  for (offset_t i = (offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x; i < n; i += (offset_t)gridDim.x * BLOCK_THREADS)
    if (real_part(__ldg(numbers + i)) > largest) largest = real_part(__ldg(numbers + i)); // numbers that are none are passed over, as by PETSc
  largest = over_block<BLOCK_THREADS>(largest, [](real_t number) { return group_max(number); });
  if (threadIdx.x == 0) parts[blockIdx.x] = largest;
}
