// Symbolic phase of the hash accumulator (spgemm/hash.py): the columns of rows of C = A B, as words of 32 columns (Word). Words of B
// that meet an entry of A are united in shared memory: in a hash table of SLOTS words for short rows, in a bitmap for long ones. There
// are two passes: `lengths` counts the columns of each row, `columns` writes them in order. Atomics are on integers, and what they leave
// behind does not depend on their order.
#include "spgemm/hash.cuh"

constexpr unsigned NO_WORD = 0xffffffff;

// Rows of the bins `first` to `last` by words, which spgemm_hash_sort_rows has put one after another, as the census counts them: a launch may
// be made before the host knows it.
struct BinnedRows {
  const Census *__restrict__ census;
  alignas(8) int first, last;

  __device__ __forceinline__ offset_t count(int bin) const { return (offset_t)__ldg(&census[bin].rows); }

  // how many there are from bin `from` on, before bin `to`
  __device__ __forceinline__ offset_t count(int from, int to) const
  {
    offset_t rows = 0;

    for (int bin = from; bin < to; bin++) rows += count(bin);
    return rows;
  }

  // threads that share a row of B, at most `team`: as many as it has words in the mean, nearly, as Bin.group() in spgemm/hash.py
  __device__ __forceinline__ GroupOfAnySize group(int team) const
  {
    count_t work = 0, entries = 0;
    int     log2 = 0;

    for (int bin = first; bin <= last; bin++) {
      work += __ldg(&census[bin].work);
      entries += __ldg(&census[bin].entries);
    }
    while (1 << log2 < team && (entries << log2) * 10 < work * 9) log2++;
    return {log2};
  }
};

// Hash tables: a team of TEAM threads a row

template <int SLOTS>
constexpr int TABLE_THREADS = SLOTS > 1024 ? 64 : 128;

// What a block has in shared memory; COLUMNS: for that pass.
template <int TEAM, int SLOTS, int COLUMNS>
struct Tables {
  static constexpr int TEAMS = TABLE_THREADS<SLOTS> / TEAM, LIMIT = 2048 / sizeof(index_t), WINDOW = SLOTS < LIMIT ? SLOTS : LIMIT;

  Word    tables[TEAMS][SLOTS];
  Part    parts[TEAMS][BATCH<TEAM>];
  index_t windows[COLUMNS ? TEAMS : 1][COLUMNS ? WINDOW : 1];
};

template <int SLOTS>
__device__ __forceinline__ void unite(Word *table, Word entry)
{
  unsigned slot = entry.word * 0x9E3779B1u >> (32 - log2_of(SLOTS));

  for (;;) {
    const unsigned found = atomicCAS(&table[slot].word, NO_WORD, entry.word);

    if (found == NO_WORD || found == entry.word) break;
    slot = (slot + 1) % SLOTS;
  }
  atomicOr(&table[slot].bits, entry.bits);
}

// The words of a row of C into a table. All threads of the warp call it.
template <int TEAM, int SLOTS, class GroupSize>
__device__ __forceinline__ void fill_table(Word *table, Part *parts, GroupSize group, index_t left, const index_t *__restrict__ A_columns,
                                           const index_t *__restrict__ B_rowptr, const index_t *__restrict__ word_end, const Word *__restrict__ words)
{
#pragma unroll 8
  for (int i = threadIdx.x % TEAM; i < SLOTS; i += TEAM) table[i] = {0, NO_WORD};
  for (; __any_sync(FULL_WARP, left > 0); left = left > BATCH<TEAM> ? left - BATCH<TEAM> : 0, A_columns += BATCH<TEAM>) {
    const int count = stage<TEAM>(parts, left, A_columns, (const scalar_t *)nullptr, B_rowptr, word_end, WholeRows{});

    Cursor<TEAM, 0, Part, GroupSize> cursor(parts, count, group);
    while (__any_sync(FULL_WARP, cursor.more())) {
      if (cursor.advance()) unite<SLOTS>(table, words[cursor.position]);
    }
  }
  __syncwarp();
}

// Row of C of this team, null pointers and zeros if there is none left
template <int TEAM, int THREADS>
struct TeamRow {
  index_t row = 0, left = 0; // left: entries of A's row
  bool    valid;

