/* Products with BSR on the host (formats/bsr/bsr.py): the parameters and arrays are those of kernels/formats/bsr.cu and kernels/formats/bsr_interleaved.cu. */
#include "formats/bsr.h"

#define CHUNK 32 /* rows of a block that are summed together */

/* not Inf, not NaN: only then may x be multiplied with padding */
static inline int is_finite(scalar_t x)
{
  return x - x == 0;
}

/* sum[r] = row r of the blocks begin .. end times x, for `height` rows of blocks of `row_block` rows; val begins at the first of them */
static inline __attribute__((always_inline)) void rows_product(int height, index_t row_block, index_t col_block, index_t ncols, offset_t begin,
                                                               offset_t end, const index_t *block_col, const scalar_t *val, const scalar_t *x,
                                                               scalar_t *sum)
{
  for (int r = 0; r < height; r++) sum[r] = 0;
  for (offset_t b = begin; b < end; b++) {
    const offset_t first   = (offset_t)block_col[b] * col_block;
    const index_t  columns = ncols - first < col_block ? (index_t)(ncols - first) : col_block;

    for (index_t c = 0; c < columns; c++) {
      const scalar_t *entry = val + (b * col_block + c) * row_block, x_c = x[first + c];

      if (is_finite(x_c))
        for (int r = 0; r < height; r++) sum[r] += entry[r] * x_c;
      else
        for (int r = 0; r < height; r++) sum[r] += is_padding(entry[r]) ? 0 : entry[r] * x_c;
    }
  }
}

static inline __attribute__((always_inline)) void product(index_t row_block, index_t col_block, offset_t nsegments, offset_t nrows, index_t ncols,
                                                          const offset_t *offsets, const index_t *block_col, const scalar_t *val, const scalar_t *x,
                                                          scalar_t alpha, scalar_t beta, const scalar_t *y, scalar_t *z)
{
  for (offset_t s = 0; s < nsegments; s++) {
    if (y == z && beta == 1 && offsets[s] == offsets[s + 1]) continue; /* nothing to add; most block rows of an off-diagonal block are empty */
    for (index_t first = 0; first < row_block; first += CHUNK) {
      const int      height = row_block - first < CHUNK ? (int)(row_block - first) : CHUNK;
      const offset_t row    = s * row_block + first;
      scalar_t       sum[CHUNK];

      rows_product(height, row_block, col_block, ncols, offsets[s], offsets[s + 1], block_col, val + first, x, sum);
      for (int r = 0; r < height && row + r < nrows; r++) z[row + r] = beta == 0 ? alpha * sum[r] : alpha * sum[r] + beta * y[row + r];
    }
  }
}

#define PRODUCT(row_block, col_block) product(row_block, col_block, nsegments, nrows, ncols, offsets, block_col, val, x, alpha, beta, y, z)

/* block sizes that the compiler knows are kept in registers */
VECTOR_CLONES static void spmv(index_t row_block, index_t col_block, offset_t nsegments, offset_t nrows, index_t ncols, const offset_t *offsets,
                               const index_t *block_col, const scalar_t *val, const scalar_t *x, scalar_t alpha, scalar_t beta, const scalar_t *y,
                               scalar_t *z)
{
  switch (row_block == col_block ? row_block : 0) {
  case 1: PRODUCT(1, 1); break;
  case 2: PRODUCT(2, 2); break;
  case 3: PRODUCT(3, 3); break;
  case 4: PRODUCT(4, 4); break;
  case 5: PRODUCT(5, 5); break;
  case 6: PRODUCT(6, 6); break;
  case 7: PRODUCT(7, 7); break;
  case 8: PRODUCT(8, 8); break;
  default: PRODUCT(row_block, col_block);
  }
}

/* z = alpha A x + beta y */
HOST_KERNEL(bsr_spmv)
{
  spmv(PARAM(index_t, 0), PARAM(index_t, 1), PARAM(offset_t, 2), PARAM(offset_t, 3), PARAM(index_t, 4), PARAM(const offset_t *, 5),
       PARAM(const index_t *, 6), PARAM(const scalar_t *, 7), PARAM(const scalar_t *, 8), PARAM(scalar_t, 9), PARAM(scalar_t, 10),
       PARAM(const scalar_t *, 11), PARAM(scalar_t *, 12));
}

/* balanced BSR: the results of the pieces of each block row added up */
HOST_KERNEL(bsr_reduce)
{
  const index_t   nrows = PARAM(index_t, 0), row_block = PARAM(index_t, 1);
  const offset_t *segment_ptr = PARAM(const offset_t *, 2);
  const scalar_t *partial = PARAM(const scalar_t *, 3), alpha = PARAM(scalar_t, 4), beta = PARAM(scalar_t, 5), *y = PARAM(const scalar_t *, 6);
  scalar_t       *z = PARAM(scalar_t *, 7);

  for (index_t row = 0; row < nrows; row++) {
    const index_t block_row = row / row_block;
    scalar_t      sum       = 0;

    for (offset_t s = segment_ptr[block_row]; s < segment_ptr[block_row + 1]; s++) sum += partial[s * row_block + row % row_block];
    z[row] = beta == 0 ? alpha * sum : alpha * sum + beta * y[row];
  }
}

/* the same for blocks of kernel K1 */
HOST_KERNEL(bsr_spmv_interleaved)
{
  const index_t   row_block = PARAM(index_t, 0), col_block = PARAM(index_t, 1), ncols = PARAM(index_t, 4);
  const offset_t  nblock_rows = PARAM(offset_t, 2), nrows = PARAM(offset_t, 3), *offsets = PARAM(const offset_t *, 5);
  const index_t  *block_col = PARAM(const index_t *, 6);
  const scalar_t *val = PARAM(const scalar_t *, 7), *x = PARAM(const scalar_t *, 8), alpha = PARAM(scalar_t, 9), beta = PARAM(scalar_t, 10),
                 *y = PARAM(const scalar_t *, 11);
  scalar_t *z       = PARAM(scalar_t *, 12);

  for (offset_t first = 0; first < nblock_rows; first += LANES) {
    struct block block  = first_block(LANES, first, nblock_rows, offsets);
    const int    height = nrows - first * row_block < LANES * row_block ? (int)(nrows - first * row_block) : (int)(LANES * row_block);
    scalar_t     sum[LANES * BLOCK_ROWS] = {0};

    if (y == z && beta == 1 && block.n == 0) continue;
    for (; block.n > 0; next_block(&block)) {
      const offset_t x_first = (offset_t)block_col[block.base + block.rank] * col_block;

      for (index_t k = 0; k < row_block * col_block; k++) {
        const offset_t column = x_first + k / row_block;
        const scalar_t entry  = val[place_of_entry(&block, row_block * col_block, k)];

        if (column < ncols && !is_padding(entry)) sum[block.lane * row_block + k % row_block] += entry * x[column];
      }
    }
    for (int r = 0; r < height; r++) {
      const offset_t row = first * row_block + r;

      z[row] = beta == 0 ? alpha * sum[r] : alpha * sum[r] + beta * y[row];
    }
  }
}
