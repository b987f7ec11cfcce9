// Kernels of pJDS (formats/pjds.py). Kreutzer et al. 2012, section II-A, listing 2.
//
// Arrays
//   slice_offsets [nslices + 1]  slice s occupies entries slice_offsets[s] .. slice_offsets[s + 1] of col and val,
//                                column by column: entry j of its lane i at slice_offsets[s] + j * SLICE_HEIGHT + i
//   col [nstored]                column of each entry, -1 in padding: x is not read there, so Inf and NaN in x stay where they belong
//   val [nstored]                value of each entry, 0 in padding
//   row_perm [nrows]             row_perm[sorted position] = row; null if rows keep their order
//
// Threads: blockDim = (SLICE_HEIGHT, THREADS_PER_ROW, SLICES_PER_BLOCK); x is the lane in a slice, y shares a row, z a slice of the block.
#include "common.cuh"

// Sum of one row's products over every THREADS_PER_ROW-th entry. Four entries are loaded before the first is used, the rest in one
// predicated batch: a row of seven takes two waits for memory, not four, and the kernel keeps to 32 registers.
template <int SLICE_HEIGHT, int THREADS_PER_ROW>
__device__ __forceinline__ scalar_t partial_product(offset_t begin, offset_t end, const index_t *__restrict__ col, const scalar_t *__restrict__ val, const scalar_t *__restrict__ x)
{
  constexpr int BATCH = 4, STRIDE = SLICE_HEIGHT * THREADS_PER_ROW;
  const int     width = (int)((end - begin) / SLICE_HEIGHT);
  const int     count = (width - (int)threadIdx.y + THREADS_PER_ROW - 1) / THREADS_PER_ROW;
  scalar_t      sum   = 0;
  int           j     = 0;

  col += begin + threadIdx.y * SLICE_HEIGHT + threadIdx.x;
  val += begin + threadIdx.y * SLICE_HEIGHT + threadIdx.x;
  for (; j + BATCH <= count; j += BATCH) {
    index_t  c[BATCH];
    scalar_t v[BATCH];

#pragma unroll
    for (int k = 0; k < BATCH; k++) {
      c[k] = load_once(col + (offset_t)(j + k) * STRIDE);
      v[k] = load_once(val + (offset_t)(j + k) * STRIDE);
    }
#pragma unroll
    for (int k = 0; k < BATCH; k++) sum += v[k] * (c[k] >= 0 ? __ldg(x + c[k]) : scalar_t(0));
  }
  if (j < count) {
    index_t  c[BATCH - 1];
    scalar_t v[BATCH - 1];

#pragma unroll
    for (int k = 0; k < BATCH - 1; k++) {
      c[k] = j + k < count ? load_once(col + (offset_t)(j + k) * STRIDE) : index_t(-1);
      v[k] = j + k < count ? load_once(val + (offset_t)(j + k) * STRIDE) : scalar_t(0);
    }
#pragma unroll
    for (int k = 0; k < BATCH - 1; k++) sum += v[k] * (c[k] >= 0 ? __ldg(x + c[k]) : scalar_t(0));
  }
  return sum;
}

// The row's sum in the threads with threadIdx.y == 0. Bytes a row of k entries: k (sizeof(index_t) + sizeof(scalar_t)) + 2 sizeof(scalar_t)
// + 8 / SLICE_HEIGHT, + sizeof(index_t) where rows are sorted. Deterministic: a fixed tree of sums, no atomics.
template <int SLICE_HEIGHT, int THREADS_PER_ROW, int SLICES_PER_BLOCK>
__device__ __forceinline__ scalar_t row_product(index_t nrows, offset_t slice, const offset_t *__restrict__ slice_offsets, const index_t *__restrict__ col, const scalar_t *__restrict__ val, const scalar_t *__restrict__ x)
{
  scalar_t sum = 0;

  if (slice * SLICE_HEIGHT < nrows) sum = partial_product<SLICE_HEIGHT, THREADS_PER_ROW>(slice_offsets[slice], slice_offsets[slice + 1], col, val, x);
  if constexpr (THREADS_PER_ROW > 1) {
    __shared__ scalar_t partial[SLICES_PER_BLOCK][THREADS_PER_ROW][SLICE_HEIGHT];

    partial[threadIdx.z][threadIdx.y][threadIdx.x] = sum;
    for (int half = THREADS_PER_ROW / 2; half > 0; half /= 2) {
      __syncthreads();
      if (threadIdx.y < half) partial[threadIdx.z][threadIdx.y][threadIdx.x] += partial[threadIdx.z][threadIdx.y + half][threadIdx.x];
    }
    sum = partial[threadIdx.z][threadIdx.y][threadIdx.x];
  }
  return sum;
}

