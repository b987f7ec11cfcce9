/* Structure of EVC-HYB (formats/evchyb/): the parameters and arrays are those of kernels/formats/evchyb_layout.cu, with slices as high as they
   say. */
#include "formats/evchyb.h"
#include "common/search.h"

#define TILE 1024

static inline offset_t row_of(offset_t p, offset_t first, const index_t *rows)
{
  return rows ? rows[p] : first + p;
}

static inline offset_t length_of(offset_t row, const index_t *rowptr)
{
  return (offset_t)rowptr[row + 1] - rowptr[row];
}

static inline offset_t ceil_div(offset_t n, offset_t d)
{
  return (n + d - 1) / d;
}

static inline offset_t most(offset_t a, offset_t b)
{
  return a > b ? a : b;
}

HOST_KERNEL(evchyb_count_rows)
{
  const offset_t nrows = PARAM(offset_t, 0), height = PARAM(offset_t, 1), segment_groups = PARAM(offset_t, 4);
  const offset_t split[2] = {PARAM(offset_t, 2), PARAM(offset_t, 3)};
  const index_t *rowptr   = PARAM(const index_t *, 5);
  offset_t      *counts = PARAM(offset_t *, 6), widest = 0;

  for (offset_t row = 0; row < nrows; row++) {
    const offset_t length = length_of(row, rowptr), groups = ceil_div(length, height);

    if (length > split[0]) counts[0] += groups * height - length;
    for (int i = 0; i < 2; i++) {
      counts[1 + i] += length <= split[i];
      counts[3 + i] += length > split[i] ? ceil_div(groups, segment_groups) : 0;
    }
    counts[5] += length > 0;
    counts[6] += row + 1 < nrows && length > length_of(row + 1, rowptr);
    widest = most(widest, length);
    if ((row + 1) % height == 0) {
      counts[7] += widest;
      widest = 0;
    }
    counts[8] = most(counts[8], length);
  }
  counts[9] = rowptr[nrows / height * height];
}

HOST_KERNEL(evchyb_split_rows)
{
  const offset_t nrows = PARAM(offset_t, 0), split = PARAM(offset_t, 1);
  const index_t *rowptr = PARAM(const index_t *, 3);
  index_t       *rows   = PARAM(index_t *, 4);
  offset_t       nshort = 0, nlong = PARAM(offset_t, 2);

  for (offset_t row = 0; row < nrows; row++) rows[length_of(row, rowptr) <= split ? nshort++ : nlong++] = (index_t)row;
}

HOST_KERNEL(evchyb_measure_slices)
{
  const offset_t nslices = PARAM(offset_t, 0), height = PARAM(offset_t, 1);
  const index_t *rows = PARAM(const index_t *, 2), *rowptr = PARAM(const index_t *, 3);
  offset_t      *found = PARAM(offset_t *, 4);

  for (offset_t slice = 0; slice < nslices; slice++) {
    offset_t longest = 0;

    for (offset_t p = slice * height; p < (slice + 1) * height; p++) {
      const offset_t length = length_of(row_of(p, 0, rows), rowptr);

      found[0] += length;
      longest = most(longest, length);
    }
    found[1] += longest;
  }
}

HOST_KERNEL(evchyb_sample_rows)
{
  const offset_t n = PARAM(offset_t, 0), window = PARAM(offset_t, 1), *windows = PARAM(const offset_t *, 3);
  index_t       *sampled = PARAM(index_t *, 4);

  for (offset_t p = 0; p < n; p++) sampled[p] = (index_t)row_of(windows[p / window] * window + p % window, 0, PARAM(const index_t *, 2));
}

/* a list of rows that is sorted by a digit of their lengths */
struct sorting {
  offset_t       n, window, tiles_per_window, first;
  int            shift, bits;
  const index_t *rows, *rowptr;
};

static struct sorting sorting_of(void **params)
{
  return (struct sorting){PARAM(offset_t, 0), PARAM(offset_t, 1), PARAM(offset_t, 2),        PARAM(offset_t, 3),
                          PARAM(int, 4),      PARAM(int, 5),      PARAM(const index_t *, 6), PARAM(const index_t *, 7)};
}

