// The order in which PETSc's agg visits rows on one rank (petsc_gpufmt/coarsening/shuffle.py).
//
// agg exchanges the rows i = 0, 1, ... of an order, which begins as it is, each with a random one: order[i] with order[draws[i]], unless that
// is i itself or was drawn for an exchange before. So a place takes part in two exchanges at most, as i and as what i drew, and what it
// has at last is found by going back from exchange to exchange, each of them earlier than the one before: about log(n) steps.
//   draws [nrows]      what each row draws
//   firsts [nrows]     nrows - i for the first i that draws a row, and is another; 0: there is none
#include "common/common.cuh"

typedef unsigned long long state_t; // of a linear congruential generator of 48 bits, that of drand48()

constexpr state_t MULTIPLIER = 0x5deece66dull, INCREMENT = 0xb, STATE_BITS = (state_t(1) << 48) - 1;

// the state after `steps` from `state`; `multiplier` and `increment` are left as those of so many steps at once
__device__ __forceinline__ state_t advance(state_t state, offset_t steps)
{
  state_t multiplier = MULTIPLIER, increment = INCREMENT;

  for (; steps; steps >>= 1) {
    if (steps & 1) state = state * multiplier + increment;
    increment *= multiplier + 1;
    multiplier *= multiplier;
  }
  return state & STATE_BITS;
}

// Draws for all rows, and the first of each. `firsts` are zeros at first; `multiplier` and `increment` advance the generator by as many steps
// as there are threads. Threads: a row each, in turns.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS)
  shuffle_draw(index_t nrows, offset_t seed, offset_t multiplier, offset_t increment, index_t *__restrict__ draws, word_t *__restrict__ firsts)
{
  const offset_t first = (offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x, step = (offset_t)gridDim.x * BLOCK_THREADS;
  state_t        state = advance((state_t)seed, first + 1);

  for (offset_t i = first; i < nrows; i += step) {
    const real_t  random = (real_t)((double)state * (1.0 / 281474976710656.0)); // 2^48
    const index_t drawn  = (index_t)(random * (real_t)nrows) % nrows;

    draws[i] = drawn;
    if (drawn != i) atomicMax(firsts + drawn, (word_t)(nrows - i));
    state = (state * (state_t)multiplier + (state_t)increment) & STATE_BITS;
  }
}

// order[p]: the row that is at place p after all exchanges. A thread has one place.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS)
  shuffle_follow(index_t nrows, const index_t *__restrict__ draws, const word_t *__restrict__ firsts, index_t *__restrict__ order)
{
  const offset_t p = (offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x;

  if (p >= nrows) return;
  index_t place = (index_t)p, before = nrows; // exchanges that come before this one are left

  for (;;) {
    const index_t drawn = __ldg(draws + place), by = nrows - (index_t)__ldg(firsts + place); // nrows: by none
    const bool    draws_now = place < before && drawn != place && (index_t)__ldg(firsts + drawn) == nrows - place;

    if (by < before && !(draws_now && place > by)) {
      before = by;
      place  = by;
    } else if (draws_now) {
      before = place;
      place  = drawn;
    } else break;
  }
  order[p] = place;
}
