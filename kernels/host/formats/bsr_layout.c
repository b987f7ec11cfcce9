/* Structure of BSR, values into it and the diagonal out of it (formats/bsr/bsr.py): the parameters and arrays are those of
   kernels/formats/bsr_layout.cu and kernels/formats/bsr_values.cu. */
#include "formats/bsr.h"
#include "common/search.h"

typedef struct {
  uint64_t nblocks, longest, steps, empty_rows, out_of_order, several_rows_opened;
} Found;

/* whether an entry of a row has block column `wanted`; it mostly is at place `entry` of the row, as in a row before it */
static inline int has_block(const index_t *rowptr, const index_t *colidx, offset_t row, offset_t entry, index_t col_block, index_t wanted)
{
  const offset_t begin = rowptr[row], end = rowptr[row + 1];
  offset_t       p;

  if (entry < end - begin && colidx[begin + entry] / col_block == wanted) return 1;
  PARTITION_POINT(p, begin, end, colidx[p] / col_block < wanted);
  return p < end && colidx[p] / col_block == wanted;
}

/* The blocks that a row opens (it has an entry in them, no earlier row of its block row has): how many; written to `block_col` if that is
   not null. */
static index_t open_blocks(offset_t row, index_t row_block, index_t col_block, const index_t *rowptr, const index_t *colidx, index_t *block_col)
{
  index_t count = 0, previous = -1;

  for (offset_t k = rowptr[row]; k < rowptr[row + 1]; k++) {
    const index_t wanted = colidx[k] / col_block;
    int           open   = wanted == previous;

    previous = wanted;
    for (offset_t i = row - row % row_block; i < row && !open; i++) open = has_block(rowptr, colidx, i, k - rowptr[row], col_block, wanted);
    if (open) continue;
    if (block_col) block_col[count] = wanted;
    count++;
  }
  return count;
}

HOST_KERNEL(bsr_count_blocks)
{
  const index_t  nrows = PARAM(index_t, 0), row_block = PARAM(index_t, 1), col_block = PARAM(index_t, 2);
  const index_t *rowptr = PARAM(const index_t *, 3), *colidx = PARAM(const index_t *, 4);
  index_t       *first_block = PARAM(index_t *, 5), nblocks = 0;
  offset_t      *block_offsets = PARAM(offset_t *, 6);
  Found         *found         = PARAM(Found *, 7);

  for (offset_t row = 0; row < nrows; row++) {
    const index_t count = open_blocks(row, row_block, col_block, rowptr, colidx, NULL);

    for (offset_t k = (offset_t)rowptr[row] + 1; k < rowptr[row + 1]; k++) found->out_of_order |= colidx[k - 1] >= colidx[k];
    found->empty_rows += rowptr[row] == rowptr[row + 1];
    if (count && rowptr[row] > rowptr[row - row % row_block]) found->several_rows_opened = 1;
    first_block[row] = nblocks;
    if (row % row_block == 0) block_offsets[row / row_block] = nblocks;
    nblocks += count;
  }
  first_block[nrows] = block_offsets[((offset_t)nrows + row_block - 1) / row_block] = nblocks;
}

HOST_KERNEL(bsr_measure_block_rows)
{
  const offset_t nblock_rows = PARAM(offset_t, 0), *block_offsets = PARAM(const offset_t *, 1);
  Found         *found  = PARAM(Found *, 2);
  offset_t       widest = 0;

  for (offset_t i = 0; i < nblock_rows; i++) {
    const offset_t length = block_offsets[i + 1] - block_offsets[i];

    if (length > widest) widest = length;
    if ((i + 1) % LANES && i + 1 < nblock_rows) continue;
    if ((uint64_t)widest > found->longest) found->longest = (uint64_t)widest;
    found->steps += (uint64_t)widest;
    widest = 0;
  }
  found->nblocks = (uint64_t)block_offsets[nblock_rows];
}

HOST_KERNEL(bsr_fill_columns)
{
  const index_t *first_block = PARAM(const index_t *, 5);

  for (offset_t row = 0; row < PARAM(index_t, 0); row++)
    open_blocks(row, PARAM(index_t, 1), PARAM(index_t, 2), PARAM(const index_t *, 3), PARAM(const index_t *, 4),
                PARAM(index_t *, 6) + first_block[row]);
}

