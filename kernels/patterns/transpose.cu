// The pattern of a transpose (petsc_gpufmt/patterns/transpose.py): entries are counted by column, brought to their columns as threads come, and
// put in order there. Entries have different numbers, so the result does not show how they came.
//   begins [ncols + 1]   where the columns begin in `entries` and in the transpose, of which it is the row pointer
//   entries [nnz]        column after column
//   colidx, source [nnz] of the transpose: the row of each entry, and where its value is
#include "common/scan.cuh"
#include "common/search.cuh"

constexpr int BATCH = 4; // entries a thread

struct alignas(2 * sizeof(index_t)) Entry {
  index_t number, row; // in the matrix that is transposed
};

// All zeros at first; a zero for each tile of columns follows.
struct Control {
  count_t ticket;  // tiles that blocks have taken
  count_t longest; // entries of the longest column that is not in order after transpose_sort, 0 if all are
};

__device__ __forceinline__ int add_one(int *counter)
{
  return atomicAdd(counter, 1);
}

__device__ __forceinline__ long long add_one(long long *counter)
{
  return (long long)atomicAdd((unsigned long long *)counter, 1ull);
}

// Adds the entries of each column to counts [ncols]; slots[k] = how many entries of its column were counted before entry k.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS)
  transpose_count(index_t nnz, const index_t *__restrict__ colidx, index_t *__restrict__ counts, index_t *__restrict__ slots)
{
  const offset_t first = (offset_t)blockIdx.x * (BATCH * BLOCK_THREADS) + threadIdx.x;
  index_t        column[BATCH], slot[BATCH];

#pragma unroll
  for (int i = 0; i < BATCH; i++) column[i] = first + i * BLOCK_THREADS < nnz ? colidx[first + i * BLOCK_THREADS] : index_t(-1);
#pragma unroll
  for (int i = 0; i < BATCH; i++) slot[i] = column[i] >= 0 ? add_one(counts + column[i]) : index_t(0);
#pragma unroll
  for (int i = 0; i < BATCH; i++)
    if (column[i] >= 0) slots[first + i * BLOCK_THREADS] = slot[i];
}

// Puts in the place of each of `ncounts` counts the sum of those before it. A warp adds up ITEMS times 32 of them.
template <int ITEMS>
__global__ void __launch_bounds__(SCAN_THREADS) transpose_row_pointer(offset_t ncounts, index_t *counts, Control *control)
{
  __shared__ BlockScan scan;

  prefix_sums<ITEMS>(
    scan, &control->ticket, (count_t *)(control + 1), ncounts, [&](offset_t i) { return counts[i]; },
    [&](offset_t i, count_t before, count_t) { counts[i] = (index_t)before; });
}

// The last of `nsegments` whose beginning is not above `position`: the one that `position` lies in. A warp calls it.
__device__ __forceinline__ offset_t segment_by_warp(const index_t *__restrict__ begins, offset_t nsegments, offset_t position)
{
  offset_t low = 0, high = nsegments;

  while (high - low > 1) {
    const offset_t step = (high - low + WARP - 1) / WARP, probed = low + threadIdx.x % WARP * step;
    const unsigned not_above = __ballot_sync(FULL_WARP, probed < high && __ldg(begins + min(probed, high - 1)) <= position);

    low += (__popc(not_above) - 1) * step;
    high = min(high, low + step);
  }
  return low;
}

// The segments that the first and the last position of a block lie in, into found [2]. All threads of the block call it.
__device__ __forceinline__ void segments_of_block(const index_t *__restrict__ begins, offset_t nsegments, offset_t first, offset_t last,
                                                  offset_t *found)
{
  const int warp = threadIdx.x / WARP;

  if (warp < 2) {
    const offset_t segment = segment_by_warp(begins, nsegments, warp ? last : first);

    if (threadIdx.x % WARP == 0) found[warp] = segment;
  }
  __syncthreads();
}

