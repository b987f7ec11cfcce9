// Structure of EVC-HYB (formats/evchyb/): rows are counted and sorted by length, cut into slices, and dealt to warps. Run once a pattern.
//
// Rows come as a list: row p of a list is rows[p], or first + p where `rows` is null. `control` is that of a prefix sum (scan.cuh): the ticket,
// and a word for each tile, all 0 at first. What is counted is 0 at first, too.
#include "formats/evchyb.cuh"
#include "common/scan.cuh"
#include "common/search.cuh"
#include "common/sort.cuh"

constexpr int TILE = 1024, DIGITS = 256; // rows that a block sorts by one of so many digits
constexpr int PIECE  = 16 * HEIGHT;      // stored columns that are looked at together
constexpr int COUNTS = 4;                // that a thread adds up

__device__ __forceinline__ offset_t row_of(offset_t p, offset_t first, const index_t *__restrict__ rows)
{
  return rows ? (offset_t)rows[p] : first + p;
}

__device__ __forceinline__ offset_t length_of(offset_t row, const index_t *__restrict__ rowptr)
{
  return (offset_t)rowptr[row + 1] - rowptr[row];
}

__device__ __forceinline__ offset_t groups_of(offset_t length)
{
  return (length + HEIGHT - 1) / HEIGHT;
}

// RowCounts of formats/evchyb/layout.py, in its order: sums but for the longest row, which is second to last, and the last.
constexpr int SUMS = 8, LONGEST = SUMS, IN_SLICES = SUMS + 1;

// Threads go through the rows in turn, a warp 32 neighbours at a time.
__global__ void __launch_bounds__(SCAN_THREADS)
  evchyb_count_rows(offset_t nrows, offset_t /* HEIGHT */, offset_t split, offset_t other_split, offset_t segment_groups,
                    const index_t *__restrict__ rowptr, count_t *__restrict__ counts)
{
  __shared__ count_t of_warps[SCAN_WARPS][SUMS + 1];
  const int          lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  const offset_t     first_of_warp   = (offset_t)blockIdx.x * SCAN_THREADS + warp * WARP;
  count_t            count[SUMS + 1] = {};

  for (offset_t first = first_of_warp; first < nrows; first += (offset_t)gridDim.x * SCAN_THREADS) {
    const offset_t row = first + lane, length = row < nrows ? length_of(row, rowptr) : 0, groups = groups_of(length), widest = group_max(length),
                   segments = (groups + segment_groups - 1) / segment_groups;

    count[0] += length > split ? groups * HEIGHT - length : 0; // padding of long rows
    count[1] += row < nrows && length <= split;
    count[2] += row < nrows && length <= other_split;
    count[3] += length > split ? segments : 0;
    count[4] += length > other_split ? segments : 0;
    count[5] += length > 0;
    count[6] += row + 1 < nrows && length > length_of(row + 1, rowptr); // rows longer than the next
    count[7] += lane == 0 && first + HEIGHT <= nrows ? widest : 0;      // the longest row of each whole slice
    count[LONGEST] = max(count[LONGEST], (count_t)length);
  }
#pragma unroll
  for (int i = 0; i <= SUMS; i++) {
    const count_t of_warp = i == LONGEST ? group_max(count[i]) : group_sum(count[i]);

    if (lane == 0) of_warps[warp][i] = of_warp;
  }
  __syncthreads();
  const int i = threadIdx.x;

  if (i > IN_SLICES) return;
  if (i == IN_SLICES) {
    if (blockIdx.x == 0) counts[i] = (count_t)rowptr[nrows / HEIGHT * HEIGHT];
    return;
  }
  count_t of_block = 0;
  for (int w = 0; w < SCAN_WARPS; w++) of_block = i == LONGEST ? max(of_block, of_warps[w][i]) : of_block + of_warps[w][i];
  if (of_block == 0) return;
  if (i == LONGEST) atomicMax(counts + i, of_block);
  else atomicAdd(counts + i, of_block);
}

// rows [nrows]: the `nshort` rows of at most `split` entries, then the others, both in their order; a thread a row
__global__ void __launch_bounds__(SCAN_THREADS)
  evchyb_split_rows(offset_t nrows, offset_t split, offset_t nshort, const index_t *__restrict__ rowptr, index_t *__restrict__ rows, count_t *control)
{
  __shared__ BlockScan scan;

  scan.take_tile(control);
  __syncthreads();
  const offset_t row          = (offset_t)scan.tile * SCAN_THREADS + threadIdx.x;
  const bool     is_short     = row < nrows && length_of(row, rowptr) <= split;
  const offset_t short_before = (offset_t)scan.sum_before_thread(control + 1, is_short);

  if (row < nrows) rows[is_short ? short_before : nshort + row - short_before] = (index_t)row;
}

