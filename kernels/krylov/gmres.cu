// GMRES with its small matrix on the device (petsc_gpufmt/krylov/gmres.py): what is done with vectors beside products and preconditioners.
//
// An iteration is gmres_scale, a product, gmres_dots and gmres_update, which subtracts from the new vector its parts along the basis (classical
// Gram-Schmidt); where several ranks add up their sums after each of these two, gmres_end follows. With OF_RANKS gmres_update makes those of
// all ranks and ends the iteration; with `failed`, what this one sends is not a number, and it has no vectors. Once the state says that the iterations have ended,
// these leave everything as it is. gmres_combine makes the solution. With k vectors in the basis an iteration reads and writes 2 k + k / BATCH + 4 numbers
// a row. Scaling is a pass of its own, since products and preconditioners may count on a vector of norm 1.
// Threads take every BLOCK_THREADS gridDim.x-th row, ITEMS at once, but in gmres_dots. Sums have a fixed order.
#include "krylov/dots.cuh"
#include "krylov/ranks.cuh"

// GpufmtGmresColumn, GpufmtGmresState
struct Column {
  double    norm, cosine, sine, entry, next, residual;
  long long happy;
};
struct State {
  double    limit, divergence, haptol, square, norm, next;
  long long iteration, most, stop, alone, flexible, nterms;
};

struct Gmres {
  State *__restrict__ state;
  scalar_t *__restrict__ parts; // [restart + 1][gridDim.x] of sums
  unsigned *__restrict__ ticket;
  offset_t nrows, restart;

  // what follows the state
  __device__ __forceinline__ offset_t each() const { return restart + 1; }
  __device__ __forceinline__ Column  *column(offset_t iteration) const
  {
    return (Column *)((char *)(state + 1) + iteration * (sizeof(Column) + 2 * each() * sizeof(double)));
  }
  __device__ __forceinline__ double   *dots(offset_t iteration) const { return (double *)(column(iteration) + 1); }
  __device__ __forceinline__ double   *rotated(offset_t iteration) const { return dots(iteration) + each(); }
  __device__ __forceinline__ double   *sums() const { return (double *)column(restart); }
  __device__ __forceinline__ offset_t *basis() const { return (offset_t *)(sums() + each()); }
  __device__ __forceinline__ double   *weights() const { return sums() + 2 * each(); }
  __device__ __forceinline__ offset_t *terms() const { return (offset_t *)(sums() + 3 * each()); }
};

// What follows the rotations of earlier columns, which leave `diagonal`. One thread calls it.
__device__ __forceinline__ void end_column(const Gmres &gmres, double diagonal)
{
  State *const state     = gmres.state;
  const int    iteration = (int)state->iteration;
  const double norm = sqrt(state->square), bound = fabs(norm / state->next), haptol = bound > state->haptol ? state->haptol : bound;
  Column       column = {norm, 0, 0, state->next, state->next, 0, state->flexible ? !(norm > haptol) : norm < haptol};

  if (!column.happy) {
    const double length = sqrt(diagonal * diagonal + norm * norm);

    if (length != 0) { // as for what is no number
      column.cosine = diagonal / length;
      column.sine   = norm / length;
    }
    column.next     = -(column.sine * state->next);
    column.entry    = column.cosine * state->next;
    column.residual = fabs(column.next);
    diagonal        = column.cosine * diagonal + column.sine * norm;
  }
  gmres.rotated(iteration)[iteration] = diagonal;
  *gmres.column(iteration)            = column;
  state->norm                         = norm;
  state->next                         = column.next;
  state->iteration                    = iteration + 1;
  // a comparison with what is no number does not hold
  if (column.happy || (column.cosine == 0 && column.sine == 0) || column.residual <= state->limit || !(column.residual < state->divergence))
    state->stop = STOPPED_BY_TEST;
  else if (iteration + 1 >= state->most) state->stop = STOPPED_BY_COUNT;
}

// What follows the sums of an iteration: its column is rotated as earlier ones were, and gets a rotation of its own. All threads of one block call it.
template <int BLOCK_THREADS>
__device__ __forceinline__ void end_iteration(const Gmres &gmres)
{
  __shared__ double column[BLOCK_THREADS], cosines[BLOCK_THREADS], sines[BLOCK_THREADS];
  const int         iteration = (int)gmres.state->iteration, thread = threadIdx.x;
  const double     *sums    = gmres.sums();
  double            carried = sums[0]; // of thread 0: the entry that the next rotation changes

  __syncthreads(); // all have read the state, which thread 0 changes
  for (int k = thread; k <= iteration; k += BLOCK_THREADS) gmres.dots(iteration)[k] = sums[k];
  for (int first = 0; first < iteration; first += BLOCK_THREADS) {
    const int count = min(BLOCK_THREADS, iteration - first);

    if (thread < count) {
      column[thread]  = sums[first + thread + 1];
      cosines[thread] = gmres.column(first + thread)->cosine;
      sines[thread]   = gmres.column(first + thread)->sine;
    }
    __syncthreads();
    if (thread == 0) {
      for (int k = 0; k < count; k++) {
        const double below = column[k];

        column[k] = cosines[k] * carried + sines[k] * below;
        carried   = cosines[k] * below - sines[k] * carried;
      }
    }
    __syncthreads();
    if (thread < count) gmres.rotated(iteration)[first + thread] = column[thread];
    __syncthreads();
  }
  if (thread == 0) end_column(gmres, carried);
}

