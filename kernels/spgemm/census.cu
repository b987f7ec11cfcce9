// What all sparse products C = A B need, however their rows are computed (petsc_gpufmt/spgemm/).
#include "spgemm/census.cuh"

// terms[i] = sum over the entries k of row i of A of the length of row k of B. Adds to `control` what it says of A, B and terms. LANES <=
// 32 neighbouring threads share a row; blocks take rows in turns, so that few threads meet at the counters.
template <int BLOCK_THREADS, int LANES>
__global__ void __launch_bounds__(BLOCK_THREADS, 6)
  spgemm_count_terms(index_t nrows, const index_t *__restrict__ rowptr, const index_t *__restrict__ colidx, index_t right_nrows,
                     const index_t *__restrict__ right_rowptr, const index_t *__restrict__ right_colidx, offset_t *__restrict__ terms,
                     Control *__restrict__ control)
{
  constexpr int   NWARPS = BLOCK_THREADS / WARP, ROWS = BLOCK_THREADS / LANES;
  __shared__ Seen parts[NWARPS];
  const int       lane  = threadIdx.x % LANES;
  const offset_t  step  = (offset_t)gridDim.x * ROWS;
  bool            falls = false;
  Seen            seen  = {0, 0, 0, 0};

  for (offset_t first = (offset_t)blockIdx.x * ROWS; first < nrows; first += step) {
    const offset_t row   = first + threadIdx.x / LANES;
    const index_t  begin = row < nrows ? rowptr[row] : index_t(0), end = row < nrows ? rowptr[row + 1] : index_t(0);
    offset_t       count = 0, longest = 0;

#pragma unroll 4
    for (offset_t k = begin + lane; k < end; k += LANES) {
      const index_t  column = colidx[k];
      const offset_t length = __ldg(right_rowptr + column + 1) - __ldg(right_rowptr + column);

      count += length;
      longest = max(longest, length);
    }
    count = group_sum(count, LANES);
    if (lane == 0 && row < nrows) terms[row] = count;
    seen.add(lane == 0 ? count : 0, end - begin, longest);
  }
  for (offset_t first = (offset_t)blockIdx.x * ROWS; first < right_nrows; first += step) {
    const offset_t row = first + threadIdx.x / LANES;

    if (row < right_nrows) {
      const index_t end = right_rowptr[row + 1];

#pragma unroll 4
      for (offset_t k = (offset_t)right_rowptr[row] + 1 + lane; k < end; k += LANES) falls |= right_colidx[k] <= right_colidx[k - 1];
    }
  }
  if (falls) control->falls = 1; // all threads that write, write the same
  seen.add_to<NWARPS>(control, parts);
}

// rowptr [nrows + 1] of rows of `lengths`, in one pass (scan.cuh): a block adds up ITEMS times 32 rows a warp. Adds to `control` the
// number of entries, the rows by length, and *carried, unless that is null; a zero for each tile follows it.
template <int ITEMS>
__global__ void __launch_bounds__(SCAN_THREADS, 4)
  spgemm_row_pointer(index_t nrows, const offset_t *__restrict__ lengths, const offset_t *__restrict__ terms, const index_t *__restrict__ A_rowptr,
                     int largest, int nbins, index_t *__restrict__ rowptr, Control *control, const count_t *__restrict__ carried)
{
  constexpr int        TILE = SCAN_THREADS * ITEMS;
  __shared__ Census    census[SCAN_WARPS][BINS];
  __shared__ BlockScan scan;
  const int            lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;

  if (carried && blockIdx.x == 0 && threadIdx.x == 0) control->carried = *carried;
  scan.take_tile(&control->ticket);
  clear_census<SCAN_WARPS>(census);
  const offset_t tile = (offset_t)scan.tile, first = tile * TILE + warp * (WARP * ITEMS) + lane;
  count_t        sums[ITEMS], so_far = 0, longest = 0;

#pragma unroll
  for (int i = 0; i < ITEMS; i++) sums[i] = first + i * WARP < nrows ? (count_t)load_once(lengths + first + i * WARP) : 0;
#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    const offset_t row    = first + i * WARP;
    const bool     valid  = row < nrows;
    const offset_t length = (offset_t)sums[i], entries = valid ? A_rowptr[row + 1] - A_rowptr[row] : 0;

    longest = max(longest, sums[i]);
    count_rows<1>(census[warp], valid, bin_of(length, largest, nbins), valid ? terms[row] : 0, entries);
    if (length > largest) atomicAdd(&control->parts[bin_of(entries, LONGEST_FACTOR, BINS)], (count_t)((length + largest - 1) / largest));
    sums[i] = so_far + sum_up_to_lane(sums[i]);
    so_far  = __shfl_sync(FULL_WARP, sums[i], WARP - 1);
  }
  longest = group_max(longest);
  if (lane == 0) atomicMax(&control->longest, longest);
  add_census<SCAN_WARPS>(control->lengths, census);
  const count_t begin = scan.sum_before_warp((count_t *)(control + 1), so_far);

  if (first == 0) rowptr[0] = 0;
  if (threadIdx.x == SCAN_THREADS - 1 && (tile + 1) * TILE >= nrows) control->nnz = begin + so_far;
#pragma unroll
  for (int i = 0; i < ITEMS; i++)
    if (first + i * WARP < nrows) rowptr[first + i * WARP + 1] = (index_t)(begin + sums[i]);
}
