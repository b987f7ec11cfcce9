// Structure kernels of row patterns (formats/common/row_patterns.py): which patterns there are, and which of them each row has.
#include "formats/row_patterns.cuh"
#include "common/search.cuh"

typedef unsigned long long row_key_t, count_t;

constexpr int SLOTS = 1024; // of the hash table of a block
constexpr int TABLE = 511;  // of the one that all blocks share: 8 KB with the counters
constexpr int LIMIT = 256;  // patterns that a byte numbers
constexpr int BATCH = 8;    // entries that a thread loads at once

// What blocks have found together, all zeros at first
struct Search {
  alignas(8) int npatterns; // beyond LIMIT if there are too many: then some are missing
  alignas(8) int nready;    // blocks that have looked at all their rows
  row_key_t keys[TABLE];    // a hash table, 0: free; at last the keys alone, in ascending order
  offset_t  rows[TABLE];    // a row that has the key of the slot
};

// 64-bit hash of the length and the deltas of a row; never 0, which marks a free slot
__device__ __forceinline__ row_key_t row_key(offset_t row, const index_t *__restrict__ rowptr, const index_t *__restrict__ colidx)
{
  const offset_t begin = rowptr[row], end = rowptr[row + 1];
  row_key_t      key = end - begin;

  for (offset_t first = begin; first < end; first += BATCH) { // a small matrix waits for memory alone: once a batch
    index_t column[BATCH];

#pragma unroll
    for (int i = 0; i < BATCH; i++) column[i] = first + i < end ? colidx[first + i] : index_t(0);
#pragma unroll
    for (int i = 0; i < BATCH; i++) {
      if (first + i >= end) break;
      key = (key ^ (row_key_t)(column[i] - row)) * 0x9E3779B97F4A7C15ull;
      key ^= key >> 29;
    }
  }
  return key ? key : 1;
}

// Enters `key` and `row` into the table that all blocks share, unless it has the key or has passed LIMIT.
__device__ __forceinline__ void enter(row_key_t key, offset_t row, Search *search)
{
  for (int slot = (int)(key % TABLE); *(volatile int *)&search->npatterns <= LIMIT; slot = (slot + 1) % TABLE) {
    row_key_t found = *(volatile row_key_t *)(search->keys + slot);

    if (!found) found = atomicCAS(search->keys + slot, 0ull, key);
    if (found == key) return;
    if (found) continue;
    search->rows[slot] = row;
    atomicAdd(&search->npatterns, 1);
    return;
  }
}

// The keys of the table in ascending order, to its beginning, and the deltas of their rows: pattern_deltas [count][pattern_stride].
// `shared` has 3 LIMIT words. All threads of the block that was ready last call it.
__device__ __forceinline__ void make_table(Search *search, int count, index_t pattern_stride, const index_t *__restrict__ rowptr,
                                           const index_t *__restrict__ colidx, row_key_t *shared, index_t *__restrict__ pattern_deltas)
{
  __shared__ int   nfound;
  row_key_t *const found = shared, *const row_of = shared + LIMIT, *const row_of_sorted = shared + 2 * LIMIT;

  if (threadIdx.x == 0) nfound = 0;
  __syncthreads();
  for (int slot = threadIdx.x; slot < TABLE; slot += blockDim.x) {
    const row_key_t key = __ldcg(search->keys + slot); // not what another block has left in the first-level cache

    if (!key) continue;
    const int i = atomicAdd(&nfound, 1);

    found[i]  = key;
    row_of[i] = (row_key_t)__ldcg(search->rows + slot);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < count; i += blockDim.x) {
    int place = 0;

    for (int other = 0; other < count; other++) place += found[other] < found[i];
    search->keys[place]  = found[i];
    row_of_sorted[place] = row_of[i];
  }
  __syncthreads();
  for (offset_t i = threadIdx.x; i < (offset_t)count * pattern_stride; i += blockDim.x) {
    const offset_t row = (offset_t)row_of_sorted[i / pattern_stride], j = i % pattern_stride, begin = rowptr[row], length = rowptr[row + 1] - begin;

    pattern_deltas[i] = j < length ? index_t(colidx[begin + j] - row) : NO_ENTRY;
  }
}

