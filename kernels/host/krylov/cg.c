/* Conjugate gradients; the parameters are those of kernels/krylov/cg.cu. */
#include "krylov/ranks.h"
#include <petscsys.h>

/* GpufmtCgRecord, GpufmtCgState */
typedef struct {
  double curvature, rz, norm;
} Record;

struct State {
  double  sums[4], curvature, rz, rz_before, limit, divergence;
  int64_t iteration, most, stop, norm, alone;
  Record  records[RECORDS];
};

static double NewCurvature(const State *state)
{
  return state->sums[0] + state->sums[1];
}

static void EndIteration(State *state)
{
  const double rz   = state->sums[2];
  const double norm = state->norm == NORM_NONE ? 0 : sqrt(state->norm == NORM_NATURAL ? fabs(rz) : state->sums[3]);

  state->records[state->iteration % RECORDS] = (Record){.curvature = NewCurvature(state), .rz = rz, .norm = norm};
  state->curvature                           = NewCurvature(state);
  state->rz_before                           = state->rz;
  state->rz                                  = rz;
  state->iteration++;
  if (norm <= state->limit || !(norm < state->divergence) || !(fabs(rz) > 0) || (rz > 0) != (state->rz_before > 0)) state->stop = STOPPED_BY_TEST;
  else if (state->iteration >= state->most) state->stop = STOPPED_BY_COUNT;
}

/* z where it is, or made of the residual */
static inline scalar_t Preconditioned(offset_t row, scalar_t r, const scalar_t *d, const scalar_t *z)
{
  return z ? z[row] : d ? d[row] * r : r;
}

HOST_KERNEL(cg_direction)
{
  const Method    cg = PARAM(Method, 0);
  scalar_t       *p  = PARAM(scalar_t *, 1);
  const scalar_t *r = PARAM(const scalar_t *, 2), *d = PARAM(const scalar_t *, 3), *z = PARAM(const scalar_t *, 4);
  const int       first = cg.state->iteration == 0; /* p may be anything then */
  const scalar_t  beta  = first ? 0 : (scalar_t)(cg.state->rz / cg.state->rz_before);

  if (cg.state->stop) return;
  for (offset_t row = 0; row < cg.nrows; row++) {
    const scalar_t own = Preconditioned(row, z ? 0 : r[row], d, z);

    p[row] = first ? own : own + beta * p[row];
  }
}

HOST_KERNEL(cg_curvature)
{
  const Method    cg = PARAM(Method, 0);
  const scalar_t *p = PARAM(const scalar_t *, 1), *w = PARAM(const scalar_t *, 2);
  double          sum = 0; /* in the precision of the state, whatever vectors have */

  if (cg.state->stop) return;
  for (offset_t row = 0; row < cg.nrows; row++) sum += p[row] * w[row];
  cg.state->sums[0] = sum;
  cg.state->sums[1] = 0;
}

static int IsIndefinite(const State *state)
{
  const double curvature = NewCurvature(state);

  return curvature == 0 || !isfinite(curvature) || (state->iteration > 0 && (curvature > 0) != (state->curvature > 0));
}

static void StopByCurvature(State *state)
{
  state->records[state->iteration % RECORDS].curvature = NewCurvature(state);
  state->stop                                          = STOPPED_BY_CURVATURE;
}

/* x += alpha p, r -= alpha w, and the sums over the new r */
static void UpdateRows(const Method *cg, scalar_t *x, scalar_t *r, const scalar_t *p, const scalar_t *w, const scalar_t *d, double sums[2])
{
  const int      of_r  = cg->state->norm == NORM_UNPRECONDITIONED;
  const scalar_t alpha = (scalar_t)(cg->state->rz / NewCurvature(cg->state));
  double         rz = 0, squares = 0;

  for (offset_t row = 0; row < cg->nrows; row++) {
    const scalar_t residual = r[row] - alpha * w[row], z = Preconditioned(row, residual, d, NULL);

    x[row] += alpha * p[row];
    r[row] = residual;
    rz += residual * z;
    squares += of_r ? residual * residual : z * z;
  }
  sums[0] = rz;
  sums[1] = squares;
}

static void DotRows(const Method *cg, const scalar_t *r, const scalar_t *d, const scalar_t *z, double sums[2])
{
  const int of_r = cg->state->norm == NORM_UNPRECONDITIONED;
  double    rz = 0, squares = 0;

  for (offset_t row = 0; row < cg->nrows; row++) {
    const scalar_t own = Preconditioned(row, r[row], d, z);

    rz += r[row] * own;
    squares += of_r ? r[row] * r[row] : own * own;
  }
  sums[0] = rz;
  sums[1] = squares;
}

HOST_KERNEL(cg_update)
{
  const Method    cg = PARAM(Method, 0);
  scalar_t       *x = PARAM(scalar_t *, 1), *r = PARAM(scalar_t *, 2);
  const scalar_t *p = PARAM(const scalar_t *, 3), *w = PARAM(const scalar_t *, 4), *d = PARAM(const scalar_t *, 5);
  const int       sums  = PARAM(int, 6);
  State *const    state = cg.state;
  double          of_r[2];

  if (state->stop) return;
  if (IsIndefinite(state)) {
    StopByCurvature(state);
    return;
  }
  UpdateRows(&cg, x, r, p, w, d, of_r);
  if (!sums) return;
  state->sums[2] = of_r[0];
  state->sums[3] = of_r[1];
  if (state->alone) EndIteration(state);
}

HOST_KERNEL(cg_dots)
{
  const Method    cg = PARAM(Method, 0);
  const scalar_t *r = PARAM(const scalar_t *, 1), *d = PARAM(const scalar_t *, 2), *z = PARAM(const scalar_t *, 3);
  const Ranks     ranks = PARAM(Ranks, 5);
  const int       ends = PARAM(int, 4), failed = !!PARAM(offset_t, 6), of_ranks = !!ranks.messages;
  State *const    state = cg.state;

  if (state->stop) return;
  if (!failed) DotRows(&cg, r, d, z, state->sums + 2);
  if (of_ranks) NextSumOverRanks(&ranks, 2, state->sums + 2, failed);
  if (ends && (of_ranks || state->alone)) EndIteration(state);
}

HOST_KERNEL(cg_end)
{
  State *state = PARAM(State *, 0);

  if (!state->stop) EndIteration(state);
}

HOST_KERNEL(cg_update_of_ranks)
{
  const Method    cg = PARAM(Method, 0);
  scalar_t       *x = PARAM(scalar_t *, 1), *r = PARAM(scalar_t *, 2);
  const scalar_t *p = PARAM(const scalar_t *, 3), *w = PARAM(const scalar_t *, 4), *d = PARAM(const scalar_t *, 5);
  const Ranks     ranks = PARAM(Ranks, 7);
  const int       sums = PARAM(int, 6), failed = !!PARAM(offset_t, 8);
  State *const    state = cg.state;

  if (state->stop) return;
  NextSumOverRanks(&ranks, 2, state->sums, failed);
  if (IsIndefinite(state)) {
    StopByCurvature(state);
    return;
  }
  UpdateRows(&cg, x, r, p, w, d, state->sums + 2);
  if (!sums) return;
  NextSumOverRanks(&ranks, 2, state->sums + 2, 0);
  EndIteration(state);
}
