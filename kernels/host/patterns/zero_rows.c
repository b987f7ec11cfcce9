/* Rows, or rows and columns, of a matrix made zeros in place; the parameters are those of kernels/patterns/zero_rows.cu. */
#include "common/host.h"

/* places[i] = the place of the diagonal entry of row i, or -1, and missing[i] = whether there is none; *found = 1 if a row has none */
HOST_KERNEL(find_diagonal)
{
  const index_t  nrows = PARAM(index_t, 0), *rowptr = PARAM(const index_t *, 1), *colidx = PARAM(const index_t *, 2);
  index_t       *places = PARAM(index_t *, 3), *found = PARAM(index_t *, 5);
  unsigned char *missing = PARAM(unsigned char *, 4);

  for (offset_t row = 0; row < nrows; row++) {
    index_t place = rowptr[row];

    while (place < rowptr[row + 1] && colidx[place] != row) place++;
    missing[row] = place == rowptr[row + 1];
    places[row]  = missing[row] ? -1 : place;
    if (missing[row]) *found = 1;
  }
}

/* values[e] = 0 in rows and columns, alpha at places[i]; b[i] = alpha x[i] in the rows, and what is zeroed in columns goes to b[i] of others */
HOST_KERNEL(zero_rows)
{
  const index_t        nrows = PARAM(index_t, 0), ncols = PARAM(index_t, 1), *rowptr = PARAM(const index_t *, 2), *colidx = PARAM(const index_t *, 3);
  const index_t       *places = PARAM(const index_t *, 4);
  const unsigned char *rows = PARAM(const unsigned char *, 5), *columns = PARAM(const unsigned char *, 6);
  const scalar_t       alpha = PARAM(scalar_t, 7), *x = PARAM(const scalar_t *, 8);
  scalar_t            *b = PARAM(scalar_t *, 9), *values = PARAM(scalar_t *, 10);

  for (offset_t row = 0; row < nrows; row++) {
    scalar_t sum = 0;

    for (offset_t e = rowptr[row]; e < rowptr[row + 1]; e++) {
      if (!rows[row] && !(columns && columns[colidx[e]])) continue;
      if (!rows[row] && b) sum += values[e] * x[colidx[e]];
      values[e] = rows[row] && places && e == places[row] ? alpha : 0;
    }
    if (!b) continue;
    if (!rows[row]) b[row] -= sum;
    else if (places && row < ncols) b[row] = alpha * x[row];
  }
}
