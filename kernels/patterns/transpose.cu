// The pattern of a transpose (petsc_gpufmt/patterns/transpose.py): entries are counted by column, brought to their columns as threads come, and
// put in order there. Entries have different numbers, so the result does not show how they came.
//   begins [ncols + 1]   where the columns begin in `entries` and in the transpose, of which it is the row pointer
//   entries [nnz]        column after column
//   colidx, source [nnz] of the transpose: the row of each entry, and where its value is
#include "patterns/segments.cuh"

struct alignas(2 * sizeof(index_t)) Entry {
  typedef index_t Key;
  index_t         number, row; // in the matrix that is transposed

  __device__ __forceinline__ Key key() const { return number; }
};

// All zeros at first; a zero for each tile of columns follows.
struct Control {
  count_t ticket;  // tiles that blocks have taken
  count_t longest; // entries of the longest column; those of more than PIECE are not in order after transpose_sort
};

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
  for (int i = 0; i < BATCH; i++) slot[i] = column[i] >= 0 ? count_up(counts + column[i], 1) : index_t(0);
#pragma unroll
  for (int i = 0; i < BATCH; i++)
    if (column[i] >= 0) slots[first + i * BLOCK_THREADS] = slot[i];
}

// Puts in the place of each of `ncounts` counts the sum of those before it, and the largest into `control`. A warp adds up ITEMS times 32
// of them.
template <int ITEMS>
__global__ void __launch_bounds__(SCAN_THREADS) transpose_row_pointer(offset_t ncounts, index_t *counts, Control *control)
{
  __shared__ BlockScan scan;
  count_t              longest = 0;

  prefix_sums<ITEMS>(
    scan, &control->ticket, (count_t *)(control + 1), ncounts,
    [&](offset_t i) {
      const index_t count = counts[i];

      longest = max(longest, (count_t)count);
      return count;
    },
    [&](offset_t i, count_t before, count_t) { counts[i] = (index_t)before; });
  longest = group_max(longest);
  if (threadIdx.x % WARP == 0 && longest) atomicMax(&control->longest, longest);
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

// Puts each column in order, and of a column longer than PIECE its pieces, which stay in `entries` as well.
template <int BLOCK_THREADS, int ITEMS, int PIECE>
__global__ void __launch_bounds__(BLOCK_THREADS, 1024 / BLOCK_THREADS)
  transpose_sort(index_t nnz, index_t ncols, const index_t *__restrict__ begins, Entry *__restrict__ entries, const index_t *__restrict__ given,
                 index_t *__restrict__ colidx, index_t *__restrict__ source)
{
  const Transpose transpose = {given, colidx, source};

  sort_segments<BLOCK_THREADS, ITEMS, PIECE>(nnz, ncols, begins, entries, [&](offset_t place, Entry entry, bool is_piece) {
    if (is_piece) entries[place] = entry;
    transpose.put(place, entry);
  });
}

// Merges pairs of pieces of `width` entries of columns longer than that: to the transpose if a column is in order then, else to `merged`.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS)
  transpose_merge(index_t nnz, index_t ncols, const index_t *__restrict__ begins, offset_t width, const Entry *__restrict__ entries,
                  Entry *__restrict__ merged, const index_t *__restrict__ given, index_t *__restrict__ colidx, index_t *__restrict__ source)
{
  const Transpose transpose = {given, colidx, source};

  merge_segments<BLOCK_THREADS>(
    nnz, ncols, begins, width, entries,
    [&](offset_t place, Entry entry, bool is_piece) {
      if (is_piece) merged[place] = entry;
      else transpose.put(place, entry);
    },
    [](offset_t) { });
}
