/* Sums over vectors; the parameters are those of kernels/coarsening/vector_sums.cu. The first of the parts, one a block, has it all. */
#include "common/host.h"
#include <petscsys.h>

static void PutPart(const uint32_t grid[3], scalar_t number, scalar_t *parts)
{
  for (uint32_t block = 0; block < grid[0]; block++) parts[block] = block ? 0 : number;
}

/* the parts of each V_k add up to the sum of x[row] V_k[row] */
HOST_KERNEL(vector_dots)
{
  const offset_t  nrows = PARAM(offset_t, 0), *vectors = PARAM(const offset_t *, 1);
  const scalar_t *x     = PARAM(const scalar_t *, 2);
  scalar_t       *parts = PARAM(scalar_t *, 3);

  for (offset_t k = 0; k < vectors[0]; k++) {
    const scalar_t *vector = (const scalar_t *)(intptr_t)vectors[1 + k];
    scalar_t        sum    = 0;

    for (offset_t row = 0; row < nrows; row++) sum += x[row] * vector[row];
    PutPart(grid, sum, parts + k * grid[0]);
  }
}

/* the parts add up to the number of rows with an x[row] that is not above 0 */
HOST_KERNEL(vector_not_positive)
{
  const offset_t  nrows = PARAM(offset_t, 0);
  const scalar_t *x     = PARAM(const scalar_t *, 1);
  offset_t        count = 0;

  for (offset_t row = 0; row < nrows; row++) count += !(PetscRealPart(x[row]) > 0);
  PutPart(grid, (scalar_t)count, PARAM(scalar_t *, 2));
}

/* sums[k] = the sum of nparts numbers from parts[k nparts] on */
HOST_KERNEL(vector_totals)
{
  const int       nparts  = PARAM(int, 0);
  const offset_t *vectors = PARAM(const offset_t *, 1), count = vectors ? vectors[0] : 1;
  const scalar_t *parts = PARAM(const scalar_t *, 2);
  scalar_t       *sums  = PARAM(scalar_t *, 3);

  for (offset_t k = 0; k < count; k++) {
    sums[k] = 0;
    for (int p = 0; p < nparts; p++) sums[k] += parts[k * nparts + p];
  }
}
