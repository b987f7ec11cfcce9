// Whether arrays are a CSR pattern (petsc_gpufmt/csr.py).
#include "common.cuh"

// Sets faults[0] unless the row pointer runs from 0 to nnz, faults[1] if it decreases, faults[2] if a column is not in the matrix; they are
// zeros at first.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS) pattern_check(index_t nrows, index_t ncols, index_t nnz, const index_t *__restrict__ rowptr, const index_t *__restrict__ colidx, int *__restrict__ faults)
{
  const offset_t first = (offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x, step = (offset_t)gridDim.x * BLOCK_THREADS;
  bool           decreases = false, outside = false;

#pragma unroll 4
  for (offset_t row = first; row < nrows; row += step) decreases |= rowptr[row + 1] < rowptr[row];
#pragma unroll 4
  for (offset_t k = first; k < nnz; k += step) {
    const index_t column = load_once(colidx + k);

    outside |= column < 0 || column >= ncols;
  }
  if (first == 0 && (rowptr[0] != 0 || rowptr[nrows] != nnz)) faults[0] = 1;
  if (decreases) faults[1] = 1; // all threads that write, write the same
  if (outside) faults[2] = 1;
}
