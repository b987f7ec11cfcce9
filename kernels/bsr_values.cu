// Values of BSR (formats/bsr.py): into the blocks, and the diagonal out of them. Arrays: bsr.cuh, bsr_build.cu.
#include "bsr.cuh"

constexpr int FILL_THREADS = 256;

// Some columns of a slice's block rows, in shared memory. FULL: no block has padding.
template <int ROW_BLOCK, int COL_BLOCK, int SLICE, int FULL>
struct Tile {
  static constexpr int ROWS = SLICE * ROW_BLOCK, FIT = (SLICE == LANES ? 4096 : 2048) / (FULL ? ROWS : ROWS + SLICE);
  static constexpr int WIDTH = SLICE == LANES ? FIT / COL_BLOCK * COL_BLOCK : FIT; // columns; whole blocks where those of several rows alternate
  static constexpr int PITCH = WIDTH | 1;                                          // of rows in shared memory: neighbours are in other banks
  static constexpr int BLOCKS = (WIDTH - 1) / COL_BLOCK + 2;                       // that a tile's columns may belong to
};

// The entries of rows, all rows as if `width` long, one for each thread, then the next FILL_THREADS: no division.
struct Entry {
  int row, column;

  __device__ __forceinline__ Entry(int width) : row((int)threadIdx.x / width), column((int)threadIdx.x % width) { }

  __device__ __forceinline__ void advance(int rows, int columns, int width) // FILL_THREADS = rows * width + columns
  {
    row += rows;
    column += columns;
    if (column >= width) {
      column -= width;
      row++;
    }
  }
};