// z = A x
template <int SLICE_HEIGHT, int THREADS_PER_ROW, int SLICES_PER_BLOCK>
__global__ void __launch_bounds__(SLICE_HEIGHT * THREADS_PER_ROW * SLICES_PER_BLOCK)
  pjds_spmv(index_t nrows, const offset_t *__restrict__ slice_offsets, const index_t *__restrict__ col, const scalar_t *__restrict__ val, const index_t *__restrict__ row_perm, const scalar_t *__restrict__ x, scalar_t *__restrict__ z)
{
  const offset_t slice    = (offset_t)blockIdx.x * SLICES_PER_BLOCK + threadIdx.z;
  const offset_t position = slice * SLICE_HEIGHT + threadIdx.x;
  const scalar_t sum      = row_product<SLICE_HEIGHT, THREADS_PER_ROW, SLICES_PER_BLOCK>(nrows, slice, slice_offsets, col, val, x);

  if (threadIdx.y == 0 && position < nrows) z[row_perm ? row_perm[position] : position] = sum;
}

// z = y + A x; z may be y
template <int SLICE_HEIGHT, int THREADS_PER_ROW, int SLICES_PER_BLOCK>
__global__ void __launch_bounds__(SLICE_HEIGHT * THREADS_PER_ROW * SLICES_PER_BLOCK)
  pjds_spmv_add(index_t nrows, const offset_t *__restrict__ slice_offsets, const index_t *__restrict__ col, const scalar_t *__restrict__ val, const index_t *__restrict__ row_perm, const scalar_t *__restrict__ x, const scalar_t *y, scalar_t *z)
{
  const offset_t slice    = (offset_t)blockIdx.x * SLICES_PER_BLOCK + threadIdx.z;
  const offset_t position = slice * SLICE_HEIGHT + threadIdx.x;
  const scalar_t sum      = row_product<SLICE_HEIGHT, THREADS_PER_ROW, SLICES_PER_BLOCK>(nrows, slice, slice_offsets, col, val, x);

  // an empty slice has nothing to add: most slices of an off-diagonal block are empty, and z is y there
  if (threadIdx.y == 0 && position < nrows && (y != z || slice_offsets[slice] != slice_offsets[slice + 1])) {
    const offset_t row = row_perm ? row_perm[position] : position;

    z[row] = y[row] + sum;
  }
}

// Copies the entries of CSR rows into their slices and fills the padding. Entry k of the pattern is read at source[k], or at k if
// source is null. THREADS_PER_ROW threads share a row: lanes write coalesced, and what they read of a row lies in few cache lines.
template <int SLICE_HEIGHT, int THREADS_PER_ROW, int SLICES_PER_BLOCK, class Entry>
__device__ __forceinline__ void fill(index_t nrows, const offset_t *__restrict__ slice_offsets, const index_t *__restrict__ rowptr, const index_t *__restrict__ row_perm, const index_t *__restrict__ source, const Entry *__restrict__ entries, Entry *__restrict__ stored, Entry padding)
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
  for (offset_t p = slice_offsets[slice] + threadIdx.y * SLICE_HEIGHT + threadIdx.x; p < slice_offsets[slice + 1]; p += SLICE_HEIGHT * THREADS_PER_ROW, k += THREADS_PER_ROW)
    stored[p] = k < k_end ? entries[source ? source[k] : k] : padding;
}

// structure pass: columns into the slices
template <int SLICE_HEIGHT, int THREADS_PER_ROW, int SLICES_PER_BLOCK>
__global__ void __launch_bounds__(SLICE_HEIGHT * THREADS_PER_ROW * SLICES_PER_BLOCK)
  pjds_fill_columns(index_t nrows, const offset_t *__restrict__ slice_offsets, const index_t *__restrict__ rowptr, const index_t *__restrict__ row_perm, const index_t *__restrict__ source, const index_t *__restrict__ entries, index_t *__restrict__ stored)
{
  fill<SLICE_HEIGHT, THREADS_PER_ROW, SLICES_PER_BLOCK, index_t>(nrows, slice_offsets, rowptr, row_perm, source, entries, stored, -1);
}

// value pass: the refresh after a change of values
template <int SLICE_HEIGHT, int THREADS_PER_ROW, int SLICES_PER_BLOCK>
__global__ void __launch_bounds__(SLICE_HEIGHT * THREADS_PER_ROW * SLICES_PER_BLOCK)
  pjds_fill_values(index_t nrows, const offset_t *__restrict__ slice_offsets, const index_t *__restrict__ rowptr, const index_t *__restrict__ row_perm, const index_t *__restrict__ source, const scalar_t *__restrict__ entries, scalar_t *__restrict__ stored)
{
  fill<SLICE_HEIGHT, THREADS_PER_ROW, SLICES_PER_BLOCK, scalar_t>(nrows, slice_offsets, rowptr, row_perm, source, entries, stored, 0);
}
