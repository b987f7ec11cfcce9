// The pattern of a matrix from coordinates (petsc_gpufmt/patterns/coo.py): entries are counted by row, brought to their rows as threads come, and
// put in order there, by column and then by their number. Entries have different numbers, so the result does not show how they came, and entries
// of one place keep the order in which they were given.
//   rows, cols [nentries] coordinates; an entry with a negative one is left out, the others are the terms; `is_part`: of a larger matrix, with the
//                         first row and column where they are, and entries elsewhere are left out too
//   begins [nrows + 1]    where the rows begin in `entries`, the row pointer as long as repeated entries are in it
//   entries [nterms]      row after row
#include "patterns/segments.cuh"

struct alignas(2 * sizeof(index_t)) Entry {
  typedef Entry Key;
  index_t       number, column;

  __device__ __forceinline__ Key  key() const { return *this; }
  __device__ __forceinline__ bool operator<(const Entry &other) const
  {
    return column < other.column || (column == other.column && number < other.number);
  }
};

// What is found among entries in any order, all zeros at first; a zero for each tile of entries follows.
struct OutsideControl {
  count_t noutside;
  count_t ticket; // tiles that blocks have taken
};

// What is counted by row, all zeros at first; a zero for each tile of rows follows.
struct RowControl {
  count_t outside; // not 0: nentries less the number of the first entry that lies outside of the matrix
  count_t nterms;
  count_t longest; // entries of the longest row that is not in order after coo_sort, 0 if all are
  count_t ticket;  // tiles that blocks have taken
};

// What is found among entries in order, all zeros at first; a zero for each tile of entries follows.
struct EntryControl {
  count_t repeats;    // entries at the place of the one before
  count_t disordered; // not 0: an entry is not at the place of its number
  count_t ticket;
};

// Lists the entries that are not left out and do not lie in the given rows and columns, in their order: where they lie, and their numbers. The
// lists may be null: they are counted. A warp takes ITEMS times 32 of the entries.
template <int ITEMS>
__global__ void __launch_bounds__(SCAN_THREADS)
  coo_outside(offset_t nentries, index_t first_row, index_t nrows, index_t first_col, index_t ncols, const index_t *__restrict__ rows,
              const index_t *__restrict__ cols, index_t *__restrict__ rows_outside, index_t *__restrict__ cols_outside, index_t *__restrict__ numbers,
              OutsideControl *control)
{
  __shared__ BlockScan scan;

  prefix_sums<ITEMS>(
    scan, &control->ticket, (count_t *)(control + 1), nentries,
    [&](offset_t k) {
      const index_t row = __ldg(rows + k), column = __ldg(cols + k);

      return row >= 0 && column >= 0 && (row < first_row || row - first_row >= nrows || column < first_col || column - first_col >= ncols);
    },
    [&](offset_t k, count_t before, count_t up_to) {
      if (k == nentries - 1) control->noutside = up_to;
      if (!numbers || up_to == before) return;
      rows_outside[before] = rows[k];
      cols_outside[before] = cols[k];
      numbers[before]      = (index_t)k;
    });
}

