// Conjugate gradients with all scalars on the device (petsc_gpufmt/krylov/cg.py): what is done with vectors beside products and preconditioners.
//
// An iteration is cg_direction, a product w = A p, cg_curvature, cg_update, and, with a preconditioner that is no diagonal, its application and cg_dots;
// where several ranks add up their sums in between, cg_end follows; where they reach memory of each other, cg_update_of_ranks and cg_dots add up, too.
// Once the state says that the iterations have ended, kernels leave everything as it is. z = r where neither `z` nor `d` is given, and z = d r with `d`. Sums
// have a fixed order.
#include "krylov/ranks.cuh"

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
__device__ __forceinline__ bool is_indefinite(const State *state, double curvature)
{
  return curvature == 0 || !isfinite(curvature) || (state->iteration > 0 && (curvature > 0) != (state->curvature > 0));
}

// One thread calls it.
__device__ __forceinline__ void stop_by_curvature(State *state)
{
  state->records[state->iteration % RECORDS].curvature = new_curvature(state);
  state->stop                                          = STOPPED_BY_CURVATURE;
}

// x += alpha p, r -= alpha w, and what the new r adds to the sums
template <int BLOCK_THREADS>
__device__ __forceinline__ void update_rows(const Method &cg, scalar_t *__restrict__ x, scalar_t *__restrict__ r, const scalar_t *__restrict__ p,
                                            const scalar_t *__restrict__ w, const scalar_t *__restrict__ d, scalar_t alpha, scalar_t (&sum)[2])
{
  const bool of_r = cg.state->norm == NORM_UNPRECONDITIONED;

  each_row<BLOCK_THREADS, BACKWARD>(cg.nrows, [&](offset_t row) {
    const scalar_t residual = r[row] - alpha * w[row], z = preconditioned(row, residual, d, nullptr);

    __stcs(x + row, __ldcs(x + row) + alpha * p[row]); // the one vector that is not wanted again soon
    r[row] = residual;
    sum[0] += residual * z;
    sum[1] += of_r ? residual * residual : z * z;
  });
}

// With alpha = r z / p w: x += alpha p, r -= alpha w; and with `sums` the sums over the new r. Bytes a row: 6 sizeof(scalar_t), and one more with `d`.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS)
  cg_update(const Method cg, scalar_t *__restrict__ x, scalar_t *__restrict__ r, const scalar_t *__restrict__ p, const scalar_t *__restrict__ w,
            const scalar_t *__restrict__ d, int sums)
{
  State *const state  = cg.state;
  scalar_t     sum[2] = {0, 0}, totals[2];

  if (state->stop) return;
  if (is_indefinite(state, new_curvature(state))) {
    if (blockIdx.x == 0 && threadIdx.x == 0) stop_by_curvature(state); // other blocks return, whether they see this or not
    return;
  }
  update_rows<BLOCK_THREADS>(cg, x, r, p, w, d, (scalar_t)(state->rz / new_curvature(state)), sum);
  if (sums && last_block_sums<2, BLOCK_THREADS>(sum, cg.parts, cg.ticket, totals) && threadIdx.x == 0) {
    state->sums[2] = totals[0];
    state->sums[3] = totals[1];
    if (state->alone) end_iteration(state);
  }
}

// The sums over r and z, and with `ends` what follows them. With OF_RANKS they are those of all ranks; with `failed`, what this one sends is not a number, and it
// has no vectors. Bytes a row: sizeof(scalar_t), and one more with `d` or `z`.
template <int BLOCK_THREADS, bool OF_RANKS>
__global__ void __launch_bounds__(BLOCK_THREADS, (OF_RANKS ? 6 : 0))
  cg_dots(const Method cg, const scalar_t *__restrict__ r, const scalar_t *__restrict__ d, const scalar_t *__restrict__ z, int ends,
          const Ranks<double> ranks, offset_t failed)
{
  State *const state  = cg.state;
  scalar_t     sum[2] = {0, 0}, totals[2];
  const bool   of_r   = state->norm == NORM_UNPRECONDITIONED;

  if (state->stop) return;
  each_row<BLOCK_THREADS>(OF_RANKS && failed ? 0 : cg.nrows, [&](offset_t row) {
    const scalar_t residual = r[row], own = preconditioned(row, residual, d, z);

    sum[0] += residual * own;
    sum[1] += of_r ? residual * residual : own * own;
  });
  if (!last_block_sums<2, BLOCK_THREADS>(sum, cg.parts, cg.ticket, totals)) return;
  put_sums<BLOCK_THREADS, OF_RANKS>(ranks, failed, totals, state->sums + 2);
  if (threadIdx.x == 0 && ends && (OF_RANKS || state->alone)) end_iteration(state);
}

// What follows the sums of all ranks. One thread.
__global__ void cg_end(State *__restrict__ state)
{
  if (!state->stop) end_iteration(state);
}

// cg_update after p w is summed over ranks, and with `sums` the sums over the new r of all ranks, which end the iteration. Block 0 sends p w of this rank, and
// all wait for that of the others; the block that comes last sends the sums, waits, and counts the exchanges: until then others may have to read the state. So all
// blocks come to its ticket, and one that has waited too long leaves no numbers. With `failed`, what this rank sends is not a number, and it has no vectors.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS, 6)
  cg_update_of_ranks(const Method cg, scalar_t *__restrict__ x, scalar_t *__restrict__ r, const scalar_t *__restrict__ p,
                     const scalar_t *__restrict__ w, const scalar_t *__restrict__ d, int sums, const Ranks<double> ranks, offset_t failed)
{
  State *const      state = cg.state;
  __shared__ double pw[2];
  scalar_t          sum[2] = {0, 0}, totals[2];

  if (state->stop) return;
  if (blockIdx.x == 0) send_parts<BLOCK_THREADS>(ranks, ranks.next(), 2, [&](int k) { return failed ? not_a_number<double>() : state->sums[k]; });
  receive_sums<BLOCK_THREADS>(ranks, ranks.next(), 2, pw);
  const bool ends = is_indefinite(state, pw[0] + pw[1]);

  if (ends) sum[0] = sum[1] = not_a_number<scalar_t>();
  else update_rows<BLOCK_THREADS>(cg, x, r, p, w, d, (scalar_t)(state->rz / (pw[0] + pw[1])), sum);
  if (!last_block_sums<2, BLOCK_THREADS>(sum, cg.parts, cg.ticket, totals)) return;
  if (threadIdx.x == 0) {
    state->sums[0] = pw[0];
    state->sums[1] = pw[1];
    ++*ranks.arrivals->exchange;
    if (ends) stop_by_curvature(state);
  }
  if (!sums || ends) return;
  __syncthreads(); // the exchange has been counted
  put_sums_of_ranks<BLOCK_THREADS>(ranks, 0, totals, state->sums + 2);
  if (threadIdx.x == 0) end_iteration(state);
}
