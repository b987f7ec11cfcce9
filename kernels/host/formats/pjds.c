/* Host kernels of pJDS (formats/pjds.py): the parameters and arrays are those of kernels/formats/pjds.cu. */
#include "formats/columns.h"
#include "formats/results.h"
#include "formats/row_patterns.h"

#define GROUP 8 /* lanes that are summed together: one cache line of values in double precision; divides every slice height */

typedef struct {
  alignas(8) index_t nrows;
  const offset_t *slice_offsets;
  StoredColumns   columns;
  RowPatterns     patterns;
  const scalar_t *val;
  const index_t  *row_perm;
} Pjds;

static inline offset_t row_at(const Pjds *A, offset_t position)
{
  return A->row_perm ? A->row_perm[position] : position;
}

/* one column of a group; the sums are separate variables because compilers keep those in registers, and an array not always */
#define ADD_COLUMN(TERM, COLUMN) \
  (s0 += TERM(COLUMN, 0), s1 += TERM(COLUMN, 1), s2 += TERM(COLUMN, 2), s3 += TERM(COLUMN, 3), s4 += TERM(COLUMN, 4), s5 += TERM(COLUMN, 5), \
   s6 += TERM(COLUMN, 6), s7 += TERM(COLUMN, 7))
#define ENTRY(COLUMN, i)            (val[p + i] * x[COLUMN(i)])
#define ENTRY_OR_PADDING(COLUMN, i) (val[p + i] * (COLUMN(i) >= 0 ? x[COLUMN(i)] : 0))
#define FULL_COLUMN(i)              (col[p + i])
#define SHORT_COLUMN(i)             (base + col_offset[p + i])
#define SHORT_OR_PADDING(i)         (col_offset[p + i] == SHORT_PADDING ? -1 : base + col_offset[p + i])
#define NEIGHBOUR(i)                (i)
#define ENTRY_OF_PATTERN(deltas, i) (val[p + i] * (deltas[i][j] == NO_ENTRY ? 0 : x_row[i][deltas[i][j]]))
#define KEEP_SUMS                   (sum[0] = s0, sum[1] = s1, sum[2] = s2, sum[3] = s3, sum[4] = s4, sum[5] = s5, sum[6] = s6, sum[7] = s7)

/* sum[i] = row i of one group times x; entry `begin` is the group's first, entry `last` the first of the slice's last column */
static inline __attribute__((always_inline)) void full_product(offset_t begin, offset_t last, int height, const index_t *col, const scalar_t *val,
                                                               const scalar_t *x, scalar_t sum[GROUP])
{
  scalar_t s0 = 0, s1 = 0, s2 = 0, s3 = 0, s4 = 0, s5 = 0, s6 = 0, s7 = 0;
  int      padded = 0;

  if (begin <= last)
    for (int i = 0; i < GROUP; i++) padded |= col[last + i] < 0; /* a padded row is padded in the last column */
  if (padded)
    for (offset_t p = begin; p <= last; p += height) ADD_COLUMN(ENTRY_OR_PADDING, FULL_COLUMN);
  else
    for (offset_t p = begin; p <= last; p += height) ADD_COLUMN(ENTRY, FULL_COLUMN);
  KEEP_SUMS;
}

/* as full_product(), in a slice of short columns */
static inline __attribute__((always_inline)) void short_product(offset_t begin, offset_t last, int height, const uint16_t *col_offset,
                                                                const index_t *col_base, const scalar_t *val, const scalar_t *x, scalar_t sum[GROUP])
{
  scalar_t s0 = 0, s1 = 0, s2 = 0, s3 = 0, s4 = 0, s5 = 0, s6 = 0, s7 = 0;
  int      padded = 0;

  if (begin <= last)
    for (int i = 0; i < GROUP; i++) padded |= col_offset[last + i] == SHORT_PADDING;
  col_base += begin / height;
  for (offset_t p = begin; p <= last; p += height) {
    const index_t base = *col_base++;

    if (padded) ADD_COLUMN(ENTRY_OR_PADDING, SHORT_OR_PADDING);
    else ADD_COLUMN(ENTRY, SHORT_COLUMN);
  }
  KEEP_SUMS;
}

/* as full_product(), for neighbouring rows of one pattern: x_row is x at the first of them */
static inline __attribute__((always_inline)) void pattern_product(offset_t begin, offset_t last, int height, const index_t *deltas,
                                                                  const scalar_t *val, const scalar_t *x_row, scalar_t sum[GROUP])
{
  scalar_t s0 = 0, s1 = 0, s2 = 0, s3 = 0, s4 = 0, s5 = 0, s6 = 0, s7 = 0;

  for (offset_t p = begin; p <= last && *deltas != NO_ENTRY; p += height) {
    const scalar_t *x = x_row + *deltas++;

    ADD_COLUMN(ENTRY, NEIGHBOUR);
  }
  KEEP_SUMS;
}

/* as full_product(), for rows of any patterns: x_row[i] is x at row i */
static inline __attribute__((always_inline)) void patterns_product(offset_t begin, offset_t last, int height, const index_t *const deltas[GROUP],
                                                                   const scalar_t *val, const scalar_t *const x_row[GROUP], scalar_t sum[GROUP])
{
  scalar_t s0 = 0, s1 = 0, s2 = 0, s3 = 0, s4 = 0, s5 = 0, s6 = 0, s7 = 0;

  for (offset_t p = begin, j = 0; p <= last; p += height, j++) ADD_COLUMN(ENTRY_OF_PATTERN, deltas);
  KEEP_SUMS;
}