// put(row, the sum of factors[k] vectors[k][row]) for each row; both arrays have `count`
template <int BLOCK_THREADS, class Put>
__device__ __forceinline__ void each_combination(offset_t nrows, int count, const double *__restrict__ factors, const offset_t *__restrict__ vectors,
                                                 const Put put)
{
  for (offset_t first = (offset_t)blockIdx.x * BLOCK_THREADS * ITEMS + threadIdx.x; first < nrows;
       first += (offset_t)gridDim.x * BLOCK_THREADS * ITEMS) {
    scalar_t sums[ITEMS] = {0};

#pragma unroll 4
    for (int k = 0; k < count; k++) {
      const scalar_t *vector = (const scalar_t *)__ldg(vectors + k);
      const scalar_t  factor = (scalar_t)__ldg(factors + k);

#pragma unroll
      for (int i = 0; i < ITEMS; i++)
        if (first + i * BLOCK_THREADS < nrows) sums[i] += factor * __ldg(vector + first + i * BLOCK_THREADS);
    }
#pragma unroll
    for (int i = 0; i < ITEMS; i++)
      if (first + i * BLOCK_THREADS < nrows) put(first + i * BLOCK_THREADS, sums[i]);
  }
}

// w /= norm. KSPGMRES leaves zeros as they are, and KSPFGMRES divides. Bytes a row: 2 sizeof(scalar_t).
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS) gmres_scale(const Gmres gmres, scalar_t *__restrict__ w)
{
  const double   norm   = gmres.state->norm;
  const scalar_t factor = norm != 0 || gmres.state->flexible ? (scalar_t)(1 / norm) : scalar_t(1);

  if (gmres.state->stop) return;
  each_row<BLOCK_THREADS>(gmres.nrows, [&](offset_t row) { w[row] *= factor; });
}

// sums[k] = w V_k, for all vectors of the basis. Bytes a row: see block_dots().
template <int BLOCK_THREADS, int BATCH>
__global__ void __launch_bounds__(BLOCK_THREADS) gmres_dots(const Gmres gmres, const scalar_t *__restrict__ w)
{
  const int count = (int)gmres.state->iteration + 1;

  if (gmres.state->stop) return;
  block_dots<BLOCK_THREADS, BATCH>(gmres.nrows, count, gmres.basis(), w, gmres.parts);
  if (comes_last(gmres.ticket, gridDim.x)) add_parts<BLOCK_THREADS>(count, (int)gridDim.x, gmres.parts, gmres.sums());
}

// w -= the sum of sums[k] V_k, and the sum of squares of the new w. Bytes a row: sizeof(scalar_t) times 2 and the vectors of the basis. Left to itself the
// compiler would spill what the last block does, to have as many blocks as there can be; loads of five are enough on their way.
template <int BLOCK_THREADS, bool OF_RANKS>
__global__ void __launch_bounds__(BLOCK_THREADS, 5)
  gmres_update(const Gmres gmres, scalar_t *__restrict__ w, const Ranks<double> ranks, offset_t failed)
{
  scalar_t square[1] = {0}, total[1];

  if (gmres.state->stop) return;
  each_combination<BLOCK_THREADS>(OF_RANKS && failed ? 0 : gmres.nrows, (int)gmres.state->iteration + 1, gmres.sums(), gmres.basis(),
                                  [&](offset_t row, scalar_t sum) {
                                    const scalar_t left = w[row] - sum;

                                    w[row] = left;
                                    square[0] += left * left;
                                  });
  if (!last_block_sums<1, BLOCK_THREADS>(square, gmres.parts, gmres.ticket, total)) return;
  put_sums<BLOCK_THREADS, OF_RANKS>(ranks, failed, total, &gmres.state->square);
  if (OF_RANKS || gmres.state->alone) end_iteration<BLOCK_THREADS>(gmres);
}

// What follows the sums of all ranks. One block.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS) gmres_end(const Gmres gmres)
{
  if (!gmres.state->stop) end_iteration<BLOCK_THREADS>(gmres);
}

// x = the weighted sum of the terms, and x where it `adds`. Bytes a row: sizeof(scalar_t) times the terms and 1, or 2 where it adds.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS) gmres_combine(const Gmres gmres, scalar_t *__restrict__ x, int adds)
{
  each_combination<BLOCK_THREADS>(gmres.nrows, (int)gmres.state->nterms, gmres.weights(), gmres.terms(),
                                  [&](offset_t row, scalar_t sum) { x[row] = adds ? x[row] + sum : sum; });
}
