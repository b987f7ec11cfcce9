/* Host kernels of pJDS (formats/pjds.py): the parameters and arrays are those of kernels/pjds.cu. Inner loops run over the lanes of a
   slice, which are contiguous in memory. */
#include "host.h"

#define MAX_SLICE_HEIGHT 128

/* sum[i] = row i of one slice times x. The height is a constant in every use, so that the sums stay in vector registers. */
static inline __attribute__((always_inline)) void slice_product(int height, offset_t begin, offset_t end, const index_t *restrict col, const scalar_t *restrict val, const scalar_t *restrict x, scalar_t *restrict sum)
{
  for (int i = 0; i < height; i++) sum[i] = 0;
  for (offset_t p = begin; p < end; p += height)
    for (int i = 0; i < height; i++) {
      const index_t c = col[p + i];

      sum[i] += val[p + i] * (c >= 0 ? x[c] : 0);
    }
}

static inline __attribute__((always_inline)) void product(int height, index_t nrows, const offset_t *slice_offsets, const index_t *col, const scalar_t *val, const index_t *row_perm, const scalar_t *x, const scalar_t *y, scalar_t *z)
{
  scalar_t sum[MAX_SLICE_HEIGHT];

  for (offset_t first = 0, slice = 0; first < nrows; first += height, slice++) {
    const int rows = nrows - first < height ? (int)(nrows - first) : height;

    if (y == z && slice_offsets[slice] == slice_offsets[slice + 1]) continue; /* nothing to add; most slices of an off-diagonal block */
    slice_product(height, slice_offsets[slice], slice_offsets[slice + 1], col, val, x, sum);
    if (row_perm)
      for (int i = 0; i < rows; i++) {
        const index_t row = row_perm[first + i];

        z[row] = y ? y[row] + sum[i] : sum[i];
      }
    else if (y)
      for (int i = 0; i < rows; i++) z[first + i] = y[first + i] + sum[i];
    else
      for (int i = 0; i < rows; i++) z[first + i] = sum[i];
  }
}

VECTOR_CLONES static void product_any(int height, index_t nrows, const offset_t *slice_offsets, const index_t *col, const scalar_t *val, const index_t *row_perm, const scalar_t *x, const scalar_t *y, scalar_t *z)
{
  switch (height) {
  case 8:
    product(8, nrows, slice_offsets, col, val, row_perm, x, y, z);
    break;
  case 16:
    product(16, nrows, slice_offsets, col, val, row_perm, x, y, z);
    break;
  case 32:
    product(32, nrows, slice_offsets, col, val, row_perm, x, y, z);
    break;
  case 64:
    product(64, nrows, slice_offsets, col, val, row_perm, x, y, z);
    break;
  default:
    product(MAX_SLICE_HEIGHT, nrows, slice_offsets, col, val, row_perm, x, y, z);
  }
}

/* z = A x */
HOST_KERNEL(pjds_spmv)
{
  product_any((int)block[0], PARAM(index_t, 0), PARAM(const offset_t *, 1), PARAM(const index_t *, 2), PARAM(const scalar_t *, 3), PARAM(const index_t *, 4), PARAM(const scalar_t *, 5), NULL, PARAM(scalar_t *, 6));
}

/* z = y + A x; z may be y */
HOST_KERNEL(pjds_spmv_add)
{
  product_any((int)block[0], PARAM(index_t, 0), PARAM(const offset_t *, 1), PARAM(const index_t *, 2), PARAM(const scalar_t *, 3), PARAM(const index_t *, 4), PARAM(const scalar_t *, 5), PARAM(const scalar_t *, 6), PARAM(scalar_t *, 7));
}

/* where a row of the sorted order begins and ends in the CSR arrays; empty beyond the last row */
static inline void row_range(offset_t position, index_t nrows, const index_t *rowptr, const index_t *row_perm, offset_t *begin, offset_t *end)
{
  *begin = *end = 0;
  if (position < nrows) {
    const offset_t row = row_perm ? row_perm[position] : position;

    *begin = rowptr[row];
    *end   = rowptr[row + 1];
  }
}

#define DEFINE_FILL(Entry, padding) \
  const int        height = (int)block[0]; \
  const index_t    nrows = PARAM(index_t, 0), *row_perm = PARAM(const index_t *, 3), *source = PARAM(const index_t *, 4); \
  const offset_t  *slice_offsets = PARAM(const offset_t *, 1); \
  const Entry     *entries       = PARAM(const Entry *, 5); \
  Entry           *stored        = PARAM(Entry *, 6); \
  for (offset_t first = 0, slice = 0; first < nrows; first += height, slice++) \
    for (int lane = 0; lane < height; lane++) { \
      offset_t k, end; \
      row_range(first + lane, nrows, PARAM(const index_t *, 2), row_perm, &k, &end); \
      for (offset_t p = slice_offsets[slice] + lane; p < slice_offsets[slice + 1]; p += height, k++) stored[p] = k < end ? entries[source ? source[k] : k] : (padding); \
    }

/* structure pass: columns into the slices, -1 in padding */
HOST_KERNEL(pjds_fill_columns)
{
  DEFINE_FILL(index_t, -1)
}

/* value pass: the refresh after a change of values, 0 in padding */
HOST_KERNEL(pjds_fill_values)
{
  DEFINE_FILL(scalar_t, 0)
}