// Adds to found[0] the entries of `nslices` slices of rows of a list, and to found[1] the longest row of each; a warp a slice, slices in turn
__global__ void __launch_bounds__(SCAN_THREADS) evchyb_measure_slices(offset_t nslices, offset_t /* HEIGHT */, const index_t *__restrict__ rows,
                                                                      const index_t *__restrict__ rowptr, count_t *__restrict__ found)
{
  const int lane    = threadIdx.x % WARP;
  offset_t  entries = 0, longest = 0;

  for (offset_t slice = (offset_t)blockIdx.x * SCAN_WARPS + threadIdx.x / WARP; slice < nslices; slice += (offset_t)gridDim.x * SCAN_WARPS) {
    const offset_t length = length_of(row_of(slice * HEIGHT + lane, 0, rows), rowptr);

    entries += length;
    longest += group_max(length);
  }
  entries = group_sum(entries);
  if (lane > 0 || entries == 0) return;
  atomicAdd(found, (count_t)entries);
  atomicAdd(found + 1, (count_t)longest);
}

// sampled [n]: windows windows[0], windows[1], ... of a list of rows; a thread a row
__global__ void __launch_bounds__(SCAN_THREADS) evchyb_sample_rows(offset_t n, offset_t window, const index_t *__restrict__ rows,
                                                                   const offset_t *__restrict__ windows, index_t *__restrict__ sampled)
{
  const offset_t p = (offset_t)blockIdx.x * SCAN_THREADS + threadIdx.x;

  if (p < n) sampled[p] = (index_t)row_of(windows[p / window] * window + p % window, 0, rows);
}

// Sorting by length within windows: a stable counting sort by one digit of the length, `bits` wide, from the lowest to the highest. A block has
// a tile of up to TILE rows, which lies in one window.
struct RowTile {
  offset_t begin, counter; // of the tile's rows in the list; of the counter of digit 0
  int      size;
  offset_t tiles_per_window;

  __device__ __forceinline__ RowTile(offset_t n, offset_t window, offset_t tiles_per_window, int bits) : tiles_per_window(tiles_per_window)
  {
    const offset_t number = blockIdx.x / tiles_per_window, part = blockIdx.x % tiles_per_window;
    const offset_t end = min(n, min((number + 1) * window, number * window + (part + 1) * TILE));

    begin   = number * window + part * TILE;
    size    = end > begin ? (int)(end - begin) : 0;
    counter = (number << bits) * tiles_per_window + part;
  }

  // counters are in the order of the result: window by window, in it digit by digit, and tile by tile
  __device__ __forceinline__ offset_t counter_of(int digit) const { return counter + digit * tiles_per_window; }
};

// counts [windows * digits * tiles_per_window]: rows of each digit in each tile
__global__ void __launch_bounds__(DIGITS)
  evchyb_count_digits(offset_t n, offset_t window, offset_t tiles_per_window, offset_t first, int shift, int bits, const index_t *__restrict__ rows,
                      const index_t *__restrict__ rowptr, index_t *__restrict__ counts)
{
  __shared__ int counted[DIGITS];
  const RowTile  tile(n, window, tiles_per_window, bits);
  const int      thread = threadIdx.x;

  counted[thread] = 0;
  __syncthreads();
  for (int i = thread; i < tile.size; i += DIGITS) {
    const offset_t length = length_of(row_of(tile.begin + i, first, rows), rowptr);

    atomicAdd(counted + ((int)(length >> shift) & ((1 << bits) - 1)), 1);
  }
  __syncthreads();
  if (thread < 1 << bits) counts[tile.counter_of(thread)] = (index_t)counted[thread];
}

