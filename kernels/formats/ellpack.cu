// Kernels of ELLPACK (formats/ellpack.py). Vazquez, Fernandez, Garzon 2011; Kreutzer et al. 2012, section II-A.
//
// Arrays
//   col [width * height]  entry j of row i at j * height + i; height is nrows rounded up to whole warps, width the longest row.
//                         -1 in padding: x is not read there, so Inf and NaN in x stay where they belong
//   val [width * height]  the values, 0 in padding
//
// Threads: one for each row in products, blockDim = (BLOCK_THREADS); blockDim = (ROWS, THREADS_PER_ROW) in fills.
#include "formats/ell.cuh"

// z = alpha A x + beta y; y is not read if beta is 0, and z may be y. Every thread computes all `width` entries, padding too:
// width (sizeof(index_t) + sizeof(scalar_t)) + 2 sizeof(scalar_t) bytes a row.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS)
  ellpack_spmv(index_t nrows, offset_t height, index_t width, const index_t *__restrict__ col, const scalar_t *__restrict__ val,
               const scalar_t *__restrict__ x, scalar_t alpha, scalar_t beta, const scalar_t *y, scalar_t *z)
{
  const offset_t row = (offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x;

  if (row < nrows) store_result(row, row_sum(width, row, Rectangle{height}, col, val, row, VectorOperand{x}), alpha, beta, y, z);
}

// z[row] = A[row, row]
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS)
  ellpack_diagonal(index_t nrows, offset_t height, index_t width, const index_t *__restrict__ col, const scalar_t *__restrict__ val, scalar_t *z)
{
  const offset_t row = (offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x;

  if (row < nrows) z[row] = row_sum(width, row, Rectangle{height}, col, val, row, DiagonalOperand{});
}

// One position of the rectangle in each of ROWS lanes, THREADS_PER_ROW threads to a row: what they read of a row lies in few cache lines.
template <int ROWS, int THREADS_PER_ROW, class Entry>
__device__ __forceinline__ void fill(index_t nrows, offset_t height, index_t width, const index_t *__restrict__ rowptr,
                                     const index_t *__restrict__ source, const Entry *__restrict__ entries, Entry *__restrict__ stored, Entry padding)
{
  const offset_t row = (offset_t)blockIdx.x * ROWS + threadIdx.x;
  offset_t       k = 0, k_end = 0;

  if (row >= height) return;
  if (row < nrows) {
    k     = rowptr[row];
    k_end = rowptr[row + 1];
  }
  fill_row(threadIdx.y, THREADS_PER_ROW, width, row, Rectangle{height}, k, k_end, source, entries, stored, padding);
}

// structure pass: columns into the rectangle
template <int ROWS, int THREADS_PER_ROW>
__global__ void __launch_bounds__((ROWS * THREADS_PER_ROW))
  ellpack_fill_columns(index_t nrows, offset_t height, index_t width, const index_t *__restrict__ rowptr, const index_t *__restrict__ source,
                       const index_t *__restrict__ entries, index_t *__restrict__ stored)
{
  fill<ROWS, THREADS_PER_ROW, index_t>(nrows, height, width, rowptr, source, entries, stored, -1);
}

// value pass: the refresh after a change of values
template <int ROWS, int THREADS_PER_ROW>
__global__ void __launch_bounds__((ROWS * THREADS_PER_ROW))
  ellpack_fill_values(index_t nrows, offset_t height, index_t width, const index_t *__restrict__ rowptr, const index_t *__restrict__ source,
                      const scalar_t *__restrict__ entries, scalar_t *__restrict__ stored)
{
  fill<ROWS, THREADS_PER_ROW, scalar_t>(nrows, height, width, rowptr, source, entries, stored, 0);
}
