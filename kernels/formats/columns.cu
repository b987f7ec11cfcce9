// Structure kernels of column compression (formats/common/columns.py): full columns into the arrays of columns.cuh.
#include "formats/columns.cuh"
#include "common/scan.cuh"
#include "common/search.cuh"

constexpr int SIZES = 4; // of slices, that a thread adds up

// Base and offsets of every group; of slices with a group whose columns span too much, the number of entries in wide_size [nslices],
// which is all 0 before. A null slice_offsets means that each group is a slice.
// Threads: blockDim = (lanes of a group, groups), with at most 32 lanes a group and 32 | blockDim.x blockDim.y. Bytes an entry: sizeof(index_t) + 2.
__global__ void __launch_bounds__(128)
  columns_compress(offset_t ngroups, index_t height, offset_t nslices, const offset_t *__restrict__ slice_offsets, const index_t *__restrict__ col,
                   unsigned short *__restrict__ col_offset, index_t *__restrict__ col_base, offset_t *__restrict__ wide_size)
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
  low  = group_min(low, blockDim.x);
  high = group_max(high, blockDim.x);
  if (group >= ngroups) return;
  if (high < 0) low = high = 0; // nothing but padding
  if (high - low < SHORT_PADDING) {
    for (offset_t p = begin + threadIdx.x; p < end; p += blockDim.x) col_offset[p] = col[p] < 0 ? SHORT_PADDING : (unsigned short)(col[p] - low);
    if (threadIdx.x == 0) col_base[group] = low;
  } else if (threadIdx.x == 0) { // groups of one slice write the same
    if (slice_offsets) {
      const offset_t slice = segment_of(slice_offsets, offset_t(0), nslices - 1, begin);

      wide_size[slice] = __ldg(slice_offsets + slice + 1) - __ldg(slice_offsets + slice);
    } else wide_size[group] = height;
  }
}

// wide_size [nslices] becomes wide_offset: where the full columns of each wide slice begin, -1 for the others. `control` is zeros at first: how
// many tiles blocks have taken, the entries of all wide slices, and after these two, in `states`, a zero for each block.
__global__ void __launch_bounds__(SCAN_THREADS)
  columns_wide_offsets(offset_t nslices, offset_t *__restrict__ wide_size, count_t *control, count_t *states)
{
  __shared__ BlockScan scan;

  prefix_sums<SIZES>(
    scan, control, states, nslices, [&](offset_t slice) { return wide_size[slice]; },
    [&](offset_t slice, count_t before, count_t up_to) {
      wide_size[slice] = up_to > before ? (offset_t)before : offset_t(-1);
      if (slice == nslices - 1) control[1] = up_to;
    });
}

// The full columns of wide slices into wide_col. A block has a slice.
__global__ void __launch_bounds__(128)
  columns_copy_wide(index_t height, const offset_t *__restrict__ slice_offsets, const offset_t *__restrict__ wide_offset,
                    const index_t *__restrict__ col, index_t *__restrict__ wide_col)
{
  const offset_t slice = blockIdx.x, wide = wide_offset[slice];

  if (wide < 0) return;
  const offset_t begin = slice_offsets ? slice_offsets[slice] : slice * height;
  const offset_t size  = slice_offsets ? slice_offsets[slice + 1] - begin : height;

  for (offset_t i = threadIdx.x; i < size; i += blockDim.x) wide_col[wide + i] = col[begin + i];
}
