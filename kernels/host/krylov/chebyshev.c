/* Chebyshev's iteration; the parameters are those of kernels/krylov/chebyshev.cu. */
#include "common/host.h"

typedef struct {
  alignas(8) scalar_t alpha;
  alignas(8) scalar_t beta;
  alignas(8) scalar_t gamma;
  const scalar_t *u, *x, *w, *d, *b;
  scalar_t       *z;
  offset_t        nrows;
} ChebyshevStep;

/* z = alpha u + beta x + gamma d (b - w); what is NULL is not there */
HOST_KERNEL(chebyshev_step)
{
  const ChebyshevStep s = PARAM(ChebyshevStep, 0);

  for (offset_t row = 0; row < s.nrows; row++) {
    const scalar_t residual = s.b[row] - (s.w ? s.w[row] : 0);
    scalar_t       next     = s.gamma * ((s.d ? s.d[row] : 1) * residual);

    if (s.x) next += s.beta * s.x[row];
    if (s.u) next += s.alpha * s.u[row];
    s.z[row] = next;
  }
}
