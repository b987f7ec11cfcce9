// Lengths of the rows of a CSR pattern, as PETSc keeps them beside it (petsc_gpufmt/patterns/lengths.py). Patterns of any number of rows.
#include "common/reduce.cuh"

// part[0], [1] = the longest row that a thread of the block has seen, and how many with entries all have. All threads of the block call it.
template <int BLOCK_THREADS>
__device__ __forceinline__ void put_seen(index_t longest, index_t nonempty, index_t *part)
{
  longest  = over_block<BLOCK_THREADS>(longest, [](index_t number) { return group_max(number); });
  nonempty = over_block<BLOCK_THREADS>(nonempty, [](index_t number) { return group_sum(number); });
  if (threadIdx.x == 0) {
    part[0] = longest;
    part[1] = nonempty;
  }
}

// room[row] = present[row] = rowptr[row + 1] - rowptr[row]; parts[2 block], [2 block + 1] = what the block has seen. Bytes a row: 3 sizeof(index_t).
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS) row_lengths(offset_t nrows, const index_t *__restrict__ rowptr, index_t *__restrict__ room,
                                                             index_t *__restrict__ present, index_t *__restrict__ parts)
{
  index_t longest = 0, nonempty = 0;

  for (offset_t row = (offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x; row < nrows; row += (offset_t)gridDim.x * BLOCK_THREADS) {
    const index_t length = __ldg(rowptr + row + 1) - __ldg(rowptr + row);

    room[row] = present[row] = length;
    longest                  = max(longest, length);
    nonempty += length > 0;
  }
  put_seen<BLOCK_THREADS>(longest, nonempty, parts + 2 * blockIdx.x);
}

// What all blocks have seen, in the first part. One block; behind its first barrier all parts are read.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS) row_lengths_seen(index_t nparts, index_t *parts)
{
  index_t longest = 0, nonempty = 0;

  for (index_t k = threadIdx.x; k < nparts; k += BLOCK_THREADS) {
    longest = max(longest, parts[2 * k]);
    nonempty += parts[2 * k + 1];
  }
  put_seen<BLOCK_THREADS>(longest, nonempty, parts);
}