// Puts in the place of each of `ncounts` counts the sum of those before it.
__global__ void __launch_bounds__(SCAN_THREADS) evchyb_add_up(offset_t ncounts, index_t *__restrict__ counts, count_t *control)
{
  __shared__ BlockScan scan;
  index_t              count[COUNTS];
  count_t              sum = 0;

  scan.take_tile(control);
  __syncthreads();
  const offset_t first = ((offset_t)scan.tile * SCAN_THREADS + threadIdx.x) * COUNTS;

#pragma unroll
  for (int i = 0; i < COUNTS; i++) {
    count[i] = first + i < ncounts ? counts[first + i] : index_t(0);
    sum += (count_t)count[i];
  }
  count_t before = scan.sum_before_thread(control + 1, sum);

#pragma unroll
  for (int i = 0; i < COUNTS; i++) {
    if (first + i < ncounts) counts[first + i] = (index_t)before;
    before += (count_t)count[i];
  }
}

// sorted [n]: the rows by a digit. A warp has neighbouring rows of the tile, and ranks 32 at a time by their digits.
__global__ void __launch_bounds__(DIGITS)
  evchyb_move_rows(offset_t n, offset_t window, offset_t tiles_per_window, offset_t first, int shift, int bits, const index_t *__restrict__ rows,
                   const index_t *__restrict__ rowptr, const index_t *__restrict__ counts, index_t *__restrict__ sorted)
{
  constexpr int      WARPS = DIGITS / WARP, ROUNDS = TILE / DIGITS;
  __shared__ index_t places[WARPS][DIGITS]; // rows of each digit that a warp has ranked; then where its first one goes
  const RowTile      tile(n, window, tiles_per_window, bits);
  const int          thread = threadIdx.x, lane = thread % WARP, warp = thread / WARP;
  offset_t           row[ROUNDS];
  int                digit[ROUNDS];
  index_t            rank[ROUNDS];

  for (int w = 0; w < WARPS; w++) places[w][thread] = 0;
  __syncthreads();
#pragma unroll
  for (int r = 0; r < ROUNDS; r++) {
    const int  i    = (warp * ROUNDS + r) * WARP + lane;
    const bool here = i < tile.size;

    row[r]        = here ? row_of(tile.begin + i, first, rows) : offset_t(-1);
    digit[r]      = here ? (int)(length_of(row[r], rowptr) >> shift) & ((1 << bits) - 1) : 0;
    unsigned same = __ballot_sync(FULL_WARP, here);
    for (int bit = 0; bit < bits; bit++) {
      const unsigned is_set = __ballot_sync(FULL_WARP, digit[r] >> bit & 1);

      same &= digit[r] >> bit & 1 ? is_set : ~is_set;
    }
    if (here) rank[r] = places[warp][digit[r]] + __popc(same & ((1u << lane) - 1));
    __syncwarp();
    if (here && __ffs((int)same) - 1 == lane) places[warp][digit[r]] += __popc(same);
    __syncwarp();
  }
  __syncthreads();
  if (thread < 1 << bits) {
    index_t place = counts[tile.counter_of(thread)];

    for (int w = 0; w < WARPS; w++) {
      const index_t ranked = places[w][thread];

      places[w][thread] = place;
      place += ranked;
    }
  }
  __syncthreads();
#pragma unroll
  for (int r = 0; r < ROUNDS; r++)
    if (row[r] >= 0) sorted[places[warp][digit[r]] + rank[r]] = (index_t)row[r];
}

// sorted [n]: at most TILE rows of a list by length, those of one length in their order. One block
__global__ void __launch_bounds__((TILE / 2))
  evchyb_sort_tile(offset_t n, offset_t first, const index_t *__restrict__ rows, const index_t *__restrict__ rowptr, index_t *__restrict__ sorted)
{
  __shared__ count_t keys[TILE]; // length and place
  const int          thread = threadIdx.x;

  for (int i = thread; i < TILE; i += TILE / 2)
    keys[i] = i < n ? (count_t)length_of(row_of(i, first, rows), rowptr) * TILE + i : ~count_t(0); // after all rows
  sort_in_block<TILE>(keys);
  for (int i = thread; i < n; i += TILE / 2) sorted[i] = (index_t)row_of(keys[i] % TILE, first, rows);
}

