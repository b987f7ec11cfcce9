// What the hash accumulator (spgemm/hash.py) does before it looks at rows of C = A B: B's rows as words of 32 columns, which shortens
// the symbolic phase wherever columns come in runs, and rows sorted into bins by size.
#include "spgemm_hash.cuh"

constexpr int THREADS = 256;

// words of row i: words[rowptr[i]] .. words[word_end[i]], ascending, as B's columns are. Bytes: 4 read and at most 8 written an entry.
template <int TEAM>
__global__ void __launch_bounds__(THREADS) spgemm_hash_words(index_t nrows, const index_t *__restrict__ rowptr, const index_t *__restrict__ columns, Word *__restrict__ words, index_t *__restrict__ word_end)
{
  constexpr unsigned LANES = TEAM == WARP ? FULL_WARP : (1u << (TEAM % WARP)) - 1;
  const offset_t     row   = ((offset_t)blockIdx.x * THREADS + threadIdx.x) / TEAM;
  const int          lane = threadIdx.x % TEAM, first_lane = threadIdx.x % WARP - lane;
  index_t            begin = 0, left = 0;

  if (row < nrows) {
    begin = rowptr[row];
    left  = rowptr[row + 1] - begin;
  }
  const index_t *const row_columns = columns + begin;
  Word                *to          = words + begin;
  index_t              seen        = 0; // entries

  for (; __any_sync(FULL_WARP, seen < left); seen = left - seen > TEAM ? seen + TEAM : left) {
    const bool     valid = left - seen > lane;
    const unsigned word  = valid ? (unsigned)(__ldg(row_columns + seen + lane) >> 5) : 0;
    const bool     first = valid && (seen + lane == 0 || (unsigned)(__ldg(row_columns + seen + lane - 1) >> 5) != word);
    const unsigned votes = __ballot_sync(FULL_WARP, first) >> first_lane & LANES;

    if (first) {
      unsigned bits = 0;

      for (index_t i = seen + lane; i < left && (unsigned)(__ldg(row_columns + i) >> 5) == word; i++) bits |= 1u << (__ldg(row_columns + i) & 31);
      to[__popc(votes & ((1u << lane) - 1))] = {bits, word};
    }
    to += __popc(votes);
  }
  if (row < nrows && lane == 0) word_end[row] = (index_t)(to - words);
}

