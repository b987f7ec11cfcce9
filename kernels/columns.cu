// Structure kernels of column compression (formats/columns.py): full columns into the arrays of columns.cuh.
#include "columns.cuh"

// the last i in [0, n) with starts[i] <= position; starts[0] is 0, starts[n] is the end
__device__ __forceinline__ offset_t last_not_above(offset_t n, const offset_t *__restrict__ starts, offset_t position)
{
  offset_t low = 0, high = n;

  while (high - low > 1) {
    const offset_t middle = (low + high) / 2;

    if (starts[middle] <= position) low = middle;
    else high = middle;
  }
  return low;
}

// Base and offsets of every group; of slices with a group whose columns span too much, the number of entries in wide_size [nslices],
// which is all 0 before. A null slice_offsets means that each group is a slice.
// Threads: blockDim = (lanes of a group, groups), with at most 32 lanes a group and 32 | blockDim.x blockDim.y. Bytes an entry: sizeof(index_t) + 2.
__global__ void __launch_bounds__(128) columns_compress(offset_t ngroups, index_t height, offset_t nslices, const offset_t *__restrict__ slice_offsets, const index_t *__restrict__ col, unsigned short *__restrict__ col_offset, index_t *__restrict__ col_base, offset_t *__restrict__ wide_size)
{
  constexpr index_t LARGEST = index_t(~0ull >> (65 - 8 * sizeof(index_t)));
  const offset_t    group   = (offset_t)blockIdx.x * blockDim.y + threadIdx.y;
  const offset_t    begin = group * height, end = group < ngroups ? begin + height : begin;
  index_t           low = LARGEST, high = -1;

  for (offset_t p = begin + threadIdx.x; p < end; p += blockDim.x) {
    const index_t c = col[p];

    if (c >= 0 && c < low) low = c;
    if (c > high) high = c;
  }
  for (int distance = blockDim.x / 2; distance > 0; distance /= 2) {
    const index_t other_low = __shfl_xor_sync(~0u, low, distance), other_high = __shfl_xor_sync(~0u, high, distance);

    low  = other_low < low ? other_low : low;
    high = other_high > high ? other_high : high;
  }
  if (group >= ngroups) return;
  if (high < 0) low = high = 0; // nothing but padding
  if (high - low < SHORT_PADDING) {
    for (offset_t p = begin + threadIdx.x; p < end; p += blockDim.x) col_offset[p] = col[p] < 0 ? SHORT_PADDING : (unsigned short)(col[p] - low);
    if (threadIdx.x == 0) col_base[group] = low;
  } else if (threadIdx.x == 0) { // groups of one slice write the same
    if (slice_offsets) {
      const offset_t slice = last_not_above(nslices, slice_offsets, begin);

      wide_size[slice] = slice_offsets[slice + 1] - slice_offsets[slice];
    } else wide_size[group] = height;
  }
}

// The full columns of wide slices into wide_col. A block has a slice.
__global__ void __launch_bounds__(128) columns_copy_wide(index_t height, const offset_t *__restrict__ slice_offsets, const offset_t *__restrict__ wide_offset, const index_t *__restrict__ col, index_t *__restrict__ wide_col)
{
  const offset_t slice = blockIdx.x, wide = wide_offset[slice];

  if (wide < 0) return;
  const offset_t begin = slice_offsets ? slice_offsets[slice] : slice * height;
  const offset_t size  = slice_offsets ? slice_offsets[slice + 1] - begin : height;

  for (offset_t i = threadIdx.x; i < size; i += blockDim.x) wide_col[wide + i] = col[begin + i];
}
