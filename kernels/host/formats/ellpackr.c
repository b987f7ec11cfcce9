/* Host kernels of ELLPACK-R (formats/ellpackr.py): the parameters and arrays are those of kernels/formats/ellpackr.cu. */
#include "formats/ell.h"

/* the first arguments of both */
static inline EllMatrix matrix_of(void **params)
{
  return (EllMatrix){.nrows   = PARAM(index_t, 0),
                     .height  = PARAM(offset_t, 1),
                     .lengths = PARAM(const index_t *, 2),
                     .col     = PARAM(const index_t *, 3),
                     .val     = PARAM(const scalar_t *, 4)};
}

/* z = alpha A x + beta y */
HOST_KERNEL(ellpackr_spmv)
{
  const EllMatrix A = matrix_of(params);

  ell_product(&A, PARAM(const scalar_t *, 5), PARAM(scalar_t, 6), PARAM(scalar_t, 7), PARAM(const scalar_t *, 8), PARAM(scalar_t *, 9));
}

/* z[row] = A[row, row] */
HOST_KERNEL(ellpackr_diagonal)
{
  const EllMatrix A = matrix_of(params);

  ell_product(&A, NULL, 1, 0, NULL, PARAM(scalar_t *, 5));
}