// Adds the entries of each row to counts [nrows]; slots[k] = how many of its row were counted before entry k, -1 if it is left out. Neighbours in
// a warp with the same row are counted by one.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS)
  coo_count(index_t nentries, index_t first_row, index_t nrows, index_t first_col, index_t ncols, int is_part, const index_t *__restrict__ rows,
            const index_t *__restrict__ cols, index_t *__restrict__ counts, index_t *__restrict__ slots, RowControl *__restrict__ control)
{
  const offset_t first = (offset_t)blockIdx.x * (BATCH * BLOCK_THREADS) + threadIdx.x;
  const int      lane  = threadIdx.x % WARP;
  const unsigned below = (1u << lane) - 1; // the lanes before this one
  index_t        row[BATCH], column[BATCH], slot[BATCH];
  unsigned       runs[BATCH]; // the lanes in which a run of equal rows begins

#pragma unroll
  for (int i = 0; i < BATCH; i++) {
    const offset_t k = first + i * BLOCK_THREADS;

    row[i]    = k < nentries ? load_once(rows + k) : index_t(-1);
    column[i] = k < nentries ? load_once(cols + k) : index_t(-1);
  }
#pragma unroll
  for (int i = 0; i < BATCH; i++) {
    if (row[i] < 0 || column[i] < 0) row[i] = -1;
    else {
      row[i] -= first_row;
      column[i] -= first_col;
      if (row[i] < 0 || row[i] >= nrows || column[i] < 0 || column[i] >= ncols) {
        if (!is_part) atomicMax(&control->outside, (count_t)(nentries - (first + i * BLOCK_THREADS)));
        row[i] = -1;
      }
    }
    const index_t row_before = __shfl_up_sync(FULL_WARP, row[i], 1);

    runs[i] = __ballot_sync(FULL_WARP, lane == 0 || row[i] != row_before);
    slot[i] = 0;
    if (row[i] < 0 || !(runs[i] >> lane & 1)) continue;
    const unsigned after = runs[i] & ~below & ~(1u << lane);

    slot[i] = count_up(counts + row[i], (after ? __ffs((int)after) - 1 : WARP) - lane);
  }
#pragma unroll
  for (int i = 0; i < BATCH; i++) {
    const offset_t k      = first + i * BLOCK_THREADS;
    const int      begin  = 31 - __clz((int)(runs[i] & (below | 1u << lane))); // of the lane's run
    const index_t  of_run = __shfl_sync(FULL_WARP, slot[i], begin);

    if (k < nentries) slots[k] = row[i] >= 0 ? of_run + (lane - begin) : index_t(-1);
  }
}

// Puts in the place of each of `ncounts` counts the sum of those before it. A warp adds up ITEMS times 32 of them. PIECE: of coo_sort.
template <int ITEMS, int PIECE>
__global__ void __launch_bounds__(SCAN_THREADS) coo_row_pointer(offset_t ncounts, index_t *counts, RowControl *control)
{
  __shared__ BlockScan scan;

  prefix_sums<ITEMS>(
    scan, &control->ticket, (count_t *)(control + 1), ncounts, [&](offset_t i) { return counts[i]; },
    [&](offset_t i, count_t before, count_t up_to) {
      counts[i] = (index_t)before;
      if (i == ncounts - 1) control->nterms = before;
      if (up_to - before > PIECE) atomicMax(&control->longest, up_to - before);
    });
}

// Brings each entry to its row by the slots of coo_count. Their numbers ascend: `numbers` [nentries], or, if that is null, from first_number on.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS)
  coo_scatter(index_t nentries, index_t first_number, const index_t *__restrict__ numbers, index_t first_row, index_t first_col,
              const index_t *__restrict__ rows, const index_t *__restrict__ cols, const index_t *__restrict__ begins,
              const index_t *__restrict__ slots, Entry *__restrict__ entries)
{
  const offset_t first = (offset_t)blockIdx.x * (BATCH * BLOCK_THREADS) + threadIdx.x;
  index_t        place[BATCH], column[BATCH];

#pragma unroll
  for (int i = 0; i < BATCH; i++) {
    const offset_t k = first + i * BLOCK_THREADS;

    place[i] = k < nentries ? load_once(slots + k) : index_t(-1);
    if (place[i] < 0) continue;
    place[i] += __ldg(begins + (load_once(rows + k) - first_row));
    column[i] = load_once(cols + k) - first_col;
  }
#pragma unroll
  for (int i = 0; i < BATCH; i++) {
    const offset_t k = first + i * BLOCK_THREADS;

    if (place[i] >= 0) entries[place[i]] = Entry{numbers ? load_once(numbers + k) : (index_t)(first_number + k), column[i]};
  }
}

// Puts each row in order, and of a row longer than PIECE its pieces.
template <int BLOCK_THREADS, int ITEMS, int PIECE>
__global__ void __launch_bounds__(BLOCK_THREADS, 1024 / BLOCK_THREADS)
  coo_sort(index_t nterms, index_t nrows, const index_t *__restrict__ begins, Entry *__restrict__ entries)
{
  sort_segments<BLOCK_THREADS, ITEMS, PIECE>(nterms, nrows, begins, entries, [&](offset_t place, Entry entry, bool) { entries[place] = entry; });
}

