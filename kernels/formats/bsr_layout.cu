// Structure of BSR (formats/bsr/layout.py). Columns of a CSR row ascend here and do not repeat.
//
// Arrays
//   rowptr [nrows + 1], colidx [nnz]  the CSR pattern; row i belongs to block row i / row_block
//   first_block [nrows + 1]           blocks that row i opens (it has an entry in them, and no earlier row of its block row has) are
//                                     first_block[i] .. first_block[i + 1]
//   block_offsets [nblock_rows + 1]   blocks of each block row
//   block_col [nblocks]               block column of each block
//   control [1 + tiles]               of a prefix sum (scan.cuh): the ticket, and a word for each tile; all 0 at first
#include "formats/bsr.cuh"
#include "common/scan.cuh"

// What is found on the way, all 0 at first
struct Found {
  count_t nblocks, longest; // blocks of all block rows, and of the longest
  count_t steps;            // of warps that go through 32 block rows side by side, each as many as the longest of them has blocks
  count_t empty_rows;
  count_t out_of_order;        // not 0 if columns do not ascend in a row, or repeat: nothing else is right then
  count_t several_rows_opened; // not 0 if a block row has blocks that its first row with entries does not open
};

// Whether a row before `row` in its block row has an entry in block column `wanted`; they mostly have it at the same place, `entry`.
__device__ __forceinline__ bool is_open(index_t row, index_t entry, index_t row_block, index_t col_block, const index_t *__restrict__ rowptr,
                                        const index_t *__restrict__ colidx, index_t wanted)
{
  for (index_t i = row - row % row_block; i < row; i++) {
    const index_t begin = rowptr[i], end = rowptr[i + 1];

    if (entry < end - begin && colidx[begin + entry] / col_block == wanted) return true;
    const index_t k = lower_bound(begin, end, colidx, col_block, wanted);
    if (k < end && colidx[k] / col_block == wanted) return true;
  }
  return false;
}

// Calls open(block column) for each block that a row opens, in ascending order.
template <class Open>
__device__ __forceinline__ void for_each_opened_block(index_t row, index_t row_block, index_t col_block, const index_t *__restrict__ rowptr,
                                                      const index_t *__restrict__ colidx, Open open)
{
  const index_t begin = rowptr[row], end = rowptr[row + 1];

  for (index_t k = begin; k < end;) {
    const index_t block_column = colidx[k] / col_block;

    if (!is_open(row, k - begin, row_block, col_block, rowptr, colidx, block_column)) open(block_column);
    if (col_block <= end - k && colidx[k + col_block - 1] / col_block == block_column) k += col_block; // the row of the block is full
    else {
      do k++;
      while (k < end && colidx[k] / col_block == block_column);
    }
  }
}

__device__ __forceinline__ bool ascends(index_t begin, index_t end, const index_t *__restrict__ colidx)
{
  bool ascends = true;

  for (index_t k = begin + 1; k < end; k++) ascends &= colidx[k - 1] < colidx[k];
  return ascends;
}

// first_block and block_offsets; a thread a row, and one for the end
__global__ void __launch_bounds__(SCAN_THREADS, 5)
  bsr_count_blocks(index_t nrows, index_t row_block, index_t col_block, const index_t *__restrict__ rowptr, const index_t *__restrict__ colidx,
                   index_t *__restrict__ first_block, offset_t *__restrict__ block_offsets, Found *__restrict__ found, count_t *control)
{
  __shared__ BlockScan scan;
  index_t              count = 0;
  bool                 empty = false;

  scan.take_tile(control);
  __syncthreads();
  const offset_t row = (offset_t)scan.tile * SCAN_THREADS + threadIdx.x;

  if (row < nrows) {
    const index_t begin = rowptr[row], end = rowptr[row + 1];

    empty = begin == end;
    if (!ascends(begin, end, colidx)) found->out_of_order = 1; // all threads that write, write the same
    for_each_opened_block((index_t)row, row_block, col_block, rowptr, colidx, [&count](index_t) { count++; });
    if (count > 0 && begin > rowptr[row - row % row_block]) found->several_rows_opened = 1;
  }
  const unsigned empty_rows = __ballot_sync(FULL_WARP, empty);

  if (empty_rows && threadIdx.x % WARP == 0) atomicAdd(&found->empty_rows, (count_t)__popc(empty_rows));
  const count_t first = scan.sum_before_thread(control + 1, (count_t)count);

  if (row > nrows) return;
  first_block[row] = (index_t)first;
  if (row % row_block == 0 || row == nrows) block_offsets[(row + row_block - 1) / row_block] = (offset_t)first;
}

