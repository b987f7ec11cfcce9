// Prefix sums in one pass: a block waits for the sum of the tiles before its own (Merrill and Garland 2016, decoupled look-back).
#pragma once
#include "common/reduce.cuh"

constexpr int SCAN_THREADS = 256, SCAN_WARPS = SCAN_THREADS / WARP;

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
    sum += group_sum(state & SUM_BITS);
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
template <class T>
__device__ __forceinline__ T sum_up_to_lane(T number)
{
#pragma unroll
  for (int distance = 1; distance < WARP; distance *= 2) {
    const T lower = __shfl_up_sync(FULL_WARP, number, distance);

    if ((int)(threadIdx.x % WARP) >= distance) number += lower;
  }
  return number;
}

// What the threads of a block share
struct BlockScan {
  count_t tile; // that the block has; blocks take them in the order in which they begin
  count_t before, warp_sums[SCAN_WARPS];

  // `tile` is known after the next barrier of the block.
  __device__ __forceinline__ void take_tile(count_t *ticket)
  {
    if (threadIdx.x == 0) tile = atomicAdd(ticket, count_t(1));
  }

  // The sum of all numbers before those of this warp, whose own is `sum`. All threads of the block call it.
  __device__ __forceinline__ count_t sum_before_warp(count_t *states, count_t sum)
  {
    const int warp = threadIdx.x / WARP;

    if (threadIdx.x % WARP == 0) warp_sums[warp] = sum;
    __syncthreads();
    if (warp == 0) {
      count_t all = 0;

      for (int w = 0; w < SCAN_WARPS; w++) all += warp_sums[w];
      const count_t before_tile = sum_before_and_with(states, (offset_t)tile, all);

      if (threadIdx.x == 0) before = before_tile;
    }
    __syncthreads();
    count_t result = before;
    for (int w = 0; w < warp; w++) result += warp_sums[w];
    return result;
  }

  // The sum of all numbers before that of this thread, `number`. All threads of the block call it.
  __device__ __forceinline__ count_t sum_before_thread(count_t *states, count_t number)
  {
    const count_t up_to_lane = sum_up_to_lane(number);

    return sum_before_warp(states, __shfl_sync(FULL_WARP, up_to_lane, WARP - 1)) + up_to_lane - number;
  }
};

// Prefix sums over n numbers, of which a warp adds up ITEMS times 32: put(i, before, up_to) for each i of the tile that this block takes, with
// the sum of the numbers before number(i) and that up to it. put() may write where number() reads. All threads of the block call it;
// `states` has a 0 for each tile at first.
template <int ITEMS, class Number, class Put>
__device__ __forceinline__ void prefix_sums(BlockScan &scan, count_t *ticket, count_t *states, offset_t n, const Number number, const Put put)
{
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;

  scan.take_tile(ticket);
  __syncthreads();
  const offset_t first = (offset_t)scan.tile * (SCAN_THREADS * ITEMS) + warp * (WARP * ITEMS) + lane;
  count_t        numbers[ITEMS], sums[ITEMS], so_far = 0;

#pragma unroll
  for (int i = 0; i < ITEMS; i++) numbers[i] = first + i * WARP < n ? (count_t)number(first + i * WARP) : 0;
#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    sums[i] = so_far + sum_up_to_lane(numbers[i]);
    so_far  = __shfl_sync(FULL_WARP, sums[i], WARP - 1);
  }
  const count_t begin = scan.sum_before_warp(states, so_far);

#pragma unroll
  for (int i = 0; i < ITEMS; i++)
    if (first + i * WARP < n) put(first + i * WARP, begin + sums[i] - numbers[i], begin + sums[i]);
}
