// Structure kernels of row patterns (formats/common/row_patterns.py): which patterns there are, and which of them each row has.
#include "formats/row_patterns.cuh"
#include "common/search.cuh"

typedef unsigned long long row_key_t;

constexpr int SLOTS = 1024; // of a hash table, a power of two
constexpr int LIMIT = 256;  // patterns that a byte numbers

// 64-bit hash of the length and the deltas of a row; never 0, which marks a free slot
__device__ __forceinline__ row_key_t row_key(offset_t row, const index_t *__restrict__ rowptr, const index_t *__restrict__ colidx)
{
  const offset_t begin = rowptr[row], end = rowptr[row + 1];
  row_key_t      key = end - begin;

  for (offset_t k = begin; k < end; k++) {
    key = (key ^ (row_key_t)(colidx[k] - row)) * 0x9E3779B97F4A7C15ull;
    key ^= key >> 29;
  }
  return key ? key : 1;
}

// Enters `key` and `row` into a table that all blocks share, unless it has the key or *npatterns is beyond LIMIT.
__device__ __forceinline__ void enter(row_key_t key, offset_t row, row_key_t *keys, offset_t *rows, int *npatterns)
{
  for (int slot = (int)(key % SLOTS); *(volatile int *)npatterns <= LIMIT; slot = (slot + 1) % SLOTS) {
    row_key_t found = *(volatile row_key_t *)(keys + slot);

    if (!found) found = atomicCAS(keys + slot, 0ull, key);
    if (found == key) return;
    if (found) continue;
    rows[slot] = row;
    atomicAdd(npatterns, 1);
    return;
  }
}

// The keys of all rows, and for each key a row that has it, into a table of SLOTS that is all 0 before. Ends early, with *npatterns
// beyond LIMIT, when there are too many. Each block remembers what it has seen, so that equal rows do not meet at the shared table.
// Threads: a row each, block after block of rows. Bytes a row of k entries: (k + 1) sizeof(index_t).
__global__ void __launch_bounds__(256) row_patterns_collect(index_t    nrows, const index_t *__restrict__ rowptr, const index_t *__restrict__ colidx,
                                                            row_key_t *keys, offset_t *rows, int *npatterns)
{
  __shared__ row_key_t seen[SLOTS];
  __shared__ int       nseen;

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
    enter(key, row, keys, rows, npatterns);
  }
}

// The keys of the table in ascending order, and the deltas of their rows: pattern_deltas [*npatterns][pattern_stride]. Nothing if there are more
// than `most` patterns. Threads: one block, a key each.
__global__ void __launch_bounds__(256)
  row_patterns_table(index_t most, index_t pattern_stride, const row_key_t *__restrict__ keys, const offset_t *__restrict__ rows,
                     const int *__restrict__ npatterns, const index_t *__restrict__ rowptr, const index_t *__restrict__ colidx,
                     row_key_t *__restrict__ sorted_keys, index_t *__restrict__ pattern_deltas)
{
  __shared__ row_key_t found[LIMIT];
  __shared__ offset_t  row_of[LIMIT], row_of_sorted[LIMIT];
  __shared__ int       nfound;
  const int            count = *npatterns, thread = threadIdx.x;

  if (count > most) return;
  if (thread == 0) nfound = 0;
  __syncthreads();
  for (int slot = thread; slot < SLOTS; slot += blockDim.x)
    if (keys[slot]) {
      const int i = atomicAdd(&nfound, 1);

      found[i]  = keys[slot];
      row_of[i] = rows[slot];
    }
  __syncthreads();
  if (thread < count) {
    int place = 0;

    for (int i = 0; i < count; i++) place += found[i] < found[thread];
    sorted_keys[place]   = found[thread];
    row_of_sorted[place] = row_of[thread];
  }
  __syncthreads();
  for (offset_t i = thread; i < (offset_t)count * pattern_stride; i += blockDim.x) {
    const offset_t row = row_of_sorted[i / pattern_stride], j = i % pattern_stride, begin = rowptr[row], length = rowptr[row + 1] - begin;

    pattern_deltas[i] = j < length ? index_t(colidx[begin + j] - row) : NO_ENTRY;
  }
}

// The pattern of each row, found by its key (`keys` [*npatterns] ascend) and compared entry by entry; *mismatch is set if a row differs
// from the pattern of its key. Nothing if there are more than `most` patterns. Threads: a row each, in the order of row_perm.
__global__ void __launch_bounds__(256)
  row_patterns_assign(index_t nrows, index_t most, index_t pattern_stride, const int *__restrict__ npatterns, const row_key_t *__restrict__ keys,
                      const index_t *__restrict__ pattern_deltas, const index_t *__restrict__ rowptr, const index_t *__restrict__ colidx,
                      const index_t *__restrict__ row_perm, unsigned char *__restrict__ row_pattern, int *mismatch)
{
  const offset_t position = (offset_t)blockIdx.x * blockDim.x + threadIdx.x;

  if (position >= nrows || *npatterns > most) return;
  const offset_t  row   = row_perm ? row_perm[position] : position;
  const row_key_t key   = row_key(row, rowptr, colidx);
  const offset_t  begin = rowptr[row], length = rowptr[row + 1] - begin;
  const index_t   id     = partition_point(index_t(1), (index_t)*npatterns, [&](index_t p) { return __ldg(keys + p) <= key; }) - 1;
  const index_t  *deltas = pattern_deltas + id * pattern_stride;
  bool            same   = length <= pattern_stride && (length == pattern_stride || __ldg(deltas + length) == NO_ENTRY);

  for (offset_t j = 0; same && j < length; j++) same = colidx[begin + j] - row == __ldg(deltas + j);
  row_pattern[position] = (unsigned char)id;
  if (!same) *mismatch = 1;
}
