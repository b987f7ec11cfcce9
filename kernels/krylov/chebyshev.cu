// Chebyshev's iteration with a diagonal as preconditioner (petsc_gpufmt/krylov/chebyshev.py): all that a step does with vectors beside the product.
#include "krylov/rows.cuh"

// What is null is not there. z may be u or x, so that these are read as they are.
struct ChebyshevStep {
  alignas(8) scalar_t alpha;
  alignas(8) scalar_t beta;
  alignas(8) scalar_t gamma;
  const scalar_t *u; // the iterate before x
  const scalar_t *x;
  const scalar_t *__restrict__ w; // A x
  const scalar_t *__restrict__ d; // null: 1
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