// first_segment [nlong + 1]: segments of at most `segment_groups` groups, one at least, of the rows of a list; a thread a row, and one for the end
__global__ void __launch_bounds__(SCAN_THREADS)
  evchyb_first_segments(offset_t nlong, offset_t /* HEIGHT */, offset_t segment_groups, offset_t first, const index_t *__restrict__ rows,
                        const index_t *__restrict__ rowptr, offset_t *__restrict__ first_segment, count_t *control)
{
  __shared__ BlockScan scan;
  offset_t             segments = 0;

  scan.take_tile(control);
  __syncthreads();
  const offset_t i = (offset_t)scan.tile * SCAN_THREADS + threadIdx.x;

  if (i < nlong) segments = max(offset_t(1), (groups_of(length_of(row_of(i, first, rows), rowptr)) + segment_groups - 1) / segment_groups);
  const count_t before = scan.sum_before_thread(control + 1, (count_t)segments);

  if (i <= nlong) first_segment[i] = (offset_t)before;
}

// Adds one to widths[width] for each lane that is `here`. All lanes of a warp call it.
__device__ __forceinline__ void count_width(count_t *widths, offset_t width, bool here)
{
  const unsigned present = __ballot_sync(FULL_WARP, here);
  const offset_t low = group_min(here ? width : ~(offset_t(1) << 63)), high = group_max(here ? width : offset_t(-1));

  if (low == high && (int)(threadIdx.x % WARP) == __ffs((int)present) - 1) atomicAdd(widths + width, (count_t)__popc(present));
  if (low != high && here) atomicAdd(widths + width, count_t(1));
}

// What is found of all slices
struct SlicesFound {
  count_t moved;                         // not 0 if a row of the ELL part is not in its place
  count_t nnz_ell, nstored_ell, nstored; // entries of the ELL part, and with padding; those of all slices with padding
};

// Slices of the ELL part, of the rows ell_rows [HEIGHT * nell], or the first ones if that is null; then those of the vCSR part, of the rows of
// the list long_rows [nlong], from HEIGHT * nell on if that is null. first_segment is null if each of them has one segment.
//   offsets [nell + nsegments + 1], segment_row [nsegments], segments [nsegments]
//   ell_widths, segment_widths  how many slices have 0, 1, 2, ... groups; segments of a split row count as segment_groups wide
// A thread a slice, and one for the end
__global__ void __launch_bounds__(SCAN_THREADS)
  evchyb_cut_slices(offset_t nell, offset_t nsegments, offset_t nlong, offset_t /* HEIGHT */, offset_t segment_groups,
                    const index_t *__restrict__ ell_rows, const index_t *__restrict__ long_rows, const index_t *__restrict__ rowptr,
                    const offset_t *__restrict__ first_segment, offset_t *__restrict__ offsets, index_t *__restrict__ segment_row,
                    RowSegments *__restrict__ segments, SlicesFound *__restrict__ found, count_t *__restrict__ ell_widths,
                    count_t *__restrict__ segment_widths, count_t *control)
{
  __shared__ BlockScan scan;

  scan.take_tile(control);
  __syncthreads();
  const offset_t slice = (offset_t)scan.tile * SCAN_THREADS + threadIdx.x, nslices = nell + nsegments;
  const bool     in_ell = slice < nell, is_segment = !in_ell && slice < nslices;
  offset_t       groups = 0, entries = 0;
  bool           is_split = false;

  if (in_ell) {
    for (int lane = 0; lane < HEIGHT; lane++) {
      const offset_t p = slice * HEIGHT + lane, row = row_of(p, 0, ell_rows), length = length_of(row, rowptr);

      if (row != p) found->moved = 1; // all threads that write, write the same
      groups = max(groups, length);
      entries += length;
    }
  } else if (is_segment) {
    const offset_t segment = slice - nell, i = first_segment ? segment_of(first_segment, offset_t(0), nlong - 1, segment) : segment;
    const offset_t begin = first_segment ? first_segment[i] : i, count = first_segment ? first_segment[i + 1] - begin : 1;
    const offset_t row = row_of(i, nell * HEIGHT, long_rows), row_groups = groups_of(length_of(row, rowptr)), number = segment - begin;

    groups               = (number + 1) * row_groups / count - number * row_groups / count;
    is_split             = count > 1;
    segment_row[segment] = (index_t)row;
    segments[segment]    = {(int)begin, (int)count};
  }
  count_width(ell_widths, groups, in_ell);
  count_width(segment_widths, is_split ? segment_groups : groups, is_segment);
  entries = group_sum(entries);
  if (entries && threadIdx.x % WARP == 0) atomicAdd(&found->nnz_ell, (count_t)entries);
  const offset_t offset = (offset_t)scan.sum_before_thread(control + 1, (count_t)groups) * HEIGHT;

  if (slice > nslices) return;
  offsets[slice] = offset;
  if (slice == nell) found->nstored_ell = (count_t)offset;
  if (slice == nslices) found->nstored = (count_t)offset;
}