// Brings each entry to its column, which begins at begins[column], by the slots of transpose_count.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS)
  transpose_scatter(index_t nnz, index_t nrows, const index_t *__restrict__ rowptr, const index_t *__restrict__ colidx,
                    const index_t *__restrict__ begins, const index_t *__restrict__ slots, Entry *__restrict__ entries)
{
  __shared__ offset_t rows[2];
  const offset_t      first_of_block = (offset_t)blockIdx.x * (BATCH * BLOCK_THREADS), first = first_of_block + threadIdx.x;
  index_t             place[BATCH];

#pragma unroll
  for (int i = 0; i < BATCH; i++) {
    const offset_t k = first + i * BLOCK_THREADS;

    place[i] = k < nnz ? __ldg(begins + load_once(colidx + k)) + load_once(slots + k) : index_t(-1);
  }
  segments_of_block(rowptr, nrows, first_of_block, min(first_of_block + BATCH * BLOCK_THREADS, (offset_t)nnz) - 1, rows);
#pragma unroll
  for (int i = 0; i < BATCH; i++) {
    const offset_t k = first + i * BLOCK_THREADS;

    if (place[i] >= 0) entries[place[i]] = Entry{(index_t)k, (index_t)segment_of(rowptr, rows[0], rows[1], k)};
  }
}

// What becomes of an entry of the transpose at its final place
struct Transpose {
  const index_t *__restrict__ given; // source of the matrix that is transposed, may be null
  index_t *__restrict__ colidx, *__restrict__ source;

  __device__ __forceinline__ void put(offset_t place, Entry entry) const
  {
    colidx[place] = entry.row;
    source[place] = given ? __ldg(given + entry.number) : entry.number;
  }
};

// Where the first piece of PIECE entries begins that does not begin before `position`, in the column from `begin` to `end` or after it.
template <int PIECE>
__device__ __forceinline__ offset_t piece_from(offset_t position, offset_t begin, offset_t end)
{
  return min(end, begin + (position - begin + PIECE - 1) / PIECE * PIECE);
}

// Puts each column in order, and of a column longer than PIECE its pieces, which stay in `entries` as well. A block takes the pieces that begin in
// its window, and that may end after it, into shared memory; a thread has ITEMS entries. Runs of RUN entries are sorted by counting smaller ones, then runs are merged pair after pair: an
// entry's place is its place in its own run and that in the other, found by binary search.
template <int BLOCK_THREADS, int ITEMS, int PIECE>
__global__ void __launch_bounds__(BLOCK_THREADS, 1024 / BLOCK_THREADS)
  transpose_sort(index_t nnz, index_t ncols, const index_t *__restrict__ begins, Entry *__restrict__ entries, const index_t *__restrict__ given,
                 index_t *__restrict__ colidx, index_t *__restrict__ source, Control *__restrict__ control)
{
  constexpr int       CAPACITY = BLOCK_THREADS * ITEMS, WINDOW = CAPACITY - PIECE + 1, RUN = 32;
  __shared__ index_t  numbers[CAPACITY];
  __shared__ offset_t columns[2], bounds[2];
  __shared__ int      longest_piece;
  const Transpose     transpose    = {given, colidx, source};
  const offset_t      window_begin = (offset_t)blockIdx.x * WINDOW, window_end = min(window_begin + WINDOW, (offset_t)nnz);
  Entry               entry[ITEMS];
  int                 place[ITEMS], begin[ITEMS], end[ITEMS]; // of the entry, and of its piece, in `numbers`; end is 0 without an entry
  unsigned            in_long_column = 0;                     // a bit for each item

  if (threadIdx.x == 0) longest_piece = 0;
  segments_of_block(begins, ncols, window_begin, min(window_end, (offset_t)nnz - 1), columns);
  if (threadIdx.x < 2) {
    const offset_t column = columns[threadIdx.x], position = threadIdx.x ? window_end : window_begin;

    bounds[threadIdx.x] = piece_from<PIECE>(position, begins[column], begins[column + 1]);
  }
  __syncthreads();
  const offset_t base = bounds[0];

#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    const offset_t position = base + i * BLOCK_THREADS + threadIdx.x;

    begin[i] = end[i] = 0;
    if (position < bounds[1]) entry[i] = entries[position];
  }
