// Kernels of pJDS (formats/pjds.py). Kreutzer et al. 2012, section II-A, listing 2.
//
// Threads: blockDim = (SLICE_HEIGHT, THREADS_PER_ROW, SLICES_PER_BLOCK); x is the lane in a slice, y shares a row, z a slice of the block.
// BATCH: entries that a thread loads before it uses the first.
#include "formats/columns.cuh"
#include "formats/results.cuh"
#include "formats/row_patterns.cuh"

constexpr int INDEX_PATTERN = 3; // after the modes of columns.cuh

struct Pjds {
  alignas(8) index_t nrows;
  // [nslices + 1]: slice s occupies stored entries slice_offsets[s] .. slice_offsets[s + 1], column by column: entry j of its lane i at
  // slice_offsets[s] + j * SLICE_HEIGHT + i
  const offset_t *__restrict__ slice_offsets;
  StoredColumns columns;                // of the stored entries, -1 in padding: x is not read there, so Inf and NaN in x stay where they belong
  RowPatterns   patterns;               // or, with INDEX_PATTERN, these, in the sorted order
  const scalar_t *__restrict__ val;     // [nstored] value of each entry, 0 in padding
  const index_t *__restrict__ row_perm; // [nrows] row_perm[sorted position] = row; null if rows keep their order
};

// Blocks of a multiprocessor that have registers at once. A large batch needs more than the 32 of 2048 threads if all of
// its loads are to be on their way before the first is used; the threads of short rows, which load a few entries and end, gain more
// from their number.
__device__ constexpr int resident_blocks(int batch, int threads)
{
  return (batch > 4 ? 1024 : 2048) / threads;
}

// Sum of `count` entries of one row, every STRIDE-th from *val on: whole batches, then the rest in one predicated batch, so that a row
// of no more entries than a batch waits for memory once.
template <int STRIDE, int BATCH, class Cursor, class Operand>
__device__ __forceinline__ scalar_t partial_sum(int count, Cursor columns, const scalar_t *__restrict__ val, index_t row, const Operand operand)
{
  scalar_t sum = 0;

#pragma unroll 1
  for (; count >= BATCH; count -= BATCH) {
    typename Cursor::Raw c[BATCH];
    scalar_t             v[BATCH];

#pragma unroll
    for (int k = 0; k < BATCH; k++) {
      c[k] = columns.load(k);
      v[k] = load_once(val + k * STRIDE);
    }
#pragma unroll
    for (int k = 0; k < BATCH; k++) operand.add(sum, v[k], columns.column(c[k]), row);
    columns.advance(BATCH);
    val += BATCH * STRIDE;
  }
  if (count > 0) {
    typename Cursor::Raw c[BATCH - 1];
    scalar_t             v[BATCH - 1];

#pragma unroll
    for (int k = 0; k < BATCH - 1; k++) {
      c[k] = k < count ? columns.load(k) : columns.padding();
      v[k] = k < count ? load_once(val + k * STRIDE) : scalar_t(0);
    }
#pragma unroll
    for (int k = 0; k < BATCH - 1; k++) operand.add(sum, v[k], columns.column(c[k]), row);
  }
  return sum;
}

