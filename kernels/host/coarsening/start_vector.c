/* The start of PETSc's estimates of eigenvalues; the parameters are those of kernels/coarsening/start_vector.cu. */
#include "common/host.h"

HOST_KERNEL(start_vector_fill)
{
  const offset_t nrows = PARAM(offset_t, 0), first = PARAM(offset_t, 1);
  scalar_t      *result = PARAM(scalar_t *, 2);

  for (offset_t row = 0; row < nrows; row++) {
    uint32_t x = (uint32_t)(first + row);

    x           = ((x >> 16) ^ x) * 0x45d9f3b;
    x           = ((x >> 16) ^ x) * 0x45d9f3b;
    x           = (x >> 16) ^ x;
    result[row] = (scalar_t)((double)((int64_t)x - 2147483648) * 5.e-10);
  }
}
