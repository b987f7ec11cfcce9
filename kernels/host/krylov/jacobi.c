/* Jacobi's preconditioner; the parameters are those of kernels/krylov/jacobi.cu. */
#include "common/host.h"
#include <petscsys.h>

/* z[row] = 1 / x[row], or 0, and how many x[row] are not above 0 */
HOST_KERNEL(jacobi_reciprocals)
{
  const offset_t  nrows = PARAM(offset_t, 0);
  const scalar_t *x     = PARAM(const scalar_t *, 1);
  scalar_t       *z     = PARAM(scalar_t *, 2);
  offset_t        count = 0;

  for (offset_t row = 0; row < nrows; row++) {
    const scalar_t entry = x[row];

    z[row] = entry != (scalar_t)0 ? (scalar_t)1 / entry : entry;
    count += !(PetscRealPart(entry) > 0);
  }
  *PARAM(scalar_t *, 5) = (scalar_t)count;
}

/* z = d x */
HOST_KERNEL(jacobi_products)
{
  const offset_t  nrows = PARAM(offset_t, 0);
  const scalar_t *d = PARAM(const scalar_t *, 1), *x = PARAM(const scalar_t *, 2);
  scalar_t       *z = PARAM(scalar_t *, 3);

  for (offset_t row = 0; row < nrows; row++) z[row] = d[row] * x[row];
}
