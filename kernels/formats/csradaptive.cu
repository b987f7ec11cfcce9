// Kernels of adaptive CSR (formats/csradaptive.py). Guo and Gropp 2012, as described in Guo, Gropp, Olson 2016, section 1 and figure 1.
//
// Rows are dealt to ranges by their length, and a block works on rows of one range: range r has 2^r threads a row. The arrays are
// those of csr_arrays.cuh, and with R ranges
//   marks [2 R + 1]   marks[r]: first block of range r (gbmark of the paper); marks[R + r]: its first position (rmark), marks[2 R]: nrows
//   row_perm [nrows]  row_perm[position] = row, positions grouped by range; null if rows lie in this order already
#include "common/scan.cuh"
#include "formats/csr_arrays.cuh"
#include "formats/results.cuh"

__device__ constexpr int number_of_ranges(int block_threads)
{
  return block_threads > 1 ? 1 + number_of_ranges(block_threads / 2) : 1;
}

// The team of this thread has one row. Bytes: as for product() in csr_arrays.cuh, and sizeof(index_t) a row for row_perm. Deterministic: a
// fixed tree of sums within a warp, then warp by warp; no atomics.
template <int BLOCK_THREADS, int SHORT_INDEX, class Operand, class Result>
__device__ __forceinline__ void adaptive_product(const index_t *__restrict__ marks, const index_t *__restrict__ row_perm,
                                                 const index_t *__restrict__ rowptr, const typename StoredColumn<SHORT_INDEX>::type *__restrict__ col,
                                                 const index_t *__restrict__ col_base, const scalar_t *__restrict__ val, const Operand operand,
                                                 Result &result)
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
  if (lane == 0 && inside) result.use(row, sum, [=] { return begin == end; });
}

// z = alpha A x + beta y; y is not read if beta is 0, and z may be y
template <int BLOCK_THREADS, int SHORT_INDEX>
__global__ void __launch_bounds__(BLOCK_THREADS)
  csradaptive_spmv(const index_t *__restrict__ marks, const index_t *__restrict__ row_perm, const index_t *__restrict__ rowptr,
                   const typename StoredColumn<SHORT_INDEX>::type *__restrict__ col, const index_t *__restrict__ col_base,
                   const scalar_t *__restrict__ val, const scalar_t *__restrict__ x, scalar_t alpha, scalar_t beta, const scalar_t *y, scalar_t *z)
{
  const ScaledResult result = {alpha, beta, y, z};

  adaptive_product<BLOCK_THREADS, SHORT_INDEX>(marks, row_perm, rowptr, col, col_base, val, VectorOperand{x}, result);
}

// z = alpha u + beta x + gamma d (b - A x), row by row, and the dot product of w with A x, see Fused
template <int BLOCK_THREADS, int SHORT_INDEX>
__global__ void __launch_bounds__(BLOCK_THREADS)
  csradaptive_fused(const index_t *__restrict__ marks, const index_t *__restrict__ row_perm, const index_t *__restrict__ rowptr,
                    const typename StoredColumn<SHORT_INDEX>::type *__restrict__ col, const index_t *__restrict__ col_base,
                    const scalar_t *__restrict__ val, const scalar_t *__restrict__ x, const Fused fused)
{
  FusedResult result = {fused, x};

  adaptive_product<BLOCK_THREADS, SHORT_INDEX>(marks, row_perm, rowptr, col, col_base, val, VectorOperand{x}, result);
  result.finish<BLOCK_THREADS>();
}

// z[row] = A[row, row]
template <int BLOCK_THREADS, int SHORT_INDEX>
__global__ void __launch_bounds__(BLOCK_THREADS)
  csradaptive_diagonal(const index_t *__restrict__ marks, const index_t *__restrict__ row_perm, const index_t *__restrict__ rowptr,
                       const typename StoredColumn<SHORT_INDEX>::type *__restrict__ col, const index_t *__restrict__ col_base,
                       const scalar_t *__restrict__ val, scalar_t *z)
{
  const ScaledResult result = {1, 0, nullptr, z};

  adaptive_product<BLOCK_THREADS, SHORT_INDEX>(marks, row_perm, rowptr, col, col_base, val, DiagonalOperand{}, result);
}

constexpr int MOST_RANGES = 10, ENTRIES_A_THREAD = 8; // of 512 threads a block
constexpr int ROWS_A_THREAD = 2, TILE_ROWS = ROWS_A_THREAD * SCAN_THREADS;

