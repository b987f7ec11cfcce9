/* Host kernels of column compression (formats/common/columns.py): the parameters are those of kernels/formats/columns.cu. */
#include "formats/columns.h"
#include <string.h>

/* smallest and largest column of a group; both 0 if it is all padding */
static void group_range(const index_t *col, index_t height, index_t *low, index_t *high)
{
  *high = -1;
  for (index_t i = 0; i < height; i++) {
    if (col[i] < 0) continue;
    if (*high < 0 || col[i] < *low) *low = col[i];
    if (col[i] > *high) *high = col[i];
  }
  if (*high < 0) *low = *high = 0;
}

/* base and offsets of every group; the number of entries of slices with a group whose columns span too much */
HOST_KERNEL(columns_compress)
{
  const index_t   height        = PARAM(index_t, 1);
  const offset_t  nslices       = PARAM(offset_t, 2);
  const offset_t *slice_offsets = PARAM(const offset_t *, 3);
  const index_t  *col           = PARAM(const index_t *, 4);
  uint16_t       *col_offset    = PARAM(uint16_t *, 5);
  index_t        *col_base      = PARAM(index_t *, 6);
  offset_t       *wide_size     = PARAM(offset_t *, 7);

  for (offset_t slice = 0; slice < nslices; slice++) {
    const offset_t begin = slice_offsets ? slice_offsets[slice] : slice * height;
    const offset_t end   = slice_offsets ? slice_offsets[slice + 1] : begin + height;

    for (offset_t p = begin; p < end; p += height) {
      index_t low = 0, high;

      group_range(col + p, height, &low, &high);
      if (high - low >= SHORT_PADDING) {
        wide_size[slice] = end - begin;
        continue;
      }
      col_base[p / height] = low;
      for (index_t i = 0; i < height; i++) col_offset[p + i] = (uint16_t)(col[p + i] < 0 ? SHORT_PADDING : col[p + i] - low);
    }
  }
}

/* where the full columns of wide slices begin, -1 for the others; control[1] is the end of the last */
HOST_KERNEL(columns_wide_offsets)
{
  const offset_t nslices = PARAM(offset_t, 0);
  offset_t      *wide = PARAM(offset_t *, 1), *control = PARAM(offset_t *, 2);

  for (offset_t slice = 0; slice < nslices; slice++) {
    const offset_t size = wide[slice];

    wide[slice] = size ? control[1] : -1;
    control[1] += size;
  }
}

/* the full columns of wide slices */
HOST_KERNEL(columns_copy_wide)
{
  const index_t   height        = PARAM(index_t, 0);
  const offset_t *slice_offsets = PARAM(const offset_t *, 1), *wide_offset = PARAM(const offset_t *, 2);
  const index_t  *col      = PARAM(const index_t *, 3);
  index_t        *wide_col = PARAM(index_t *, 4);

  for (offset_t slice = 0; slice < (offset_t)grid[0]; slice++) {
    const offset_t begin = slice_offsets ? slice_offsets[slice] : slice * height;
    const offset_t size  = slice_offsets ? slice_offsets[slice + 1] - begin : height;

    if (wide_offset[slice] >= 0) memcpy(wide_col + wide_offset[slice], col + begin, (size_t)size * sizeof(*col));
  }
}
