// Whether a pattern is symmetric (petsc_gpufmt/patterns/symmetry.py).
#include "common/scan.cuh"
#include "common/search.cuh"

// found[0], 0 at first, becomes 1 unless for each entry (i, j) of a square pattern there is (j, i), and the diagonal is complete. Columns are
// searched for in rows whose columns ascend; in others they may not be found. Threads: a warp has 32 rows, and their entries 32 at a time,
// in turns.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS)
  symmetry_check(index_t nrows, const index_t *__restrict__ rowptr, const index_t *__restrict__ colidx, count_t *__restrict__ found)
{
  const int      lane   = threadIdx.x % WARP;
  const offset_t thread = (offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x, step = (offset_t)gridDim.x * BLOCK_THREADS;
  bool           missing = false;

  for (offset_t first = thread - lane; first < nrows; first += step) {
    const int      rows  = (int)min(offset_t(WARP), nrows - first);
    const index_t  start = rowptr[first + min(lane, rows)]; // after the last row that of none
    const offset_t begin = rowptr[first], end = rowptr[first + rows];
    unsigned       diagonal = 0; // the rows whose entry was seen

    for (offset_t turn = begin; turn < end; turn += WARP) {
      const offset_t k = turn + lane;
      int            r = 0; // the last row that starts at k or before

#pragma unroll
      for (int half = WARP / 2; half > 0; half /= 2)
        if (__shfl_sync(FULL_WARP, start, r + half) <= k) r += half;
      if (k >= end) continue;
      const index_t row = (index_t)(first + r), column = colidx[k];

      if (column == row) diagonal |= 1u << r;
      else {
        const index_t last  = __ldg(rowptr + column + 1);
        const index_t place = partition_point(__ldg(rowptr + column), last, [&](index_t p) { return __ldg(colidx + p) < row; });

        missing |= place == last || __ldg(colidx + place) != row;
      }
    }
#pragma unroll
    for (int half = WARP / 2; half > 0; half /= 2) diagonal |= __shfl_xor_sync(FULL_WARP, diagonal, half);
    missing |= __popc(diagonal) != rows;
  }
  if (missing) *found = 1; // all threads that write, write the same
}
