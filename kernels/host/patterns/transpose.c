/* The pattern of a transpose by counting; the parameters are those of kernels/patterns/transpose.cu. A core takes entries one after another, so
   they are in order when they are in their columns, and no transpose_merge is needed. */
#include "common/host.h"

typedef struct {
  index_t number, row; /* in the matrix that is transposed */
} Entry;

/* Adds the entries of each column to counts [ncols]; slots[k] = how many entries of its column were counted before entry k */
HOST_KERNEL(transpose_count)
{
  const index_t nnz = PARAM(index_t, 0), *colidx = PARAM(const index_t *, 1);
  index_t      *counts = PARAM(index_t *, 2), *slots = PARAM(index_t *, 3);

  for (offset_t k = 0; k < nnz; k++) slots[k] = counts[colidx[k]]++;
}

typedef struct {
  uint64_t ticket, longest;
} Control;

/* Puts in the place of each count the sum of those before it, and the largest into `control` */
HOST_KERNEL(transpose_row_pointer)
{
  const offset_t ncounts = PARAM(offset_t, 0);
  index_t       *counts = PARAM(index_t *, 1), sum = 0;
  Control *const control = PARAM(Control *, 2);

  for (offset_t j = 0; j < ncounts; j++) {
    const index_t count = counts[j];

    if ((uint64_t)count > control->longest) control->longest = (uint64_t)count;
    counts[j] = sum;
    sum += count;
  }
}

/* Brings each entry to its column, which begins at begins[column] */
HOST_KERNEL(transpose_scatter)
{
  const index_t  nrows = PARAM(index_t, 1), *rowptr = PARAM(const index_t *, 2), *colidx = PARAM(const index_t *, 3);
  const index_t *begins = PARAM(const index_t *, 4), *slots = PARAM(const index_t *, 5);
  Entry         *entries = PARAM(Entry *, 6);

  for (index_t row = 0; row < nrows; row++)
    for (index_t k = rowptr[row]; k < rowptr[row + 1]; k++) entries[begins[colidx[k]] + slots[k]] = (Entry){k, row};
}

/* The arrays of the transpose from its entries; `given` may be null */
HOST_KERNEL(transpose_sort)
{
  const index_t nnz = PARAM(index_t, 0), *given = PARAM(const index_t *, 4);
  const Entry  *entries = PARAM(const Entry *, 3);
  index_t      *colidx = PARAM(index_t *, 5), *source = PARAM(index_t *, 6);

  for (offset_t k = 0; k < nnz; k++) {
    colidx[k] = entries[k].row;
    source[k] = given ? given[entries[k].number] : entries[k].number;
  }
}
