// Products of BSR with kernels K2 and K3 (formats/bsr/bsr.py). Abdelfattah, Ltaief, Keyes and Dongarra 2016, sections 4 and 5.
//
// Arrays
//   segment_offsets [nsegments + 1]  segment s holds blocks segment_offsets[s] .. segment_offsets[s + 1]; a segment is a block row, or in
//                                    balanced BSR a piece of one
//   block_col [nblocks]              block column of each block, ascending in a block row
//   val [nblocks * ROW_BLOCK * COL_BLOCK]  blocks one after another, each column by column; -0 in padding, which no entry of the matrix is
//
// So a segment is a dense matrix of ROW_BLOCK rows, stored column by column, whose columns are those of its blocks. It is the work of a
// thread array of TILE_HEIGHT x THREAD_GROUPS threads (nb x N_tg in the paper): thread r of group g adds up row r of columns g, g + THREAD_GROUPS,
// ..., through the ends of blocks, and consecutive threads read consecutive words. TILE_HEIGHT is ROW_BLOCK in K2, less in K3, where several thread
// arrays share a segment.
//
// Threads: blockDim = (TILE_HEIGHT, THREAD_GROUPS, THREAD_ARRAYS); a thread array does ROWS_PER_ARRAY work items, a segment's tile each.
#include "formats/bsr.cuh"
#include "formats/results.cuh"

// One row of a segment times x: columns `first`, first + THREAD_GROUPS, ... of `width`. Values and entries of x are double buffered: an
// entry's registers are refilled for the next ENTRIES columns as soon as it is added, and block columns are a turn ahead of both, so that
// 2 ENTRIES loads of a thread wait for memory at any time.
template <int ROW_BLOCK, int COL_BLOCK, int THREAD_GROUPS, int ENTRIES, int PADDED>
__device__ __forceinline__ scalar_t row_product(unsigned first, unsigned width, index_t ncols, const index_t *__restrict__ block_col,
                                                const scalar_t *__restrict__ val, const scalar_t *__restrict__ x)
{
  constexpr unsigned TURN = THREAD_GROUPS * ENTRIES;

  const auto block_column = [=](unsigned j) { return j < width ? __ldg(block_col + j / COL_BLOCK) : index_t(0); };
  const auto value        = [=](unsigned j) { return j < width ? load_once(val + j * ROW_BLOCK) : scalar_t(0); };
  const auto entry_of_x   = [=](index_t block_column, unsigned j) {
    const offset_t column = (offset_t)block_column * COL_BLOCK + j % COL_BLOCK;

    return j < width && (!PADDED || column < ncols) ? __ldg(x + column) : scalar_t(0);
  };
  index_t  c[ENTRIES];
  scalar_t v[ENTRIES], x_c[ENTRIES], sum = 0;

#pragma unroll
  for (int k = 0; k < ENTRIES; k++) {
    c[k] = block_column(first + k * THREAD_GROUPS);
    v[k] = value(first + k * THREAD_GROUPS);
  }
#pragma unroll
  for (int k = 0; k < ENTRIES; k++) {
    x_c[k] = entry_of_x(c[k], first + k * THREAD_GROUPS);
    c[k]   = block_column(first + TURN + k * THREAD_GROUPS);
  }
  for (unsigned j = first; j < width; j += TURN) {
#pragma unroll
    for (int k = 0; k < ENTRIES; k++) {
      const unsigned next = j + TURN + k * THREAD_GROUPS;

      if (!PADDED || !is_padding(v[k])) sum += v[k] * x_c[k];
      v[k]   = value(next);
      x_c[k] = entry_of_x(c[k], next);
      c[k]   = block_column(next + TURN);
    }
  }
  return sum;
}

// The `nrows` rows of all segments. Bytes a block: ROW_BLOCK * COL_BLOCK sizeof(scalar_t) + sizeof(index_t); a segment: sizeof(offset_t).
// Deterministic: a fixed order of sums, no atomics.
template <int ROW_BLOCK, int COL_BLOCK, int TILE_HEIGHT, int THREAD_GROUPS, int THREAD_ARRAYS, int ROWS_PER_ARRAY, int ENTRIES, int PADDED,
          class Result>
