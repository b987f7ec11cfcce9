/* Conjugate gradients of mixed precision; the parameters are those of kernels/krylov/mixedcg.cu. */
#include "krylov/state.h"

/* GpufmtMixedState of native/gpufmt_plan_krylov.h */
struct State {
  double  sums[2], factor;
  int64_t norm;
};

HOST_KERNEL(mixedcg_narrow)
{
  const offset_t  nrows = PARAM(offset_t, 0);
  const scalar_t *d = PARAM(const scalar_t *, 1), *s = PARAM(const scalar_t *, 2);
  float          *narrow_d = PARAM(float *, 3);

  for (offset_t row = 0; row < nrows; row++) narrow_d[row] = (float)(s ? d[row] / (s[row] * s[row]) : d[row]);
}

HOST_KERNEL(mixedcg_residual)
{
  const Method    mixed = PARAM(Method, 0);
  const scalar_t *b = PARAM(const scalar_t *, 1), *w = PARAM(const scalar_t *, 2), *d = PARAM(const scalar_t *, 3), *s = PARAM(const scalar_t *, 4);
  float          *narrow_r = PARAM(float *, 5);
  const scalar_t  factor   = (scalar_t)mixed.state->factor;
  const int64_t   norm     = mixed.state->norm;
  scalar_t        squares = 0, rz = 0;

  for (offset_t row = 0; row < mixed.nrows; row++) {
    const scalar_t residual = w ? b[row] - w[row] : b[row], z = d ? d[row] * residual : residual, scaled = s ? s[row] * residual : residual;

    narrow_r[row] = (float)(factor * scaled);
    squares += (norm == NORM_PRECONDITIONED ? z : residual) * (norm == NORM_UNPRECONDITIONED ? residual : z);
    rz += d ? residual * z : scaled * scaled;
  }
  mixed.state->sums[0] = (double)squares;
  mixed.state->sums[1] = (double)rz;
}

HOST_KERNEL(mixedcg_correct)
{
  const Method    mixed  = PARAM(Method, 0);
  const scalar_t *s      = PARAM(const scalar_t *, 1);
  float          *e      = PARAM(float *, 2);
  scalar_t       *x      = PARAM(scalar_t *, 3);
  const int       alone  = PARAM(int, 4);
  const scalar_t  factor = 1 / (scalar_t)mixed.state->factor;

  for (offset_t row = 0; row < mixed.nrows; row++) {
    const scalar_t correction = factor * (s ? s[row] * e[row] : e[row]);

    x[row] = alone ? correction : x[row] + correction;
    e[row] = 0;
  }
}