/* the counter of the tile and the digit of row p of the list, the row in `row` */
static offset_t counter_of(const struct sorting *s, offset_t p, offset_t *row)
{
  const offset_t number = p / s->window, part = p % s->window / TILE;

  *row = row_of(p, s->first, s->rows);
  return ((number << s->bits) + (length_of(*row, s->rowptr) >> s->shift & ((1 << s->bits) - 1))) * s->tiles_per_window + part;
}

HOST_KERNEL(evchyb_count_digits)
{
  const struct sorting s      = sorting_of(params);
  index_t             *counts = PARAM(index_t *, 8);

  for (offset_t i = 0; i < ceil_div(s.n, s.window) * s.tiles_per_window << s.bits; i++) counts[i] = 0;
  for (offset_t p = 0, row; p < s.n; p++) counts[counter_of(&s, p, &row)]++;
}

HOST_KERNEL(evchyb_add_up)
{
  index_t *counts = PARAM(index_t *, 1), before = 0;

  for (offset_t i = 0; i < PARAM(offset_t, 0); i++) {
    const index_t count = counts[i];

    counts[i] = before;
    before += count;
  }
}

/* `counts` are used up */
HOST_KERNEL(evchyb_move_rows)
{
  const struct sorting s      = sorting_of(params);
  index_t             *counts = PARAM(index_t *, 8), *sorted = PARAM(index_t *, 9);

  for (offset_t p = 0, row; p < s.n; p++) {
    const offset_t counter = counter_of(&s, p, &row);

    sorted[counts[counter]++] = (index_t)row;
  }
}

HOST_KERNEL(evchyb_sort_tile)
{
  const offset_t n = PARAM(offset_t, 0), first = PARAM(offset_t, 1);
  const index_t *rows = PARAM(const index_t *, 2), *rowptr = PARAM(const index_t *, 3);
  index_t       *sorted = PARAM(index_t *, 4);

  for (offset_t i = 0; i < n; i++) { /* rows are few, and often in order */
    const offset_t row = row_of(i, first, rows), length = length_of(row, rowptr);
    offset_t       place = i;

    for (; place > 0 && length_of(sorted[place - 1], rowptr) > length; place--) sorted[place] = sorted[place - 1];
    sorted[place] = (index_t)row;
  }
}

HOST_KERNEL(evchyb_first_segments)
{
  const offset_t nlong = PARAM(offset_t, 0), height = PARAM(offset_t, 1), segment_groups = PARAM(offset_t, 2), first = PARAM(offset_t, 3);
  const index_t *rows = PARAM(const index_t *, 4), *rowptr = PARAM(const index_t *, 5);
  offset_t      *first_segment = PARAM(offset_t *, 6);

  first_segment[0] = 0;
  for (offset_t i = 0; i < nlong; i++) {
    const offset_t groups = ceil_div(length_of(row_of(i, first, rows), rowptr), height);

    first_segment[i + 1] = first_segment[i] + most(1, ceil_div(groups, segment_groups));
  }
}

typedef struct {
  offset_t moved, nnz_ell, nstored_ell, nstored;
} SlicesFound;

