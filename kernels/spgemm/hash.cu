// What the hash accumulator (spgemm/hash.py) does before it looks at rows of C = A B: B's rows as words of 32 columns, which shortens
// the symbolic phase wherever columns come in runs, and rows sorted into bins by size.
#include "spgemm/hash.cuh"

constexpr int THREADS = 256;

// words of row i: words[rowptr[i]] .. words[word_end[i]], ascending, as B's columns are; `control` is told if they are not. Bytes: 4 read
// and at most 8 written an entry. The entries of STEPS steps are loaded before the first is looked at: long rows are few, and all wait for them.
template <int TEAM>
__global__ void __launch_bounds__(THREADS, 5)
  spgemm_hash_words(index_t nrows, const index_t *__restrict__ rowptr, const index_t *__restrict__ columns, Word *__restrict__ words,
                    index_t *__restrict__ word_end, Control *control)
{
  constexpr int      STEPS = 4;
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
  bool                 falls       = false;

  while (__any_sync(FULL_WARP, seen < left)) {
    index_t columns_here[STEPS], columns_before[STEPS];

#pragma unroll
    for (int s = 0; s < STEPS; s++) {
      const index_t ahead = s * TEAM + lane; // of `seen`
      const bool    valid = left - seen > ahead;

      columns_here[s]   = valid ? __ldg(row_columns + seen + ahead) : index_t(0);
      columns_before[s] = valid && seen + ahead > 0 ? __ldg(row_columns + seen + ahead - 1) : index_t(-1);
    }
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
      if (s > 0 && !__any_sync(FULL_WARP, seen < left)) break;
      const index_t  column = columns_here[s], before = columns_before[s];
      const bool     valid = left - seen > lane;
      const unsigned word  = (unsigned)(column >> 5);
      const bool     first = valid && (before < 0 || (unsigned)(before >> 5) != word);
      const unsigned votes = __ballot_sync(FULL_WARP, first) >> first_lane & LANES;
      unsigned       bits  = valid ? 1u << (column & 31) : 0;

      // each thread unites its bit with those of the threads after it that have the same word: they are neighbours
#pragma unroll
      for (int distance = 1; distance < TEAM; distance *= 2) {
        const unsigned other_word = __shfl_down_sync(FULL_WARP, word, distance, TEAM), other_bits = __shfl_down_sync(FULL_WARP, bits, distance, TEAM);

        if (lane + distance < TEAM && other_word == word) bits |= other_bits;
      }
      const bool goes_on = __shfl_sync(FULL_WARP, word, TEAM - 1, TEAM) == word; // beyond the last thread, perhaps

      if (first) {
        if (goes_on)
          for (index_t i = seen; left - i > TEAM && (unsigned)(__ldg(row_columns + i + TEAM) >> 5) == word; i++)
            bits |= 1u << (__ldg(row_columns + i + TEAM) & 31);
        to[__popc(votes & ((1u << lane) - 1))] = {bits, word};
      }
      to += __popc(votes);
      falls |= valid && column <= before;
      seen = left - seen > TEAM ? seen + TEAM : left;
    }
  }
  if (falls) control->falls = 1; // all threads that write, write the same
  if (row < nrows && lane == 0) word_end[row] = (index_t)(to - words);
}

// terms[row] and work[row] = entries and words of B that meet the entries of A's row; adds to `control` what it says of A, B, terms and
// words, rows binned by `largest` and `nbins`. Blocks take rows in turns, so that few threads meet at the counters.
template <int TEAM>
__global__ void __launch_bounds__(THREADS, 5)
  spgemm_hash_count_words(index_t nrows, const index_t *__restrict__ A_rowptr, const index_t *__restrict__ A_columns,
                          const index_t *__restrict__ B_rowptr, const index_t *__restrict__ word_end, int largest, int nbins,
                          offset_t *__restrict__ terms, offset_t *__restrict__ work, Control *control)
{
  constexpr int     ROWS = THREADS / TEAM, NWARPS = THREADS / WARP;
  __shared__ Census census[NWARPS][BINS];
  __shared__ Seen   parts[NWARPS];
  const int         lane = threadIdx.x % TEAM;
  Seen              seen = {0, 0, 0, 0};

  clear_census<NWARPS>(census);
  for (offset_t first = (offset_t)blockIdx.x * ROWS; first < nrows; first += (offset_t)gridDim.x * ROWS) {
    const offset_t row   = first + threadIdx.x / TEAM;
    const bool     valid = row < nrows;
    const index_t  begin = valid ? A_rowptr[row] : index_t(0), end = valid ? A_rowptr[row + 1] : index_t(0);
    offset_t       count = 0, words = 0, longest = 0;

#pragma unroll 4
    for (offset_t p = (offset_t)begin + lane; p < end; p += TEAM) {
      const index_t  k = __ldg(A_columns + p), from = __ldg(B_rowptr + k);
      const offset_t length = __ldg(B_rowptr + k + 1) - from;

      words += __ldg(word_end + k) - from;
      count += length;
      longest = max(longest, length);
    }
    count             = group_sum(count, TEAM);
    words             = group_sum(words, TEAM);
    const bool counts = valid && lane == 0; // for the row

    if (counts) {
      terms[row] = count;
      work[row]  = words;
    }
    seen.add(counts ? count : 0, end - begin, longest);
    count_rows<TEAM>(census[threadIdx.x / WARP], counts, bin_of(words, largest, nbins), words, end - begin);
  }
  add_census<NWARPS>(control->words, census);
  seen.add_to<NWARPS>(control, parts);
}