// One row for each lane of each slice. Bytes a row of k entries: k sizeof(scalar_t) + 2 sizeof(scalar_t) + 8 / SLICE_HEIGHT and its
// columns, + sizeof(index_t) where rows are sorted. Deterministic: a fixed tree of sums, the same in all index modes; no atomics.
template <int INDEX_MODE, int BATCH, int SLICE_HEIGHT, int THREADS_PER_ROW, int SLICES_PER_BLOCK, class Operand, class Result>
__device__ __forceinline__ void product(const Pjds &A, const Operand operand, Result &result)
{
  constexpr int  STRIDE   = SLICE_HEIGHT * THREADS_PER_ROW;
  const offset_t slice    = (offset_t)blockIdx.x * SLICES_PER_BLOCK + threadIdx.z;
  const offset_t position = slice * SLICE_HEIGHT + threadIdx.x;
  const bool     has_row  = position < A.nrows;
  offset_t       begin = 0, end = 0;
  index_t        row = (index_t)position;
  scalar_t       sum = 0;

  // lanes beyond the last row read padding, where there is any to read
  if (INDEX_MODE == INDEX_PATTERN ? has_row : slice * SLICE_HEIGHT < A.nrows) {
    begin = __ldg(A.slice_offsets + slice);
    end   = __ldg(A.slice_offsets + slice + 1);
    if (A.row_perm && has_row) row = __ldg(A.row_perm + position);
    const int      width = (int)((unsigned long long)(end - begin) / SLICE_HEIGHT);
    const int      count = (width - (int)threadIdx.y + THREADS_PER_ROW - 1) / THREADS_PER_ROW;
    const offset_t first = begin + threadIdx.y * SLICE_HEIGHT + threadIdx.x;

    if constexpr (INDEX_MODE == INDEX_PATTERN)
      sum = partial_sum<STRIDE, BATCH>(count, PatternCursor<THREADS_PER_ROW>(A.patterns, position, threadIdx.y, row), A.val + first, row, operand);
    else {
      const offset_t wide = INDEX_MODE == INDEX_MIXED ? __ldg(A.columns.wide_offset + slice) : begin;

      if (INDEX_MODE == INDEX_FULL || (INDEX_MODE == INDEX_MIXED && wide >= 0))
        sum = partial_sum<STRIDE, BATCH>(count, ColumnCursor<INDEX_FULL, SLICE_HEIGHT, THREADS_PER_ROW>(A.columns.col, wide - begin + first),
                                         A.val + first, row, operand);
      else
        sum = partial_sum<STRIDE, BATCH>(count,
                                         ColumnCursor<INDEX_SHORT, SLICE_HEIGHT, THREADS_PER_ROW>(A.columns.col_offset, A.columns.col_base, first),
                                         A.val + first, row, operand);
    }
  }
  if constexpr (THREADS_PER_ROW > 1) {
    __shared__ scalar_t partial[SLICES_PER_BLOCK][THREADS_PER_ROW][SLICE_HEIGHT];

    partial[threadIdx.z][threadIdx.y][threadIdx.x] = sum;
    for (int half = THREADS_PER_ROW / 2; half > 0; half /= 2) {
      __syncthreads();
      if (threadIdx.y < half) partial[threadIdx.z][threadIdx.y][threadIdx.x] += partial[threadIdx.z][threadIdx.y + half][threadIdx.x];
    }
    sum = partial[threadIdx.z][threadIdx.y][threadIdx.x];
  }
  if (threadIdx.y == 0 && has_row) result.use(row, sum, [=] { return begin == end; });
}

// z = alpha A x + beta y; y is not read if beta is 0, and z may be y
template <int INDEX_MODE, int BATCH, int SLICE_HEIGHT, int THREADS_PER_ROW, int SLICES_PER_BLOCK>
__global__ void __launch_bounds__((SLICE_HEIGHT * THREADS_PER_ROW * SLICES_PER_BLOCK),
                                  resident_blocks(BATCH, SLICE_HEIGHT * THREADS_PER_ROW * SLICES_PER_BLOCK))
  pjds_spmv(const Pjds A, const scalar_t *__restrict__ x, scalar_t alpha, scalar_t beta, const scalar_t *y, scalar_t *z)
{
  const ScaledResult result = {alpha, beta, y, z};

  product<INDEX_MODE, BATCH, SLICE_HEIGHT, THREADS_PER_ROW, SLICES_PER_BLOCK>(A, VectorOperand{x}, result);
}

