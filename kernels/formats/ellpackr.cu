// Products of ELLPACK-R (formats/ellpackr.py). Vazquez, Fernandez, Garzon 2011; Kreutzer et al. 2012, listing 1.
//
// Arrays
//   rowmax [nrows]   entries of each row
//   col, val         the rectangle of ELLPACK, filled by its kernels (ellpack.cu)
//
// Threads: one for each row, blockDim = (BLOCK_THREADS).
#include "formats/ell.cuh"

// z = alpha A x + beta y; y is not read if beta is 0, and z may be y. A thread stops at the end of its own row, and a warp at that of its
// longest: k (sizeof(index_t) + sizeof(scalar_t)) + sizeof(index_t) + 2 sizeof(scalar_t) bytes a row of k entries, if all rows of a warp have k.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS)
  ellpackr_spmv(index_t nrows, offset_t height, const index_t *__restrict__ rowmax, const index_t *__restrict__ col, const scalar_t *__restrict__ val,
                const scalar_t *__restrict__ x, scalar_t alpha, scalar_t beta, const scalar_t *y, scalar_t *z)
{
  const offset_t row = (offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x;

  if (row >= nrows) return;
  const index_t count = rowmax[row];
  // an empty row has nothing to add: most rows of an off-diagonal block are empty, and z is y there
  if (count || y != z || beta != 1) store_result(row, row_sum(count, row, Rectangle{height}, col, val, row, VectorOperand{x}), alpha, beta, y, z);
}

// z[row] = A[row, row]
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS) ellpackr_diagonal(index_t nrows, offset_t height, const index_t *__restrict__ rowmax,
                                                                   const index_t *__restrict__ col, const scalar_t *__restrict__ val, scalar_t *z)
{
  const offset_t row = (offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x;

  if (row < nrows) z[row] = row_sum(rowmax[row], row, Rectangle{height}, col, val, row, DiagonalOperand{});
}
