// Products of BSR with kernel K1 (formats/bsr/bsr.py): a warp reads a block of each of 32 block rows at once, a lane takes a whole block, and
// so has one block column and the entries of x for all its rows. After Abdelfattah, Ltaief, Keyes and Dongarra 2016, section 4.3.1; arrays:
// bsr.cuh, with slices of a warp.
#include "formats/bsr.cuh"
#include "formats/results.cuh"

// The entries of a block: loads that neighbouring lanes make side by side
template <int SIZE>
__device__ __forceinline__ void load_block(scalar_t (&v)[SIZE], const Diagonal &diagonal, unsigned lane, const scalar_t *__restrict__ val)
{
  const scalar_t *first = val + diagonal.base * SIZE + diagonal.rank(lane) * PIECE<SIZE>;
  const int       n     = diagonal.size();

#pragma unroll
  for (int k = 0; k < SIZE; k += PIECE<SIZE>) {
    if constexpr (PIECE<SIZE> == 2) {
      const Pair pair = *(const Pair *)(first + k * n);

      v[k]     = pair.first;
      v[k + 1] = pair.second;
    } else v[k] = load_once(first + k * n);
  }
}

// The rows of all block rows. The GROUPS warps of a slice share its diagonals in turn; each has BLOCKS blocks a lane on the way from memory, and
// asks for the next block columns meanwhile. Bytes: those of K2. blockDim = (LANES, GROUPS, SLICES)
template <int ROW_BLOCK, int COL_BLOCK, int GROUPS, int SLICES, int BLOCKS, int PADDED, class Result>
__device__ __forceinline__ void product(offset_t nblock_rows, offset_t nrows, index_t ncols, const offset_t *__restrict__ block_offsets,
                                        const index_t *__restrict__ block_col, const scalar_t *__restrict__ val, const scalar_t *__restrict__ x,
                                        Result &result)
{
  constexpr int       SIZE = ROW_BLOCK * COL_BLOCK, ROWS = LANES * ROW_BLOCK, THREADS = LANES * GROUPS * SLICES;
  __shared__ scalar_t partial[SLICES][GROUPS][ROWS];
  const unsigned      lane      = threadIdx.x;
  const offset_t      block_row = ((offset_t)blockIdx.x * SLICES + threadIdx.z) * LANES + lane;
  const offset_t      begin     = block_offsets[min(block_row, nblock_rows)];
  const int           length    = (int)(block_offsets[min(block_row + 1, nblock_rows)] - begin);
  Walk<GROUPS>        walk(__shfl_sync(~0u, begin, 0), length, (int)threadIdx.y);
  Diagonal            diagonal[BLOCKS];
  index_t             c[BLOCKS];
  scalar_t            sum[ROW_BLOCK] = {};

#pragma unroll
  for (int b = 0; b < BLOCKS; b++) {
    diagonal[b] = walk.next();
    c[b]        = diagonal[b].here(lane) ? __ldg(block_col + diagonal[b].base + diagonal[b].rank(lane)) : index_t(0);
  }
  while (diagonal[0].present) {
    scalar_t v[BLOCKS][SIZE], x_c[BLOCKS][COL_BLOCK];

#pragma unroll
    for (int b = 0; b < BLOCKS; b++) {
      const bool here = diagonal[b].here(lane);

      if (here) load_block<SIZE>(v[b], diagonal[b], lane, val);
      else
#pragma unroll
        for (int k = 0; k < SIZE; k++) v[b][k] = 0;
#pragma unroll
      for (int k = 0; k < COL_BLOCK; k++) {
        const offset_t column = (offset_t)c[b] * COL_BLOCK + k;

        x_c[b][k] = here && (!PADDED || column < ncols) ? __ldg(x + column) : scalar_t(0);
      }
    }
#pragma unroll
    for (int b = 0; b < BLOCKS; b++) {
      diagonal[b] = walk.next();
      c[b]        = diagonal[b].here(lane) ? __ldg(block_col + diagonal[b].base + diagonal[b].rank(lane)) : index_t(0);
    }
#pragma unroll
    for (int b = 0; b < BLOCKS; b++)
#pragma unroll
      for (int k = 0; k < SIZE; k++)
        if (!PADDED || !is_padding(v[b][k])) sum[k % ROW_BLOCK] += v[b][k] * x_c[b][k / ROW_BLOCK];
  }
#pragma unroll
  for (int r = 0; r < ROW_BLOCK; r++) partial[threadIdx.z][threadIdx.y][lane * ROW_BLOCK + r] = sum[r];
  __syncthreads();
  for_rows<Result, THREADS>((int)((threadIdx.z * GROUPS + threadIdx.y) * LANES + lane), SLICES * ROWS, [&](int q) {
    const offset_t row   = (offset_t)blockIdx.x * (SLICES * ROWS) + q;
    scalar_t       total = 0;

#pragma unroll
    for (int g = 0; g < GROUPS; g++) total += partial[q / ROWS][g][q % ROWS];
    if (row < nrows) result.use(row, total, [=] { return block_offsets[row / ROW_BLOCK] == block_offsets[row / ROW_BLOCK + 1]; });
  });
}

// z = alpha A x + beta y; y is not read if beta is 0, and z may be y
template <int ROW_BLOCK, int COL_BLOCK, int GROUPS, int SLICES, int BLOCKS, int PADDED>
__global__ void __launch_bounds__((LANES * GROUPS * SLICES), 1024 / (LANES * GROUPS * SLICES))
  bsr_spmv_interleaved(index_t /* ROW_BLOCK */, index_t /* COL_BLOCK */, offset_t nblock_rows, offset_t nrows, index_t ncols,
                       const offset_t *__restrict__ block_offsets, const index_t *__restrict__ block_col, const scalar_t *__restrict__ val,
                       const scalar_t *__restrict__ x, scalar_t alpha, scalar_t beta, const scalar_t *y, scalar_t *z)
{
  const ScaledResult result = {alpha, beta, y, z};

  product<ROW_BLOCK, COL_BLOCK, GROUPS, SLICES, BLOCKS, PADDED>(nblock_rows, nrows, ncols, block_offsets, block_col, val, x, result);
}

// z = alpha u + beta x + gamma d (b - A x), row by row, and the dot product of w with A x, see Fused. There may be padding.
template <int ROW_BLOCK, int COL_BLOCK, int GROUPS, int SLICES, int BLOCKS>
__global__ void __launch_bounds__((LANES * GROUPS * SLICES), 1024 / (LANES * GROUPS * SLICES))
  bsr_fused_interleaved(index_t /* ROW_BLOCK */, index_t /* COL_BLOCK */, offset_t nblock_rows, offset_t nrows, index_t ncols,
                        const offset_t *__restrict__ block_offsets, const index_t *__restrict__ block_col, const scalar_t *__restrict__ val,
                        const scalar_t *__restrict__ x, const Fused fused)
{
  FusedResult result = {fused, x};

  product<ROW_BLOCK, COL_BLOCK, GROUPS, SLICES, BLOCKS, 1>(nblock_rows, nrows, ncols, block_offsets, block_col, val, x, result);
  result.finish<LANES * GROUPS * SLICES>();
}
