// Stabilised bi-conjugate gradients with all scalars on the device (petsc_gpufmt/krylov/bcgs.py): what is done with vectors beside products and
// preconditioners, for K = D A on the left, or K = A D on the right.
//
// An iteration is bcgs_direction, v = K p, bcgs_shadow, bcgs_half, t = K s, bcgs_dots, bcgs_update, where s takes the place of r; where several ranks add
// up their sums in between, bcgs_end follows. With OF_RANKS kernels make sums of all ranks; with `failed`, what this one sends is not a number, and it has no
// vectors. With `d`, a product is by A alone: bcgs_shadow and bcgs_dots multiply it by `d` where it is, and on the
// right bcgs_direction and bcgs_half write what is to be multiplied, to `q`. Once the state says that the iterations have ended, kernels leave
// everything as it is. Sums have a fixed order.
//
// Beside products an iteration reads 14 vectors and writes 4, with D 16 and 6. KSPBCGS goes over them in eight passes, with 17 and 4, and copies or
// scales the product twice: 19 and 6 without a preconditioner, 21 and 6 with Jacobi.
#include "krylov/ranks.cuh"

// GpufmtBcgsState, GpufmtBcgsRecord
struct Record {
  double norm, rho;
};
struct State {
  double    sums[6]; // v rp; t s, t t, s s; r r, r rp: of this rank, until those of all ranks replace them
  double    rho, rho_before, alpha, omega;
  double    limit, divergence; // norms from `divergence` on, and up to `limit`, end the iterations
  long long iteration, most, stop, norm, alone;
  Record    records[RECORDS];
};

// p = r - omega beta v + beta p with beta = (r rp / r rp before) (alpha / omega); in the first iteration p = r. With `q`, q = d p. Where the iterations
// have ended, it is made again of the last p, and so the product v, which is part of the next direction: others may let them go on.
// Bytes a row: 4 sizeof(scalar_t), and two more with `q`.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS)
  bcgs_direction(const Method bcgs, scalar_t *__restrict__ p, const scalar_t *__restrict__ r, const scalar_t *__restrict__ v,
                 const scalar_t *__restrict__ d, scalar_t *__restrict__ q)
{
  const State *const state = bcgs.state;

  if (state->stop) {
    if (q) each_row<BLOCK_THREADS>(bcgs.nrows, [&](offset_t row) { q[row] = d[row] * p[row]; });
    return;
  }
  const bool     first = state->iteration == 0; // p and v may be anything then
  const scalar_t beta  = first ? 0 : (scalar_t)(state->rho / state->rho_before * (state->alpha / state->omega));
  const scalar_t of_v  = first ? 0 : (scalar_t)state->omega * beta;

  each_row<BLOCK_THREADS>(bcgs.nrows, [&](offset_t row) {
    const scalar_t direction = first ? r[row] : r[row] - of_v * v[row] + beta * p[row];

    p[row] = direction;
    if (q) q[row] = d[row] * direction;
  });
}

// sums[0] = v rp; with `d`, v = d v before, where the iterations have ended, too. Bytes a row: 2 sizeof(scalar_t), and two more with `d`.
template <int BLOCK_THREADS, bool OF_RANKS>
__global__ void __launch_bounds__(BLOCK_THREADS, (OF_RANKS ? 5 : 0))
  bcgs_shadow(const Method bcgs, scalar_t *__restrict__ v, const scalar_t *__restrict__ rp, const scalar_t *__restrict__ d, const Ranks<double> ranks,
              offset_t failed)
{
  const bool ended  = bcgs.state->stop;
  scalar_t   sum[1] = {0}, total[1];

  if (ended && !d) return;
  each_row<BLOCK_THREADS>(OF_RANKS && failed ? 0 : bcgs.nrows, [&](offset_t row) {
    const scalar_t product = d ? d[row] * v[row] : v[row];

    if (d) v[row] = product;
    sum[0] += product * rp[row];
  });
  if (ended) return;
  if (last_block_sums<1, BLOCK_THREADS>(sum, bcgs.parts, bcgs.ticket, total))
    put_sums<BLOCK_THREADS, OF_RANKS>(ranks, failed, total, bcgs.state->sums);
}

// r becomes s = r - alpha v, with alpha = r rp / v rp. With `q`, q = d s. Bytes a row: 3 sizeof(scalar_t), and two more with `q`.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS)
  bcgs_half(const Method bcgs, scalar_t *__restrict__ r, const scalar_t *__restrict__ v, const scalar_t *__restrict__ d, scalar_t *__restrict__ q)
{
  State *const state = bcgs.state;

  if (state->stop) return;
  if (state->sums[0] == 0 || !isfinite(state->sums[0])) {
    if (blockIdx.x == 0 && threadIdx.x == 0) state->stop = STOPPED_BY_BREAKDOWN; // other blocks return, whether they see this or not
    return;
  }
  const scalar_t alpha = (scalar_t)(state->rho / state->sums[0]);

  each_row<BLOCK_THREADS>(bcgs.nrows, [&](offset_t row) {
    const scalar_t s = r[row] - alpha * v[row];

    r[row] = s;
    if (q) q[row] = d[row] * s;
  });
}

