// Numeric phase of the hash accumulator (spgemm/hash.py): the values of rows of C = A B whose columns are known.
#include "spgemm/hash.cuh"

constexpr int     THREADS   = 128;
constexpr index_t NO_COLUMN = sizeof(index_t) == 4 ? index_t(0x7fffffff) : index_t(0x7fffffffffffffffLL); // above all columns

struct Operand {
  const index_t *__restrict__ rowptr, *__restrict__ columns;
  const scalar_t *__restrict__ values;
};

struct Result {
  const index_t *__restrict__ rowptr, *__restrict__ columns;
  scalar_t *__restrict__ values;
};

// Blocks of a multiprocessor that run at once: 40 registers for each thread, more with 64-bit indices, and where shared memory leaves room
// for fewer threads.
template <int CAPACITY, int SPLIT>
constexpr int BLOCKS_AT_ONCE = SPLIT                  ? 10
                               : CAPACITY >= 250      ? 8
                               : sizeof(index_t) == 8 ? 9
                                                      : 12;

// What these registers hold of a thread, one of a team of GROUPS groups: the entries of B of STEPS steps, which are loaded before the first
// is looked up, and the columns that LEVELS steps of each search compare with. With more, registers are spilled.
template <int GROUPS, int ONE_STEP, int CAPACITY, int SPLIT>
struct Held {
  static constexpr bool MORE   = SPLIT || CAPACITY >= 250;
  static constexpr int  STEPS  = ONE_STEP || MORE ? 4 : 3;
  static constexpr int  LEVELS = ONE_STEP ? 1 : MORE ? (sizeof(index_t) == 4 ? 3 : 2) : GROUPS == 1 ? 2 : 1;
};

// What is taken of rows of B: the columns [first, last]; all of them without `columns`.
struct ColumnRange {
  const index_t *__restrict__ columns;
  index_t first, last;

  __device__ __forceinline__ void narrow(Factor &factor) const
  {
    if (!columns) return;
    factor.begin = partition_point(factor.begin, factor.end, [&](index_t p) { return __ldg(columns + p) < first; });
    factor.end   = partition_point(factor.begin, factor.end, [&](index_t p) { return __ldg(columns + p) <= last; });
  }
};

// The columns that the first LEVELS steps of a search among CAPACITY sorted ones compare with, in registers.
template <int CAPACITY, int LEVELS>
struct Pivots {
  static constexpr int COUNT = (1 << LEVELS) - 1;
  index_t              columns[COUNT]; // ascending

  __device__ __forceinline__ explicit Pivots(const index_t *sorted)
  {
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
      int at = 0;

#pragma unroll
      for (int level = 0, n = CAPACITY; level < LEVELS; level++, n -= n / 2)
        if ((i + 1) >> (LEVELS - 1 - level) & 1) at += n / 2;
      columns[i] = sorted[at];
    }
  }
};

// Where `column` is among CAPACITY sorted columns from byte `at` on, the first of which is not above it: its byte. Halving numbers that
// are no powers of two spreads the columns that are compared over the banks of shared memory.
template <int CAPACITY, int LEVELS>
__device__ __forceinline__ unsigned find(const index_t *columns, Pivots<CAPACITY, LEVELS> pivots, unsigned at, index_t column)
{
#pragma unroll
  for (int level = 0, n = CAPACITY; n > 1; level++, n -= n / 2) {
    const int  half  = level < LEVELS ? (1 << (LEVELS - 1 - level)) - 1 : 0; // the pivots below the middle one
    const bool above = (level < LEVELS ? pivots.columns[half] : *(const index_t *)((const char *)columns + at + n / 2 * sizeof(index_t))) <= column;

#pragma unroll
    for (int i = 0; i < half; i++)
      if (above) pivots.columns[i] = pivots.columns[half + 1 + i];
    if (above) at += n / 2 * sizeof(index_t);
  }
  return at;
}

// the sum that belongs to the column at a byte
__device__ __forceinline__ scalar_t *sum_of(scalar_t *sums, unsigned at)
{
  return (scalar_t *)((char *)sums + (sizeof(scalar_t) >= sizeof(index_t) ? at * (unsigned)(sizeof(scalar_t) / sizeof(index_t)) : at / 2));
}

// Adds the terms of the staged entries of A's row.
template <int TEAM, int GROUP, int ONE_STEP, int STEPS, int CAPACITY, int LEVELS>
// clang-format off: it would align the parameters of the two lines
__device__ __forceinline__ void add_terms(const Factor *factors, int count, const index_t *__restrict__ B_columns, const scalar_t *__restrict__ B_values,
                                          const index_t *columns, const Pivots<CAPACITY, LEVELS> &pivots, scalar_t *sums, unsigned first)