// Merges pairs of pieces of `width` entries of rows longer than that, and copies the other rows.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS) coo_merge(index_t nterms, index_t nrows, const index_t *__restrict__ begins, offset_t width,
                                                           const Entry *__restrict__ entries, Entry *__restrict__ merged)
{
  merge_segments<BLOCK_THREADS>(
    nterms, nrows, begins, width, entries, [&](offset_t place, Entry entry, bool) { merged[place] = entry; },
    [&](offset_t position) { merged[position] = entries[position]; });
}

// Turns the numbers of entries that have the place of the one before into their complements, which are negative, and counts them. Of the entry
// before, the column alone is read: another thread may turn its number.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS)
  coo_mark_repeats(index_t nterms, index_t nrows, const index_t *__restrict__ begins, Entry *entries, EntryControl *control)
{
  __shared__ int repeats;
  const offset_t first      = (offset_t)blockIdx.x * (BATCH * BLOCK_THREADS) + threadIdx.x;
  bool           disordered = false;
  int            repeated   = 0; // entries of this thread
  Entry          entry[BATCH];
  index_t        column_before[BATCH];

  if (threadIdx.x == 0) repeats = 0;
#pragma unroll
  for (int i = 0; i < BATCH; i++) {
    const offset_t p = first + i * BLOCK_THREADS;

    if (p < nterms) entry[i] = entries[p];
    column_before[i] = p > 0 && p < nterms ? entries[p - 1].column : index_t(-1);
  }
#pragma unroll
  for (int i = 0; i < BATCH; i++) {
    const offset_t p = first + i * BLOCK_THREADS;

    if (p >= nterms) continue;
    disordered |= entry[i].number != p;
    if (entry[i].column != column_before[i] || __ldg(begins + segment_of(begins, index_t(0), index_t(nrows - 1), p)) == p) continue;
    entries[p].number = ~entry[i].number;
    repeated++;
  }
  if (disordered) control->disordered = 1; // all threads that write, write the same
  repeated = group_sum(repeated);
  __syncthreads();
  if (threadIdx.x % WARP == 0 && repeated) atomicAdd(&repeats, repeated);
  __syncthreads();
  if (threadIdx.x == 0 && repeats) atomicAdd(&control->repeats, (count_t)repeats);
}

// The matrix without repeats: colidx [nnz] of its entries, which are the sums of entries index[begins_of_sums[t]] to index[begins_of_sums[t + 1] - 1],
// those marked as repeats with the one before. index and begins_of_sums may be null. A warp takes ITEMS times 32 of the terms.
template <int ITEMS>
__global__ void __launch_bounds__(SCAN_THREADS) coo_fill(offset_t nterms, const Entry *__restrict__ entries, index_t *__restrict__ colidx,
                                                         index_t *__restrict__ begins_of_sums, index_t *__restrict__ index, EntryControl *control)
{
  __shared__ BlockScan scan;

  prefix_sums<ITEMS>(
    scan, &control->ticket, (count_t *)(control + 1), nterms, [&](offset_t p) { return entries[p].number >= 0; },
    [&](offset_t p, count_t before, count_t up_to) {
      const Entry entry = entries[p];

      if (index) index[p] = entry.number >= 0 ? entry.number : ~entry.number;
      if (up_to > before) {
        colidx[before] = entry.column;
        if (begins_of_sums) begins_of_sums[before] = (index_t)p;
      }
      if (begins_of_sums && p == nterms - 1) begins_of_sums[up_to] = (index_t)nterms;
    });
}

// The row pointer of the matrix without repeats in the place of that with them: how many sums begin before each row. A thread a row, and their end.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS)
  coo_drop_repeats(offset_t nrows, index_t nnz, const index_t *__restrict__ begins_of_sums, index_t *__restrict__ rowptr)
{
  const offset_t row = (offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x;

  if (row > nrows) return;
  const index_t begin = rowptr[row];

  rowptr[row] = partition_point(index_t(0), nnz, [&](index_t t) { return __ldg(begins_of_sums + t) < begin; });
}