// z = alpha u + beta x + gamma d (b - A x), row by row, and the dot product of w with A x, see Fused. The sums of rows are those of pjds_spmv.
template <int INDEX_MODE, int BATCH, int SLICE_HEIGHT, int THREADS_PER_ROW, int SLICES_PER_BLOCK>
__global__ void __launch_bounds__((SLICE_HEIGHT * THREADS_PER_ROW * SLICES_PER_BLOCK),
                                  resident_blocks(BATCH, SLICE_HEIGHT * THREADS_PER_ROW * SLICES_PER_BLOCK))
  pjds_fused(const Pjds A, const scalar_t *__restrict__ x, const Fused fused)
{
  FusedResult result = {fused, x};

  product<INDEX_MODE, BATCH, SLICE_HEIGHT, THREADS_PER_ROW, SLICES_PER_BLOCK>(A, VectorOperand{x}, result);
  result.finish<SLICE_HEIGHT * THREADS_PER_ROW * SLICES_PER_BLOCK>();
}

// z[row] = A[row, row]
template <int INDEX_MODE, int BATCH, int SLICE_HEIGHT, int THREADS_PER_ROW, int SLICES_PER_BLOCK>
__global__ void __launch_bounds__((SLICE_HEIGHT * THREADS_PER_ROW * SLICES_PER_BLOCK),
                                  resident_blocks(BATCH, SLICE_HEIGHT * THREADS_PER_ROW * SLICES_PER_BLOCK)) pjds_diagonal(const Pjds A, scalar_t *z)
{
  const ScaledResult result = {1, 0, nullptr, z};

  product<INDEX_MODE, BATCH, SLICE_HEIGHT, THREADS_PER_ROW, SLICES_PER_BLOCK>(A, DiagonalOperand{}, result);
}

// Copies the entries of CSR rows into their slices and fills the padding. Entry k of the pattern is read at source[k], or at k if
// source is null. THREADS_PER_ROW threads share a row: lanes write coalesced, and what they read of a short row lies in few cache lines.
template <int SLICE_HEIGHT, int THREADS_PER_ROW, int SLICES_PER_BLOCK, class Entry>
__device__ __forceinline__ void fill_from_short_rows(index_t nrows, const offset_t *__restrict__ slice_offsets, const index_t *__restrict__ rowptr,
                                                     const index_t *__restrict__ row_perm, const index_t *__restrict__ source,
                                                     const Entry *__restrict__ entries, Entry *__restrict__ stored, Entry padding)
{
  const offset_t slice    = (offset_t)blockIdx.x * SLICES_PER_BLOCK + threadIdx.z;
  const offset_t position = slice * SLICE_HEIGHT + threadIdx.x;
  offset_t       k = 0, k_end = 0;

  if (slice * SLICE_HEIGHT >= nrows) return;
  if (position < nrows) {
    const offset_t row = row_perm ? row_perm[position] : position;

    k     = rowptr[row] + threadIdx.y;
    k_end = rowptr[row + 1];
  }
  for (offset_t p = slice_offsets[slice] + threadIdx.y * SLICE_HEIGHT + threadIdx.x; p < slice_offsets[slice + 1];
       p += SLICE_HEIGHT * THREADS_PER_ROW, k += THREADS_PER_ROW)
    stored[p] = k < k_end ? entries[source ? source[k] : k] : padding;
}