// sorted = all rows, bin after bin: by their number of words, as in `sizes`, or (LENGTHS) by their length in C. Those of a warp stay
// together and in order; which warp comes first is left open, nothing depends on it.
template <int LENGTHS>
__global__ void __launch_bounds__(THREADS)
  spgemm_hash_sort_rows(index_t nrows, const offset_t *__restrict__ sizes, const index_t *__restrict__ C_rowptr, int largest, int nbins,
                        Control *control, index_t *__restrict__ sorted)
{
  __shared__ int      counts[BINS];
  __shared__ count_t  begins[BINS];
  const Census *const census  = LENGTHS ? control->lengths : control->words;
  count_t *const      cursors = LENGTHS ? control->length_cursors : control->word_cursors;
  const offset_t      row     = (offset_t)blockIdx.x * THREADS + threadIdx.x;
  const bool          valid   = row < nrows;
  const offset_t      size    = !valid ? 0 : LENGTHS ? (offset_t)(C_rowptr[row + 1] - C_rowptr[row]) : sizes[row];
  const int           bin = valid ? bin_of(size, largest, nbins) : -1, lane = threadIdx.x % WARP;
  int                 place = 0; // among the rows of the bin in this block

  if (threadIdx.x < BINS) counts[threadIdx.x] = 0;
  __syncthreads();
  for (unsigned rest = __ballot_sync(FULL_WARP, valid); rest;) {
    const int      leader = __ffs(rest) - 1, this_bin = __shfl_sync(FULL_WARP, bin, leader);
    const unsigned votes  = __ballot_sync(FULL_WARP, bin == this_bin);
    int            before = lane == leader ? atomicAdd(&counts[this_bin], __popc(votes)) : 0;

    before = __shfl_sync(FULL_WARP, before, leader);
    if (bin == this_bin) place = before + __popc(votes & ((1u << lane) - 1));
    rest &= ~votes;
  }
  __syncthreads();
  if (threadIdx.x < nbins) {
    count_t begin = counts[threadIdx.x] ? atomicAdd(&cursors[threadIdx.x], (count_t)counts[threadIdx.x]) : 0;

    for (int b = 0; b < (int)threadIdx.x; b++) begin += census[b].rows;
    begins[threadIdx.x] = begin;
  }
  __syncthreads();
  if (valid) sorted[begins[bin] + place] = (index_t)row;
}

// The parts of `largest` entries of the rows of C with more entries than that: row and number of each, longer rows of A first. Which of
// rows alike comes first is left open, nothing depends on it.
__global__ void __launch_bounds__(THREADS)
  spgemm_hash_list_parts(index_t nrows, const index_t *__restrict__ A_rowptr, const index_t *__restrict__ C_rowptr, int largest, Control *control,
                         index_t *__restrict__ rows, index_t *__restrict__ parts)
{
  const offset_t row = (offset_t)blockIdx.x * THREADS + threadIdx.x;

  if (row >= nrows) return;
  const offset_t length = C_rowptr[row + 1] - C_rowptr[row];

  if (length <= largest) return;
  const int     bin   = bin_of(A_rowptr[row + 1] - A_rowptr[row], LONGEST_FACTOR, BINS);
  const count_t count = (count_t)((length + largest - 1) / largest);
  count_t       place = atomicAdd(&control->part_cursors[bin], count);

  for (int b = 0; b < bin; b++) place += control->parts[b];
  for (count_t part = 0; part < count; part++) {
    rows[place + part]  = (index_t)row;
    parts[place + part] = (index_t)part;
  }
}