HOST_KERNEL(evchyb_cut_slices)
{
  const offset_t  nell = PARAM(offset_t, 0), nlong = PARAM(offset_t, 2), height = PARAM(offset_t, 3), segment_groups = PARAM(offset_t, 4);
  const index_t  *ell_rows = PARAM(const index_t *, 5), *long_rows = PARAM(const index_t *, 6), *rowptr = PARAM(const index_t *, 7);
  const offset_t *first_segment = PARAM(const offset_t *, 8);
  offset_t       *offsets       = PARAM(offset_t *, 9);
  index_t        *segment_row   = PARAM(index_t *, 10);
  RowSegments    *segments      = PARAM(RowSegments *, 11);
  SlicesFound    *found         = PARAM(SlicesFound *, 12);
  offset_t       *ell_widths = PARAM(offset_t *, 13), *segment_widths = PARAM(offset_t *, 14), offset = 0;

  for (offset_t slice = 0; slice < nell; slice++) {
    offset_t longest = 0;

    for (offset_t p = slice * height; p < (slice + 1) * height; p++) {
      const offset_t row = row_of(p, 0, ell_rows), length = length_of(row, rowptr);

      found->moved |= row != p;
      found->nnz_ell += length;
      longest = most(longest, length);
    }
    offsets[slice] = offset;
    offset += longest * height;
    ell_widths[longest]++;
  }
  found->nstored_ell = offset;
  for (offset_t i = 0; i < nlong; i++) {
    const offset_t begin = first_segment ? first_segment[i] : i, count = first_segment ? first_segment[i + 1] - begin : 1;
    const offset_t row = row_of(i, nell * height, long_rows), row_groups = ceil_div(length_of(row, rowptr), height);

    for (offset_t number = 0; number < count; number++) {
      const offset_t groups = (number + 1) * row_groups / count - number * row_groups / count;

      segment_row[begin + number]    = (index_t)row;
      segments[begin + number]       = (RowSegments){(int32_t)begin, (int32_t)count};
      offsets[nell + begin + number] = offset;
      offset += groups * height;
      segment_widths[count > 1 ? segment_groups : groups]++;
    }
  }
  offsets[nell + PARAM(offset_t, 1)] = found->nstored = offset;
}

typedef struct {
  offset_t low, high, count, log_team;
} TeamClass;

HOST_KERNEL(evchyb_deal)
{
  const offset_t     nell = PARAM(offset_t, 0), nsegments = PARAM(offset_t, 1), height = PARAM(offset_t, 2), segment_groups = PARAM(offset_t, 3);
  const offset_t     warps = PARAM(offset_t, 4), nlong = PARAM(offset_t, 5), *offsets = PARAM(const offset_t *, 7);
  const TeamClass   *classes  = params[6];
  const RowSegments *segments = PARAM(const RowSegments *, 8);
  Task              *tasks    = PARAM(Task *, 9);

  for (uint32_t c = 0; c < grid[1]; c++) {
    const TeamClass class  = classes[c];
    const int      is_long = c < nlong, log_team = (int)class.log_team;
    const offset_t first = is_long ? nell : 0, ntasks = ceil_div(class.count << log_team, warps) * warps;
    offset_t       t = 0, begin_of_first = 0;

    for (offset_t i = is_long ? nsegments : nell; i-- > 0;) {
      const offset_t slice = first + i, begin = offsets[slice], groups = (offsets[slice + 1] - begin) / height;
      const int      is_split = is_long && segments[i].count > 1;
      const offset_t width    = is_split ? segment_groups : groups;

      if (width < class.low || width > class.high) continue;
      if (t == 0) begin_of_first = begin;
      for (int warp = 0; warp < 1 << log_team; warp++)
        tasks[t++] = (Task){begin, (int32_t)slice, (int32_t)(groups << 5) | (is_split ? 16 : 0) | log_team};
    }
    for (; t < ntasks; t++) tasks[t] = (Task){begin_of_first, -1, log_team};
    tasks += ntasks;
  }
}

HOST_KERNEL(evchyb_count_sectors)
{
  const offset_t length = PARAM(offset_t, 0), sector_entries = PARAM(index_t, 1), *pieces = PARAM(const offset_t *, 2);
  offset_t      *found = PARAM(offset_t *, 4);

  for (uint32_t block_number = 0; block_number < grid[0]; block_number++) {
    const index_t *piece = PARAM(const index_t *, 3) + pieces[block_number] * length;

    for (offset_t i = 0; i < length; i++) {
      offset_t j = 0;

      if (piece[i] < 0) continue;
      while (j < i && (piece[j] < 0 || piece[j] / sector_entries != piece[i] / sector_entries)) j++;
      found[0] += j == i;
      found[1]++;
    }
  }
}