// As fill_from_short_rows(), for long ones and with a block for each slice: a warp reads neighbouring entries of a row, and shared memory
// turns a tile of them.
template <int SLICE_HEIGHT, int THREADS_PER_ROW, class Entry>
__device__ __forceinline__ void fill_from_long_rows(index_t nrows, const offset_t *__restrict__ slice_offsets, const index_t *__restrict__ rowptr,
                                                    const index_t *__restrict__ row_perm, const index_t *__restrict__ source,
                                                    const Entry *__restrict__ entries, Entry *__restrict__ stored, Entry padding)
{
  constexpr int      TILE = 32, ROWS = SLICE_HEIGHT * THREADS_PER_ROW / TILE; // entries of a tile, and rows that are read at once
  __shared__ Entry   tile[TILE][SLICE_HEIGHT + 1];
  __shared__ index_t row_begin[SLICE_HEIGHT], row_length[SLICE_HEIGHT];
  const offset_t     slice = blockIdx.x, begin = slice_offsets[slice], end = slice_offsets[slice + 1];
  const int          thread = threadIdx.y * SLICE_HEIGHT + threadIdx.x, entry = thread % TILE;

  if (threadIdx.y == 0) {
    const offset_t position = slice * SLICE_HEIGHT + threadIdx.x;
    const offset_t row      = position < nrows && row_perm ? row_perm[position] : position;

    row_begin[threadIdx.x]  = position < nrows ? rowptr[row] : 0;
    row_length[threadIdx.x] = position < nrows ? rowptr[row + 1] - rowptr[row] : 0;
  }
  __syncthreads();
  for (offset_t first = 0; begin + first * SLICE_HEIGHT < end; first += TILE) {
    Entry read[SLICE_HEIGHT / ROWS];

#pragma unroll
    for (int i = 0; i < SLICE_HEIGHT / ROWS; i++) {
      const int      row = thread / TILE + i * ROWS;
      const offset_t k   = row_begin[row] + first + entry;

      read[i] = first + entry < row_length[row] ? entries[source ? source[k] : k] : padding;
    }
#pragma unroll
    for (int i = 0; i < SLICE_HEIGHT / ROWS; i++) tile[entry][thread / TILE + i * ROWS] = read[i];
    __syncthreads();
#pragma unroll
    for (int j = threadIdx.y; j < TILE; j += THREADS_PER_ROW) {
      const offset_t p = begin + (first + j) * SLICE_HEIGHT + threadIdx.x;

      if (p < end) stored[p] = tile[j][threadIdx.x];
    }
    __syncthreads();
  }
}

// two threads a row are enough for short ones
template <int SLICE_HEIGHT, int THREADS_PER_ROW, int SLICES_PER_BLOCK, class Entry>
__device__ __forceinline__ void fill(index_t nrows, const offset_t *__restrict__ slice_offsets, const index_t *__restrict__ rowptr,
                                     const index_t *__restrict__ row_perm, const index_t *__restrict__ source, const Entry *__restrict__ entries,
                                     Entry *__restrict__ stored, Entry padding)
{
  if constexpr (THREADS_PER_ROW > 2) {
    static_assert(SLICES_PER_BLOCK == 1, "the threads of a block wait for each other");
    fill_from_long_rows<SLICE_HEIGHT, THREADS_PER_ROW>(nrows, slice_offsets, rowptr, row_perm, source, entries, stored, padding);
  } else
    fill_from_short_rows<SLICE_HEIGHT, THREADS_PER_ROW, SLICES_PER_BLOCK>(nrows, slice_offsets, rowptr, row_perm, source, entries, stored, padding);
}

// structure pass: columns into the slices
template <int SLICE_HEIGHT, int THREADS_PER_ROW, int SLICES_PER_BLOCK>
__global__ void __launch_bounds__((SLICE_HEIGHT * THREADS_PER_ROW * SLICES_PER_BLOCK))
  pjds_fill_columns(index_t nrows, const offset_t *__restrict__ slice_offsets, const index_t *__restrict__ rowptr,
                    const index_t *__restrict__ row_perm, const index_t *__restrict__ source, const index_t *__restrict__ entries,
                    index_t *__restrict__ stored)
{
  fill<SLICE_HEIGHT, THREADS_PER_ROW, SLICES_PER_BLOCK, index_t>(nrows, slice_offsets, rowptr, row_perm, source, entries, stored, -1);
}

// value pass: the refresh after a change of values
template <int SLICE_HEIGHT, int THREADS_PER_ROW, int SLICES_PER_BLOCK>
__global__ void __launch_bounds__((SLICE_HEIGHT * THREADS_PER_ROW * SLICES_PER_BLOCK))
  pjds_fill_values(index_t nrows, const offset_t *__restrict__ slice_offsets, const index_t *__restrict__ rowptr,
                   const index_t *__restrict__ row_perm, const index_t *__restrict__ source, const scalar_t *__restrict__ entries,
                   scalar_t *__restrict__ stored)
{
  fill<SLICE_HEIGHT, THREADS_PER_ROW, SLICES_PER_BLOCK, scalar_t>(nrows, slice_offsets, rowptr, row_perm, source, entries, stored, 0);
}
