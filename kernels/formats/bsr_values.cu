// Values of BSR (formats/bsr/bsr.py): into the blocks, and the diagonal out of them. Arrays: bsr.cuh, bsr_layout.cu.
#include "formats/bsr.cuh"

constexpr int FILL_THREADS = 256;

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

// Where an entry of the pattern has its value: entry k is the sum of the values `first[k]` .. first[k + 1] (k alone, if `first` is null),
// value e being at source[e], or at e if `source` is null.
struct Values {
  const index_t *__restrict__ first, *__restrict__ source;
  const scalar_t *__restrict__ values;

  __device__ __forceinline__ scalar_t operator[](offset_t e) const { return values[source ? source[e] : e]; }

  __device__ __forceinline__ scalar_t sum(offset_t k) const
  {
    scalar_t sum = 0;

#pragma unroll 1 // few entries have several values, and unrolled it takes registers that others need
    for (offset_t e = first[k]; e < first[k + 1]; e++) sum += (*this)[e];
    return sum;
  }
};

// Some columns of a slice's block rows, in shared memory: staged, gathered, stored. FULL: no block has padding. All threads of the block
// call each of these, and wait for each other in between.
template <int ROW_BLOCK, int COL_BLOCK, int SLICE, int FULL>
struct Tile {
  static constexpr bool INTERLEAVED = SLICE == LANES;
  static constexpr int  SIZE = ROW_BLOCK * COL_BLOCK, WARPS = FILL_THREADS / LANES;
  static constexpr int  ROWS = SLICE * ROW_BLOCK, FIT = (INTERLEAVED ? 4096 : 2048) / (FULL ? ROWS : ROWS + SLICE);
  static constexpr int  WIDTH  = INTERLEAVED ? FIT / COL_BLOCK * COL_BLOCK : FIT; // columns; whole blocks where those of several rows alternate
  static constexpr int  PITCH  = WIDTH | 1;                                       // of rows in shared memory: neighbours are in other banks
  static constexpr int  BLOCKS = (WIDTH - 1) / COL_BLOCK + 2;                     // that a tile's columns may belong to

  // row r of block row i of the slice is row r * SLICE + i of these
  scalar_t entries[ROWS * PITCH];
  offset_t row_begin[ROWS]; // where the row's first entry of the tile is in CSR
  int      row_size[ROWS];  // entries of the row in the tile
  offset_t begin[SLICE];    // of block rows
  int      length[SLICE], longest;
  index_t  columns[FULL ? 1 : SLICE][FULL ? 1 : BLOCKS];

  // The columns of a tile
  struct Columns {
    unsigned first;
    int      width, first_diagonal;

    __device__ __forceinline__ Columns(unsigned first, unsigned end)
      : first(first), width((int)min((unsigned)WIDTH, end - first)), first_diagonal((int)(first / COL_BLOCK))
    { }
  };

