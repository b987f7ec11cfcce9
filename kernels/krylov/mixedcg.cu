// What conjugate gradients of mixed precision do between vectors of both (petsc_gpufmt/krylov/mixedcg.py): scalar_t outside, float inside.
//
// The inner system is (S A S) e = S r f, with powers of two on the diagonal of S, or without S, and a factor f that makes its right-hand side of the order of
// 1; then x + S e / f is the better solution. Sums have a fixed order.
#include "krylov/state.cuh"

// GpufmtMixedState of native/gpufmt_plan_krylov.h
struct State {
  double    sums[2]; // the square of the norm; r z of the inner system, divided by f^2: of this rank, until those of all ranks replace them
  double    factor;
  long long norm;
};

// narrow_d = d / S^2: the diagonal of a preconditioner of A becomes that of one of S A S, with the same r z. Bytes a row: sizeof(scalar_t) + 4, and sizeof(scalar_t) with `s`.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS)
  mixedcg_narrow(offset_t nrows, const scalar_t *__restrict__ d, const scalar_t *__restrict__ s, float *__restrict__ narrow_d)
{
  each_row<BLOCK_THREADS>(nrows, [&](offset_t row) { narrow_d[row] = (float)(s ? d[row] / (s[row] * s[row]) : d[row]); });
}

// r = b - w, or b without w; its norm, r z, and narrow_r = S r f, whose preconditioner is d / S^2 or none. Bytes a row: 2 sizeof(scalar_t) + 4, and one
// sizeof(scalar_t) more with each of d and s.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS)
  mixedcg_residual(const Method mixed, const scalar_t *__restrict__ b, const scalar_t *__restrict__ w, const scalar_t *__restrict__ d,
                   const scalar_t *__restrict__ s, float *__restrict__ narrow_r)
{
  const scalar_t  factor = (scalar_t)mixed.state->factor;
  const long long norm   = mixed.state->norm;
  scalar_t        sum[2] = {0, 0}, totals[2];

  each_row<BLOCK_THREADS>(mixed.nrows, [&](offset_t row) {
    const scalar_t residual = w ? b[row] - w[row] : b[row], z = d ? d[row] * residual : residual, scaled = s ? s[row] * residual : residual;

    narrow_r[row] = (float)(factor * scaled);
    sum[0] += (norm == NORM_PRECONDITIONED ? z : residual) * (norm == NORM_UNPRECONDITIONED ? residual : z);
    sum[1] += d ? residual * z : scaled * scaled;
  });
  if (last_block_sums<2, BLOCK_THREADS>(sum, mixed.parts, mixed.ticket, totals) && threadIdx.x == 0) {
    mixed.state->sums[0] = totals[0];
    mixed.state->sums[1] = totals[1];
  }
}

// x += S e / f, or x = S e / f with `alone`, and e = 0. Bytes a row: 2 sizeof(scalar_t) + 8, and sizeof(scalar_t) with `s`.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS)
  mixedcg_correct(const Method mixed, const scalar_t *__restrict__ s, float *__restrict__ e, scalar_t *__restrict__ x, int alone)
{
  const scalar_t factor = 1 / (scalar_t)mixed.state->factor;

  each_row<BLOCK_THREADS>(mixed.nrows, [&](offset_t row) {
    const scalar_t correction = factor * (s ? s[row] * (scalar_t)e[row] : (scalar_t)e[row]);

    x[row] = alone ? correction : x[row] + correction;
    e[row] = 0;
  });
}
