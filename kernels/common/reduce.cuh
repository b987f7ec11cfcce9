// Sums, maxima and minima over the threads of a warp, and what is made of them over a block.
#pragma once
#include "common/common.cuh"

constexpr int      WARP      = 32;
constexpr unsigned FULL_WARP = 0xffffffff;

// The sum over aligned groups of `width` threads, a power of two, in each of them: a fixed tree. All threads of the warp call these.
template <class T>
__device__ __forceinline__ T group_sum(T value, int width = WARP)
{
  for (int half = width / 2; half > 0; half /= 2) value += __shfl_xor_sync(FULL_WARP, value, half);
  return value;
}

template <class T>
__device__ __forceinline__ T group_max(T value, int width = WARP)
{
  for (int half = width / 2; half > 0; half /= 2) value = max(value, __shfl_xor_sync(FULL_WARP, value, half));
  return value;
}

template <class T>
__device__ __forceinline__ T group_min(T value, int width = WARP)
{
  for (int half = width / 2; half > 0; half /= 2) value = min(value, __shfl_xor_sync(FULL_WARP, value, half));
  return value;
}

// What `combine` makes of a number of each thread of the block, known to its first thread. All threads of the block call it, each place with another type
// of `combine`: these have memory of their own.
template <int BLOCK_THREADS, class T, class Combine>
__device__ __forceinline__ T over_block(T number, const Combine combine)
{
  __shared__ T of_warps[BLOCK_THREADS / WARP];

  number = combine(number);
  if (threadIdx.x % WARP == 0) of_warps[threadIdx.x / WARP] = number;
  __syncthreads();
  return combine(threadIdx.x < BLOCK_THREADS / WARP ? of_warps[threadIdx.x] : T(0));
}
