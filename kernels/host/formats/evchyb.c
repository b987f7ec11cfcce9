/* Host kernels of EVC-HYB (formats/evchyb/evchyb.py): the parameters and arrays are those of kernels/formats/evchyb.cu, with slices of block[0] rows. */
#include "formats/columns.h"
#include "formats/evchyb.h"

#define GROUP 8 /* lanes that are summed together: one cache line of values in double precision; divides every slice height */

typedef struct {
  alignas(8) index_t nell;
  const index_t     *row_perm, *segment_row;
  const RowSegments *segments;
} SliceRows;

typedef struct {
  alignas(8) index_t nlong_blocks;
  const Task     *tasks;
  SliceRows       rows;
  StoredColumns   columns;
  const scalar_t *val;
  scalar_t       *partials;
  int32_t        *tickets;
} EvcHyb;

/* tasks of a launch: block[1] is the number of warps in a block */
#define NTASKS ((offset_t)grid[0] * block[1])

/* one column of a group; the sums are separate variables because compilers keep those in registers, and an array not always */
#define ADD_COLUMN(TERM)    (s0 += TERM(0), s1 += TERM(1), s2 += TERM(2), s3 += TERM(3), s4 += TERM(4), s5 += TERM(5), s6 += TERM(6), s7 += TERM(7))
#define ENTRY(i)            (val[p + i] * x[full[p + i]])
#define ENTRY_OR_PADDING(i) (val[p + i] * (full[p + i] >= 0 ? x[full[p + i]] : 0))

/* sum[i] = lane `lane` + i of a slice times x; `full` and `columns` as for stored_column() */
static inline __attribute__((always_inline)) void lane_products(const StoredColumns *columns, const index_t *full, offset_t begin, offset_t end,
                                                                int height, int lane, const scalar_t *val, const scalar_t *x, scalar_t sum[GROUP])
{
  scalar_t       s0 = 0, s1 = 0, s2 = 0, s3 = 0, s4 = 0, s5 = 0, s6 = 0, s7 = 0;
  const offset_t last   = end - height + lane;
  int            padded = 0;

  for (int i = 0; i < GROUP; i++) sum[i] = 0;
  if (begin == end) return;
  if (!full) {
    for (offset_t p = begin + lane; p < end; p += height)
      for (int i = 0; i < GROUP; i++) {
        const index_t column = short_column(columns, height, p + i);

        sum[i] += val[p + i] * (column >= 0 ? x[column] : 0);
      }
    return;
  }
  for (int i = 0; i < GROUP; i++) padded |= full[last + i] < 0; /* padding is at the end of a row, and of a segment */
  if (padded)
    for (offset_t p = begin + lane; p <= last; p += height) ADD_COLUMN(ENTRY_OR_PADDING);
  else
    for (offset_t p = begin + lane; p <= last; p += height) ADD_COLUMN(ENTRY);
  sum[0] = s0, sum[1] = s1, sum[2] = s2, sum[3] = s3, sum[4] = s4, sum[5] = s5, sum[6] = s6, sum[7] = s7;
}

/* Adds up the segments of a row with the last of them: 0 if others are missing, else 1 and the sum of the row in `sum`. */
static inline int last_of_row(const EvcHyb *A, offset_t segment, scalar_t *sum)
{
  const RowSegments row = A->rows.segments[segment];

  A->partials[segment] = *sum;
  if (++A->tickets[row.first] < row.count) return 0;
  A->tickets[row.first] = 0;
  *sum                  = 0;
  for (int32_t i = 0; i < row.count; i++) *sum += A->partials[row.first + i];
  return 1;
}

/* z = alpha A x + beta y */
VECTOR_CLONES static void product(const EvcHyb *A, int height, offset_t ntasks, const scalar_t *x, scalar_t alpha, scalar_t beta, const scalar_t *y,
                                  scalar_t *z)
{
  for (offset_t t = 0; t < ntasks; t++) {
    const Task     task  = A->tasks[t];
    const offset_t begin = task.begin, end = begin + (offset_t)(task.shape >> 5) * height;
    const int      team = 1 << (task.shape & 15);
    scalar_t       sum[GROUP], row_sum = 0;

    if (task.slice < 0 || t % team) continue;          /* one warp does the work of its team */
    if (y == z && beta == 1 && begin == end) continue; /* nothing to add; most slices of an off-diagonal block are empty */
    const index_t *full = full_columns(&A->columns, task.slice, begin);

    for (int lane = 0; lane < height; lane += GROUP) {
      const offset_t position = (offset_t)task.slice * height + lane;

      lane_products(&A->columns, full, begin, end, height, lane, A->val, x, sum);
      for (int i = 0; i < GROUP; i++)
        if (task.slice >= A->rows.nell) row_sum += sum[i];
        else store_result(A->rows.row_perm ? A->rows.row_perm[position + i] : position + i, sum[i], alpha, beta, y, z);
    }
    if (task.slice < A->rows.nell || (task.shape & 16 && !last_of_row(A, task.slice - A->rows.nell, &row_sum))) continue;
    store_result(A->rows.segment_row[task.slice - A->rows.nell], row_sum, alpha, beta, y, z);
  }
}