// sums[1..3] = t s, t t, s s; with `d`, t = d t before. Bytes a row: 2 sizeof(scalar_t), and two more with `d`.
template <int BLOCK_THREADS, bool OF_RANKS>
__global__ void __launch_bounds__(BLOCK_THREADS, (OF_RANKS ? 6 : 0))
  bcgs_dots(const Method bcgs, scalar_t *__restrict__ t, const scalar_t *__restrict__ s, const scalar_t *__restrict__ d, const Ranks<double> ranks,
            offset_t failed)
{
  scalar_t sum[3] = {0, 0, 0}, totals[3];

  if (bcgs.state->stop) return;
  each_row<BLOCK_THREADS>(OF_RANKS && failed ? 0 : bcgs.nrows, [&](offset_t row) {
    const scalar_t product = d ? d[row] * t[row] : t[row], half = s[row];

    if (d) t[row] = product;
    sum[0] += product * half;
    sum[1] += product * product;
    sum[2] += half * half;
  });
  if (last_block_sums<3, BLOCK_THREADS>(sum, bcgs.parts, bcgs.ticket, totals))
    put_sums<BLOCK_THREADS, OF_RANKS>(ranks, failed, totals, bcgs.state->sums + 1);
}

// What follows the sums of an iteration. One thread calls it.
__device__ __forceinline__ void end_iteration(State *state)
{
  const double norm = state->norm == NORM_NONE ? 0 : sqrt(state->sums[4]);

  if (state->sums[2] == 0) { // x has got alpha p, which was the whole way
    state->stop = STOPPED_BY_BREAKDOWN;
    return;
  }
  state->records[state->iteration % RECORDS] = {norm, state->sums[5]};
  state->alpha                               = state->rho / state->sums[0];
  state->omega                               = state->sums[1] / state->sums[2];
  state->rho_before                          = state->rho;
  state->rho                                 = state->sums[5];
  state->iteration++;
  // a comparison with what is no number does not hold
  if (norm <= state->limit || !(norm < state->divergence) || state->rho_before == 0) state->stop = STOPPED_BY_TEST;
  else if (state->iteration >= state->most) state->stop = STOPPED_BY_COUNT;
}

// With omega = t s / t t: x += alpha p + omega s, s becomes r = s - omega t; and sums[4..5] = r r, r rp, which end the iteration. Where t is 0, omega is:
// then s is 0, or nothing is done. Bytes a row: 7 sizeof(scalar_t).
template <int BLOCK_THREADS, bool OF_RANKS>
__global__ void __launch_bounds__(BLOCK_THREADS, (OF_RANKS ? 6 : 0))
  bcgs_update(const Method bcgs, scalar_t *__restrict__ x, scalar_t *__restrict__ r, const scalar_t *__restrict__ p, const scalar_t *__restrict__ t,
              const scalar_t *__restrict__ rp, const Ranks<double> ranks, offset_t failed)
{
  State *const state  = bcgs.state;
  scalar_t     sum[2] = {0, 0}, totals[2];

  if (state->stop) return;
  if (state->sums[2] == 0 && state->sums[3] != 0) {
    if (blockIdx.x == 0 && threadIdx.x == 0) state->stop = STOPPED_BY_BREAKDOWN;
    return;
  }
  const scalar_t alpha = (scalar_t)(state->rho / state->sums[0]);
  const scalar_t omega = state->sums[2] == 0 ? 0 : (scalar_t)(state->sums[1] / state->sums[2]);

  each_row<BLOCK_THREADS>(OF_RANKS && failed ? 0 : bcgs.nrows, [&](offset_t row) {
    const scalar_t s = r[row], residual = s - omega * t[row];

    x[row] += alpha * p[row] + omega * s;
    r[row] = residual;
    sum[0] += residual * residual;
    sum[1] += residual * rp[row];
  });
  if (!last_block_sums<2, BLOCK_THREADS>(sum, bcgs.parts, bcgs.ticket, totals)) return;
  put_sums<BLOCK_THREADS, OF_RANKS>(ranks, failed, totals, state->sums + 4);
  if (threadIdx.x == 0 && (OF_RANKS || state->alone)) end_iteration(state);
}

// What follows the sums of all ranks. One thread.
__global__ void bcgs_end(State *__restrict__ state)
{
  if (!state->stop) end_iteration(state);
}