#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    const offset_t position = base + i * BLOCK_THREADS + threadIdx.x;

    if (position >= bounds[1]) continue;
    const offset_t column = segment_of(begins, columns[0], columns[1], position), column_begin = __ldg(begins + column),
                   column_end  = __ldg(begins + column + 1);
    const offset_t piece_begin = column_begin + (position - column_begin) / PIECE * PIECE;

    place[i]          = (int)(position - base);
    begin[i]          = (int)(piece_begin - base);
    end[i]            = (int)(min(piece_begin + PIECE, column_end) - base);
    numbers[place[i]] = entry[i].number;
    if (place[i] == begin[i] && end[i] - begin[i] > RUN) atomicMax(&longest_piece, end[i] - begin[i]);
    if (column_end - column_begin <= PIECE) continue;
    in_long_column |= 1u << i;
    if (position == column_begin) atomicMax(&control->longest, (count_t)(column_end - column_begin));
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    if (end[i] == 0) continue;
    const int run = begin[i] + (place[i] - begin[i]) / RUN * RUN, run_end = min(run + RUN, end[i]);

    place[i] = run;
    for (int j = run; j < run_end; j++) place[i] += numbers[j] < entry[i].number;
  }
  for (int width = RUN; width < longest_piece; width *= 2) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < ITEMS; i++)
      if (end[i] - begin[i] > width) numbers[place[i]] = entry[i].number;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
      if (end[i] - begin[i] <= width) continue;
      const int in_piece = place[i] - begin[i], in_run = in_piece & (width - 1), other = begin[i] + ((in_piece - in_run) ^ width);
      const int first = min(other, end[i]);

      place[i] = begin[i] + (in_piece & -2 * width) + in_run - first;
      place[i] += partition_point(first, min(other + width, end[i]), [&](int p) { return numbers[p] < entry[i].number; });
    }
  }
#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    if (end[i] == 0) continue;
    if (in_long_column >> i & 1) entries[base + place[i]] = entry[i];
    transpose.put(base + place[i], entry[i]);
  }
}

// Merges pairs of pieces of `width` entries, a power of two, in order each, of columns longer than that: to the transpose if a column is in
// order then, else to `merged`. A thread does BATCH entries, one after another.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS)
  transpose_merge(index_t nnz, index_t ncols, const index_t *__restrict__ begins, offset_t width, const Entry *__restrict__ entries,
                  Entry *__restrict__ merged, const index_t *__restrict__ given, index_t *__restrict__ colidx, index_t *__restrict__ source)
{
  __shared__ offset_t columns[2];
  const Transpose     transpose      = {given, colidx, source};
  const offset_t      first_of_block = (offset_t)blockIdx.x * (BATCH * BLOCK_THREADS),
                      end_of_block   = min(first_of_block + BATCH * BLOCK_THREADS, (offset_t)nnz);

  segments_of_block(begins, ncols, first_of_block, end_of_block - 1, columns);
  for (offset_t position = first_of_block + threadIdx.x; position < end_of_block; position += BLOCK_THREADS) {
    const offset_t column = segment_of(begins, columns[0], columns[1], position), begin = __ldg(begins + column), end = __ldg(begins + column + 1);

    if (end - begin <= width) continue;
    const Entry    entry     = entries[position];
    const offset_t in_column = position - begin, in_piece = in_column & (width - 1), other = begin + ((in_column - in_piece) ^ width);
    const offset_t first = min(other, end);
    offset_t       place = begin + (in_column & -2 * width) + in_piece - first;

    place += partition_point(first, min(other + width, end), [&](offset_t p) { return entries[p].number < entry.number; });
    if (end - begin <= 2 * width) transpose.put(place, entry);
    else merged[place] = entry;
  }
}