  __device__ __forceinline__ TeamRow(offset_t block, index_t nrows, const index_t *__restrict__ rows, const index_t *__restrict__ A_rowptr,
                                     const index_t *__restrict__ &A_columns)
  {
    const offset_t i = block * (THREADS / TEAM) + threadIdx.x / TEAM;

    valid = i < nrows;
    if (valid) {
      row                 = rows ? rows[i] : (index_t)i;
      const index_t begin = A_rowptr[row];

      left = A_rowptr[row + 1] - begin;
      A_columns += begin;
    }
  }
};

// lengths[row] = columns of C's row
template <int TEAM, int SLOTS, class GroupSize>
__device__ __forceinline__ void table_lengths(Tables<TEAM, SLOTS, 0> &memory, GroupSize group, offset_t block, index_t nrows,
                                              const index_t *__restrict__ rows, const index_t *__restrict__ A_rowptr,
                                              const index_t *__restrict__ A_columns, const index_t *__restrict__ B_rowptr,
                                              const index_t *__restrict__ word_end, const Word *__restrict__ words, offset_t *__restrict__ lengths)
{
  const int                                 team = threadIdx.x / TEAM, lane = threadIdx.x % TEAM;
  Word *const                               table = memory.tables[team];
  const TeamRow<TEAM, TABLE_THREADS<SLOTS>> mine(block, nrows, rows, A_rowptr, A_columns);
  int                                       count = 0;

  fill_table<TEAM, SLOTS>(table, memory.parts[team], group, mine.left, A_columns, B_rowptr, word_end, words);
#pragma unroll 8
  for (int i = lane; i < SLOTS; i += TEAM) count += __popc(table[i].bits);
  count = group_sum(count, TEAM);
  if (mine.valid && lane == 0) lengths[mine.row] = count;
}

template <int TEAM, int GROUP, int SLOTS>
__global__ void __launch_bounds__(TABLE_THREADS<SLOTS>)
  spgemm_hash_table_lengths(index_t nrows, const index_t *__restrict__ rows, const index_t *__restrict__ A_rowptr,
                            const index_t *__restrict__ A_columns, const index_t *__restrict__ B_rowptr, const index_t *__restrict__ word_end,
                            const Word *__restrict__ words, offset_t *__restrict__ lengths)
{
  __shared__ Tables<TEAM, SLOTS, 0> memory;

  table_lengths(memory, Group<GROUP>{}, blockIdx.x, nrows, rows, A_rowptr, A_columns, B_rowptr, word_end, words, lengths);
}

// Moves the words of a table to its front; returns how many there are.
template <int TEAM, int SLOTS>
__device__ __forceinline__ int compact(Word *table)
{
  constexpr unsigned LANES = TEAM == WARP ? FULL_WARP : (1u << (TEAM % WARP)) - 1;
  const int          lane = threadIdx.x % TEAM, first_lane = threadIdx.x % WARP - lane;
  int                count = 0;

  for (int i = lane; i < SLOTS; i += TEAM) {
    const Word     entry = table[i];
    const unsigned votes = __ballot_sync(FULL_WARP, entry.word != NO_WORD) >> first_lane & LANES;

    __syncwarp(); // all have read before any writes
    if (entry.word != NO_WORD) table[count + __popc(votes & ((1u << lane) - 1))] = entry;
    count += __popc(votes);
  }
  __syncwarp();
  return count;
}

