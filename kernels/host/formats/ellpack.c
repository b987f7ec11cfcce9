/* Host kernels of ELLPACK (formats/ellpack.py): the parameters and arrays are those of kernels/formats/ellpack.cu. */
#include "formats/ell.h"

#define GROUP 8 /* rows that are filled together */

/* the first arguments of both */
static inline EllMatrix matrix_of(void **params)
{
  return (EllMatrix){.nrows  = PARAM(index_t, 0),
                     .height = PARAM(offset_t, 1),
                     .width  = PARAM(index_t, 2),
                     .col    = PARAM(const index_t *, 3),
                     .val    = PARAM(const scalar_t *, 4)};
}

/* z = alpha A x + beta y */
HOST_KERNEL(ellpack_spmv)
{
  const EllMatrix A = matrix_of(params);

  ell_product(&A, PARAM(const scalar_t *, 5), PARAM(scalar_t, 6), PARAM(scalar_t, 7), PARAM(const scalar_t *, 8), PARAM(scalar_t *, 9));
}

/* z[row] = A[row, row] */
HOST_KERNEL(ellpack_diagonal)
{
  const EllMatrix A = matrix_of(params);

  ell_product(&A, NULL, 1, 0, NULL, PARAM(scalar_t *, 5));
}

#define DEFINE_FILL(Entry, padding) \
  const EllMatrix A      = {.nrows = PARAM(index_t, 0), .height = PARAM(offset_t, 1), .width = PARAM(index_t, 2)}; \
  const index_t  *rowptr = PARAM(const index_t *, 3), *source = PARAM(const index_t *, 4); \
  const Entry    *entries = PARAM(const Entry *, 5); \
  Entry          *stored  = PARAM(Entry *, 6); \
  ELL_FILL(Entry, &A, A.height, GROUP, rowptr, source, entries, stored, padding)

/* structure pass: columns into the rectangle, -1 in padding */
HOST_KERNEL(ellpack_fill_columns)
{
  DEFINE_FILL(index_t, -1)
}

/* value pass: the refresh after a change of values, 0 in padding */
HOST_KERNEL(ellpack_fill_values)
{
  DEFINE_FILL(scalar_t, 0)
}