__device__ __forceinline__ void product(offset_t nsegments, offset_t nrows, index_t ncols, const offset_t *__restrict__ segment_offsets,
                                        const index_t *__restrict__ block_col, const scalar_t *__restrict__ val, const scalar_t *__restrict__ x,
                                        Result &result)
{
  constexpr int       NTILES = (ROW_BLOCK + TILE_HEIGHT - 1) / TILE_HEIGHT, ITEMS = THREAD_ARRAYS * ROWS_PER_ARRAY,
                      THREADS = TILE_HEIGHT * THREAD_GROUPS * THREAD_ARRAYS;
  __shared__ scalar_t partial[ROWS_PER_ARRAY][THREAD_ARRAYS][THREAD_GROUPS][TILE_HEIGHT];
  const int           thread = (int)((threadIdx.z * THREAD_GROUPS + threadIdx.y) * TILE_HEIGHT + threadIdx.x);

#pragma unroll 1
  for (int i = 0; i < ROWS_PER_ARRAY; i++) {
    const offset_t item    = ((offset_t)blockIdx.x * THREAD_ARRAYS + threadIdx.z) * ROWS_PER_ARRAY + i;
    const offset_t segment = item / NTILES;
    const int      row     = (int)(item % NTILES) * TILE_HEIGHT + (int)threadIdx.x;
    scalar_t       sum     = 0;

    if (segment < nsegments && row < ROW_BLOCK) {
      const offset_t begin = segment_offsets[segment];
      const int      width = (int)(segment_offsets[segment + 1] - begin) * COL_BLOCK, first = (int)threadIdx.y;

      sum = row_product<ROW_BLOCK, COL_BLOCK, THREAD_GROUPS, ENTRIES, PADDED>(first, width, ncols, block_col + begin,
                                                                              val + begin * (ROW_BLOCK * COL_BLOCK) + row, x);
    }
    (&partial[i][0][0][0])[thread] = sum;
  }
  __syncthreads();
  for_rows<Result, THREADS>(thread, ITEMS * TILE_HEIGHT, [&](int q) {
    const int      array = q / (ROWS_PER_ARRAY * TILE_HEIGHT), i = q / TILE_HEIGHT % ROWS_PER_ARRAY;
    const offset_t item         = (offset_t)blockIdx.x * ITEMS + q / TILE_HEIGHT;
    const offset_t segment      = item / NTILES;
    const int      row_in_block = (int)(item % NTILES) * TILE_HEIGHT + q % TILE_HEIGHT;
    const offset_t row          = segment * ROW_BLOCK + row_in_block;
    scalar_t       sum          = 0;

#pragma unroll
    for (int g = 0; g < THREAD_GROUPS; g++) sum += partial[i][array][g][q % TILE_HEIGHT];
    if (row_in_block < ROW_BLOCK && row < nrows) result.use(row, sum, [=] { return segment_offsets[segment] == segment_offsets[segment + 1]; });
  });
}

// z = alpha A x + beta y; y is not read if beta is 0, and z may be y
template <int ROW_BLOCK, int COL_BLOCK, int TILE_HEIGHT, int THREAD_GROUPS, int THREAD_ARRAYS, int ROWS_PER_ARRAY, int ENTRIES, int PADDED>
__global__ void __launch_bounds__((TILE_HEIGHT * THREAD_GROUPS * THREAD_ARRAYS))
  bsr_spmv(index_t /* ROW_BLOCK */, index_t /* COL_BLOCK */, offset_t nsegments, offset_t nrows, index_t ncols,
           const offset_t *__restrict__ segment_offsets, const index_t *__restrict__ block_col, const scalar_t *__restrict__ val,
           const scalar_t *__restrict__ x, scalar_t alpha, scalar_t beta, const scalar_t *y, scalar_t *z)
{
  const ScaledResult result = {alpha, beta, y, z};

  product<ROW_BLOCK, COL_BLOCK, TILE_HEIGHT, THREAD_GROUPS, THREAD_ARRAYS, ROWS_PER_ARRAY, ENTRIES, PADDED>(nsegments, nrows, ncols, segment_offsets,
                                                                                                            block_col, val, x, result);
}

