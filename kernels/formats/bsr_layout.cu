// Structure of BSR (formats/bsr/layout.py). Columns of a CSR row ascend here and do not repeat.
//
// Arrays
//   rowptr [nrows + 1], colidx [nnz]  the CSR pattern; row i belongs to block row i / row_block
//   first_block [nrows + 1]           blocks that row i opens (it has an entry in them, and no earlier row of its block row has) are
//                                     first_block[i] .. first_block[i + 1]
//   block_offsets [nblock_rows + 1]   blocks of each block row
//   block_col [nblocks]               block column of each block
#include "formats/bsr.cuh"

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

// nopened[i] = number of blocks that row i opens; a thread a row
__global__ void __launch_bounds__(128, 8) bsr_count_blocks(index_t nrows, index_t row_block, index_t col_block, const index_t *__restrict__ rowptr,
                                                           const index_t *__restrict__ colidx, index_t *__restrict__ nopened)
{
  const offset_t row   = (offset_t)blockIdx.x * blockDim.x + threadIdx.x;
  index_t        count = 0;

  if (row >= nrows) return;
  for_each_opened_block((index_t)row, row_block, col_block, rowptr, colidx, [&count](index_t) { count++; });
  nopened[row] = count;
}

// block columns in the order in which rows open them; a thread a row
__global__ void __launch_bounds__(128, 8)
  bsr_fill_columns(index_t nrows, index_t row_block, index_t col_block, const index_t *__restrict__ rowptr, const index_t *__restrict__ colidx,
                   const offset_t *__restrict__ first_block, index_t *__restrict__ block_col)
{
  const offset_t row = (offset_t)blockIdx.x * blockDim.x + threadIdx.x;

  if (row >= nrows) return;
  offset_t block = first_block[row];
  for_each_opened_block((index_t)row, row_block, col_block, rowptr, colidx,
                        [&block, block_col](index_t block_column) { block_col[block++] = block_column; });
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
