/* Values of a matrix scaled and added to in place; the parameters are those of kernels/patterns/scale_and_add.cu. */
#include "common/host.h"

/* nothing: a core goes from row to row */
HOST_KERNEL(find_tile_rows) { }

/* values[e] *= alpha */
HOST_KERNEL(scale_values)
{
  const index_t  nnz    = PARAM(index_t, 0);
  const scalar_t alpha  = PARAM(scalar_t, 1);
  scalar_t      *values = PARAM(scalar_t *, 2);

  for (offset_t e = 0; e < nnz; e++) values[e] = alpha * values[e];
}

/* values[e] *= factors[row of e] */
HOST_KERNEL(scale_rows)
{
  const index_t   nnz = PARAM(index_t, 0), *rowptr = PARAM(const index_t *, 2);
  const scalar_t *factors = PARAM(const scalar_t *, 3);
  scalar_t       *values  = PARAM(scalar_t *, 4);

  for (offset_t row = 0, e = 0; e < nnz; row++)
    for (; e < rowptr[row + 1]; e++) values[e] *= factors[row];
}

/* values[e] *= factors[column of e] */
HOST_KERNEL(scale_columns)
{
  const index_t   nnz = PARAM(index_t, 0), *colidx = PARAM(const index_t *, 1);
  const scalar_t *factors = PARAM(const scalar_t *, 2);
  scalar_t       *values  = PARAM(scalar_t *, 3);

  for (offset_t e = 0; e < nnz; e++) values[e] *= factors[colidx[e]];
}

/* values[index[e]] += alpha x[e]; index null: values[e] */
HOST_KERNEL(add_values)
{
  const index_t  nnz = PARAM(index_t, 0), *index = PARAM(const index_t *, 1);
  const scalar_t alpha = PARAM(scalar_t, 2), *x = PARAM(const scalar_t *, 3);
  scalar_t      *values = PARAM(scalar_t *, 4);

  for (offset_t e = 0; e < nnz; e++) values[index ? index[e] : e] += alpha * x[e];
}

/* index[e] = the place of entry e in another matrix, whose rows are sorted; *missing = 1 if there is none, or rows here do not ascend */
HOST_KERNEL(locate_entries)
{
  const index_t  nnz = PARAM(index_t, 0), *rowptr = PARAM(const index_t *, 2), *colidx = PARAM(const index_t *, 3),
                 *columns      = PARAM(const index_t *, 4);
  const index_t *target_rowptr = PARAM(const index_t *, 5), *target_colidx = PARAM(const index_t *, 6);
  index_t       *index = PARAM(index_t *, 7), *missing = PARAM(index_t *, 8);

  for (offset_t row = 0, e = 0; e < nnz; row++) {
    offset_t place = target_rowptr[row];

    for (; e < rowptr[row + 1]; e++) {
      const index_t column = columns ? columns[colidx[e]] : colidx[e];

      while (place < target_rowptr[row + 1] && target_colidx[place] < column) place++;
      if (place == target_rowptr[row + 1] || target_colidx[place] != column || (e > rowptr[row] && colidx[e - 1] >= colidx[e])) {
        *missing = 1;
        return;
      }
      index[e] = (index_t)place;
    }
  }
}

/* places[i] = the place of the diagonal entry of row i, whose columns ascend; *missing = 1 if a row has none */
HOST_KERNEL(locate_diagonal)
{
  const index_t nrows = PARAM(index_t, 0), *rowptr = PARAM(const index_t *, 1), *colidx = PARAM(const index_t *, 2);
  index_t      *places = PARAM(index_t *, 3), *missing = PARAM(index_t *, 4);

  for (index_t row = 0; row < nrows; row++) {
    index_t place = rowptr[row];

    while (place < rowptr[row + 1] && colidx[place] < row) place++;
    places[row] = place;
    if (place == rowptr[row + 1] || colidx[place] != row) *missing = 1;
  }
}

/* values[places[i]] = x[i], or alpha where x is null, + kept[places[i]] unless that is null; it may be `values` */
HOST_KERNEL(set_diagonal)
{
  const index_t  nrows = PARAM(index_t, 0), *places = PARAM(const index_t *, 1);
  const scalar_t alpha = PARAM(scalar_t, 2), *x = PARAM(const scalar_t *, 3), *kept = PARAM(const scalar_t *, 4);
  scalar_t      *values = PARAM(scalar_t *, 5);

  for (index_t row = 0; row < nrows; row++) {
    const scalar_t value = x ? x[row] : alpha;

    values[places[row]] = kept ? kept[places[row]] + value : value;
  }
}
