// Chebyshev's iteration with a diagonal, or blocks on it, as preconditioner (petsc_gpufmt/krylov/chebyshev.py): all that a step does with vectors beside the
// product.
#include "krylov/rows.cuh"

// What is null is not there. z may be u or x, so that these are read as they are.
struct ChebyshevStep {
  alignas(8) scalar_t alpha;
  alignas(8) scalar_t beta;
  alignas(8) scalar_t gamma;
  const scalar_t *u; // the iterate before x
  const scalar_t *x;
  const scalar_t *__restrict__ w; // A x
  const scalar_t *__restrict__ d; // null: 1; or the blocks
  const scalar_t *__restrict__ b; // the right-hand side
  scalar_t *z;                    // the iterate after x
  offset_t  nrows;
};

// z = alpha u + beta x + gamma d (b - w). Bytes a row: sizeof(scalar_t) for each of the vectors that are there.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS) chebyshev_step(const ChebyshevStep s)
{
  each_row<BLOCK_THREADS>(s.nrows, [&](offset_t row) {
    const scalar_t residual = __ldg(s.b + row) - (s.w ? __ldg(s.w + row) : scalar_t(0));
    scalar_t       next     = s.gamma * ((s.d ? __ldg(s.d + row) : scalar_t(1)) * residual);

    if (s.x) next += s.beta * s.x[row];
    if (s.u) next += s.alpha * s.u[row];
    s.z[row] = next;
  });
}

// The same with blocks of POINT_BLOCK rows for d: [nrows / POINT_BLOCK][POINT_BLOCK][POINT_BLOCK], each column by column. Threads have the rows of whole
// blocks, one each, and residuals meet in shared memory; the row of a block is on its way before they do.
// Bytes a row: sizeof(scalar_t) for each of the vectors that are there, POINT_BLOCK times that for the block: all is read once from memory, in parts of
// lines, of which the cache keeps the rest for the next columns.
template <int BLOCK_THREADS, int POINT_BLOCK>
__global__ void __launch_bounds__(BLOCK_THREADS) chebyshev_block_step(const ChebyshevStep s, offset_t /* POINT_BLOCK */)
{
  constexpr int       ROWS = BLOCK_THREADS / POINT_BLOCK * POINT_BLOCK;
  __shared__ scalar_t residuals[ROWS];
  const int           thread = threadIdx.x, in_block = thread % POINT_BLOCK;

  for (offset_t first = (offset_t)blockIdx.x * ROWS; first < s.nrows; first += (offset_t)gridDim.x * ROWS) {
    const offset_t row     = first + thread;
    const bool     has_row = thread < ROWS && row < s.nrows;
    scalar_t       of_block[POINT_BLOCK], next = 0;

    if (has_row) {
#pragma unroll
      for (int j = 0; j < POINT_BLOCK; j++) of_block[j] = __ldg(s.d + (row - in_block + j) * POINT_BLOCK + in_block);
      residuals[thread] = __ldg(s.b + row) - (s.w ? __ldg(s.w + row) : scalar_t(0));
    }
    __syncthreads();
    if (has_row) {
#pragma unroll
      for (int j = 0; j < POINT_BLOCK; j++) next += of_block[j] * residuals[thread - in_block + j];
      next *= s.gamma;
      if (s.x) next += s.beta * s.x[row];
      if (s.u) next += s.alpha * s.u[row];
      s.z[row] = next;
    }
    __syncthreads();
  }
}