// clang-format on
{
  const int                                    group = threadIdx.x % TEAM / GROUP;
  Cursor<TEAM, ONE_STEP, Factor, Group<GROUP>> cursor(factors, count, Group<GROUP>{});

  while (__any_sync(FULL_WARP, cursor.more())) {
    index_t  column[STEPS];
    scalar_t b[STEPS];
    int      factor[STEPS];

#pragma unroll
    for (int s = 0; s < STEPS; s++) {
      const bool valid = cursor.advance();

      column[s] = valid ? __ldg(B_columns + cursor.position) : index_t(-1);
      b[s]      = valid ? __ldg(B_values + cursor.position) : scalar_t(0);
      factor[s] = cursor.current();
    }
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
      scalar_t *const sum = sum_of(sums, find(columns, pivots, first, column[s]));

#pragma unroll
      for (int g = 0; g < TEAM / GROUP; g++) {
        if (column[s] >= 0 && (TEAM == GROUP || group == g)) *sum += factors[factor[s]].value * b[s];
        __syncwarp();
      }
    }
  }
}

// What a block has in shared memory: columns, sums and entries of A's row for each of its teams.
template <int TEAM, int CAPACITY, int SPLIT>
struct Units {
  static constexpr int TEAMS  = THREADS / TEAM;
  static constexpr int UNITS  = SPLIT ? 1 : TEAMS;  // a block
  static constexpr int STRIDE = (CAPACITY | 7) + 2; // the teams of a warp begin in banks that are far apart

  index_t  columns[UNITS * STRIDE];
  scalar_t sums[TEAMS * STRIDE];
  Factor   factors[TEAMS][BATCH<TEAM> + 1]; // entry k of each team of a warp is in other banks
};

// One unit of work a team: a row of C, or, of the block's warps, CAPACITY neighbouring entries of one (SPLIT). Its columns and sums are in
// shared memory. Entry k of A's row after entry k is multiplied, each thread looking up the column of its entry of B. The entries of a step
// have different columns within a group; groups add in turn. So each sum has its terms in an order that depends on the patterns alone.
//
// SPLIT: rows of C are long where rows of A are, and all wait for the longest. Each warp takes its share of A's row, in the order of the
// row, for sums of its own, which are added up in the order of the warps. So are rows of many terms where there are few rows.
//
//   units      rows_of_units [nunits] row of C (null: unit u is row u); parts_of_units [nunits] which CAPACITY entries of it (SPLIT; null:
//              all rows have at most CAPACITY)
//   a term     12 bytes of B from the caches, log2(CAPACITY) comparisons, those after LEVELS in shared memory, one sum there
//   global     each entry of A once (SPLIT: once a unit), columns and values of C once
//
// What takes the time are accesses to shared memory, two and more where lanes meet in a bank: the teams of a warp, which often want the
// same place of their rows, have them in different banks.
template <int GROUP, int ONE_STEP, int TEAM, int CAPACITY, int SPLIT>
__device__ __forceinline__ void compute_units(Units<TEAM, CAPACITY, SPLIT> &memory, offset_t block, offset_t nunits,
                                              const index_t *__restrict__ rows_of_units, const index_t *__restrict__ parts_of_units, const Operand &A,
                                              const Operand &B, const Result &C)
{
  constexpr int SHARE   = GROUP < TEAM ? GROUP : TEAM; // threads for a row of B
  using Hold            = Held<TEAM / SHARE, ONE_STEP, CAPACITY, SPLIT>;
  constexpr int   TEAMS = Units<TEAM, CAPACITY, SPLIT>::TEAMS, STRIDE = Units<TEAM, CAPACITY, SPLIT>::STRIDE,
                  UNITS          = Units<TEAM, CAPACITY, SPLIT>::UNITS;
  index_t *const  shared_columns = memory.columns;
  scalar_t *const shared_sums    = memory.sums;
  const int       team = threadIdx.x / TEAM, lane = threadIdx.x % TEAM;
  index_t *const  columns = shared_columns + (SPLIT ? 0 : team * STRIDE);
  scalar_t *const sums    = shared_sums + team * STRIDE;
  Factor *const   factors = memory.factors[team];
  const offset_t  unit    = block * UNITS + (SPLIT ? 0 : team);
  index_t         left = 0, length = 0; // entries of A's row; entries of C in this unit
  const index_t  *A_columns = A.columns, *C_columns = C.columns;
  const scalar_t *A_values = A.values;
  scalar_t       *C_values = C.values;

  if (unit < nunits) {
    const index_t row     = rows_of_units ? __ldg(rows_of_units + unit) : (index_t)unit;
    const index_t A_begin = __ldg(A.rowptr + row);
    index_t       C_begin = __ldg(C.rowptr + row);

    left   = __ldg(A.rowptr + row + 1) - A_begin;
    length = __ldg(C.rowptr + row + 1) - C_begin;
    if constexpr (SPLIT) {
      const index_t before = parts_of_units ? __ldg(parts_of_units + unit) * CAPACITY : 0;

      C_begin += before;
      length -= before;
    }
    if (length > CAPACITY) length = CAPACITY;
    A_columns += A_begin;
    A_values += A_begin;
    if constexpr (SPLIT) { // the share of this warp
      const index_t share = (left + TEAMS - 1) / TEAMS, before = share * team < left ? share * team : left;

      A_columns += before;
      A_values += before;
      left = left - before < share ? left - before : share;
    }
    C_columns += C_begin;
    C_values += C_begin;
  }
#pragma unroll 4
  for (int i = SPLIT ? threadIdx.x : lane; i < CAPACITY; i += SPLIT ? THREADS : TEAM) columns[i] = i < length ? load_once(C_columns + i) : NO_COLUMN;
#pragma unroll 4
  for (int i = lane; i < CAPACITY; i += TEAM) sums[i] = 0;
  if constexpr (SPLIT) __syncthreads();
  else __syncwarp();
  const Pivots<CAPACITY, Hold::LEVELS> pivots(columns);

  for (; __any_sync(FULL_WARP, left > 0); left = left > BATCH<TEAM> ? left - BATCH<TEAM> : 0, A_columns += BATCH<TEAM>, A_values += BATCH<TEAM>) {
    int count;

    if constexpr (SPLIT) {
      const ColumnRange range{parts_of_units ? B.columns : nullptr, columns[0], columns[length > 0 ? length - 1 : 0]};

      count = stage<TEAM>(factors, left, A_columns, A_values, B.rowptr, B.rowptr + 1, range);
    } else count = stage<TEAM>(factors, left, A_columns, A_values, B.rowptr, B.rowptr + 1, WholeRows{});
    add_terms<TEAM, SHARE, ONE_STEP, Hold::STEPS>(factors, count, B.columns, B.values, shared_columns, pivots, SPLIT ? sums : shared_sums,
                                                  SPLIT ? 0 : team * STRIDE * sizeof(index_t));
  }
  if constexpr (SPLIT) {
    __syncthreads();
    for (int i = threadIdx.x; i < length; i += THREADS) {
      scalar_t sum = shared_sums[i];

#pragma unroll
      for (int t = 1; t < TEAMS; t++) sum += shared_sums[t * STRIDE + i];
      __stcs(C_values + i, sum);
    }
    return;
  }
  __syncwarp();
#pragma unroll 4
  for (int i = lane; i < CAPACITY; i += TEAM)
    if (i < length) __stcs(C_values + i, sums[i]);
}

