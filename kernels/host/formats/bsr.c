/* Products with BSR on the host (formats/bsr/bsr.py): the parameters and arrays are those of kernels/formats/bsr.cu and kernels/formats/bsr_interleaved.cu. */
#include "formats/bsr.h"
#include "formats/results.h"

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

/* blocks one after another, as K2 and K3 have them, or in slices of 32 block rows, as K1 has them */
typedef struct {
  index_t         row_block, col_block;
  offset_t        nsegments, nrows;
  index_t         ncols;
  const offset_t *offsets;
  const index_t  *block_col;
  const scalar_t *val, *x;
} Bsr;

/* the parameters 0 to 8 of a kernel */
static Bsr bsr_of(void **params)
{
  return (Bsr){.row_block = PARAM(index_t, 0),
               .col_block = PARAM(index_t, 1),
               .nsegments = PARAM(offset_t, 2),
               .nrows     = PARAM(offset_t, 3),
               .ncols     = PARAM(index_t, 4),
               .offsets   = PARAM(const offset_t *, 5),
               .block_col = PARAM(const index_t *, 6),
               .val       = PARAM(const scalar_t *, 7),
               .x         = PARAM(const scalar_t *, 8)};
}

/* `use` with the sums of all rows; but for those of empty segments, if these are skipped: most block rows of an off-diagonal block are empty */
static inline __attribute__((always_inline)) void product(const Bsr *A, index_t row_block, index_t col_block, int skips_empty, UseSum *use,
                                                          void *result)
{
  for (offset_t s = 0; s < A->nsegments; s++) {
    if (skips_empty && A->offsets[s] == A->offsets[s + 1]) continue;
    for (index_t first = 0; first < row_block; first += CHUNK) {
      const int      height = row_block - first < CHUNK ? (int)(row_block - first) : CHUNK;
      const offset_t row    = s * row_block + first;
      scalar_t       sum[CHUNK];

      rows_product(height, row_block, col_block, A->ncols, A->offsets[s], A->offsets[s + 1], A->block_col, A->val + first, A->x, sum);
      for (int r = 0; r < height && row + r < A->nrows; r++) use(result, row + r, r, sum[r]);
    }
  }
}

/* block sizes that the compiler knows are kept in registers */
static inline __attribute__((always_inline)) void product_of_sizes(const Bsr *A, int skips_empty, UseSum *use, void *result)
{
  switch (A->row_block == A->col_block ? A->row_block : 0) {
  case 1: product(A, 1, 1, skips_empty, use, result); break;
  case 2: product(A, 2, 2, skips_empty, use, result); break;
  case 3: product(A, 3, 3, skips_empty, use, result); break;
  case 4: product(A, 4, 4, skips_empty, use, result); break;
  case 5: product(A, 5, 5, skips_empty, use, result); break;
  case 6: product(A, 6, 6, skips_empty, use, result); break;
  case 7: product(A, 7, 7, skips_empty, use, result); break;
  case 8: product(A, 8, 8, skips_empty, use, result); break;
  default: product(A, A->row_block, A->col_block, skips_empty, use, result);
  }
}

VECTOR_CLONES static void scaled_product(const Bsr A, ScaledResult result)
{
  product_of_sizes(&A, scaled_skips_empty(&result), use_scaled, &result);
}

VECTOR_CLONES static void fused_product(const Bsr A, FusedResult result)
{
  product_of_sizes(&A, fused_skips_empty(&result), use_fused, &result);
  finish_fused(&result);
}

/* alpha, beta, y and z are the parameters from `first` on */
static ScaledResult scaled_result(void **params, int first)
{
  return (ScaledResult){PARAM(scalar_t, first), PARAM(scalar_t, first + 1), PARAM(const scalar_t *, first + 2), PARAM(scalar_t *, first + 3)};
}

/* z = alpha A x + beta y */
HOST_KERNEL(bsr_spmv)
{
  scaled_product(bsr_of(params), scaled_result(params, 9));
}

/* z = alpha u + beta x + gamma d (b - A x), row by row, and the dot product of w with A x */
HOST_KERNEL(bsr_fused)
{
  fused_product(bsr_of(params), fused_result(params, 8));
}

/* balanced BSR: the results of the pieces of each block row added up */
static inline __attribute__((always_inline)) void sum_of_pieces(void **params, UseSum *use, void *result)
{
  const index_t   nrows = PARAM(index_t, 0), row_block = PARAM(index_t, 1);
  const offset_t *segment_ptr = PARAM(const offset_t *, 2);
  const scalar_t *partial     = PARAM(const scalar_t *, 3);

  for (index_t row = 0; row < nrows; row++) {
    const index_t block_row = row / row_block;
    scalar_t      sum       = 0;

    for (offset_t s = segment_ptr[block_row]; s < segment_ptr[block_row + 1]; s++) sum += partial[s * row_block + row % row_block];
    use(result, row, (int)(row % DOT_LANES), sum);
  }
}

HOST_KERNEL(bsr_reduce)
{
  ScaledResult result = scaled_result(params, 4);

  sum_of_pieces(params, use_scaled, &result);
}

HOST_KERNEL(bsr_reduce_fused)
{
  FusedResult result = fused_result(params, 4);

  sum_of_pieces(params, use_fused, &result);
  finish_fused(&result);
}

/* as product(), for blocks of kernel K1 */
static inline __attribute__((always_inline)) void interleaved_product(const Bsr *A, int skips_empty, UseSum *use, void *result)
{
  const index_t row_block = A->row_block, col_block = A->col_block;

  for (offset_t first = 0; first < A->nsegments; first += LANES) {
    struct block block  = first_block(LANES, first, A->nsegments, A->offsets);
    const int    height = A->nrows - first * row_block < LANES * row_block ? (int)(A->nrows - first * row_block) : (int)(LANES * row_block);
    scalar_t     sum[LANES * BLOCK_ROWS] = {0};

    if (skips_empty && block.n == 0) continue;
    for (; block.n > 0; next_block(&block)) {
      const offset_t x_first = (offset_t)A->block_col[block.base + block.rank] * col_block;

      for (index_t k = 0; k < row_block * col_block; k++) {
        const offset_t column = x_first + k / row_block;
        const scalar_t entry  = A->val[place_of_entry(&block, row_block * col_block, k)];

        if (column < A->ncols && !is_padding(entry)) sum[block.lane * row_block + k % row_block] += entry * A->x[column];
      }
    }
    for (int r = 0; r < height; r++) use(result, first * row_block + r, r, sum[r]);
  }
}

HOST_KERNEL(bsr_spmv_interleaved)
{
  const Bsr    A      = bsr_of(params);
  ScaledResult result = scaled_result(params, 9);

  interleaved_product(&A, scaled_skips_empty(&result), use_scaled, &result);
}

HOST_KERNEL(bsr_fused_interleaved)
{
  const Bsr   A      = bsr_of(params);
  FusedResult result = fused_result(params, 8);

  interleaved_product(&A, fused_skips_empty(&result), use_fused, &result);
  finish_fused(&result);
}
