// What all sparse products C = A B need, however their rows are computed (petsc_gpufmt/spgemm/).
#include "common.cuh"

// terms[i] = sum over the entries k of row i of A of the length of row k of B. Adds to census [3]: {sum of terms, largest of terms,
// longest row of A}; maxima count from what is there. LANES <= 32 neighbouring threads share a row; blocks take rows in turns, so
// that few threads meet at the census.
template <int BLOCK_THREADS, int LANES>
__global__ void __launch_bounds__(BLOCK_THREADS) spgemm_count_terms(index_t nrows, const index_t *__restrict__ rowptr, const index_t *__restrict__ colidx, const index_t *__restrict__ right_rowptr, offset_t *__restrict__ terms, offset_t *__restrict__ census)
{
  constexpr int      WARP = 32, NWARPS = BLOCK_THREADS / WARP;
  __shared__ offset_t parts[3][NWARPS];
  const int          lane  = threadIdx.x % LANES;
  const offset_t     step  = (offset_t)gridDim.x * (BLOCK_THREADS / LANES);
  offset_t           total = 0, most = 0, longest = 0;

  for (offset_t first = (offset_t)blockIdx.x * (BLOCK_THREADS / LANES); first < nrows; first += step) {
    const offset_t row   = first + threadIdx.x / LANES;
    const index_t  begin = row < nrows ? rowptr[row] : index_t(0), end = row < nrows ? rowptr[row + 1] : index_t(0);
    offset_t       count = 0;

#pragma unroll 4
    for (offset_t k = begin + lane; k < end; k += LANES) {
      const index_t column = colidx[k];

      count += __ldg(right_rowptr + column + 1) - __ldg(right_rowptr + column);
    }
#pragma unroll
    for (int half = LANES / 2; half > 0; half /= 2) count += __shfl_xor_sync(0xffffffff, count, half);
    if (lane == 0 && row < nrows) {
      terms[row] = count;
      total += count;
      most    = max(most, count);
      longest = max(longest, (offset_t)(end - begin));
    }
  }
#pragma unroll
  for (int half = WARP / 2; half > 0; half /= 2) {
    total += __shfl_xor_sync(0xffffffff, total, half);
    most    = max(most, __shfl_xor_sync(0xffffffff, most, half));
    longest = max(longest, __shfl_xor_sync(0xffffffff, longest, half));
  }
  if (threadIdx.x % WARP == 0) {
    parts[0][threadIdx.x / WARP] = total;
    parts[1][threadIdx.x / WARP] = most;
    parts[2][threadIdx.x / WARP] = longest;
  }
  __syncthreads();
  if (threadIdx.x > 0) return;
  for (int warp = 1; warp < NWARPS; warp++) {
    total += parts[0][warp];
    most    = max(most, parts[1][warp]);
    longest = max(longest, parts[2][warp]);
  }
  atomicAdd((unsigned long long *)census, (unsigned long long)total); // integers: the order does not matter
  atomicMax(census + 1, most);
  atomicMax(census + 2, longest);
}

// Sets *falls where a column of a row is not above the one before it. LANES <= 32 neighbouring threads share a row.
template <int BLOCK_THREADS, int LANES>
__global__ void __launch_bounds__(BLOCK_THREADS) spgemm_rows_fall(index_t nrows, const index_t *__restrict__ rowptr, const index_t *__restrict__ colidx, int *__restrict__ falls)
{
  const offset_t row = ((offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x) / LANES;

  if (row >= nrows) return;
  const index_t end = rowptr[row + 1];

#pragma unroll 4
  for (offset_t k = (offset_t)rowptr[row] + 1 + threadIdx.x % LANES; k < end; k += LANES)
    if (colidx[k] <= colidx[k - 1]) *falls = 1; // all threads that write, write the same
}

// to[to_starts[i] + j] = from[from_starts[i] + j] for the j < lengths[i] columns of each of `count` rows. LANES <= 32 neighbouring
// threads copy a row.
template <int BLOCK_THREADS, int LANES>
__global__ void __launch_bounds__(BLOCK_THREADS) spgemm_move_rows(index_t count, const offset_t *__restrict__ lengths, const index_t *__restrict__ from_starts, const index_t *__restrict__ from, const index_t *__restrict__ to_starts, index_t *__restrict__ to)
{
  const offset_t i = ((offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x) / LANES;

  if (i >= count) return;
  const offset_t length = lengths[i];

  from += from_starts[i];
  to += to_starts[i];
#pragma unroll 4
  for (offset_t j = threadIdx.x % LANES; j < length; j += LANES) to[j] = load_once(from + j);
}