/* z = alpha A x + beta y; y is not read if beta is 0, and z may be y */
HOST_KERNEL(evchyb_spmv)
{
  product(&PARAM(const EvcHyb, 0), (int)block[0], NTASKS, PARAM(const scalar_t *, 1), PARAM(scalar_t, 2), PARAM(scalar_t, 3),
          PARAM(const scalar_t *, 4), PARAM(scalar_t *, 5));
}

/* row of entry p of a slice */
static inline offset_t row_of(const SliceRows *rows, int height, offset_t slice, int lane)
{
  if (slice >= rows->nell) return rows->segment_row[slice - rows->nell];
  return rows->row_perm ? rows->row_perm[slice * height + lane] : slice * height + lane;
}

enum { CONSTANT_X = 1, CONSTANT_A = 2 };

/* z = A x with 1 in place of the entries of x, of A, or of both, as `constant` says */
static void constant_product(const uint32_t grid[3], const uint32_t block[3], void **params, int constant)
{
  const EvcHyb   *A      = &PARAM(const EvcHyb, 0);
  const scalar_t *x      = PARAM(const scalar_t *, 1);
  scalar_t       *z      = PARAM(scalar_t *, 2);
  const int       height = (int)block[0];

  for (offset_t t = 0; t < NTASKS; t++) {
    const Task task    = A->tasks[t];
    const int  is_long = task.slice >= A->rows.nell;
    scalar_t   row_sum = 0;

    if (task.slice < 0 || t % (1 << (task.shape & 15))) continue;
    const index_t *full = full_columns(&A->columns, task.slice, task.begin);

    for (int lane = 0; lane < height; lane++) {
      scalar_t sum = 0;

      for (int group = 0; group < task.shape >> 5; group++) {
        const offset_t p      = task.begin + (offset_t)group * height + lane;
        const index_t  column = constant & CONSTANT_X ? 0 : stored_column(&A->columns, full, height, p);
        const scalar_t entry  = constant & CONSTANT_X ? 1 : column >= 0 ? x[column] : 0;

        sum += (constant & CONSTANT_A ? 1 : A->val[p]) * entry;
      }
      if (is_long) row_sum += sum;
      else z[row_of(&A->rows, height, task.slice, lane)] = sum;
    }
    if (!is_long || (task.shape & 16 && !last_of_row(A, task.slice - A->rows.nell, &row_sum))) continue;
    z[A->rows.segment_row[task.slice - A->rows.nell]] = row_sum;
  }
}

HOST_KERNEL(evchyb_without_x)
{
  constant_product(grid, block, params, CONSTANT_X);
}

HOST_KERNEL(evchyb_without_values)
{
  constant_product(grid, block, params, CONSTANT_A);
}

HOST_KERNEL(evchyb_without_both)
{
  constant_product(grid, block, params, CONSTANT_X | CONSTANT_A);
}

/* z[row] = A[row, row] */
HOST_KERNEL(evchyb_diagonal)
{
  const EvcHyb *A      = &PARAM(const EvcHyb, 0);
  const int     height = (int)block[0];
  scalar_t     *z      = PARAM(scalar_t *, 1);

  for (int pass = 0; pass < 2; pass++) /* all rows to 0, then what there is */
    for (offset_t t = 0; t < NTASKS; t++) {
      const Task     task = A->tasks[t];
      const index_t *full;

      if (task.slice < 0 || t % (1 << (task.shape & 15))) continue;
      full = full_columns(&A->columns, task.slice, task.begin);
      for (int lane = 0; lane < height; lane++) {
        const offset_t row = row_of(&A->rows, height, task.slice, lane);

        if (!pass) z[row] = 0;
        else
          for (int group = 0; group < task.shape >> 5; group++) {
            const offset_t p = task.begin + (offset_t)group * height + lane;

            if (stored_column(&A->columns, full, height, p) == row) z[row] += A->val[p];
          }
      }
    }
}

#define DEFINE_FILL(Entry, padding) \
  const int        height  = (int)block[0]; \
  const offset_t   nslices = PARAM(offset_t, 0), *slice_offsets = PARAM(const offset_t *, 1); \
  const SliceRows *rows   = &PARAM(const SliceRows, 2); \
  const index_t   *rowptr = PARAM(const index_t *, 3), *source = PARAM(const index_t *, 4); \
  const Entry     *entries = PARAM(const Entry *, 5); \
  Entry           *stored  = PARAM(Entry *, 6); \
  for (offset_t slice = 0; slice < nslices; slice++) { \
    const int      is_long = slice >= rows->nell; \
    const offset_t before  = is_long ? slice_offsets[slice] - slice_offsets[rows->nell + rows->segments[slice - rows->nell].first] \
                                     : 0; /* in earlier segments of the row */ \
    for (int lane = 0; lane < height; lane++) { \
      const offset_t row = row_of(rows, height, slice, lane), end = rowptr[row + 1]; \
      offset_t       k = rowptr[row] + before + (is_long ? lane : 0); \
      for (offset_t p = slice_offsets[slice] + lane; p < slice_offsets[slice + 1]; p += height, k += is_long ? height : 1) \
        stored[p] = k < end ? entries[source ? source[k] : k] : (padding); \
    } \
  }

/* structure pass: columns into the slices, -1 in padding */
HOST_KERNEL(evchyb_fill_columns)
{
  DEFINE_FILL(index_t, -1)
}

/* value pass: the refresh after a change of values, 0 in padding */
HOST_KERNEL(evchyb_fill_values)
{
  DEFINE_FILL(scalar_t, 0)
}
