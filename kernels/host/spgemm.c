/* Host kernels that all sparse products need; the parameters are those of kernels/spgemm.cu. */
#include "host.h"
#include <string.h>

/* terms[i] = sum over the entries k of row i of A of the length of row k of B; adds {sum of terms, largest of terms, longest row of
   A} to census */
HOST_KERNEL(spgemm_count_terms)
{
  const index_t  nrows = PARAM(index_t, 0), *rowptr = PARAM(const index_t *, 1), *colidx = PARAM(const index_t *, 2), *right_rowptr = PARAM(const index_t *, 3);
  offset_t      *terms = PARAM(offset_t *, 4), *census = PARAM(offset_t *, 5);

  for (offset_t row = 0; row < nrows; row++) {
    const offset_t length = rowptr[row + 1] - rowptr[row];
    offset_t       count  = 0;

    for (offset_t k = rowptr[row]; k < rowptr[row + 1]; k++) count += right_rowptr[colidx[k] + 1] - right_rowptr[colidx[k]];
    terms[row] = count;
    census[0] += count;
    if (count > census[1]) census[1] = count;
    if (length > census[2]) census[2] = length;
  }
}

/* sets *falls where a column of a row is not above the one before it */
HOST_KERNEL(spgemm_rows_fall)
{
  const index_t nrows = PARAM(index_t, 0), *rowptr = PARAM(const index_t *, 1), *colidx = PARAM(const index_t *, 2);
  int          *falls = PARAM(int *, 3);

  for (offset_t row = 0; row < nrows; row++)
    for (offset_t k = (offset_t)rowptr[row] + 1; k < rowptr[row + 1]; k++)
      if (colidx[k] <= colidx[k - 1]) *falls = 1;
}

/* to[to_starts[i] + j] = from[from_starts[i] + j] for the j < lengths[i] columns of each of `count` rows */
HOST_KERNEL(spgemm_move_rows)
{
  const index_t   count       = PARAM(index_t, 0);
  const offset_t *lengths     = PARAM(const offset_t *, 1);
  const index_t  *from_starts = PARAM(const index_t *, 2), *from = PARAM(const index_t *, 3), *to_starts = PARAM(const index_t *, 4);
  index_t        *to = PARAM(index_t *, 5);

  for (offset_t i = 0; i < count; i++) memcpy(to + to_starts[i], from + from_starts[i], (size_t)lengths[i] * sizeof(index_t));
}
