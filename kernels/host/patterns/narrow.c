/* Values in single precision; the parameters are those of kernels/patterns/narrow.cu. */
#include <float.h>
#include <math.h>
#include "common/host.h"

/* narrowed[e] = values[e]; outside[0] += those that are finite and become infinite, outside[1] += those that are not 0 and become 0 or subnormal */
VECTOR_CLONES static void narrow(index_t nnz, const scalar_t *values, float *narrowed, uint64_t *outside)
{
  uint64_t large = 0, small = 0;

  for (offset_t e = 0; e < nnz; e++) {
    const double magnitude = fabs((double)values[e]);
    const float  rounded   = (float)magnitude;

    narrowed[e] = (float)values[e];
    large += rounded > FLT_MAX && magnitude < INFINITY;
    small += magnitude > 0 && rounded < FLT_MIN;
  }
  outside[0] += large;
  outside[1] += small;
}

HOST_KERNEL(narrow_values)
{
  narrow(PARAM(index_t, 0), PARAM(const scalar_t *, 1), PARAM(float *, 2), PARAM(uint64_t *, 3));
}
