// Conjugate gradients with all scalars on the device (petsc_gpufmt/krylov/cg.py): what is done with vectors beside products and preconditioners.
//
// An iteration is cg_direction, a product w = A p, cg_curvature, cg_update, and, with a preconditioner that is no diagonal, its application and cg_dots;
// where several ranks add up their sums in between, cg_end follows. Once the state says that the iterations have ended, kernels leave everything as it is.
// z = r where neither `z` nor `d` is given, and z = d r with `d`. Sums have a fixed order.
#include "krylov/state.cuh"

// GpufmtCgState, GpufmtCgRecord
struct Record {
  double curvature, rz, norm;
};
struct State {
  // p w in two parts, the second from blocks of other ranks' columns; r z; squares of the entries of z, or of r: of this rank, until those of all ranks
  // replace them
  double    sums[4];
  double    curvature, rz, rz_before;
  double    limit, divergence; // norms from `divergence` on, and up to `limit`, end the iterations
  long long iteration, most, stop, norm, alone;
  Record    records[RECORDS];
};

// p w
__device__ __forceinline__ double new_curvature(const State *state)
{
  return state->sums[0] + state->sums[1];
}

// What follows the sums of an iteration. One thread calls it.
__device__ __forceinline__ void end_iteration(State *state)
{
  const double rz   = state->sums[2];
  const double norm = state->norm == NORM_NONE ? 0 : sqrt(state->norm == NORM_NATURAL ? fabs(rz) : state->sums[3]);

  state->records[state->iteration % RECORDS] = {new_curvature(state), rz, norm};
  state->curvature                           = new_curvature(state);
  state->rz_before                           = state->rz;
  state->rz                                  = rz;
  state->iteration++;
  // a comparison with what is no number does not hold
  if (norm <= state->limit || !(norm < state->divergence) || !(fabs(rz) > 0) || (rz > 0) != (state->rz_before > 0)) state->stop = STOPPED_BY_TEST;
  else if (state->iteration >= state->most) state->stop = STOPPED_BY_COUNT;
}

__device__ __forceinline__ scalar_t preconditioned(offset_t row, scalar_t r, const scalar_t *__restrict__ d, const scalar_t *__restrict__ z)
{
  return z ? z[row] : d ? d[row] * r : r;
}

// p = z + (r z / r z before) p; in the first iteration p = z. Bytes a row: 3 sizeof(scalar_t), and one more with `d`.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS) cg_direction(const Method cg, scalar_t *__restrict__ p, const scalar_t *__restrict__ r,
                                                              const scalar_t *__restrict__ d, const scalar_t *__restrict__ z)
{
  if (cg.state->stop) return;
  const bool     first = cg.state->iteration == 0; // p may be anything then
  const scalar_t beta  = first ? 0 : (scalar_t)(cg.state->rz / cg.state->rz_before);

  each_row<BLOCK_THREADS>(cg.nrows, [&](offset_t row) {
    const scalar_t own = preconditioned(row, z ? scalar_t(0) : r[row], d, z);

    p[row] = first ? own : own + beta * p[row];
  });
}

// sums[0] = p w, sums[1] = 0. Bytes a row: 2 sizeof(scalar_t).
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS) cg_curvature(const Method cg, const scalar_t *__restrict__ p, const scalar_t *__restrict__ w)
{
  scalar_t sum[1] = {0}, total[1];

  if (cg.state->stop) return;
  each_row<BLOCK_THREADS>(cg.nrows, [&](offset_t row) { sum[0] += p[row] * w[row]; });
  if (last_block_sums<1, BLOCK_THREADS>(sum, cg.parts, cg.ticket, total) && threadIdx.x == 0) {
    cg.state->sums[0] = total[0];
    cg.state->sums[1] = 0;
  }
}

// Whether p w ends the iterations: it is 0 or no number, or its sign has changed.
__device__ __forceinline__ bool is_indefinite(const State *state)
{
  const double curvature = new_curvature(state);

  return curvature == 0 || !isfinite(curvature) || (state->iteration > 0 && (curvature > 0) != (state->curvature > 0));
}

__device__ __forceinline__ void put_sums(const Method &cg, const scalar_t (&totals)[2], bool ends)
{
  cg.state->sums[2] = totals[0];
  cg.state->sums[3] = totals[1];
  if (ends && cg.state->alone) end_iteration(cg.state);
}

// With alpha = r z / p w: x += alpha p, r -= alpha w; and with `sums` the sums over the new r. Bytes a row: 6 sizeof(scalar_t), and one more with `d`.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS)
  cg_update(const Method cg, scalar_t *__restrict__ x, scalar_t *__restrict__ r, const scalar_t *__restrict__ p, const scalar_t *__restrict__ w,
            const scalar_t *__restrict__ d, int sums)
{
  State *const state  = cg.state;
  scalar_t     sum[2] = {0, 0}, totals[2];
  const bool   of_r   = state->norm == NORM_UNPRECONDITIONED;

  if (state->stop) return;
  if (is_indefinite(state)) {
    if (blockIdx.x == 0 && threadIdx.x == 0) { // other blocks return, whether they see this or not
      state->records[state->iteration % RECORDS].curvature = new_curvature(state);
      state->stop                                          = STOPPED_BY_CURVATURE;
    }
    return;
  }
  const scalar_t alpha = (scalar_t)(state->rz / new_curvature(state));

  each_row<BLOCK_THREADS, BACKWARD>(cg.nrows, [&](offset_t row) {
    const scalar_t residual = r[row] - alpha * w[row], z = preconditioned(row, residual, d, nullptr);

    __stcs(x + row, __ldcs(x + row) + alpha * p[row]); // the one vector that is not wanted again soon
    r[row] = residual;
    sum[0] += residual * z;
    sum[1] += of_r ? residual * residual : z * z;
  });
  if (sums && last_block_sums<2, BLOCK_THREADS>(sum, cg.parts, cg.ticket, totals) && threadIdx.x == 0) put_sums(cg, totals, true);
}

// The sums over r and z, and with `ends` what follows them. Bytes a row: sizeof(scalar_t), and one more with `d` or `z`.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS)
  cg_dots(const Method cg, const scalar_t *__restrict__ r, const scalar_t *__restrict__ d, const scalar_t *__restrict__ z, int ends)
{
  scalar_t   sum[2] = {0, 0}, totals[2];
  const bool of_r   = cg.state->norm == NORM_UNPRECONDITIONED;

  if (cg.state->stop) return;
  each_row<BLOCK_THREADS>(cg.nrows, [&](offset_t row) {
    const scalar_t residual = r[row], own = preconditioned(row, residual, d, z);

    sum[0] += residual * own;
    sum[1] += of_r ? residual * residual : own * own;
  });
  if (last_block_sums<2, BLOCK_THREADS>(sum, cg.parts, cg.ticket, totals) && threadIdx.x == 0) put_sums(cg, totals, ends);
}

// What follows the sums of all ranks. One thread.
__global__ void cg_end(State *__restrict__ state)
{
  if (!state->stop) end_iteration(state);
}
