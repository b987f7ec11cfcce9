// Prefix sums in one pass: a block waits for the sum of the tiles before its own (Merrill and Garland 2016, decoupled look-back).
#pragma once
#include "common.cuh"

constexpr int      WARP         = 32;
constexpr unsigned FULL_WARP    = 0xffffffff;
constexpr int      SCAN_THREADS = 256;

typedef unsigned long long count_t;

// What a tile tells those after it, in one word, 0 at first: the sum of its numbers, or of all up to it
constexpr count_t TILE_SUM = count_t(1) << 62, SUM_SO_FAR = count_t(2) << 62, SUM_BITS = TILE_SUM - 1;

// The sum of all tiles before `tile`. A warp calls it; it waits for blocks that have begun before, no others.
__device__ __forceinline__ count_t sum_before(const volatile count_t *states, offset_t tile)
{
  const int lane = threadIdx.x % WARP;
  count_t   sum  = 0;

  for (offset_t last = tile - 1; last >= 0; last -= WARP) {
    count_t  state;
    unsigned complete;

    do state = last - lane >= 0 ? states[last - lane] : SUM_SO_FAR;
    while (__any_sync(FULL_WARP, state == 0));
    complete = __ballot_sync(FULL_WARP, state >= SUM_SO_FAR);
    if (complete && lane > __ffs(complete) - 1) state = 0; // these are part of a sum so far
    state &= SUM_BITS;
#pragma unroll
    for (int half = WARP / 2; half > 0; half /= 2) state += __shfl_xor_sync(FULL_WARP, state, half);
    sum += state;
    if (complete) break;
  }
  return sum;
}

// The sum of all tiles before `tile`, whose own is `sum`, and word of both for the tiles after it. A warp calls it.
__device__ __forceinline__ count_t sum_before_and_with(count_t *states, offset_t tile, count_t sum)
{
  const bool first_lane = threadIdx.x % WARP == 0;

  if (first_lane) atomicExch(states + tile, (tile ? TILE_SUM : SUM_SO_FAR) | sum);
  const count_t before = sum_before(states, tile);

  if (first_lane && tile) atomicExch(states + tile, SUM_SO_FAR | (before + sum));
  return before;
}

// The sum of `number` over the threads of a warp up to this one
__device__ __forceinline__ count_t sum_up_to_lane(count_t number)
{
#pragma unroll
  for (int distance = 1; distance < WARP; distance *= 2) {
    const count_t lower = __shfl_up_sync(FULL_WARP, number, distance);

    if ((int)(threadIdx.x % WARP) >= distance) number += lower;
  }
  return number;
}
