// Kernels of adaptive CSR (formats/csradaptive.py). Guo and Gropp 2012, as described in Guo, Gropp, Olson 2016, section 1 and figure 1.
//
// Rows are dealt to ranges by their length, and a block works on rows of one range: range r has 2^r threads a row. The arrays are
// those of csr_arrays.cuh, and with R ranges
//   marks [2 R + 1]   marks[r]: first block of range r (gbmark of the paper); marks[R + r]: its first position (rmark), marks[2 R]: nrows
//   row_perm [nrows]  row_perm[position] = row, positions grouped by range; null if rows lie in this order already
#include "formats/csr_arrays.cuh"

__device__ constexpr int number_of_ranges(int block_threads)
{
  return block_threads > 1 ? 1 + number_of_ranges(block_threads / 2) : 1;
}

// The team of this thread has one row. Bytes: as for product() in csr_arrays.cuh, and sizeof(index_t) a row for row_perm. Deterministic: a
// fixed tree of sums within a warp, then warp by warp; no atomics.
template <int BLOCK_THREADS, int SHORT_INDEX, class Operand>
__device__ __forceinline__ void adaptive_product(const index_t *__restrict__ marks, const index_t *__restrict__ row_perm,
                                                 const index_t *__restrict__ rowptr, const typename StoredColumn<SHORT_INDEX>::type *__restrict__ col,
                                                 const index_t *__restrict__ col_base, const scalar_t *__restrict__ val, const Operand operand,
                                                 scalar_t alpha, scalar_t beta, const scalar_t *y, scalar_t *z)
{
  constexpr int       RANGES = number_of_ranges(BLOCK_THREADS);
  __shared__ scalar_t warp_sums[BLOCK_THREADS / WARP];
  int                 range = 0;

#pragma unroll
  for (int r = 1; r < RANGES; r++) range += (index_t)blockIdx.x >= marks[r];
  const int      team = 1 << range, lane = threadIdx.x % team;
  const offset_t position = marks[RANGES + range] + ((offset_t)blockIdx.x - marks[range]) * (BLOCK_THREADS >> range) + (threadIdx.x >> range);
  const bool     inside   = position < marks[RANGES + range + 1];
  offset_t       row      = position;
  index_t        begin = 0, end = 0, base = 0;

  if (inside) {
    if (row_perm) row = row_perm[position];
    begin = rowptr[row];
    end   = rowptr[row + 1];
    if constexpr (SHORT_INDEX) base = col_base[row];
  }
  scalar_t sum = group_sum(partial_sum<SHORT_INDEX>(end - begin - lane, team, col + begin + lane, base, val + begin + lane, (index_t)row, operand),
                           team < WARP ? team : WARP);

  if (team > WARP) { // the same for all threads of the block
    if (threadIdx.x % WARP == 0) warp_sums[threadIdx.x / WARP] = sum;
    __syncthreads();
    if (lane == 0)
      for (int w = 1; w < team / WARP; w++) sum += warp_sums[threadIdx.x / WARP + w];
  }
  // an empty row has nothing to add: most rows of an off-diagonal block are empty, and z is y there
  if (lane == 0 && inside && (begin != end || y != z || beta != 1)) store_result(row, sum, alpha, beta, y, z);
}

// z = alpha A x + beta y; y is not read if beta is 0, and z may be y
template <int BLOCK_THREADS, int SHORT_INDEX>
__global__ void __launch_bounds__(BLOCK_THREADS)
  csradaptive_spmv(const index_t *__restrict__ marks, const index_t *__restrict__ row_perm, const index_t *__restrict__ rowptr,
                   const typename StoredColumn<SHORT_INDEX>::type *__restrict__ col, const index_t *__restrict__ col_base,
                   const scalar_t *__restrict__ val, const scalar_t *__restrict__ x, scalar_t alpha, scalar_t beta, const scalar_t *y, scalar_t *z)
{
  adaptive_product<BLOCK_THREADS, SHORT_INDEX>(marks, row_perm, rowptr, col, col_base, val, VectorOperand{x}, alpha, beta, y, z);
}

// z[row] = A[row, row]
template <int BLOCK_THREADS, int SHORT_INDEX>
__global__ void __launch_bounds__(BLOCK_THREADS)
  csradaptive_diagonal(const index_t *__restrict__ marks, const index_t *__restrict__ row_perm, const index_t *__restrict__ rowptr,
                       const typename StoredColumn<SHORT_INDEX>::type *__restrict__ col, const index_t *__restrict__ col_base,
                       const scalar_t *__restrict__ val, scalar_t *z)
{
  adaptive_product<BLOCK_THREADS, SHORT_INDEX>(marks, row_perm, rowptr, col, col_base, val, DiagonalOperand{}, 1, 0, nullptr, z);
}
