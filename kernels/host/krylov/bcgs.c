/* Stabilised bi-conjugate gradients; the parameters are those of kernels/krylov/bcgs.cu. */
#include "krylov/ranks.h"
#include <petscsys.h>

/* GpufmtBcgsRecord, GpufmtBcgsState */
typedef struct {
  double norm, rho;
} Record;

struct State {
  double  sums[6], rho, rho_before, alpha, omega, limit, divergence;
  int64_t iteration, most, stop, norm, alone;
  Record  records[RECORDS];
};

HOST_KERNEL(bcgs_direction)
{
  const Method    bcgs  = PARAM(Method, 0);
  const State    *state = bcgs.state;
  scalar_t       *p = PARAM(scalar_t *, 1), *q = PARAM(scalar_t *, 5);
  const scalar_t *r = PARAM(const scalar_t *, 2), *v = PARAM(const scalar_t *, 3), *d = PARAM(const scalar_t *, 4);
  const int       first = state->iteration == 0; /* p and v may be anything then */
  const scalar_t  beta  = first ? 0 : (scalar_t)(state->rho / state->rho_before * (state->alpha / state->omega));
  const scalar_t  of_v  = first ? 0 : (scalar_t)state->omega * beta;

  if (state->stop) {
    if (q)
      for (offset_t row = 0; row < bcgs.nrows; row++) q[row] = d[row] * p[row];
    return;
  }
  for (offset_t row = 0; row < bcgs.nrows; row++) {
    const scalar_t direction = first ? r[row] : r[row] - of_v * v[row] + beta * p[row];

    p[row] = direction;
    if (q) q[row] = d[row] * direction;
  }
}

HOST_KERNEL(bcgs_shadow)
{
  const Method    bcgs = PARAM(Method, 0);
  scalar_t       *v    = PARAM(scalar_t *, 1);
  const scalar_t *rp = PARAM(const scalar_t *, 2), *d = PARAM(const scalar_t *, 3);
  const Ranks     ranks  = PARAM(Ranks, 4);
  const int       failed = !!PARAM(offset_t, 5);
  scalar_t        sum    = 0;

  if (d)
    for (offset_t row = 0; row < bcgs.nrows; row++) v[row] *= d[row];
  if (bcgs.state->stop) return;
  for (offset_t row = 0; !failed && row < bcgs.nrows; row++) sum += v[row] * rp[row];
  bcgs.state->sums[0] = (double)sum;
  if (ranks.messages) NextSumOverRanks(&ranks, 1, bcgs.state->sums, failed);
}

HOST_KERNEL(bcgs_half)
{
  const Method    bcgs  = PARAM(Method, 0);
  State          *state = bcgs.state;
  scalar_t       *r = PARAM(scalar_t *, 1), *q = PARAM(scalar_t *, 4);
  const scalar_t *v = PARAM(const scalar_t *, 2), *d = PARAM(const scalar_t *, 3);
  scalar_t        alpha;

  if (state->stop) return;
  if (state->sums[0] == 0 || !isfinite(state->sums[0])) {
    state->stop = STOPPED_BY_BREAKDOWN;
    return;
  }
  alpha = (scalar_t)(state->rho / state->sums[0]);
  for (offset_t row = 0; row < bcgs.nrows; row++) {
    r[row] -= alpha * v[row];
    if (q) q[row] = d[row] * r[row];
  }
}

HOST_KERNEL(bcgs_dots)
{
  const Method    bcgs = PARAM(Method, 0);
  scalar_t       *t    = PARAM(scalar_t *, 1);
  const scalar_t *s = PARAM(const scalar_t *, 2), *d = PARAM(const scalar_t *, 3);
  const Ranks     ranks  = PARAM(Ranks, 4);
  const int       failed = !!PARAM(offset_t, 5);
  scalar_t        ts = 0, tt = 0, ss = 0;

  if (bcgs.state->stop) return;
  for (offset_t row = 0; !failed && row < bcgs.nrows; row++) {
    if (d) t[row] *= d[row];
    ts += t[row] * s[row];
    tt += t[row] * t[row];
    ss += s[row] * s[row];
  }
  bcgs.state->sums[1] = (double)ts;
  bcgs.state->sums[2] = (double)tt;
  bcgs.state->sums[3] = (double)ss;
  if (ranks.messages) NextSumOverRanks(&ranks, 3, bcgs.state->sums + 1, failed);
}

static void EndIteration(State *state)
{
  const double norm = state->norm == NORM_NONE ? 0 : sqrt(state->sums[4]);

  if (state->sums[2] == 0) { /* x has got alpha p, which was the whole way */
    state->stop = STOPPED_BY_BREAKDOWN;
    return;
  }
  state->records[state->iteration % RECORDS] = (Record){.norm = norm, .rho = state->sums[5]};
  state->alpha                               = state->rho / state->sums[0];
  state->omega                               = state->sums[1] / state->sums[2];
  state->rho_before                          = state->rho;
  state->rho                                 = state->sums[5];
  state->iteration++;
  if (norm <= state->limit || !(norm < state->divergence) || state->rho_before == 0) state->stop = STOPPED_BY_TEST;
  else if (state->iteration >= state->most) state->stop = STOPPED_BY_COUNT;
}

HOST_KERNEL(bcgs_update)
{
  const Method    bcgs  = PARAM(Method, 0);
  State          *state = bcgs.state;
  scalar_t       *x = PARAM(scalar_t *, 1), *r = PARAM(scalar_t *, 2);
  const scalar_t *p = PARAM(const scalar_t *, 3), *t = PARAM(const scalar_t *, 4), *rp = PARAM(const scalar_t *, 5);
  const Ranks     ranks  = PARAM(Ranks, 6);
  const int       failed = !!PARAM(offset_t, 7), of_ranks = !!ranks.messages;
  scalar_t        alpha, omega, rr = 0, rho = 0;

  if (state->stop) return;
  if (state->sums[2] == 0 && state->sums[3] != 0) {
    state->stop = STOPPED_BY_BREAKDOWN;
    return;
  }
  alpha = (scalar_t)(state->rho / state->sums[0]);
  omega = state->sums[2] == 0 ? 0 : (scalar_t)(state->sums[1] / state->sums[2]);
  for (offset_t row = 0; !failed && row < bcgs.nrows; row++) {
    const scalar_t s = r[row], residual = s - omega * t[row];

    x[row] += alpha * p[row] + omega * s;
    r[row] = residual;
    rr += residual * residual;
    rho += residual * rp[row];
  }
  state->sums[4] = (double)rr;
  state->sums[5] = (double)rho;
  if (of_ranks) NextSumOverRanks(&ranks, 2, state->sums + 4, failed);
  if (of_ranks || state->alone) EndIteration(state);
}

HOST_KERNEL(bcgs_end)
{
  State *state = PARAM(State *, 0);

  if (!state->stop) EndIteration(state);
}