/* block columns as rows open them, brought into ascending order in each block row */
HOST_KERNEL(bsr_order_columns)
{
  const index_t  nrows = PARAM(index_t, 0), row_block = PARAM(index_t, 1), *first_block = PARAM(const index_t *, 2);
  const index_t *opened    = PARAM(const index_t *, 3);
  index_t       *block_col = PARAM(index_t *, 4);

  for (offset_t row = 0; row < nrows; row++) {
    const offset_t first_row = row - row % row_block, end_row = nrows - first_row < row_block ? nrows : first_row + row_block;

    for (offset_t block = first_block[row]; block < first_block[row + 1]; block++) {
      offset_t place = first_block[first_row];

      for (offset_t i = first_row; i < end_row; i++) {
        offset_t p;

        PARTITION_POINT(p, first_block[i], first_block[i + 1], opened[p] < opened[block]);
        place += p - first_block[i];
      }
      block_col[place] = opened[block];
    }
  }
}

HOST_KERNEL(bsr_cut_block_rows)
{
  const offset_t nblock_rows = PARAM(offset_t, 0), limit = PARAM(offset_t, 1), *block_offsets = PARAM(const offset_t *, 2);
  offset_t      *segment_ptr = PARAM(offset_t *, 3);

  segment_ptr[0] = 0;
  for (offset_t i = 0; i < nblock_rows; i++) segment_ptr[i + 1] = segment_ptr[i] + (block_offsets[i + 1] - block_offsets[i] + limit - 1) / limit;
}

HOST_KERNEL(bsr_fill_segments)
{
  const offset_t  nblock_rows = PARAM(offset_t, 0), nsegments = PARAM(offset_t, 1), limit = PARAM(offset_t, 2);
  const offset_t *block_offsets = PARAM(const offset_t *, 3), *segment_ptr = PARAM(const offset_t *, 4);
  offset_t       *segment_offsets = PARAM(offset_t *, 5);

  for (offset_t i = 0; i < nblock_rows; i++)
    for (offset_t s = segment_ptr[i]; s < segment_ptr[i + 1]; s++) segment_offsets[s] = block_offsets[i] + (s - segment_ptr[i]) * limit;
  segment_offsets[nsegments] = block_offsets[nblock_rows];
}

HOST_KERNEL(bsr_interleave_columns)
{
  const offset_t nblock_rows = PARAM(offset_t, 0), *block_offsets = PARAM(const offset_t *, 1);
  const index_t *ordered   = PARAM(const index_t *, 2);
  index_t       *block_col = PARAM(index_t *, 3);

  for (offset_t first = 0; first < nblock_rows; first += LANES)
    for (struct block block = first_block(LANES, first, nblock_rows, block_offsets); block.n > 0; next_block(&block))
      block_col[block.base + block.rank] = ordered[block.offsets[block.lane] + block.j];
}

/* the refresh: block by block as they are stored; padding gets -0, an entry is never that, since its sum begins with +0 */
HOST_KERNEL(bsr_fill_values)
{
  const offset_t nrows = PARAM(offset_t, 0), nblock_rows = PARAM(offset_t, 1), *block_offsets = PARAM(const offset_t *, 5);
  const index_t  row_block = PARAM(index_t, 2), col_block = PARAM(index_t, 3), slice = PARAM(index_t, 4);
  const index_t *block_col = PARAM(const index_t *, 6), *rowptr = PARAM(const index_t *, 7), *colidx = PARAM(const index_t *, 8),
                *first = PARAM(const index_t *, 9), *source = PARAM(const index_t *, 10);
  const scalar_t *values = PARAM(const scalar_t *, 11);
  scalar_t       *stored = PARAM(scalar_t *, 12);
  const offset_t  size   = (offset_t)row_block * col_block;

  for (offset_t first_row = 0; first_row < nblock_rows; first_row += slice)
    for (struct block block = first_block(slice, first_row, nblock_rows, block_offsets); block.n > 0; next_block(&block))
      for (index_t r = 0; r < row_block; r++) {
        const offset_t row = (first_row + block.lane) * row_block + r;

        if (!rowptr) {
          const offset_t from = block.offsets[block.lane] * size + (r * blocks_of_lane(&block, block.lane) + block.j) * col_block;

          for (index_t c = 0; c < col_block; c++)
            stored[place_of_entry(&block, size, (offset_t)c * row_block + r)] = 0 + values[source ? source[from + c] : from + c];
          continue;
        }
        const index_t block_column = block_col[block.base + block.rank];
        offset_t      k = 0, end = 0;

        if (row < nrows) {
          end = rowptr[row + 1];
          PARTITION_POINT(k, rowptr[row], end, colidx[k] / col_block < block_column); /* the row's first entry in the block */
        }
        for (index_t c = 0; c < col_block; c++) {
          scalar_t *entry = stored + place_of_entry(&block, size, (offset_t)c * row_block + r);

          if (k < end && colidx[k] == (offset_t)block_column * col_block + c) {
            scalar_t sum = 0;

            for (offset_t e = first ? first[k] : k; e < (first ? first[k + 1] : k + 1); e++) sum += values[source ? source[e] : e];
            *entry = sum;
            k++;
          } else *entry = -(scalar_t)0;
        }
      }
}

