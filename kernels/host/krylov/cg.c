/* Conjugate gradients; the parameters are those of kernels/krylov/cg.cu. */
#include "krylov/state.h"
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

static void PutSums(const Method *cg, double rz, double squares, int ends)
{
  cg->state->sums[2] = rz;
  cg->state->sums[3] = squares;
  if (ends && cg->state->alone) EndIteration(cg->state);
}

HOST_KERNEL(cg_update)
{
  const Method    cg = PARAM(Method, 0);
  scalar_t       *x = PARAM(scalar_t *, 1), *r = PARAM(scalar_t *, 2);
  const scalar_t *p = PARAM(const scalar_t *, 3), *w = PARAM(const scalar_t *, 4), *d = PARAM(const scalar_t *, 5);
  const int       sums = PARAM(int, 6), of_r = cg.state->norm == NORM_UNPRECONDITIONED;
  scalar_t        alpha;
  double          rz = 0, squares = 0;

  if (cg.state->stop) return;
  if (IsIndefinite(cg.state)) {
    cg.state->records[cg.state->iteration % RECORDS].curvature = NewCurvature(cg.state);
    cg.state->stop                                             = STOPPED_BY_CURVATURE;
    return;
  }
  alpha = (scalar_t)(cg.state->rz / NewCurvature(cg.state));
  for (offset_t row = 0; row < cg.nrows; row++) {
    const scalar_t residual = r[row] - alpha * w[row], z = Preconditioned(row, residual, d, NULL);

    x[row] += alpha * p[row];
    r[row] = residual;
    rz += residual * z;
    squares += of_r ? residual * residual : z * z;
  }
  if (sums) PutSums(&cg, rz, squares, 1);
}

HOST_KERNEL(cg_dots)
{
  const Method    cg = PARAM(Method, 0);
  const scalar_t *r = PARAM(const scalar_t *, 1), *d = PARAM(const scalar_t *, 2), *z = PARAM(const scalar_t *, 3);
  const int       ends = PARAM(int, 4), of_r = cg.state->norm == NORM_UNPRECONDITIONED;
  double          rz = 0, squares = 0;

  if (cg.state->stop) return;
  for (offset_t row = 0; row < cg.nrows; row++) {
    const scalar_t own = Preconditioned(row, r[row], d, z);

    rz += r[row] * own;
    squares += of_r ? r[row] * r[row] : own * own;
  }
  PutSums(&cg, rz, squares, ends);
}

HOST_KERNEL(cg_end)
{
  State *state = PARAM(State *, 0);

  if (!state->stop) EndIteration(state);
}
