/* Host kernels that all sparse products need; the parameters are those of kernels/spgemm/census.cu. A core needs no bins. */
#include "spgemm/census.h"

void gpufmt_count_terms(index_t nrows, const index_t *rowptr, const index_t *colidx, const index_t *right_rowptr, offset_t *terms, Control *control)
{
  for (offset_t row = 0; row < nrows; row++) {
    const uint64_t length = (uint64_t)(rowptr[row + 1] - rowptr[row]);
    uint64_t       count  = 0;

    for (offset_t k = rowptr[row]; k < rowptr[row + 1]; k++) {
      const uint64_t met = (uint64_t)(right_rowptr[colidx[k] + 1] - right_rowptr[colidx[k]]);

      count += met;
      if (met > control->longest_right) control->longest_right = met;
    }
    terms[row] = (offset_t)count;
    control->terms += count;
    if (count > control->most_terms) control->most_terms = count;
    if (length > control->longest_left) control->longest_left = length;
  }
}

HOST_KERNEL(spgemm_count_terms)
{
  const index_t  right_nrows = PARAM(index_t, 3), *right_rowptr = PARAM(const index_t *, 4), *right_colidx = PARAM(const index_t *, 5);
  Control *const control = PARAM(Control *, 7);

  gpufmt_count_terms(PARAM(index_t, 0), PARAM(const index_t *, 1), PARAM(const index_t *, 2), right_rowptr, PARAM(offset_t *, 6), control);
  for (offset_t row = 0; row < right_nrows; row++)
    for (offset_t k = (offset_t)right_rowptr[row] + 1; k < right_rowptr[row + 1]; k++)
      if (right_colidx[k] <= right_colidx[k - 1]) control->falls = 1;
}

/* rowptr [nrows + 1] of rows of `lengths`, and the number of entries */
HOST_KERNEL(spgemm_row_pointer)
{
  const index_t   nrows   = PARAM(index_t, 0);
  const offset_t *lengths = PARAM(const offset_t *, 1);
  index_t        *rowptr  = PARAM(index_t *, 6);
  Control *const  control = PARAM(Control *, 7);
  const uint64_t *carried = PARAM(const uint64_t *, 8);

  rowptr[0] = 0;
  if (carried) control->carried = *carried;
  for (offset_t row = 0; row < nrows; row++) {
    control->nnz += (uint64_t)lengths[row];
    if ((uint64_t)lengths[row] > control->longest) control->longest = (uint64_t)lengths[row];
    rowptr[row + 1] = (index_t)control->nnz;
  }
}
