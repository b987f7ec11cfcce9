// Keys of a block in order: Batcher's bitonic sort.
#pragma once
#include "common/common.cuh"

template <class Key>
__device__ __forceinline__ void put_in_order(Key *keys, int low, int high, bool ascending)
{
  const Key a = keys[low], b = keys[high];

  if ((a > b) == ascending) {
    keys[low]  = b;
    keys[high] = a;
  }
}

// Puts SIZE keys in shared memory, a power of two, in ascending order. All SIZE / 2 threads of the block call it; the keys may just have been
// written, and may be read after it.
template <int SIZE, class Key>
__device__ __forceinline__ void sort_in_block(Key *keys)
{
  const int thread = threadIdx.x;

  for (int size = 2; size <= SIZE; size *= 2)
    for (int stride = size / 2; stride > 0; stride /= 2) {
      const int low = 2 * thread - (thread & (stride - 1));

      __syncthreads();
      put_in_order(keys, low, low + stride, (low & size) == 0);
    }
  __syncthreads();
}
