/* Host kernels of pJDS (formats/pjds.py): the parameters and arrays are those of kernels/pjds.cu. */
#include "host.h"

#define GROUP 8 /* lanes that are summed together: one cache line of values in double precision; divides every slice height */

/* one column of a group; the sums are separate variables because compilers keep those in registers, and an array not always */
#define ADD_COLUMN(TERM) (s0 += TERM(0), s1 += TERM(1), s2 += TERM(2), s3 += TERM(3), s4 += TERM(4), s5 += TERM(5), s6 += TERM(6), s7 += TERM(7))
#define ENTRY(i)            (val[p + i] * x[col[p + i]])
#define ENTRY_OR_PADDING(i) (val[p + i] * (col[p + i] >= 0 ? x[col[p + i]] : 0))

/* sum[i] = row i of one group times x; entry `begin` is the group's first, entry `last` the first of the slice's last column */
static inline __attribute__((always_inline)) void group_product(offset_t begin, offset_t last, int height, const index_t *col, const scalar_t *val, const scalar_t *x, scalar_t sum[GROUP])
{
  scalar_t s0 = 0, s1 = 0, s2 = 0, s3 = 0, s4 = 0, s5 = 0, s6 = 0, s7 = 0;
  int      padded = 0;

  if (begin <= last)
    for (int i = 0; i < GROUP; i++) padded |= col[last + i] < 0; /* a padded row is padded in the last column */
  if (padded)
    for (offset_t p = begin; p <= last; p += height) ADD_COLUMN(ENTRY_OR_PADDING);
  else
    for (offset_t p = begin; p <= last; p += height) ADD_COLUMN(ENTRY);
  sum[0] = s0, sum[1] = s1, sum[2] = s2, sum[3] = s3, sum[4] = s4, sum[5] = s5, sum[6] = s6, sum[7] = s7;
}

/* z = A x, or z = y + A x unless y is null */
VECTOR_CLONES static void product(int height, index_t nrows, const offset_t *slice_offsets, const index_t *col, const scalar_t *val, const index_t *row_perm, const scalar_t *x, const scalar_t *y, scalar_t *z)
{
  for (offset_t slice = 0, position = 0; position < nrows; slice++) {
    const offset_t begin = slice_offsets[slice], end = slice_offsets[slice + 1], next = position + height;

    if (y == z && begin == end) { /* nothing to add; most slices of an off-diagonal block are empty */
      position = next;
      continue;
    }
    for (int lane = 0; lane < height && position < nrows; lane += GROUP, position += GROUP) {
      const int rows = nrows - position < GROUP ? (int)(nrows - position) : GROUP;
      scalar_t  sum[GROUP];

      group_product(begin + lane, end - height + lane, height, col, val, x, sum);
      for (int i = 0; i < rows; i++) {
        const offset_t row = row_perm ? row_perm[position + i] : position + i;

        z[row] = y ? y[row] + sum[i] : sum[i];
      }
    }
  }
}

/* z = A x */
HOST_KERNEL(pjds_spmv)
{
  product((int)block[0], PARAM(index_t, 0), PARAM(const offset_t *, 1), PARAM(const index_t *, 2), PARAM(const scalar_t *, 3), PARAM(const index_t *, 4), PARAM(const scalar_t *, 5), NULL, PARAM(scalar_t *, 6));
}

/* z = y + A x; z may be y */
HOST_KERNEL(pjds_spmv_add)
{
  product((int)block[0], PARAM(index_t, 0), PARAM(const offset_t *, 1), PARAM(const index_t *, 2), PARAM(const scalar_t *, 3), PARAM(const index_t *, 4), PARAM(const scalar_t *, 5), PARAM(const scalar_t *, 6), PARAM(scalar_t *, 7));
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