// Slices of one part that are `low` to `high` groups wide, `count` of them, with teams of 1 << log_team warps
struct TeamClass {
  offset_t low, high, count, log_team;

  __device__ __forceinline__ offset_t tasks(offset_t warps) const { return ((count << log_team) + warps - 1) / warps * warps; }
};

struct TeamClasses {
  TeamClass of[12]; // six of each part: teams have 1 to 32 warps
};

// tasks: class by class those of its slices, the last of them first, and what fills the last of its blocks of `warps`, which does nothing. The first
// `nlong` classes are of the `nsegments` slices from `nell` on, the others of those before. `control` has 1 + gridDim.x words for each class.
// A thread a slice; blockIdx.y is the class
__global__ void __launch_bounds__(SCAN_THREADS)
  evchyb_deal(offset_t nell, offset_t nsegments, offset_t /* HEIGHT */, offset_t segment_groups, offset_t warps, offset_t nlong,
              const TeamClasses classes, const offset_t *__restrict__ offsets, const RowSegments *__restrict__ segments, Task *__restrict__ tasks,
              count_t          *control)
{
  __shared__ BlockScan scan;
  const int            number_of_class = blockIdx.y;
  const bool           is_long         = number_of_class < nlong;
  const offset_t       part_begin = is_long ? nell : offset_t(0), part_size = is_long ? nsegments : nell;
  const TeamClass      mine  = classes.of[number_of_class];
  offset_t             begin = 0, groups = 0;
  bool                 is_split = false, inside = false;

  if ((offset_t)blockIdx.x * SCAN_THREADS >= part_size) return;
  control += number_of_class * (1 + gridDim.x);
  for (int c = 0; c < number_of_class; c++) tasks += classes.of[c].tasks(warps);
  scan.take_tile(control);
  __syncthreads();
  const offset_t i = (offset_t)scan.tile * SCAN_THREADS + threadIdx.x, slice = part_begin + i;

  if (i < part_size) {
    begin                = offsets[slice];
    groups               = (offsets[slice + 1] - begin) / HEIGHT;
    is_split             = is_long && segments[i].count > 1;
    const offset_t width = is_split ? segment_groups : groups;
    inside               = mine.low <= width && width <= mine.high;
  }
  const int      log_team = (int)mine.log_team;
  const offset_t before = (offset_t)scan.sum_before_thread(control + 1, inside), team = offset_t(1) << log_team;

  if (!inside) return;
  const offset_t number = mine.count - 1 - before, ntasks = mine.tasks(warps);

  for (offset_t t = number * team; t < (number + 1) * team; t++) tasks[t] = {begin, (int)slice, (int)(groups << 5) | (is_split ? 16 : 0) | log_team};
  if (number > 0) return;
  for (offset_t t = mine.count * team; t < ntasks; t++) tasks[t] = {begin, -1, log_team};
}

// Of pieces pieces[0], pieces[1], ... of PIECE stored columns: adds to found[0] how many sectors of x, of so many entries, each reads, and to
// found[1] the entries that are not padding. A block a piece
__global__ void __launch_bounds__(SCAN_THREADS)
  evchyb_count_sectors(offset_t /* PIECE */, index_t sector_entries, const offset_t *__restrict__ pieces, const index_t *__restrict__ columns,
                       count_t *__restrict__ found)
{
  __shared__ index_t sector[PIECE];
  const index_t     *column  = columns + pieces[blockIdx.x] * PIECE;
  int                entries = 0, sectors = 0;

  for (int i = threadIdx.x; i < PIECE; i += SCAN_THREADS) sector[i] = column[i] < 0 ? index_t(-1) : column[i] / sector_entries;
  __syncthreads();
  for (int i = threadIdx.x; i < PIECE; i += SCAN_THREADS) {
    int first = 0; // entry with this sector

    while (sector[first] != sector[i]) first++;
    entries += sector[i] >= 0;
    sectors += sector[i] >= 0 && first == i;
  }
  entries = group_sum(entries);
  sectors = group_sum(sectors);
  if (threadIdx.x % WARP > 0 || entries == 0) return;
  atomicAdd(found, (count_t)sectors);
  atomicAdd(found + 1, (count_t)entries);
}