// The columns of C's row. Where a word's columns begin is the number of columns in lower words, counted: there are few words. They go
// through shared memory, a window of them at a time, so that a team writes neighbours.
template <int TEAM, int SLOTS, class GroupSize>
__device__ __forceinline__ void table_columns(Tables<TEAM, SLOTS, 1> &memory, GroupSize group, offset_t block, index_t nrows,
                                              const index_t *__restrict__ rows, const index_t *__restrict__ A_rowptr,
                                              const index_t *__restrict__ A_columns, const index_t *__restrict__ B_rowptr,
                                              const index_t *__restrict__ word_end, const Word *__restrict__ words,
                                              const index_t *__restrict__ C_rowptr, index_t *__restrict__ C_columns)
{
  constexpr int                             WINDOW = Tables<TEAM, SLOTS, 1>::WINDOW, OWN = SLOTS / TEAM < 4 ? SLOTS / TEAM : 4;
  const int                                 team = threadIdx.x / TEAM, lane = threadIdx.x % TEAM;
  const TeamRow<TEAM, TABLE_THREADS<SLOTS>> mine(block, nrows, rows, A_rowptr, A_columns);
  Word *const                               table  = memory.tables[team];
  index_t *const                            window = memory.windows[team];
  int                                       length = 0;

  if (mine.valid) {
    const index_t begin = C_rowptr[mine.row];

    length = (int)(C_rowptr[mine.row + 1] - begin);
    C_columns += begin;
  }
  fill_table<TEAM, SLOTS>(table, memory.parts[team], group, mine.left, A_columns, B_rowptr, word_end, words);
  const int count = compact<TEAM, SLOTS>(table);

  for (int from = 0; __any_sync(FULL_WARP, from < length); from += WINDOW) {
    for (int i = lane; i < count; i += OWN * TEAM) {
      unsigned own[OWN];
      int      place[OWN]; // of the first column of each of this thread's words

#pragma unroll
      for (int o = 0; o < OWN; o++) {
        own[o]   = i + o * TEAM < count ? table[i + o * TEAM].word : 0;
        place[o] = -from;
      }
      for (int j = 0; j < count; j++) {
        const Word other    = table[j];
        const int  ncolumns = __popc(other.bits);

#pragma unroll
        for (int o = 0; o < OWN; o++)
          if (other.word < own[o]) place[o] += ncolumns;
      }
#pragma unroll
      for (int o = 0; o < OWN; o++)
        if (i + o * TEAM < count)
          for (unsigned bits = table[i + o * TEAM].bits; bits; bits &= bits - 1, place[o]++)
            if (place[o] >= 0 && place[o] < WINDOW) window[place[o]] = ((index_t)own[o] << 5) + __ffs(bits) - 1;
    }
    __syncwarp();
    for (int i = lane; i < WINDOW && i < length - from; i += TEAM) C_columns[from + i] = window[i];
    __syncwarp();
  }
}

template <int TEAM, int GROUP, int SLOTS>
__global__ void __launch_bounds__(TABLE_THREADS<SLOTS>, 1536 / TABLE_THREADS<SLOTS>)
  spgemm_hash_table_columns(index_t nrows, const index_t *__restrict__ rows, const index_t *__restrict__ A_rowptr,
                            const index_t *__restrict__ A_columns, const index_t *__restrict__ B_rowptr, const index_t *__restrict__ word_end,
                            const Word *__restrict__ words, const index_t *__restrict__ C_rowptr, index_t *__restrict__ C_columns)
{
  __shared__ Tables<TEAM, SLOTS, 1> memory;

  table_columns(memory, Group<GROUP>{}, blockIdx.x, nrows, rows, A_rowptr, A_columns, B_rowptr, word_end, words, C_rowptr, C_columns);
}

// Tables of several sizes in one launch, for products too small to fill the device with rows of one: each bin has twice the slots of the next,
// and the last of `given` has 32.

template <int COLUMNS>
union AnyTables {
  Tables<32, 512, COLUMNS> of512;
  Tables<32, 256, COLUMNS> of256;
  Tables<16, 128, COLUMNS> of128;
  Tables<8, 64, COLUMNS>   of64;
  Tables<8, 32, COLUMNS>   of32;
};

// Calls `work` with the tables of the size that this block makes, threads that share a row of B, the number of the block among those of this
// size, how many rows it has, and which. Blocks that there are no rows for are left.
template <int COLUMNS, class Work>
__device__ __forceinline__ void for_size_of_block(AnyTables<COLUMNS> &memory, const BinnedRows given, const index_t *__restrict__ order,
                                                  const Work work)
{
  const index_t *rows  = order + given.count(0, given.first);
  offset_t       block = blockIdx.x;
  const auto     make  = [&](auto &tables, int bin, int team) {
    const int      teams = sizeof(tables.tables) / sizeof(tables.tables[0]);
    const offset_t nrows = bin < given.first ? 0 : given.count(bin), blocks = (nrows + teams - 1) / teams;

    if (block < blocks) {
      work(tables, given.group(team), block, (index_t)nrows, rows);
      return true;
    }
    block -= blocks;
    rows += nrows;
    return false;
  };

  if (make(memory.of512, given.last - 4, 32) || make(memory.of256, given.last - 3, 32) || make(memory.of128, given.last - 2, 16) ||
      make(memory.of64, given.last - 1, 8))
    return;
  make(memory.of32, given.last, 8);
}

__global__ void __launch_bounds__(128)
  spgemm_hash_tables_lengths(const BinnedRows given, const index_t *__restrict__ order, const index_t *__restrict__ A_rowptr,
                             const index_t *__restrict__ A_columns, const index_t *__restrict__ B_rowptr, const index_t *__restrict__ word_end,
                             const Word *__restrict__ words, offset_t *__restrict__ lengths)
{
  __shared__ AnyTables<0> memory;

  for_size_of_block(memory, given, order, [&](auto &tables, GroupOfAnySize group, offset_t block, index_t nrows, const index_t *rows) {
    table_lengths(tables, group, block, nrows, rows, A_rowptr, A_columns, B_rowptr, word_end, words, lengths);
  });
}