// z = alpha u + beta x + gamma d (b - A x), row by row, and the dot product of w with A x, see Fused. There may be padding.
template <int ROW_BLOCK, int COL_BLOCK, int TILE_HEIGHT, int THREAD_GROUPS, int THREAD_ARRAYS, int ROWS_PER_ARRAY, int ENTRIES>
__global__ void __launch_bounds__((TILE_HEIGHT * THREAD_GROUPS * THREAD_ARRAYS))
  bsr_fused(index_t /* ROW_BLOCK */, index_t /* COL_BLOCK */, offset_t nsegments, offset_t nrows, index_t ncols,
            const offset_t *__restrict__ segment_offsets, const index_t *__restrict__ block_col, const scalar_t *__restrict__ val,
            const scalar_t *__restrict__ x, const Fused fused)
{
  FusedResult result = {fused, x};

  product<ROW_BLOCK, COL_BLOCK, TILE_HEIGHT, THREAD_GROUPS, THREAD_ARRAYS, ROWS_PER_ARRAY, ENTRIES, 1>(nsegments, nrows, ncols, segment_offsets,
                                                                                                       block_col, val, x, result);
  result.finish<TILE_HEIGHT * THREAD_GROUPS * THREAD_ARRAYS>();
}

// Balanced BSR (section 5.5): the results of the pieces of each block row, segment_ptr[i] .. segment_ptr[i + 1] for block row i, are added
// up: partial[s * row_block + r] is row r of piece s. blockDim = (ROWS, LANES): LANES threads share a row.
template <int ROWS, int LANES, class Result>
__device__ __forceinline__ void sum_of_pieces(index_t nrows, index_t                        row_block, const offset_t *__restrict__ segment_ptr,
                                              const scalar_t *__restrict__ partial, Result &result)
{
  __shared__ scalar_t lane_sum[LANES][ROWS];
  const offset_t      row = (offset_t)blockIdx.x * ROWS + threadIdx.x;
  scalar_t            sum = 0;

  if (row < nrows) {
    const offset_t block_row = row / row_block, end = segment_ptr[block_row + 1];

#pragma unroll 4
    for (offset_t s = segment_ptr[block_row] + threadIdx.y; s < end; s += LANES) sum += load_once(partial + s * row_block + row % row_block);
  }
  lane_sum[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || row >= nrows) return;
  for (int lane = 1; lane < LANES; lane++) sum += lane_sum[lane][threadIdx.x];
  result.use(row, sum, [] { return false; });
}

// z = alpha A x + beta y, of the results of the pieces
template <int ROWS, int LANES>
__global__ void __launch_bounds__((ROWS * LANES))
  bsr_reduce(index_t nrows, index_t row_block, const offset_t *__restrict__ segment_ptr, const scalar_t *__restrict__ partial, scalar_t alpha,
             scalar_t beta, const scalar_t *y, scalar_t *z)
{
  const ScaledResult result = {alpha, beta, y, z};

  sum_of_pieces<ROWS, LANES>(nrows, row_block, segment_ptr, partial, result);
}

// as bsr_fused, of the results of the pieces
template <int ROWS, int LANES>
__global__ void __launch_bounds__((ROWS * LANES))
  bsr_reduce_fused(index_t nrows, index_t row_block, const offset_t *__restrict__ segment_ptr, const scalar_t *__restrict__ partial,
                   const scalar_t *__restrict__ x, const Fused fused)
{
  FusedResult result = {fused, x};

  sum_of_pieces<ROWS, LANES>(nrows, row_block, segment_ptr, partial, result);
  result.finish<ROWS * LANES>();
}
