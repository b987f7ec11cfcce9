// Structure kernels of rows in slices (petsc_gpufmt/formats/common/sliced_rows.py): rows are sorted by decreasing length within windows, and
// slices of neighbours are padded to their longest row.
//
// A sort key holds the number of its window, how much shorter than the longest the row is, and its place in the window, from the highest bits to
// the lowest. No two are equal, so the order of rows of one length stays.
#include "common/scan.cuh"
#include "common/search.cuh"
#include "common/sort.cuh"

constexpr int TILE   = 1024; // rows that a block sorts
constexpr int ROUNDS = 8;    // in which a warp measures rows, 32 at once: two slices of 128 rows

struct Control {   // all zeros at first; a zero for each block of sliced_rows_offsets follows, what it tells the others
  count_t ticket;  // tiles that blocks have taken
  count_t nstored; // entries of all slices
  count_t moved;   // whether a row is longer than the one before it in its window
};

// The row at a place of the sorted order, which has the key `key`.
__device__ __forceinline__ index_t row_of_key(count_t key, offset_t sorted_place, index_t window, int place_bits)
{
  return (index_t)(sorted_place / window * window + (offset_t)(key & ((count_t(1) << place_bits) - 1)));
}

// keys [nrows], ascending in each tile of 1024 rows; or row_perm [nrows], if `keys` is null because no window lies in two tiles. Threads: half a
// tile each block.
__global__ void __launch_bounds__((TILE / 2), 2)
  sliced_rows_sort(index_t nrows, index_t window, index_t longest, int length_bits, int place_bits, const index_t *__restrict__ rowptr,
                   count_t *__restrict__ keys, index_t *__restrict__ row_perm, Control *__restrict__ control)
{
  __shared__ count_t tile[TILE];
  const offset_t     first  = (offset_t)blockIdx.x * TILE;
  const int          thread = threadIdx.x;

  for (int i = thread; i < TILE; i += TILE / 2) {
    const offset_t row = first + i;

    tile[i] = ~count_t(0); // after all rows
    if (row >= nrows) continue;
    const offset_t place = row % window, length = rowptr[row + 1] - rowptr[row];

    tile[i] = ((count_t)(row / window) << length_bits | (count_t)(longest - length)) << place_bits | (count_t)place;
    if (place && length > (offset_t)rowptr[row] - rowptr[row - 1]) control->moved = 1; // all that write, write the same
  }
  sort_in_block<TILE>(tile);
  for (int i = thread; i < TILE; i += TILE / 2) {
    if (first + i >= nrows) continue;
    if (keys) keys[first + i] = tile[i];
    else row_perm[first + i] = row_of_key(tile[i], first + i, window, place_bits);
  }
}

// Runs of `run` ascending keys, two and two, into `merged`. Threads: a key each, which finds its place in the other run.
__global__ void __launch_bounds__(256) sliced_rows_merge(index_t nrows, offset_t run, const count_t *__restrict__ keys, count_t *__restrict__ merged)
{
  const offset_t k = (offset_t)blockIdx.x * blockDim.x + threadIdx.x;

  if (k >= nrows) return;
  const offset_t begin = k / (2 * run) * (2 * run), middle = min(begin + run, (offset_t)nrows), end = min(middle + run, (offset_t)nrows);
  const offset_t other = k < middle ? middle : begin, other_end = k < middle ? end : middle;
  const count_t  key    = keys[k];
  const offset_t before = partition_point(other, other_end, [&](offset_t p) { return __ldg(keys + p) < key; }) - other;

  merged[begin + (k < middle ? k - begin : k - middle) + before] = key;
}

// row_perm [nrows] from the sorted keys. Threads: a row each.
__global__ void __launch_bounds__(256)
  sliced_rows_order(index_t nrows, index_t window, int place_bits, const count_t *__restrict__ keys, index_t *__restrict__ row_perm)
{
  const offset_t k = (offset_t)blockIdx.x * blockDim.x + threadIdx.x;

  if (k < nrows) row_perm[k] = row_of_key(keys[k], k, window, place_bits);
}

// slice_offsets [nslices + 1], where each slice of `height` rows begins when padded to its longest, and their end, which is also in *control.
// `height` is a power of two from 8 to 128. Rows are in the order of row_perm, in their own if that is null.
// Threads: a block for each 2048 rows and one place more; a warp has 256 of them.
// clang-format off: it would align the parameters of the two lines
__global__ void __launch_bounds__(SCAN_THREADS)
  sliced_rows_offsets(index_t nrows, index_t height, const index_t *__restrict__ rowptr, const index_t *__restrict__ row_perm,
                      offset_t *__restrict__ slice_offsets, Control *control)
// clang-format on
{
  __shared__ BlockScan scan;
  const offset_t       nslices = ((offset_t)nrows + height - 1) / height;
  const int            lanes = min(height, index_t(WARP)), rounds = (int)height / lanes; // rounds of a slice
  offset_t             widths[ROUNDS], before[ROUNDS], sum = 0;
  count_t *const       states = (count_t *)(control + 1);

  scan.take_tile(&control->ticket);
  __syncthreads();
  const offset_t first = ((offset_t)scan.tile * SCAN_WARPS + threadIdx.x / WARP) * (WARP * ROUNDS) + threadIdx.x % WARP;

#pragma unroll
  for (int i = 0; i < ROUNDS; i++) {
    const offset_t position = first + i * WARP;

    widths[i] = 0;
    if (position < nrows) {
      const offset_t row = row_perm ? row_perm[position] : position;

      widths[i] = rowptr[row + 1] - rowptr[row];
    }
  }
#pragma unroll
  for (int i = 0; i < ROUNDS; i++) widths[i] = group_max(widths[i], lanes);
#pragma unroll
  for (int apart = 1; apart < 4; apart *= 2) // at most four rounds
#pragma unroll
    for (int i = 0; i < ROUNDS; i += 2 * apart)
      if (apart < rounds) widths[i] = max(widths[i], widths[i + apart]);
#pragma unroll
  for (int i = 0; i < ROUNDS; i++) {
    const bool     begins = i % rounds == 0 && threadIdx.x % lanes == 0;
    const offset_t size = begins ? widths[i] * height : offset_t(0), up_to_lane = sum_up_to_lane(size);

    before[i] = begins ? sum + up_to_lane - size : offset_t(-1);
    sum += __shfl_sync(FULL_WARP, up_to_lane, WARP - 1);
  }
  const offset_t before_warp = (offset_t)scan.sum_before_warp(states, (count_t)sum);

#pragma unroll
  for (int i = 0; i < ROUNDS; i++) {
    const offset_t slice = (first + i * WARP) / height;

    if (before[i] < 0 || slice > nslices) continue;
    slice_offsets[slice] = before_warp + before[i];
    if (slice == nslices) control->nstored = (count_t)(before_warp + before[i]);
  }
}
