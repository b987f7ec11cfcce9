// Lengths of the rows of a CSR pattern, as PETSc keeps them beside it (petsc_gpufmt/patterns/lengths.py). Patterns of any number of rows.
#include "common/reduce.cuh"

// What a block has seen of rows: the longest, and how many have entries. All threads of the block call it; the first one has the result.
struct seen_t {
  index_t longest, nonempty;
};

template <int BLOCK_THREADS>
__device__ __forceinline__ seen_t over_block(seen_t seen)
{
  __shared__ index_t longest[BLOCK_THREADS / WARP], nonempty[BLOCK_THREADS / WARP];
  const bool         mine = threadIdx.x < BLOCK_THREADS / WARP;

  seen.longest  = group_max(seen.longest);
  seen.nonempty = group_sum(seen.nonempty);
  if (threadIdx.x % WARP == 0) {
    longest[threadIdx.x / WARP]  = seen.longest;
    nonempty[threadIdx.x / WARP] = seen.nonempty;
  }
  __syncthreads();
  return {group_max(mine ? longest[threadIdx.x] : 0), group_sum(mine ? nonempty[threadIdx.x] : 0)};
}

// room[row] = present[row] = rowptr[row + 1] - rowptr[row]; parts[2 block], [2 block + 1] = what the block has seen. Bytes a row: 3 sizeof(index_t).
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS) row_lengths(offset_t nrows, const index_t *__restrict__ rowptr, index_t *__restrict__ room,
                                                             index_t *__restrict__ present, index_t *__restrict__ parts)
{
  seen_t seen = {0, 0};

  for (offset_t row = (offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x; row < nrows; row += (offset_t)gridDim.x * BLOCK_THREADS) {
    const index_t length = __ldg(rowptr + row + 1) - __ldg(rowptr + row);

    room[row] = present[row] = length;
    seen.longest             = max(seen.longest, length);
    seen.nonempty += length > 0;
  }
  seen = over_block<BLOCK_THREADS>(seen);
  if (threadIdx.x == 0) {
    parts[2 * blockIdx.x]     = seen.longest;
    parts[2 * blockIdx.x + 1] = seen.nonempty;
  }
}

// What all blocks have seen, in the first part. One block.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS) row_lengths_seen(index_t nparts, index_t *parts)
{
  seen_t seen = {0, 0};

  for (index_t k = threadIdx.x; k < nparts; k += BLOCK_THREADS) {
    seen.longest = max(seen.longest, parts[2 * k]);
    seen.nonempty += parts[2 * k + 1];
  }
  seen = over_block<BLOCK_THREADS>(seen); // behind its barrier all parts are read
  if (threadIdx.x == 0) {
    parts[0] = seen.longest;
    parts[1] = seen.nonempty;
  }
}