// work[row] = words of B that meet the entries of A's row, for the nrows rows listed (null: all)
template <int TEAM>
__global__ void __launch_bounds__(THREADS) spgemm_hash_count_words(index_t nrows, const index_t *__restrict__ rows, const index_t *__restrict__ A_rowptr, const index_t *__restrict__ A_columns, const index_t *__restrict__ B_rowptr, const index_t *__restrict__ word_end, offset_t *__restrict__ work)
{
  const offset_t i    = ((offset_t)blockIdx.x * THREADS + threadIdx.x) / TEAM;
  const int      lane = threadIdx.x % TEAM;
  offset_t       sum  = 0;
  index_t        row  = 0;

  if (i < nrows) {
    row               = rows ? rows[i] : (index_t)i;
    const index_t end = A_rowptr[row + 1];

    for (index_t p = A_rowptr[row], n = end - p - lane; n > 0; n -= TEAM) {
      const index_t k = __ldg(A_columns + end - n);

      sum += __ldg(word_end + k) - __ldg(B_rowptr + k);
    }
  }
#pragma unroll
  for (int distance = TEAM / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(FULL_WARP, sum, distance);
  if (i < nrows && lane == 0) work[row] = sum;
}

// Bin of a row of `size`: 0 above `largest`, else the last of 1 .. nbins - 2 whose bound largest / 2^(bin - 1), rounded up, is not below
// it; nbins - 1 for an empty row.
__device__ __forceinline__ int bin_of(offset_t size, int largest, int nbins)
{
  int bin = 0;

  if (size == 0) return nbins - 1;
  while (bin < nbins - 2 && size <= (largest + (1 << bin) - 1) >> bin) bin++;
  return bin;
}

struct Census { // of a bin
  unsigned long long rows, work, entries; // rows; sums of their work and of the lengths of A's rows
};

constexpr int BINS = 16; // at most

// census[bin] += rows listed that belong to it; it begins as 0
__global__ void __launch_bounds__(THREADS) spgemm_hash_count_bins(index_t nrows, const index_t *__restrict__ rows, const offset_t *__restrict__ sizes, const offset_t *__restrict__ work, const index_t *__restrict__ A_rowptr, int largest, int nbins, Census *census)
{
  __shared__ Census block_census[BINS];

  if (threadIdx.x < BINS) block_census[threadIdx.x] = {0, 0, 0};
  __syncthreads();
  for (offset_t base = (offset_t)blockIdx.x * THREADS; base < nrows; base += (offset_t)gridDim.x * THREADS) {
    const offset_t i     = base + threadIdx.x;
    const bool     valid = i < nrows;
    const index_t  row   = !valid ? 0 : rows ? rows[i] : (index_t)i;
    const int      bin   = valid ? bin_of(sizes[row], largest, nbins) : -1;
    const offset_t mine = valid ? work[row] : 0, length = valid ? A_rowptr[row + 1] - A_rowptr[row] : 0;

    // bin after bin of those in this warp; nearly always one
    for (unsigned rest = __ballot_sync(FULL_WARP, valid); rest;) {
      const int      this_bin = __shfl_sync(FULL_WARP, bin, __ffs(rest) - 1);
      const unsigned votes    = __ballot_sync(FULL_WARP, bin == this_bin);
      offset_t       sum = bin == this_bin ? mine : 0, entries = bin == this_bin ? length : 0;

#pragma unroll
      for (int distance = WARP / 2; distance > 0; distance /= 2) {
        sum += __shfl_xor_sync(FULL_WARP, sum, distance);
        entries += __shfl_xor_sync(FULL_WARP, entries, distance);
      }
      if (threadIdx.x % WARP == 0) {
        atomicAdd(&block_census[this_bin].rows, (unsigned long long)__popc(votes));
        atomicAdd(&block_census[this_bin].work, (unsigned long long)sum);
        atomicAdd(&block_census[this_bin].entries, (unsigned long long)entries);
      }
      rest &= ~votes;
    }
  }
  __syncthreads();
  if (threadIdx.x < nbins && block_census[threadIdx.x].rows) {
    atomicAdd(&census[threadIdx.x].rows, block_census[threadIdx.x].rows);
    atomicAdd(&census[threadIdx.x].work, block_census[threadIdx.x].work);
    atomicAdd(&census[threadIdx.x].entries, block_census[threadIdx.x].entries);
  }
}

// sorted = the rows listed, bin after bin. Those of a warp stay together and in order; which warp comes first is left open, nothing
// depends on it. cursors [nbins] begin as 0.
__global__ void __launch_bounds__(THREADS) spgemm_hash_sort_rows(index_t nrows, const index_t *__restrict__ rows, const offset_t *__restrict__ sizes, int largest, int nbins, const Census *__restrict__ census, unsigned long long *cursors, index_t *__restrict__ sorted)
{
  __shared__ int                counts[BINS];
  __shared__ unsigned long long begins[BINS];
  const offset_t                i     = (offset_t)blockIdx.x * THREADS + threadIdx.x;
  const bool                    valid = i < nrows;
  const index_t                 row   = !valid ? 0 : rows ? rows[i] : (index_t)i;
  const int                     bin = valid ? bin_of(sizes[row], largest, nbins) : -1, lane = threadIdx.x % WARP;
  int                           place = 0; // among the rows of the bin in this block

  if (threadIdx.x < BINS) counts[threadIdx.x] = 0;
  __syncthreads();
  for (unsigned rest = __ballot_sync(FULL_WARP, valid); rest;) {
    const int      leader = __ffs(rest) - 1, this_bin = __shfl_sync(FULL_WARP, bin, leader);
    const unsigned votes = __ballot_sync(FULL_WARP, bin == this_bin);
    int            before = lane == leader ? atomicAdd(&counts[this_bin], __popc(votes)) : 0;

    before = __shfl_sync(FULL_WARP, before, leader);
    if (bin == this_bin) place = before + __popc(votes & ((1u << lane) - 1));
    rest &= ~votes;
  }
  __syncthreads();
  if (threadIdx.x < nbins) {
    unsigned long long begin = atomicAdd(&cursors[threadIdx.x], (unsigned long long)counts[threadIdx.x]);

    for (int b = 0; b < (int)threadIdx.x; b++) begin += census[b].rows;
    begins[threadIdx.x] = begin;
  }
  __syncthreads();
  if (valid) sorted[begins[bin] + place] = row;
}