// The refresh for K1, for high blocks, and where blocks have padding. A tile is gathered in shared memory: it is read by rows, as in
// CSR, and written as it is stored, both in long runs. blockIdx.x = slice, whose tiles are those blockIdx.y, + gridDim.y, ...
//   SLICE       block rows of a slice: a warp's number for K1, any other number for the layout of K2 and K3
//   entry k of the pattern is the sum of the values `first[k]` .. first[k + 1] (k alone, if `first` is null), value e being at source[e], or at
//               e if `source` is null
//   FULL        an entry's place in CSR is known from its place in the blocks, and rowptr, colidx are not read. Else the entries of a row look
//               for their blocks.
// An entry -0 becomes +0, since -0 says padding; in a sum that began with +0 they do the same.
template <int ROW_BLOCK, int COL_BLOCK, int SLICE, int FULL>
__global__ void __launch_bounds__(FILL_THREADS, 4)
  bsr_fill_values(offset_t nrows, offset_t nblock_rows, index_t /* ROW_BLOCK */, index_t /* COL_BLOCK */, index_t /* SLICE, or 1 */, const offset_t *__restrict__ block_offsets, const index_t *__restrict__ block_col, const index_t *__restrict__ rowptr, const index_t *__restrict__ colidx, const index_t *__restrict__ first, const index_t *__restrict__ source, const scalar_t *__restrict__ values, scalar_t *__restrict__ stored)
{
  using T = Tile<ROW_BLOCK, COL_BLOCK, SLICE, FULL>;
  constexpr int  SIZE = ROW_BLOCK * COL_BLOCK, BATCH = FULL ? 6 : 2;
  constexpr bool INTERLEAVED = SLICE == LANES;
  // row r of block row i of the slice is row r * SLICE + i of these
  __shared__ scalar_t tile[T::ROWS * T::PITCH];
  __shared__ offset_t row_begin[T::ROWS]; // where the row's first entry of the tile is in CSR
  __shared__ int      row_size[T::ROWS];  // entries of the row in the tile
  __shared__ offset_t begin[SLICE];       // of block rows
  __shared__ int      length[SLICE], longest;
  __shared__ index_t  columns[FULL ? 1 : SLICE][FULL ? 1 : T::BLOCKS];
  const int           thread = (int)threadIdx.x, lane = thread % LANES, warp = thread / LANES;
  const offset_t      slice_row = (offset_t)blockIdx.x * SLICE;

  if (warp == 0) {
    const offset_t block_row = min(slice_row + lane, nblock_rows), my_begin = block_offsets[block_row];
    const int      my_length = lane < SLICE ? (int)(block_offsets[min(block_row + 1, nblock_rows)] - my_begin) : 0;
    const int      most      = group_max(my_length);

    if (lane < SLICE) {
      begin[lane]  = my_begin;
      length[lane] = my_length;
    }
    if (lane == 0) longest = most;
  }
  __syncthreads();
  const unsigned slice_width = (unsigned)longest * COL_BLOCK;

  for (unsigned first_column = blockIdx.y * T::WIDTH; first_column < slice_width; first_column += gridDim.y * T::WIDTH) {
    const int width = (int)min((unsigned)T::WIDTH, slice_width - first_column), first_diagonal = (int)(first_column / COL_BLOCK);

    if constexpr (FULL) {
      for (int row = thread; row < T::ROWS; row += FILL_THREADS) {
        const int i = row % SLICE, r = row / SLICE;

        row_size[row]  = max(0, min(width, length[i] * COL_BLOCK - (int)first_column));
        row_begin[row] = begin[i] * SIZE + (offset_t)r * length[i] * COL_BLOCK + first_column;
      }
    } else {
      for (int q = thread; q < T::ROWS * T::PITCH; q += FILL_THREADS) tile[q] = -scalar_t(0);
      if constexpr (INTERLEAVED) {
        Walk<FILL_THREADS / LANES> walk(begin[0], length[lane], first_diagonal + warp);

        for (int d = warp; d < T::BLOCKS; d += FILL_THREADS / LANES) {
          const Diagonal diagonal = walk.next();

          if (diagonal.here(lane)) columns[lane][d] = block_col[diagonal.base + diagonal.rank(lane)];
        }
      } else {
        for (int q = thread; q < SLICE * T::BLOCKS; q += FILL_THREADS) {
          const int i = q / T::BLOCKS, d = q % T::BLOCKS;

          if (first_diagonal + d < length[i]) columns[i][d] = block_col[begin[i] + first_diagonal + d];
        }
      }
      __syncthreads();
      for (int row = thread; row < T::ROWS; row += FILL_THREADS) {
        const int      i = row % SLICE, r = row / SLICE, nblocks = min(length[i] - first_diagonal, T::BLOCKS);
        const offset_t csr_row = (slice_row + i) * ROW_BLOCK + r;
        index_t        k = 0, end = 0;

        if (csr_row < nrows && nblocks > 0) {
          k   = rowptr[csr_row];
          end = rowptr[csr_row + 1];
          if (first_diagonal > 0) k = lower_bound(k, end, colidx, COL_BLOCK, columns[i][0]);
          if (nblocks < length[i] - first_diagonal) end = lower_bound(k, end, colidx, COL_BLOCK, columns[i][nblocks - 1] + 1);
        }
        row_begin[row] = k;
        row_size[row]  = (int)(end - k);
      }
    }
    __syncthreads();
    const int row_width = FULL ? width : T::BLOCKS * COL_BLOCK, rows = FILL_THREADS / row_width, rest = FILL_THREADS % row_width;

    for (Entry entry(row_width); entry.row < T::ROWS;) {
      scalar_t v[BATCH];
      index_t  column[FULL ? 1 : BATCH];
      int      row[FULL ? 1 : BATCH], to[BATCH];

      // loads only: whatever uses one of them here would wait for it before the next is made
#pragma unroll
      for (int b = 0; b < BATCH; b++) {
        to[b] = entry.row < T::ROWS && entry.column < row_size[entry.row] ? entry.row * T::PITCH + entry.column : -1;
        if (to[b] >= 0) {
          const offset_t k = row_begin[entry.row] + entry.column;

          if constexpr (!FULL) {
            row[b]    = entry.row;
            column[b] = colidx[k];
          }
          if (FULL || !first) v[b] = values[source ? source[k] : k];
        }
        entry.advance(rows, rest, row_width);
      }
#pragma unroll
      for (int b = 0; b < BATCH; b++) {
        if (to[b] < 0) continue;
        if constexpr (!FULL) {
          const int     i = row[b] % SLICE;
          const index_t wanted = column[b] / COL_BLOCK;

          if (first) {
            const offset_t k = row_begin[row[b]] + to[b] - row[b] * T::PITCH;

            v[b] = 0;
            for (offset_t e = first[k]; e < first[k + 1]; e++) v[b] += values[source ? source[e] : e];
          }
          int d = partition_point(0, min(length[i] - first_diagonal, T::BLOCKS) - 1, [&](int p) { return columns[i][p] < wanted; });

          d = (first_diagonal + d) * COL_BLOCK + (int)(column[b] % COL_BLOCK) - (int)first_column;
          if (d >= 0 && d < width) tile[row[b] * T::PITCH + d] = scalar_t(0) + v[b];
        } else tile[to[b]] = scalar_t(0) + v[b];
      }
    }
    __syncthreads();
    if constexpr (INTERLEAVED) {
      Walk<FILL_THREADS / LANES> walk(begin[0], length[lane], first_diagonal + warp);

      for (int d = warp; d < T::WIDTH / COL_BLOCK; d += FILL_THREADS / LANES) {
        const Diagonal diagonal = walk.next();
        const int      n        = diagonal.size();
        scalar_t      *block    = stored + diagonal.base * SIZE + diagonal.rank(lane) * PIECE<SIZE>;

        if (diagonal.here(lane))
#pragma unroll
          for (int k = 0; k < SIZE; k += PIECE<SIZE>) {
            const auto value = [&](int k) { return tile[(k % ROW_BLOCK * SLICE + lane) * T::PITCH + d * COL_BLOCK + k / ROW_BLOCK]; };

            if constexpr (PIECE<SIZE> == 2) *(Pair *)(block + k * n) = {value(k), value(k + 1)};
            else block[k * n] = value(k);
          }
      }
    } else {
      constexpr int TEAM = FILL_THREADS / SLICE;
      const int     i = thread / TEAM;
      const int     size = min(width, length[i] * COL_BLOCK - (int)first_column) * ROW_BLOCK;
      scalar_t     *block = stored + begin[i] * SIZE + (offset_t)first_column * ROW_BLOCK;

#pragma unroll 4
      for (int q = thread % TEAM; q < size; q += TEAM) block[q] = tile[(q % ROW_BLOCK * SLICE + i) * T::PITCH + q / ROW_BLOCK];
    }
    __syncthreads();
  }
}