// The range of a row: at most 8 * 2^range entries, but for the last of the ranges
__device__ __forceinline__ int range_of(const index_t *__restrict__ rowptr, offset_t row, int nranges)
{
  const offset_t length = (offset_t)rowptr[row + 1] - rowptr[row];
  int            range  = 0;

#pragma unroll
  for (int r = 0; r < MOST_RANGES - 1; r++) range += r < nranges - 1 && length > ((offset_t)ENTRIES_A_THREAD << r);
  return range;
}

// found[r] += rows of range r; found[nranges] > 0 if a row comes after one of a higher range. All 0 at first. A block looks at TILE_ROWS rows.
__global__ void __launch_bounds__(SCAN_THREADS)
  csradaptive_count_rows(index_t nrows, int nranges, const index_t *__restrict__ rowptr, count_t *__restrict__ found)
{
  __shared__ unsigned counts[MOST_RANGES + 1];

  if (threadIdx.x <= MOST_RANGES) counts[threadIdx.x] = 0;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < ROWS_A_THREAD; i++) {
    const offset_t row    = (offset_t)blockIdx.x * TILE_ROWS + i * SCAN_THREADS + threadIdx.x;
    const bool     inside = row < nrows;
    const int      range  = inside ? range_of(rowptr, row, nranges) : MOST_RANGES;
    const bool     falls  = inside && row > 0 && range < range_of(rowptr, row - 1, nranges);

    for (int r = 0; r < nranges; r++) {
      const unsigned same = __ballot_sync(FULL_WARP, range == r);

      if (threadIdx.x % WARP == 0 && same) atomicAdd(counts + r, (unsigned)__popc(same));
    }
    const unsigned fall = __ballot_sync(FULL_WARP, falls);

    if (threadIdx.x % WARP == 0 && fall) atomicAdd(counts + nranges, 1u);
  }
  __syncthreads();
  if (threadIdx.x <= nranges && counts[threadIdx.x]) atomicAdd(found + threadIdx.x, (count_t)counts[threadIdx.x]);
}

// row_perm[position] = row: the rows of each range in their order, from the position on that the marks give. states[0] is a ticket, and a number
// for each range and tile of rows follows; all 0 at first. Blocks take tiles in the order in which they begin, and wait for those before.
__global__ void __launch_bounds__(SCAN_THREADS)
  csradaptive_order_rows(index_t nrows, int nranges, const index_t *__restrict__ rowptr, const index_t *__restrict__ marks,
                         count_t *__restrict__ states, index_t *__restrict__ row_perm)
{
  __shared__ count_t  tile;
  __shared__ unsigned counts[SCAN_WARPS][MOST_RANGES]; // rows of each warp and range, so far and at last
  __shared__ offset_t first[MOST_RANGES];              // position of the first row of each range in this tile
  const int           lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  int                 range[ROWS_A_THREAD];
  unsigned            place[ROWS_A_THREAD]; // rows of the range before, in this warp

  if (threadIdx.x == 0) tile = atomicAdd(states, count_t(1));
  if (lane < MOST_RANGES) counts[warp][lane] = 0;
  __syncthreads();
  const offset_t begin = (offset_t)tile * TILE_ROWS + warp * (ROWS_A_THREAD * WARP) + lane;

#pragma unroll
  for (int i = 0; i < ROWS_A_THREAD; i++) {
    range[i] = begin + i * WARP < nrows ? range_of(rowptr, begin + i * WARP, nranges) : MOST_RANGES;
    for (int r = 0; r < nranges; r++) {
      const unsigned same = __ballot_sync(FULL_WARP, range[i] == r);

      if (range[i] == r) place[i] = counts[warp][r] + __popc(same & ((1u << lane) - 1));
      __syncwarp();
      if (lane == 0) counts[warp][r] += __popc(same);
      __syncwarp();
    }
  }
  __syncthreads();
  for (int r = warp; r < nranges; r += SCAN_WARPS) {
    count_t sum = 0;

    for (int w = 0; w < SCAN_WARPS; w++) sum += counts[w][r];
    const count_t before = sum_before_and_with(states + 1 + (offset_t)r * gridDim.x, (offset_t)tile, sum);

    if (lane == 0) first[r] = marks[nranges + r] + (offset_t)before;
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < ROWS_A_THREAD; i++)
    if (range[i] < MOST_RANGES) {
      offset_t position = first[range[i]] + place[i];

      for (int w = 0; w < warp; w++) position += counts[w][range[i]];
      row_perm[position] = (index_t)(begin + i * WARP);
    }
}
