/* Row merging on the host: the parameters and arrays are those of kernels/spgemm/rmerge.cu. The fronts of the rows that are merged stand in a
   binary heap; equal columns are added in the order of the left factor's entries. */
#include "common/search.h"
#include "spgemm/census.h"

enum { LARGEST_WIDTH = 32 };

typedef struct {
  alignas(8) index_t count;
  const index_t  *begin, *end, *columns;
  const scalar_t *weights;
  const index_t  *right_rowptr, *right_columns;
  const scalar_t *right_values;
  alignas(8) index_t col_begin, col_end, ncols;
} Factors;

/* A front in the heap: its column, then the number of its row, in one word that compares as both do */
static inline uint64_t front(index_t column, int row)
{
  return (uint64_t)column * LARGEST_WIDTH + (uint64_t)row;
}

static inline void sift_down(uint64_t *heap, int size, int hole, uint64_t item)
{
  for (int child = 2 * hole + 1; child < size; hole = child, child = 2 * hole + 1) {
    if (child + 1 < size && heap[child + 1] < heap[child]) child++;
    if (item < heap[child]) break;
    heap[hole] = heap[child];
  }
  heap[hole] = item;
}

/* Merges row i, and stores columns and sums unless the arrays are null. Returns the number of columns. */
static inline offset_t merge_row(const Factors *f, offset_t i, index_t *out_columns, scalar_t *out_values)
{
  uint64_t heap[LARGEST_WIDTH];
  offset_t position[LARGEST_WIDTH], end[LARGEST_WIDTH], length = 0;
  int      size = 0;
  index_t  last = -1;

  for (offset_t k = f->begin[i]; k < f->end[i]; k++) {
    const index_t row   = f->columns ? f->columns[k] : (index_t)k;
    const int     entry = (int)(k - f->begin[i]);

    position[entry] = f->right_rowptr[row];
    end[entry]      = f->right_rowptr[row + 1];
    if (f->col_begin > 0) PARTITION_POINT(position[entry], position[entry], end[entry], f->right_columns[position[entry]] < f->col_begin);
    if (f->col_end < f->ncols) PARTITION_POINT(end[entry], position[entry], end[entry], f->right_columns[end[entry]] < f->col_end);
    if (position[entry] < end[entry]) heap[size++] = front(f->right_columns[position[entry]], entry);
  }
  for (int hole = size / 2 - 1; hole >= 0; hole--) sift_down(heap, size, hole, heap[hole]);
  while (size > 0) {
    const index_t column = (index_t)(heap[0] / LARGEST_WIDTH);
    const int     entry  = (int)(heap[0] % LARGEST_WIDTH);

    if (column != last) {
      if (out_columns) out_columns[length] = column;
      if (out_values) out_values[length] = 0;
      length++;
      last = column;
    }
    if (out_values) out_values[length - 1] += (f->weights ? f->weights[f->begin[i] + entry] : 1) * f->right_values[position[entry]];
    if (++position[entry] < end[entry]) sift_down(heap, size, 0, front(f->right_columns[position[entry]], entry));
    else {
      size--;
      if (size > 0) sift_down(heap, size, 0, heap[size]);
    }
  }
  return length;
}

/* lengths[i] = number of columns of row i */
HOST_KERNEL(rmerge_lengths)
{
  const Factors *f       = &PARAM(const Factors, 0);
  offset_t      *lengths = PARAM(offset_t *, 1);

  for (offset_t i = 0; i < f->count; i++) lengths[i] = merge_row(f, i, NULL, NULL);
}

/* the columns of row i from out_columns[starts[i]] on */
HOST_KERNEL(rmerge_columns)
{
  const Factors *f           = &PARAM(const Factors, 0);
  const index_t *starts      = PARAM(const index_t *, 1);
  index_t       *out_columns = PARAM(index_t *, 2);

  for (offset_t i = 0; i < f->count; i++) merge_row(f, i, out_columns + starts[i], NULL);
}

/* the columns and sums of row i from out_columns[starts[i]] and out_values[starts[i]] on */
HOST_KERNEL(rmerge_columns_values)
{
  const Factors *f           = &PARAM(const Factors, 0);
  const index_t *starts      = PARAM(const index_t *, 1);
  index_t       *out_columns = PARAM(index_t *, 2);
  scalar_t      *out_values  = PARAM(scalar_t *, 3);

  for (offset_t i = 0; i < f->count; i++) merge_row(f, i, out_columns + starts[i], out_values + starts[i]);
}

/* the sums of row i from out_values[starts[i]] on */
HOST_KERNEL(rmerge_values)
{
  const Factors *f          = &PARAM(const Factors, 0);
  const index_t *starts     = PARAM(const index_t *, 1);
  scalar_t      *out_values = PARAM(scalar_t *, 4);

  for (offset_t i = 0; i < f->count; i++) merge_row(f, i, NULL, out_values + starts[i]);
}

/* Network kernels: on a core rows are merged in the same way, all entries of a row of A at once */
static Factors factors_of_network(void **params)
{
  const index_t *rowptr = PARAM(const index_t *, 1);

  return (Factors){.begin         = rowptr,
                   .end           = rowptr + 1,
                   .columns       = PARAM(const index_t *, 2),
                   .right_rowptr  = PARAM(const index_t *, 3),
                   .right_columns = PARAM(const index_t *, 4)};
}

HOST_KERNEL(rmerge_network_lengths)
{
  const index_t nrows   = PARAM(index_t, 0);
  const Factors f       = factors_of_network(params);
  offset_t     *lengths = PARAM(offset_t *, 5), *terms = PARAM(offset_t *, 6);
  Control      *control = PARAM(Control *, 7);

  for (offset_t i = 0; i < nrows; i++) {
    lengths[i] = merge_row(&f, i, NULL, NULL);
    terms[i]   = 0;
    for (offset_t entry = f.begin[i]; entry < f.end[i]; entry++) {
      const index_t begin = f.right_rowptr[f.columns[entry]], end = f.right_rowptr[f.columns[entry] + 1];

      terms[i] += end - begin;
      for (offset_t k = (offset_t)begin + 1; k < end; k++)
        if (f.right_columns[k] <= f.right_columns[k - 1]) control->falls = 1;
    }
  }
}

HOST_KERNEL(rmerge_network_columns)
{
  const index_t  nrows       = PARAM(index_t, 0);
  const Factors  f           = factors_of_network(params);
  const index_t *rowptr      = PARAM(const index_t *, 5);
  index_t       *out_columns = PARAM(index_t *, 6);

  for (offset_t i = 0; i < nrows; i++) merge_row(&f, i, out_columns + rowptr[i], NULL);
}
