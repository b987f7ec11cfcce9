// The sum of what the blocks of an earlier launch have left, see GridSum.
#include "common/sums.cuh"

// *result = parts[0] + ... + parts[nparts - 1], in an order that depends on nparts and the grid alone. `sums` has a number for each block; *ticket is 0 before and
// after. Bytes: nparts sizeof(scalar_t).
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS) grid_sum_of_parts(offset_t nparts, const scalar_t *__restrict__ parts, scalar_t *__restrict__ sums,
                                                                   unsigned *__restrict__ ticket, scalar_t *__restrict__ result)
{
  scalar_t sum[1] = {0}, total[1];

  for (offset_t part = (offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x; part < nparts; part += (offset_t)gridDim.x * BLOCK_THREADS)
    sum[0] += parts[part];
  if (last_block_sums<1, BLOCK_THREADS>(sum, sums, ticket, total) && threadIdx.x == 0) *result = total[0];
}