// The keys of all rows, each once and in ascending order, and the deltas of a row for each. told[0] is how many there are, told[1] 0; where there are
// more than `most`, at most LIMIT, or more than the table takes, there is nothing but this. Each block remembers what it has seen, so that
// equal rows do not meet at the shared table; the last one makes an order of it.
// Threads: a row each, block after block of rows. Bytes a row of k entries: (k + 1) sizeof(index_t).
__global__ void __launch_bounds__(256)
  row_patterns_collect(index_t nrows, const index_t *__restrict__ rowptr, const index_t *__restrict__ colidx, index_t most, index_t pattern_stride,
                       Search *search, index_t *__restrict__ pattern_deltas, count_t *__restrict__ told)
{
  __shared__ row_key_t seen[SLOTS];
  __shared__ int       nseen, is_last;

  for (int slot = threadIdx.x; slot < SLOTS; slot += blockDim.x) seen[slot] = 0;
  if (threadIdx.x == 0) nseen = 0;
  __syncthreads();
  for (offset_t row = (offset_t)blockIdx.x * blockDim.x + threadIdx.x; row < nrows && *(volatile int *)&nseen <= LIMIT;
       row += (offset_t)gridDim.x * blockDim.x) {
    const row_key_t key  = row_key(row, rowptr, colidx);
    int             slot = (int)(key % SLOTS);
    row_key_t       found;

    // at most LIMIT keys and one more for each thread come here, so a free slot is found
    while ((found = *(volatile row_key_t *)(seen + slot)) != key) {
      if (!found) found = atomicCAS(seen + slot, 0ull, key);
      if (!found || found == key) break;
      slot = (slot + 1) % SLOTS;
    }
    if (found) continue;
    atomicAdd(&nseen, 1);
    enter(key, row, search);
  }
  __threadfence(); // what a thread has entered is there before the block counts as ready
  __syncthreads();
  if (threadIdx.x == 0) is_last = atomicAdd(&search->nready, 1) == (int)gridDim.x - 1;
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  const int count = *(volatile int *)&search->npatterns;

  if (threadIdx.x == 0) {
    told[0] = (count_t)count;
    told[1] = 0;
  }
  if (count <= most) make_table(search, count, pattern_stride, rowptr, colidx, seen, pattern_deltas);
}

// The pattern of each row, found by its key and compared entry by entry; told[1] is set if a row differs from the pattern of its key.
// Nothing if there are more than `most` patterns. Threads: a row each, in the order of row_perm.
__global__ void __launch_bounds__(256)
  row_patterns_assign(index_t nrows, const index_t *__restrict__ rowptr, const index_t *__restrict__ colidx, const index_t *__restrict__ row_perm,
                      index_t most, index_t pattern_stride, const Search *__restrict__ search, const index_t *__restrict__ pattern_deltas,
                      unsigned char *__restrict__ row_pattern, count_t *__restrict__ told)
{
  const offset_t position  = (offset_t)blockIdx.x * blockDim.x + threadIdx.x;
  const index_t  npatterns = (index_t)__ldg(&search->npatterns);

  if (position >= nrows || npatterns > most) return;
  const offset_t  row   = row_perm ? row_perm[position] : position;
  const row_key_t key   = row_key(row, rowptr, colidx);
  const offset_t  begin = rowptr[row], length = rowptr[row + 1] - begin;
  const index_t   id       = partition_point(index_t(1), npatterns, [&](index_t p) { return __ldg(search->keys + p) <= key; }) - 1;
  const index_t  *deltas   = pattern_deltas + id * pattern_stride;
  bool            same     = length <= pattern_stride && (length == pattern_stride || __ldg(deltas + length) == NO_ENTRY);
  const offset_t  compared = same ? length : offset_t(0);

#pragma unroll 4
  for (offset_t j = 0; j < compared; j++) same &= colidx[begin + j] - row == __ldg(deltas + j);
  row_pattern[position] = (unsigned char)id;
  if (!same) told[1] = 1; // all that write, write the same
}
