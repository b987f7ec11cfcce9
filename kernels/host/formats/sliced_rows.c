/* Host kernels of rows in slices (formats/common/sliced_rows.py): the parameters are those of kernels/formats/sliced_rows.cu. */
#include "common/host.h"
#include <stdlib.h>

#define TILE 1024

typedef struct {
  uint64_t ticket, nstored, moved;
} Control;

static int compare_keys(const void *a, const void *b)
{
  const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

  return (x > y) - (x < y);
}

/* the row at a place of the sorted order */
static inline index_t row_of_key(uint64_t key, offset_t sorted_place, offset_t window, int place_bits)
{
  return (index_t)(sorted_place / window * window + (offset_t)(key & (((uint64_t)1 << place_bits) - 1)));
}

/* sort keys of all rows, ascending in each tile, or the order of rows */
HOST_KERNEL(sliced_rows_sort)
{
  const index_t nrows = PARAM(index_t, 0), window = PARAM(index_t, 1), longest = PARAM(index_t, 2), *rowptr = PARAM(const index_t *, 5);
  const int     length_bits = PARAM(int, 3), place_bits = PARAM(int, 4);
  uint64_t     *keys     = PARAM(uint64_t *, 6), tile[TILE];
  index_t      *row_perm = PARAM(index_t *, 7);
  Control      *control  = PARAM(Control *, 8);

  for (offset_t first = 0; first < nrows; first += TILE) {
    const int size = nrows - first < TILE ? (int)(nrows - first) : TILE;

    for (int i = 0; i < size; i++) {
      const offset_t row = first + i, place = row % window, length = rowptr[row + 1] - rowptr[row];

      tile[i] = ((uint64_t)(row / window) << length_bits | (uint64_t)(longest - length)) << place_bits | (uint64_t)place;
      if (place && length > rowptr[row] - rowptr[row - 1]) control->moved = 1;
    }
    qsort(tile, (size_t)size, sizeof(*tile), compare_keys);
    for (int i = 0; i < size; i++) {
      if (keys) keys[first + i] = tile[i];
      else row_perm[first + i] = row_of_key(tile[i], first + i, window, place_bits);
    }
  }
}

/* runs of ascending keys, two and two */
HOST_KERNEL(sliced_rows_merge)
{
  const offset_t  nrows = PARAM(index_t, 0), run = PARAM(offset_t, 1);
  const uint64_t *keys   = PARAM(const uint64_t *, 2);
  uint64_t       *merged = PARAM(uint64_t *, 3);

  for (offset_t begin = 0; begin < nrows; begin += 2 * run) {
    const offset_t middle = begin + run < nrows ? begin + run : nrows, end = middle + run < nrows ? middle + run : nrows;
    offset_t       a = begin, b = middle;

    while (a < middle || b < end) *merged++ = b == end || (a < middle && keys[a] < keys[b]) ? keys[a++] : keys[b++];
  }
}

/* the row at each place of the sorted order */
HOST_KERNEL(sliced_rows_order)
{
  const offset_t  nrows = PARAM(index_t, 0), window = PARAM(index_t, 1);
  const uint64_t *keys     = PARAM(const uint64_t *, 3);
  index_t        *row_perm = PARAM(index_t *, 4);

  for (offset_t k = 0; k < nrows; k++) row_perm[k] = row_of_key(keys[k], k, window, PARAM(int, 2));
}

/* where the slices begin when padded to their longest row, and the end of the last */
HOST_KERNEL(sliced_rows_offsets)
{
  const index_t nrows = PARAM(index_t, 0), height = PARAM(index_t, 1), *rowptr = PARAM(const index_t *, 2), *row_perm = PARAM(const index_t *, 3);
  offset_t     *slice_offsets = PARAM(offset_t *, 4), sum = 0;
  Control      *control = PARAM(Control *, 5);

  for (offset_t first = 0; first < nrows; first += height) {
    offset_t width = 0;

    for (offset_t position = first; position < nrows && position < first + height; position++) {
      const offset_t row = row_perm ? row_perm[position] : position, length = rowptr[row + 1] - rowptr[row];

      if (length > width) width = length;
    }
    *slice_offsets++ = sum;
    sum += width * height;
  }
  *slice_offsets   = sum;
  control->nstored = (uint64_t)sum;
}
