/* Sums that norms of a matrix are made of; the parameters are those of kernels/patterns/norms.cu. The first of the parts, one a block, has it all. */
#include "common/host.h"
#include <petscsys.h>

static void PutPart(const uint32_t grid[3], scalar_t number, scalar_t *parts)
{
  for (uint32_t block = 0; block < grid[0]; block++) parts[block] = block ? 0 : number;
}

/* the parts add up to the sum of |values[e]|^2 */
HOST_KERNEL(sum_of_squares)
{
  const index_t   nnz    = PARAM(index_t, 0);
  const scalar_t *values = PARAM(const scalar_t *, 1);
  scalar_t        sum    = 0;

  for (offset_t e = 0; e < nnz; e++) sum += PetscRealPart(values[e] * PetscConj(values[e]));
  PutPart(grid, sum, PARAM(scalar_t *, 2));
}

/* sums[t] = sum over e in [begins[t], begins[t + 1]) of |values[index[e]]|, or |values[e]|, + added[t] */
HOST_KERNEL(absolute_sums)
{
  const index_t   ntargets = PARAM(index_t, 0), *begins = PARAM(const index_t *, 1), *index = PARAM(const index_t *, 2);
  const scalar_t *values = PARAM(const scalar_t *, 3), *added = PARAM(const scalar_t *, 4);
  scalar_t       *sums = PARAM(scalar_t *, 5);

  for (offset_t t = 0; t < ntargets; t++) {
    scalar_t sum = added ? added[t] : 0;

    for (offset_t e = begins[t]; e < begins[t + 1]; e++) sum += PetscAbsScalar(values[index ? index[e] : e]);
    sums[t] = sum;
  }
}

/* the largest of the parts is that of 0 and the numbers */
HOST_KERNEL(largest_part)
{
  const index_t   n       = PARAM(index_t, 0);
  const scalar_t *numbers = PARAM(const scalar_t *, 1);
  scalar_t       *parts = PARAM(scalar_t *, 2), largest = 0;

  if (!parts) return;
  for (offset_t i = 0; i < n; i++)
    if (PetscRealPart(numbers[i]) > PetscRealPart(largest)) largest = numbers[i];
  PutPart(grid, largest, parts);
}
