/* Structure of BSR, values into it and the diagonal out of it (formats/bsr/bsr.py): the parameters and arrays are those of
   kernels/formats/bsr_layout.cu and kernels/formats/bsr_values.cu. */
#include "formats/bsr.h"
#include "common/search.h"

/* Structure pass: the blocks that each row opens (it has an entry in them, no earlier row of its block row has), counted in `nopened` or
   written to block_col from first_block[row] on. */
static void open_blocks(index_t nrows, index_t row_block, index_t col_block, const index_t *rowptr, const index_t *colidx, index_t *nopened,
                        const offset_t *first_block, index_t *block_col)
{
  for (offset_t first_row = 0; first_row < nrows; first_row += row_block) {
    const offset_t last_row = nrows - first_row < row_block ? nrows : first_row + row_block;

    for (offset_t row = first_row; row < last_row; row++) {
      index_t count = 0, previous = -1;

      for (index_t k = rowptr[row]; k < rowptr[row + 1]; k++) {
        const index_t wanted = colidx[k] / col_block;
        int           open   = wanted == previous;

        previous = wanted;
        for (offset_t i = first_row; i < row && !open; i++) {
          offset_t p;

          PARTITION_POINT(p, rowptr[i], rowptr[i + 1], colidx[p] / col_block < wanted);
          open = p < rowptr[i + 1] && colidx[p] / col_block == wanted;
        }
        if (open) continue;
        if (block_col) block_col[first_block[row] + count] = wanted;
        count++;
      }
      if (nopened) nopened[row] = count;
    }
  }
}

HOST_KERNEL(bsr_count_blocks)
{
  open_blocks(PARAM(index_t, 0), PARAM(index_t, 1), PARAM(index_t, 2), PARAM(const index_t *, 3), PARAM(const index_t *, 4), PARAM(index_t *, 5),
              NULL, NULL);
}

HOST_KERNEL(bsr_fill_columns)
{
  open_blocks(PARAM(index_t, 0), PARAM(index_t, 1), PARAM(index_t, 2), PARAM(const index_t *, 3), PARAM(const index_t *, 4), NULL,
              PARAM(const offset_t *, 5), PARAM(index_t *, 6));
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