__global__ void __launch_bounds__(128, 9)
  spgemm_hash_tables_columns(const BinnedRows given, const index_t *__restrict__ order, const index_t *__restrict__ A_rowptr,
                             const index_t *__restrict__ A_columns, const index_t *__restrict__ B_rowptr, const index_t *__restrict__ word_end,
                             const Word *__restrict__ words, const index_t *__restrict__ C_rowptr, index_t *__restrict__ C_columns)
{
  __shared__ AnyTables<1> memory;

  for_size_of_block(memory, given, order, [&](auto &tables, GroupOfAnySize group, offset_t block, index_t nrows, const index_t *rows) {
    table_columns(tables, group, block, nrows, rows, A_rowptr, A_columns, B_rowptr, word_end, words, C_rowptr, C_columns);
  });
}

// Bitmaps: a warp or a block of TEAM threads a row. The bitmap has WORDS words; a matrix with more columns is gone through in ranges.

template <int TEAM>
constexpr int BITMAP_THREADS = TEAM > 128 ? TEAM : 128;

template <int TEAM>
__device__ __forceinline__ void team_barrier()
{
  if constexpr (TEAM == WARP) __syncwarp();
  else __syncthreads();
}

// What is taken of rows of B: the words [first, first + count).
struct WordRange {
  const Word *__restrict__ words;
  unsigned first, count;

  __device__ __forceinline__ void narrow(Part &part) const
  {
    part.begin = partition_point(part.begin, part.end, [&](index_t p) { return words[p].word < first; });
    part.end   = partition_point(part.begin, part.end, [&](index_t p) { return words[p].word - first < count; });
  }
};

// COLUMNS 0: lengths[row] = columns of C's row; COLUMNS 1: its columns. The warps of a team take the entries of A's row 32 at a time.
// For counting and writing each warp has a share of the bitmap.
template <int TEAM, int WORDS, int RANGES, int COLUMNS>
__device__ __forceinline__ void bitmap_row(const TeamRow<TEAM, BITMAP_THREADS<TEAM>> &mine, GroupOfAnySize group, index_t nwords,
                                           const index_t *__restrict__ A_columns, const index_t *__restrict__ B_rowptr,
                                           const index_t *__restrict__ word_end, const Word *__restrict__ words, offset_t *__restrict__ lengths,
                                           const index_t *__restrict__ C_rowptr, index_t *__restrict__ C_columns)
{
  constexpr int       THREADS = BITMAP_THREADS<TEAM>, TEAMS = THREADS / TEAM, WARPS = TEAM / WARP;
  __shared__ unsigned bitmaps[TEAMS][WORDS];
  __shared__ Part     parts[THREADS / WARP][WARP];
  __shared__ int      counts[TEAMS][WARPS];
  const int           team = threadIdx.x / TEAM, warp = threadIdx.x % TEAM / WARP, lane = threadIdx.x % WARP;
  unsigned *const     bitmap = bitmaps[team];
  Part *const         staged = parts[threadIdx.x / WARP];

  if constexpr (COLUMNS) C_columns += C_rowptr[mine.row];

  offset_t total = 0; // columns in the ranges before
  for (index_t first = 0; first < nwords; first += RANGES ? WORDS : nwords) {
    const int  size  = RANGES && nwords - first > WORDS ? WORDS : (int)(nwords - first);
    const auto range = [&]() {
      if constexpr (RANGES) return WordRange{words, (unsigned)first, (unsigned)size};
      else return WholeRows{};
    }();

    for (int i = threadIdx.x % TEAM; i < size; i += TEAM) bitmap[i] = 0;
    team_barrier<TEAM>();
    for (index_t k = (index_t)warp * WARP; k < mine.left; k += TEAM) {
      const int count = stage<WARP>(staged, mine.left - k, A_columns + k, (const scalar_t *)nullptr, B_rowptr, word_end, range);
      Cursor<WARP, 0, Part, GroupOfAnySize> cursor(staged, count, group);

      while (__any_sync(FULL_WARP, cursor.more())) {
        if (cursor.advance()) {
          const Word entry = words[cursor.position];

          atomicOr(bitmap + (entry.word - (unsigned)first), entry.bits);
        }
      }
    }
    team_barrier<TEAM>();

    const int share = (size + WARPS - 1) / WARPS, begin = min(warp * share, size), end = min(begin + share, size);
    int       count = 0;
    for (int i = begin + lane; i < end; i += WARP) count += __popc(bitmap[i]);
    count = group_sum(count);
    if (lane == 0) counts[team][warp] = count;
    team_barrier<TEAM>();
    offset_t place = total;
    for (int w = 0; w < WARPS; w++) {
      if (w < warp) place += counts[team][w];
      total += counts[team][w];
    }
    if constexpr (COLUMNS) {
      for (int base = begin; base < end; base += WARP) {
        unsigned  bits      = base + lane < end ? bitmap[base + lane] : 0;
        const int mine_here = __popc(bits);

        if (!__any_sync(FULL_WARP, bits != 0)) continue;
        const int up_to_here = sum_up_to_lane(mine_here); // columns of the lanes up to this one
        index_t  *to         = C_columns + place + up_to_here - mine_here;
        for (; bits; bits &= bits - 1) *to++ = ((index_t)first + base + lane) * 32 + __ffs(bits) - 1;
        place += __shfl_sync(FULL_WARP, up_to_here, WARP - 1);
      }
    }
    team_barrier<TEAM>(); // before the bitmap is cleared
  }
  if constexpr (!COLUMNS)
    if (threadIdx.x % TEAM == 0) lengths[mine.row] = total;
}

