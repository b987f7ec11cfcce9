// The start of PETSc's estimates of eigenvalues (petsc_gpufmt/coarsening/start_vector.py), with the numbers of KSPNoisyHash_Private().
#include "common/common.cuh"

// result[row] = a number in about [-1, 1] that depends on first + row, of which the lower 32 bits are mixed. A thread a row.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS) start_vector_fill(offset_t nrows, offset_t first, scalar_t *__restrict__ result)
{
  const offset_t row = (offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x;
  unsigned       x   = (unsigned)(first + row);

  if (row >= nrows) return;
  x           = ((x >> 16) ^ x) * 0x45d9f3b;
  x           = ((x >> 16) ^ x) * 0x45d9f3b;
  x           = (x >> 16) ^ x;
  result[row] = (real_t)((double)((long long)x - 2147483648ll) * 5.e-10);
}
