/* Host kernels of JDS (formats/jds.py): the parameters and arrays are those of kernels/formats/jds.cu. */
#include "formats/ell.h"

/* the first arguments of both */
static inline EllMatrix matrix_of(void **params)
{
  return (EllMatrix){.nrows   = PARAM(index_t, 0),
                     .jd_ptr  = PARAM(const offset_t *, 1),
                     .lengths = PARAM(const index_t *, 2),
                     .perm    = PARAM(const index_t *, 3),
                     .col     = PARAM(const index_t *, 4),
                     .val     = PARAM(const scalar_t *, 5)};
}

/* z = alpha A x + beta y */
HOST_KERNEL(jds_spmv)
{
  const EllMatrix A = matrix_of(params);

  ell_product(&A, PARAM(const scalar_t *, 6), PARAM(scalar_t, 7), PARAM(scalar_t, 8), PARAM(const scalar_t *, 9), PARAM(scalar_t *, 10));
}

/* one jagged diagonal of the basic multiplication */
HOST_KERNEL(jds_add_diagonal)
{
  const index_t   nrows = PARAM(index_t, 0), count = PARAM(index_t, 1);
  const offset_t  first = PARAM(offset_t, 2), adds = PARAM(offset_t, 3);
  const index_t  *col = PARAM(const index_t *, 4) + first;
  const scalar_t *val = PARAM(const scalar_t *, 5) + first, *x = PARAM(const scalar_t *, 6);
  scalar_t       *partial = PARAM(scalar_t *, 7);

  for (offset_t p = 0; p < (adds ? count : nrows); p++) {
    const scalar_t product = p < count && col[p] >= 0 ? val[p] * x[col[p]] : 0;

    partial[p] = adds ? partial[p] + product : product;
  }
}

/* z[row] = A[row, row] */
HOST_KERNEL(jds_diagonal)
{
  const EllMatrix A = matrix_of(params);

  ell_product(&A, NULL, 1, 0, NULL, PARAM(scalar_t *, 6));
}

/* a jagged diagonal reaches to the end of the alignment group in which its rows end */
#define DEFINE_FILL(Entry, padding) \
  const EllMatrix A         = {.nrows   = PARAM(index_t, 0), \
                               .jd_ptr  = PARAM(const offset_t *, 2), \
                               .lengths = PARAM(const index_t *, 3), \
                               .perm    = PARAM(const index_t *, 4)}; \
  const offset_t  alignment = PARAM(index_t, 1), positions = (A.nrows + alignment - 1) / alignment * alignment; \
  const index_t  *rowptr = PARAM(const index_t *, 5), *source = PARAM(const index_t *, 6); \
  const Entry    *entries = PARAM(const Entry *, 7); \
  Entry          *stored  = PARAM(Entry *, 8); \
  ELL_FILL(Entry, &A, positions, alignment, rowptr, source, entries, stored, padding)

/* structure pass: columns into the jagged diagonals, -1 in padding */
HOST_KERNEL(jds_fill_columns)
{
  DEFINE_FILL(index_t, -1)
}

/* value pass: the refresh after a change of values, 0 in padding */
HOST_KERNEL(jds_fill_values)
{
  DEFINE_FILL(scalar_t, 0)
}