template <int TEAM, int GROUP, int ONE_STEP, int CAPACITY, int SPLIT>
__global__ void __launch_bounds__(THREADS, BLOCKS_AT_ONCE<CAPACITY, SPLIT>)
  spgemm_hash_values(offset_t nunits, const index_t *__restrict__ rows_of_units, const index_t *__restrict__ parts_of_units, const Operand A,
                     const Operand B, const Result C, scalar_t *)
{
  __shared__ Units<TEAM, CAPACITY, SPLIT> memory;

  compute_units<GROUP, ONE_STEP>(memory, blockIdx.x, nunits, rows_of_units, parts_of_units, A, B, C);
}

// Rows of all lengths in one launch, for products too small to fill the device with rows of one bin: `rows` has n500 rows of at most 500
// entries, then n250 of at most 250, and so on. SHARED: each of those above 63 entries is shared by the warps of a block.
template <int GROUP, int SHARED>
__global__ void __launch_bounds__(THREADS, 8)
  spgemm_hash_values_together(offset_t n500, offset_t n250, offset_t n125, offset_t n63, offset_t n32, offset_t n16, const index_t *__restrict__ rows,
                              const Operand A, const Operand B, const Result C)
{
  __shared__ union {
    Units<32, 500, SHARED> to500;
    Units<32, 250, SHARED> to250;
    Units<32, 125, SHARED> to125;
    Units<16, 63, 0>       to63;
    Units<8, 32, 0>        to32;
    Units<4, 16, 0>        to16;
  } memory;
  offset_t   block    = blockIdx.x; // among those of one length
  const auto computes = [&](auto &units, offset_t nrows) {
    const offset_t blocks = (nrows + units.UNITS - 1) / units.UNITS;
    const bool     mine   = block < blocks;

    if (mine) compute_units<GROUP, 0>(units, block, nrows, rows, (const index_t *)nullptr, A, B, C);
    else {
      block -= blocks;
      rows += nrows;
    }
    return mine;
  };

  computes(memory.to500, n500) || computes(memory.to250, n250) || computes(memory.to125, n125) || computes(memory.to63, n63) ||
    computes(memory.to32, n32) || computes(memory.to16, n16);
}
