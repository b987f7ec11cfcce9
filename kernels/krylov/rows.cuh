// How the threads of a launch share the rows of vectors.
#pragma once
#include "common/sums.cuh"

constexpr int ITEMS = 2; // rows that a thread has on the way at once

enum Order { FORWARD, BACKWARD };

// put(row) for each row: a thread takes every BLOCK_THREADS gridDim.x-th. Backward, the first rows are those that the launch before has read or written last: they
// are in the cache.
template <int BLOCK_THREADS, Order ORDER = FORWARD, class Put>
__device__ __forceinline__ void each_row(offset_t nrows, const Put put)
{
  for (offset_t first = (offset_t)blockIdx.x * (BLOCK_THREADS * ITEMS) + threadIdx.x; first < nrows;
       first += (offset_t)gridDim.x * (BLOCK_THREADS * ITEMS)) {
#pragma unroll
    for (int k = 0; k < ITEMS; k++)
      if (first + k * BLOCK_THREADS < nrows) put(ORDER == FORWARD ? first + k * BLOCK_THREADS : nrows - 1 - (first + k * BLOCK_THREADS));
  }
}
