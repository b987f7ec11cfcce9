// Jacobi's preconditioner (petsc_gpufmt/krylov/jacobi.py): reciprocals of a diagonal, and products by them. Vectors of any length; arrays may be the same.
#include "krylov/rows.cuh"

// z[row] = 1 / x[row], and 0 where that is 0, as VecReciprocal() makes it; *not_positive = how many x[row] are not above 0. Bytes a row: 2 sizeof(scalar_t).
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS)
  jacobi_reciprocals(offset_t nrows, const scalar_t *x, scalar_t *z, scalar_t *parts, unsigned *ticket, scalar_t *not_positive)
{
  scalar_t count[1] = {0}, total[1];

  each_row<BLOCK_THREADS>(nrows, [&](offset_t row) {
    const scalar_t entry = x[row];

    z[row] = entry != 0 ? 1 / entry : entry;
    count[0] += entry > 0 ? 0 : 1; // a number that is none is not above 0
  });
  if (last_block_sums<1, BLOCK_THREADS>(count, parts, ticket, total) && threadIdx.x == 0) *not_positive = total[0];
}

// z = d x, entry by entry. Bytes a row: 3 sizeof(scalar_t).
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS) jacobi_products(offset_t nrows, const scalar_t *d, const scalar_t *x, scalar_t *z)
{
  each_row<BLOCK_THREADS>(nrows, [&](offset_t row) { z[row] = d[row] * x[row]; });
}