  // Where the block rows of the slice begin and how long they are; returns the columns of the longest.
  __device__ __forceinline__ unsigned stage_slice(offset_t slice_row, offset_t nblock_rows, const offset_t *__restrict__ block_offsets)
  {
    const int lane = (int)threadIdx.x;

    if (lane < LANES) {
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
    return (unsigned)longest * COL_BLOCK;
  }

  // Where the rows of the tile are in CSR; FULL: it is known from their places in the blocks.
  __device__ __forceinline__ void stage_full_rows(const Columns &tile)
  {
    for (int row = (int)threadIdx.x; row < ROWS; row += FILL_THREADS) {
      const int i = row % SLICE, r = row / SLICE;

      row_size[row]  = max(0, min(tile.width, length[i] * COL_BLOCK - (int)tile.first));
      row_begin[row] = begin[i] * SIZE + (offset_t)r * length[i] * COL_BLOCK + tile.first;
    }
  }

  // Else rows look for their blocks, whose columns are staged as well; all entries are padding at first.
  __device__ __forceinline__ void stage_rows(const Columns &tile, offset_t slice_row, offset_t nrows, const index_t *__restrict__ block_col,
                                             const index_t *__restrict__ rowptr, const index_t *__restrict__ colidx)
  {
    const int thread = (int)threadIdx.x, lane = thread % LANES, warp = thread / LANES;

    for (int q = thread; q < ROWS * PITCH; q += FILL_THREADS) entries[q] = -scalar_t(0);
    if constexpr (INTERLEAVED) {
      Walk<WARPS> walk(begin[0], length[lane], tile.first_diagonal + warp);

      for (int d = warp; d < BLOCKS; d += WARPS) {
        const Diagonal diagonal = walk.next();

        if (diagonal.here(lane)) columns[lane][d] = block_col[diagonal.base + diagonal.rank(lane)];
      }
    } else {
      for (int q = thread; q < SLICE * BLOCKS; q += FILL_THREADS) {
        const int i = q / BLOCKS, d = q % BLOCKS;

        if (tile.first_diagonal + d < length[i]) columns[i][d] = block_col[begin[i] + tile.first_diagonal + d];
      }
    }
    __syncthreads();
    for (int row = thread; row < ROWS; row += FILL_THREADS) {
      const int      i = row % SLICE, r = row / SLICE, nblocks = min(length[i] - tile.first_diagonal, BLOCKS);
      const offset_t csr_row = (slice_row + i) * ROW_BLOCK + r;
      index_t        k = 0, end = 0;

      if (csr_row < nrows && nblocks > 0) {
        k   = rowptr[csr_row];
        end = rowptr[csr_row + 1];
        if (tile.first_diagonal > 0) k = lower_bound(k, end, colidx, COL_BLOCK, columns[i][0]);
        if (nblocks < length[i] - tile.first_diagonal) end = lower_bound(k, end, colidx, COL_BLOCK, columns[i][nblocks - 1] + 1);
      }
      row_begin[row] = k;
      row_size[row]  = (int)(end - k);
    }
  }

  // The column in the tile of an entry of block row i; it may lie before or after the tile
  __device__ __forceinline__ int column_in_tile(const Columns &tile, int i, index_t column) const
  {
    const index_t wanted = column / COL_BLOCK;
    const int     d      = partition_point(0, min(length[i] - tile.first_diagonal, BLOCKS) - 1, [&](int p) { return columns[i][p] < wanted; });

    return (tile.first_diagonal + d) * COL_BLOCK + (int)(column % COL_BLOCK) - (int)tile.first;
  }

  // The values of the tile's rows, read in long runs
  __device__ __forceinline__ void gather(const Columns &tile, const Values &values, const index_t *__restrict__ colidx)
  {
    constexpr int BATCH     = FULL ? 6 : 2;
    const int     row_width = FULL ? tile.width : BLOCKS * COL_BLOCK, rows = FILL_THREADS / row_width, rest = FILL_THREADS % row_width;

    for (Entry entry(row_width); entry.row < ROWS;) {
      scalar_t v[BATCH];
      index_t  column[FULL ? 1 : BATCH];
      int      row[FULL ? 1 : BATCH], to[BATCH];

      // loads only: whatever uses one of them here would wait for it before the next is made
#pragma unroll
      for (int b = 0; b < BATCH; b++) {
        to[b] = entry.row < ROWS && entry.column < row_size[entry.row] ? entry.row * PITCH + entry.column : -1;
        if (to[b] >= 0) {
          const offset_t k = row_begin[entry.row] + entry.column;

          if constexpr (!FULL) {
            row[b]    = entry.row;
            column[b] = colidx[k];
          }
          if (FULL || !values.first) v[b] = values[k];
        }
        entry.advance(rows, rest, row_width);
      }
#pragma unroll
      for (int b = 0; b < BATCH; b++) {
        if (to[b] < 0) continue;
        if constexpr (!FULL) {
          if (values.first) v[b] = values.sum(row_begin[row[b]] + to[b] - row[b] * PITCH);
          const int d = column_in_tile(tile, row[b] % SLICE, column[b]);

          if (d >= 0 && d < tile.width) entries[row[b] * PITCH + d] = scalar_t(0) + v[b];
        } else entries[to[b]] = scalar_t(0) + v[b];
      }
    }
  }

  // The tile as it is stored, in long runs
  __device__ __forceinline__ void store(const Columns &tile, scalar_t *__restrict__ stored) const
  {
    const int thread = (int)threadIdx.x;

    if constexpr (INTERLEAVED) {
      const int   lane = thread % LANES, warp = thread / LANES;
      Walk<WARPS> walk(begin[0], length[lane], tile.first_diagonal + warp);

      for (int d = warp; d < WIDTH / COL_BLOCK; d += WARPS) {
        const Diagonal diagonal = walk.next();
        const int      n        = diagonal.size();
        scalar_t      *block    = stored + diagonal.base * SIZE + diagonal.rank(lane) * PIECE<SIZE>;

        if (diagonal.here(lane))
#pragma unroll
          for (int k = 0; k < SIZE; k += PIECE<SIZE>) {
            const auto value = [&](int k) { return entries[(k % ROW_BLOCK * SLICE + lane) * PITCH + d * COL_BLOCK + k / ROW_BLOCK]; };

            if constexpr (PIECE<SIZE> == 2) *(Pair *)(block + k * n) = {value(k), value(k + 1)};
            else block[k * n] = value(k);
          }
      }
    } else {
      constexpr int TEAM = FILL_THREADS / SLICE;
      const int     i = thread / TEAM, size = min(tile.width, length[i] * COL_BLOCK - (int)tile.first) * ROW_BLOCK;
      scalar_t     *block = stored + begin[i] * SIZE + (offset_t)tile.first * ROW_BLOCK;

#pragma unroll 4
      for (int q = thread % TEAM; q < size; q += TEAM) block[q] = entries[(q % ROW_BLOCK * SLICE + i) * PITCH + q / ROW_BLOCK];
    }
  }
};

// The refresh for K1, for high blocks, and where blocks have padding. A tile is gathered in shared memory: it is read by rows, as in
// CSR, and written as it is stored, both in long runs. blockIdx.x = slice, whose tiles are those blockIdx.y, + gridDim.y, ...
//   SLICE       block rows of a slice: a warp's number for K1, any other number for the layout of K2 and K3
//   FULL        an entry's place in CSR is known from its place in the blocks, and rowptr, colidx are not read. Else the entries of a row look
//               for their blocks.
// An entry -0 becomes +0, since -0 says padding; in a sum that began with +0 they do the same.
template <int ROW_BLOCK, int COL_BLOCK, int SLICE, int FULL>
__global__ void __launch_bounds__(FILL_THREADS, 4)
  bsr_fill_values(offset_t nrows, offset_t nblock_rows, index_t /* ROW_BLOCK */, index_t /* COL_BLOCK */, index_t /* SLICE, or 1 */,
                  const offset_t *__restrict__ block_offsets, const index_t *__restrict__ block_col, const index_t *__restrict__ rowptr,
                  const index_t *__restrict__ colidx, const index_t *__restrict__ first, const index_t *__restrict__ source,
                  const scalar_t *__restrict__ values, scalar_t *__restrict__ stored)
{
  using T = Tile<ROW_BLOCK, COL_BLOCK, SLICE, FULL>;
  __shared__ T   tile;
  const offset_t slice_row = (offset_t)blockIdx.x * SLICE;
  const unsigned width     = tile.stage_slice(slice_row, nblock_rows, block_offsets);

  for (unsigned first_column = blockIdx.y * T::WIDTH; first_column < width; first_column += gridDim.y * T::WIDTH) {
    const typename T::Columns columns(first_column, width);

    if constexpr (FULL) tile.stage_full_rows(columns);
    else tile.stage_rows(columns, slice_row, nrows, block_col, rowptr, colidx);
    __syncthreads();
    tile.gather(columns, {first, source, values}, colidx);
    __syncthreads();
    tile.store(columns, stored);
    __syncthreads();
  }
}

// The refresh for K2 and K3 where all blocks are full and low: the values of a block row are a dense matrix, stored by rows in CSR, by columns here.
// Threads take its entries in pieces of four columns: neighbours read 4 words of a row and write neighbouring rows, so that neither side
// wastes much of what memory moves, and no thread waits for others. blockDim = (threads a block row, block rows); gridDim.y thread blocks
// share a block row; source[k] is where entry k has its value, null: at k.
__global__ void __launch_bounds__(256)
  bsr_transpose_values(offset_t nblock_rows, index_t row_block, index_t col_block, const offset_t *__restrict__ block_offsets,
                       const index_t *__restrict__ source, const scalar_t *__restrict__ values, scalar_t *__restrict__ stored)
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
__global__ void __launch_bounds__(128) bsr_diagonal(index_t nrows, index_t row_block, index_t col_block, const offset_t *__restrict__ block_offsets,
                                                    const index_t *__restrict__ block_col, const scalar_t *__restrict__ val, scalar_t *__restrict__ z)
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
__global__ void __launch_bounds__(128, 8)
  bsr_diagonal_interleaved(index_t nrows, index_t row_block, index_t col_block, offset_t nblock_rows, const offset_t *__restrict__ block_offsets,
                           const index_t *__restrict__ block_col, const scalar_t *__restrict__ val, scalar_t *__restrict__ z)
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