/* sum[i] = row i of a group times x: the `rows` rows from `position` on, lanes from `begin` on */
static inline __attribute__((always_inline)) void group_by_patterns(const Pjds *A, int height, offset_t position, int rows, offset_t begin,
                                                                    offset_t last, const scalar_t *x, scalar_t sum[GROUP])
{
  const index_t  *deltas[GROUP];
  const scalar_t *x_row[GROUP];
  int             alike = 1;

  for (int i = 0; i < GROUP; i++) { /* lanes after the last row repeat it; their sums are not used */
    const offset_t p = position + (i < rows ? i : rows - 1);

    deltas[i] = row_deltas(&A->patterns, p);
    x_row[i]  = x + row_at(A, p);
    alike &= deltas[i] == deltas[0] && x_row[i] == x_row[0] + i;
  }
  if (alike) pattern_product(begin, last, height, deltas[0], A->val, x_row[0], sum);
  else patterns_product(begin, last, height, deltas, A->val, x_row, sum);
}

/* sum[i] = row i of the group of `rows` rows from `position` on, times x */
static inline __attribute__((always_inline)) void group_product(const Pjds *A, int height, offset_t slice, offset_t position, int rows,
                                                                const scalar_t *x, scalar_t sum[GROUP])
{
  const offset_t slice_begin = A->slice_offsets[slice], end = A->slice_offsets[slice + 1], lane = position - slice * height;
  const offset_t begin = slice_begin + lane, last = end - height + lane;

  if (A->patterns.row_pattern) group_by_patterns(A, height, position, rows, begin, last, x, sum);
  else {
    const index_t *full = full_columns(&A->columns, slice, slice_begin);

    if (full) full_product(begin, last, height, full, A->val, x, sum);
    else short_product(begin, last, height, A->columns.col_offset, A->columns.col_base, A->val, x, sum);
  }
}

/* `use` with the sums of all rows; but for those of empty slices, if these are skipped: most slices of an off-diagonal block are empty */
static inline __attribute__((always_inline)) void product(const Pjds *A, int height, const scalar_t *x, int skips_empty, UseSum *use, void *result)
{
  for (offset_t slice = 0, position = 0; position < A->nrows; slice++) {
    const offset_t next = position + height;

    if (skips_empty && A->slice_offsets[slice] == A->slice_offsets[slice + 1]) {
      position = next;
      continue;
    }
    for (; position < next && position < A->nrows; position += GROUP) {
      const int rows = A->nrows - position < GROUP ? (int)(A->nrows - position) : GROUP;
      scalar_t  sum[GROUP];

      group_product(A, height, slice, position, rows, x, sum);
      for (int i = 0; i < rows; i++) use(result, row_at(A, position + i), i, sum[i]);
    }
  }
}

VECTOR_CLONES static void scaled_product(const Pjds *A, int height, const scalar_t *x, ScaledResult result)
{
  product(A, height, x, scaled_skips_empty(&result), use_scaled, &result);
}

VECTOR_CLONES static void fused_product(const Pjds *A, int height, const scalar_t *x, FusedResult result)
{
  product(A, height, x, fused_skips_empty(&result), use_fused, &result);
  finish_fused(&result);
}

/* z = alpha A x + beta y; y is not read if beta is 0, and z may be y */
HOST_KERNEL(pjds_spmv)
{
  const ScaledResult result = {PARAM(scalar_t, 2), PARAM(scalar_t, 3), PARAM(const scalar_t *, 4), PARAM(scalar_t *, 5)};

  scaled_product(&PARAM(const Pjds, 0), (int)block[0], PARAM(const scalar_t *, 1), result);
}

/* z = alpha u + beta x + gamma d (b - A x), row by row, and the dot product of w with A x */
HOST_KERNEL(pjds_fused)
{
  const FusedResult result = fused_result(params, 1);

  fused_product(&PARAM(const Pjds, 0), (int)block[0], result.x, result);
}

/* A[row, row] of the row at `position` */
static scalar_t diagonal_entry(const Pjds *A, int height, offset_t position, offset_t row)
{
  const offset_t slice = position / height, begin = A->slice_offsets[slice], end = A->slice_offsets[slice + 1];
  const index_t *deltas = A->patterns.row_pattern ? row_deltas(&A->patterns, position) : NULL;
  const index_t *full   = deltas ? NULL : full_columns(&A->columns, slice, begin);
  scalar_t       sum    = 0;

  for (offset_t p = begin + position % height; p < end; p += height)
    if (deltas ? *deltas++ == 0 : stored_column(&A->columns, full, height, p) == row) sum += A->val[p];
  return sum;
}

/* z[row] = A[row, row] */
HOST_KERNEL(pjds_diagonal)
{
  const Pjds *A = &PARAM(const Pjds, 0);
  scalar_t   *z = PARAM(scalar_t *, 1);

  for (offset_t position = 0; position < A->nrows; position++) {
    const offset_t row = row_at(A, position);

    z[row] = diagonal_entry(A, (int)block[0], position, row);
  }
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
  const int       height = (int)block[0]; \
  const index_t   nrows = PARAM(index_t, 0), *row_perm = PARAM(const index_t *, 3), *source = PARAM(const index_t *, 4); \
  const offset_t *slice_offsets = PARAM(const offset_t *, 1); \
  const Entry    *entries       = PARAM(const Entry *, 5); \
  Entry          *stored        = PARAM(Entry *, 6); \
  for (offset_t first = 0, slice = 0; first < nrows; first += height, slice++) \
    for (int lane = 0; lane < height; lane++) { \
      offset_t k, end; \
      row_range(first + lane, nrows, PARAM(const index_t *, 2), row_perm, &k, &end); \
      for (offset_t p = slice_offsets[slice] + lane; p < slice_offsets[slice + 1]; p += height, k++) \
        stored[p] = k < end ? entries[source ? source[k] : k] : (padding); \
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