/* the refresh for K2 and K3 where all blocks are full */
HOST_KERNEL(bsr_transpose_values)
{
  const offset_t  nblock_rows = PARAM(offset_t, 0), *block_offsets = PARAM(const offset_t *, 3);
  const index_t   row_block = PARAM(index_t, 1), col_block = PARAM(index_t, 2), *source = PARAM(const index_t *, 4);
  const scalar_t *values = PARAM(const scalar_t *, 5);
  scalar_t       *stored = PARAM(scalar_t *, 6);

  for (offset_t i = 0; i < nblock_rows; i++) {
    const offset_t begin = block_offsets[i] * row_block * col_block, width = (block_offsets[i + 1] - block_offsets[i]) * col_block;

    for (offset_t column = 0; column < width; column++)
      for (index_t row = 0; row < row_block; row++) {
        const offset_t from = begin + row * width + column;

        stored[begin + column * row_block + row] = 0 + values[source ? source[from] : from];
      }
  }
}

/* z = diagonal of A */
HOST_KERNEL(bsr_diagonal)
{
  const index_t   nrows = PARAM(index_t, 0), row_block = PARAM(index_t, 1), col_block = PARAM(index_t, 2), *block_col = PARAM(const index_t *, 4);
  const offset_t *block_offsets = PARAM(const offset_t *, 3);
  const scalar_t *val           = PARAM(const scalar_t *, 5);
  scalar_t       *z             = PARAM(scalar_t *, 6);

  for (index_t row = 0; row < nrows; row++) {
    const offset_t end    = block_offsets[row / row_block + 1];
    const index_t  wanted = row / col_block;
    offset_t       block;

    PARTITION_POINT(block, block_offsets[row / row_block], end, block_col[block] < wanted);
    const scalar_t entry = block < end && block_col[block] == wanted ? val[(block * col_block + row % col_block) * row_block + row % row_block] : 0;

    z[row] = is_padding(entry) ? 0 : entry;
  }
}

HOST_KERNEL(bsr_diagonal_interleaved)
{
  const index_t   nrows = PARAM(index_t, 0), row_block = PARAM(index_t, 1), col_block = PARAM(index_t, 2), *block_col = PARAM(const index_t *, 5);
  const offset_t  nblock_rows = PARAM(offset_t, 3), *block_offsets = PARAM(const offset_t *, 4);
  const scalar_t *val = PARAM(const scalar_t *, 6);
  scalar_t       *z   = PARAM(scalar_t *, 7);

  for (index_t row = 0; row < nrows; row++) z[row] = 0;
  for (offset_t first = 0; first < nblock_rows; first += LANES)
    for (struct block block = first_block(LANES, first, nblock_rows, block_offsets); block.n > 0; next_block(&block))
      for (index_t r = 0; r < row_block; r++) {
        const offset_t row = (first + block.lane) * row_block + r;

        if (row >= nrows || row / col_block != block_col[block.base + block.rank]) continue;
        const scalar_t entry = val[place_of_entry(&block, (offset_t)row_block * col_block, row % col_block * row_block + r)];

        z[row] = is_padding(entry) ? 0 : entry;
      }
}
