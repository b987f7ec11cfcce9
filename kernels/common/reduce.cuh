// Sums, maxima and minima over the threads of a warp.
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