// All rows of the bins `given`; `order` null: all rows. Teams take rows in turns.
template <int TEAM, int WORDS, int RANGES, int COLUMNS>
__device__ __forceinline__ void
bitmap_rows(index_t nrows, index_t nwords, const BinnedRows &given, const index_t *__restrict__ order, const index_t *__restrict__ A_rowptr,
            const index_t *__restrict__ A_columns, const index_t *__restrict__ B_rowptr, const index_t *__restrict__ word_end,
            const Word *__restrict__ words, offset_t *__restrict__ lengths, const index_t *__restrict__ C_rowptr, index_t *__restrict__ C_columns)
{
  constexpr int        TEAMS = BITMAP_THREADS<TEAM> / TEAM;
  const GroupOfAnySize group = given.group(WARP);
  const offset_t       count = order ? given.count(given.first, given.last + 1) : (offset_t)nrows;

  if (order) order += given.count(0, given.first);
  for (offset_t block = blockIdx.x; block * TEAMS < count; block += gridDim.x) {
    const index_t                            *columns = A_columns;
    const TeamRow<TEAM, BITMAP_THREADS<TEAM>> mine(block, (index_t)count, order, A_rowptr, columns);

    if (mine.valid) // all threads of the team
      bitmap_row<TEAM, WORDS, RANGES, COLUMNS>(mine, group, nwords, columns, B_rowptr, word_end, words, lengths, C_rowptr, C_columns);
  }
}

template <int TEAM, int WORDS, int RANGES>
__global__ void __launch_bounds__(BITMAP_THREADS<TEAM>)
  spgemm_hash_bitmap_lengths(index_t nrows, index_t nwords, const BinnedRows given, const index_t *__restrict__ order,
                             const index_t *__restrict__ A_rowptr, const index_t *__restrict__ A_columns, const index_t *__restrict__ B_rowptr,
                             const index_t *__restrict__ word_end, const Word *__restrict__ words, offset_t *__restrict__ lengths, unsigned *)
{
  bitmap_rows<TEAM, WORDS, RANGES, 0>(nrows, nwords, given, order, A_rowptr, A_columns, B_rowptr, word_end, words, lengths, nullptr, nullptr);
}

template <int TEAM, int WORDS, int RANGES>
__global__ void __launch_bounds__(BITMAP_THREADS<TEAM>)
  spgemm_hash_bitmap_columns(index_t nrows, index_t nwords, const BinnedRows given, const index_t *__restrict__ order,
                             const index_t *__restrict__ A_rowptr, const index_t *__restrict__ A_columns, const index_t *__restrict__ B_rowptr,
                             const index_t *__restrict__ word_end, const Word *__restrict__ words, const index_t *__restrict__ C_rowptr,
                             index_t *__restrict__ C_columns, unsigned *)
{
  bitmap_rows<TEAM, WORDS, RANGES, 1>(nrows, nwords, given, order, A_rowptr, A_columns, B_rowptr, word_end, words, nullptr, C_rowptr, C_columns);
}