// The refresh for K2 and K3 where all blocks are full and low: the values of a block row are a dense matrix, stored by rows in CSR, by columns here.
// Threads take its entries in pieces of four columns: neighbours read 4 words of a row and write neighbouring rows, so that neither side
// wastes much of what memory moves, and no thread waits for others. blockDim = (threads a block row, block rows); gridDim.y thread blocks
// share a block row; source[k] is where entry k has its value, null: at k.
__global__ void __launch_bounds__(256) bsr_transpose_values(offset_t nblock_rows, index_t row_block, index_t col_block, const offset_t *__restrict__ block_offsets, const index_t *__restrict__ source, const scalar_t *__restrict__ values, scalar_t *__restrict__ stored)
{
  constexpr int  BATCH = 4, PIECE = 4;
  const offset_t block_row = (offset_t)blockIdx.x * blockDim.y + threadIdx.y;

  if (block_row >= nblock_rows) return;
  const offset_t begin  = block_offsets[block_row] * row_block * col_block;
  const unsigned height = (unsigned)row_block, width = (unsigned)(block_offsets[block_row + 1] - block_offsets[block_row]) * (unsigned)col_block;
  const unsigned size = (width + PIECE - 1) / PIECE * PIECE * height;

  for (unsigned p = blockIdx.y * BATCH * blockDim.x + threadIdx.x; p < size; p += gridDim.y * BATCH * blockDim.x) {
    scalar_t v[BATCH];
    unsigned to[BATCH];

#pragma unroll
    for (int k = 0; k < BATCH; k++) {
      const unsigned q = p + k * blockDim.x, row = q / PIECE % height, column = q / PIECE / height * PIECE + q % PIECE;

      to[k] = q < size && column < width ? column * height + row : width * height;
      if (to[k] < width * height) {
        const offset_t from = begin + row * width + column;

        v[k] = values[source ? source[from] : from];
      }
    }
#pragma unroll
    for (int k = 0; k < BATCH; k++)
      if (to[k] < width * height) stored[begin + to[k]] = scalar_t(0) + v[k];
  }
}

// z = diagonal of A, a thread a row: 0 where the block, or the entry in it, does not exist
__global__ void __launch_bounds__(128) bsr_diagonal(index_t nrows, index_t row_block, index_t col_block, const offset_t *__restrict__ block_offsets, const index_t *__restrict__ block_col, const scalar_t *__restrict__ val, scalar_t *__restrict__ z)
{
  const offset_t row = (offset_t)blockIdx.x * blockDim.x + threadIdx.x;

  if (row >= nrows) return;
  const offset_t block_row = row / row_block, wanted = row / col_block, end = block_offsets[block_row + 1];
  const offset_t block = partition_point(block_offsets[block_row], end, [&](offset_t b) { return block_col[b] < wanted; });
  const bool     found = block < end && block_col[block] == wanted;
  const scalar_t entry = found ? val[(block * col_block + row % col_block) * row_block + row % row_block] : scalar_t(0);

  z[row] = is_padding(entry) ? scalar_t(0) : entry;
}

// The same for K1: a warp goes through the blocks of a slice. blockDim = (LANES, slices)
__global__ void __launch_bounds__(128, 8) bsr_diagonal_interleaved(index_t nrows, index_t row_block, index_t col_block, offset_t nblock_rows, const offset_t *__restrict__ block_offsets, const index_t *__restrict__ block_col, const scalar_t *__restrict__ val, scalar_t *__restrict__ z)
{
  const int      lane = (int)threadIdx.x, size = row_block * col_block, piece = size % 2 ? 1 : 2;
  const offset_t block_row = ((offset_t)blockIdx.x * blockDim.y + threadIdx.y) * LANES + lane;
  const offset_t begin     = block_offsets[min(block_row, nblock_rows)];
  const int      length    = (int)(block_offsets[min(block_row + 1, nblock_rows)] - begin);
  const offset_t end       = min((block_row + 1) * row_block, (offset_t)nrows);
  Walk<1>        walk(__shfl_sync(~0u, begin, 0), length, 0);

  for (offset_t row = block_row * row_block; row < end; row++) z[row] = 0;
  for (Diagonal diagonal = walk.next(); diagonal.present; diagonal = walk.next()) {
    if (!diagonal.here(lane)) continue;
    const int      rank = diagonal.rank(lane), n = diagonal.size();
    const offset_t column = block_col[diagonal.base + rank];

    for (offset_t row = block_row * row_block; row < end; row++) {
      if (row / col_block != column) continue;
      const int      k     = (int)(row % col_block) * (int)row_block + (int)(row % row_block);
      const scalar_t entry = val[diagonal.base * size + k / piece * piece * n + rank * piece + k % piece];

      if (!is_padding(entry)) z[row] = entry;
    }
  }
}