// Adds up what `found` tells of block rows. A warp goes through 32 block rows at a time.
__global__ void __launch_bounds__(SCAN_THREADS)
  bsr_measure_block_rows(offset_t nblock_rows, const offset_t *__restrict__ block_offsets, Found *__restrict__ found)
{
  const int      lane    = threadIdx.x % WARP;
  const offset_t first   = (offset_t)blockIdx.x * blockDim.x + threadIdx.x - lane;
  offset_t       longest = 0, steps = 0;

  for (offset_t slice = first; slice < nblock_rows; slice += (offset_t)gridDim.x * blockDim.x) {
    const offset_t i = slice + lane, widest = group_max(i < nblock_rows ? block_offsets[i + 1] - block_offsets[i] : offset_t(0));

    longest = max(longest, widest);
    steps += widest;
  }
  if (first + lane == 0) found->nblocks = (count_t)block_offsets[nblock_rows];
  if (lane > 0 || steps == 0) return;
  atomicMax(&found->longest, (count_t)longest);
  atomicAdd(&found->steps, (count_t)steps);
}

// block columns in the order in which rows open them; a thread a row
__global__ void __launch_bounds__(128, 8)
  bsr_fill_columns(index_t nrows, index_t row_block, index_t col_block, const index_t *__restrict__ rowptr, const index_t *__restrict__ colidx,
                   const index_t *__restrict__ first_block, index_t *__restrict__ block_col)
{
  const offset_t row = (offset_t)blockIdx.x * blockDim.x + threadIdx.x;

  if (row >= nrows) return;
  index_t block = first_block[row];
  for_each_opened_block((index_t)row, row_block, col_block, rowptr, colidx,
                        [&block, block_col](index_t block_column) { block_col[block++] = block_column; });
}

// `opened`, block columns in the order in which rows open them, brought into ascending order in each block row: a block comes after those of
// its block row that have smaller columns. A thread a row
__global__ void __launch_bounds__(128) bsr_order_columns(index_t nrows, index_t row_block, const index_t *__restrict__ first_block,
                                                         const index_t *__restrict__ opened, index_t *__restrict__ block_col)
{
  const offset_t row = (offset_t)blockIdx.x * blockDim.x + threadIdx.x;

  if (row >= nrows) return;
  const offset_t first_row = row - row % row_block, end_row = min(first_row + row_block, (offset_t)nrows);

  for (index_t block = first_block[row]; block < first_block[row + 1]; block++) {
    const index_t column = opened[block];
    index_t       place  = first_block[first_row];

    for (offset_t i = first_row; i < end_row; i++) place += lower_bound(first_block[i], first_block[i + 1], opened, 1, column) - first_block[i];
    block_col[place] = column;
  }
}

// Block columns block row by block row, `ordered`, brought into the order of slices of a warp (bsr.cuh). blockDim = (LANES, slices)
__global__ void __launch_bounds__(128) bsr_interleave_columns(offset_t nblock_rows, const offset_t *__restrict__ block_offsets,
                                                              const index_t *__restrict__ ordered, index_t *__restrict__ block_col)
{
  const unsigned lane      = threadIdx.x;
  const offset_t block_row = ((offset_t)blockIdx.x * blockDim.y + threadIdx.y) * LANES + lane;
  const offset_t begin     = block_offsets[min(block_row, nblock_rows)];
  const int      length    = (int)(block_offsets[min(block_row + 1, nblock_rows)] - begin);
  Walk<1>        walk(__shfl_sync(~0u, begin, 0), length, 0);

  for (int j = 0;; j++) {
    const Diagonal diagonal = walk.next();

    if (!diagonal.present) return;
    if (diagonal.here(lane)) block_col[diagonal.base + diagonal.rank(lane)] = ordered[begin + j];
  }
}

// Balanced BSR: segment_ptr[i] .. segment_ptr[i + 1], the segments of at most `limit` blocks of block row i; a thread a block row, and one for the end
__global__ void __launch_bounds__(SCAN_THREADS) bsr_cut_block_rows(offset_t nblock_rows, offset_t limit, const offset_t *__restrict__ block_offsets,
                                                                   offset_t *__restrict__ segment_ptr, count_t *control)
{
  __shared__ BlockScan scan;

  scan.take_tile(control);
  __syncthreads();
  const offset_t i     = (offset_t)scan.tile * SCAN_THREADS + threadIdx.x;
  const count_t  count = i < nblock_rows ? (count_t)((block_offsets[i + 1] - block_offsets[i] + limit - 1) / limit) : 0;
  const count_t  first = scan.sum_before_thread(control + 1, count);

  if (i <= nblock_rows) segment_ptr[i] = (offset_t)first;
}

// segment_offsets[s] = first block of segment s; a thread a segment, and one for the end
__global__ void __launch_bounds__(128)
  bsr_fill_segments(offset_t nblock_rows, offset_t nsegments, offset_t limit, const offset_t *__restrict__ block_offsets,
                    const offset_t *__restrict__ segment_ptr, offset_t *__restrict__ segment_offsets)
{
  const offset_t s = (offset_t)blockIdx.x * blockDim.x + threadIdx.x;

  if (s > nsegments) return;
  const offset_t i = s < nsegments ? segment_of(segment_ptr, offset_t(0), nblock_rows - 1, s) : nblock_rows;

  segment_offsets[s] = block_offsets[i] + (s - segment_ptr[i]) * limit;
}
