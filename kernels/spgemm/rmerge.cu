// Row merging (Gremse et al. 2015, section 2.2): a row of the result is the merge of at most WIDTH sorted rows of the right factor, one
// for each thread of a sub-warp. Each step takes the smallest front column of the sub-warp; the rows that have it move on.
//
// Result
//   starts [count]      where row i begins in out_columns and out_values
//   lengths [count]     its number of columns
// No shared memory, no atomics. All threads of a warp take all steps: shuffles need them.
#include "common/reduce.cuh"
#include "common/search.cuh"

constexpr int     BLOCK_THREADS = 128;
constexpr index_t NO_COLUMN     = sizeof(index_t) == 4 ? index_t(0x7fffffff) : index_t(0x7fffffffffffffff); // above all columns

struct Factors {
  // left factor, `count` rows (petsc_gpufmt/spgemm/rmerge.py): row i has the entries begin[i] .. end[i], at most WIDTH
  alignas(8) index_t count;
  const index_t *__restrict__ begin, *__restrict__ end;
  const index_t *__restrict__ columns;  // of each entry, that is a row of the right factor; null: the number of the entry
  const scalar_t *__restrict__ weights; // value of each entry; null: 1
  // right factor in CSR, sorted; only columns in [col_begin, col_end) are merged
  const index_t *__restrict__ right_rowptr, *__restrict__ right_columns;
  const scalar_t *__restrict__ right_values;
  alignas(8) index_t col_begin, col_end, ncols;
};

// Smallest over aligned groups of WIDTH threads, in each of them
template <int WIDTH>
__device__ __forceinline__ index_t smallest_column(index_t column)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if constexpr (WIDTH == 32 && sizeof(index_t) == 4) return __reduce_min_sync(FULL_WARP, (int)column);
  else
#endif
    return group_min(column, WIDTH);
}

// What a thread merges: a row of the right factor. The next entry has been loaded before it is needed.
template <bool VALUES>
struct RightRow {
  index_t  position, end; // of the entry after the next, and of the end of the row
  index_t  front, next;   // columns, NO_COLUMN past the end
  scalar_t weight, front_value, next_value;

  // the row of the entry of `lane` in row i of the left factor, or an empty one
  __device__ __forceinline__ RightRow(const Factors &f, offset_t i, int lane)
  {
    offset_t entry = 0, entries_end = 0;

    if (i < f.count) {
      entry       = (offset_t)__ldg(f.begin + i) + lane;
      entries_end = __ldg(f.end + i);
    }
    position = end = 0;
    if (entry < entries_end) {
      const index_t row = f.columns ? __ldg(f.columns + entry) : (index_t)entry;

      if (VALUES) weight = f.weights ? __ldg(f.weights + entry) : scalar_t(1);
      position = __ldg(f.right_rowptr + row);
      end      = __ldg(f.right_rowptr + row + 1);
      if (f.col_begin > 0) position = partition_point(position, end, [&](index_t p) { return __ldg(f.right_columns + p) < f.col_begin; });
      if (f.col_end < f.ncols) end = partition_point(position, end, [&](index_t p) { return __ldg(f.right_columns + p) < f.col_end; });
    }
    front = next = NO_COLUMN;
    move_on(f, true);
    move_on(f, true);
  }

  // Written so that it compiles to predicated instructions without a branch
  __device__ __forceinline__ void move_on(const Factors &f, bool taken)
  {
    const bool more = taken && position < end;

    if (taken) {
      front = next;
      next  = NO_COLUMN;
      if (VALUES) front_value = next_value;
    }
    if (more) {
      next = __ldg(f.right_columns + position);
      if (VALUES) next_value = __ldg(f.right_values + position);
    }
    position += more;
  }

  // The term of `column`, 0 if there is none; columns must be taken in order
  __device__ __forceinline__ scalar_t take(const Factors &f, index_t column)
  {
    const bool     taken = front == column;
    const scalar_t term  = taken ? weight * front_value : scalar_t(0);

    move_on(f, taken);
    return term;
  }
};

// The steps that are taken before threads store what these gave: a thread of the first STEPS<WIDTH> stores one column or sum.
template <int WIDTH>
constexpr int STEPS = WIDTH < 4 ? WIDTH : 4;

// Merges columns; stores them if STORE, else counts them. Bytes: each merged row of the right factor once, from cache where rows of the left one share it.
template <int WIDTH, bool STORE>
__device__ __forceinline__ void merge_columns(const Factors &f, const index_t *__restrict__ starts, index_t *__restrict__ out_columns,
                                              offset_t *__restrict__ lengths)
{
  const offset_t  i    = ((offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x) / WIDTH;
  const int       lane = threadIdx.x % WIDTH;
  RightRow<false> right(f, i, lane);
  index_t         found = 0, smallest; // columns that came to this thread

  if (STORE && i < f.count) out_columns += (offset_t)starts[i] + lane;
  do {
    index_t mine = NO_COLUMN;

#pragma unroll
    for (int step = 0; step < STEPS<WIDTH>; step++) {
      smallest = smallest_column<WIDTH>(right.front);
      right.move_on(f, right.front == smallest);
      if (lane == step) mine = smallest;
    }
    if (mine != NO_COLUMN) {
      if (STORE) *out_columns = mine;
      else found++;
    }
    if (STORE) out_columns += STEPS<WIDTH>;
  } while (__any_sync(FULL_WARP, smallest != NO_COLUMN));
  if constexpr (!STORE) {
    found = group_sum(found, WIDTH);
    if (lane == 0 && i < f.count) lengths[i] = found;
  }
}

// lengths[i] = number of columns of row i
template <int WIDTH>
__global__ void __launch_bounds__(BLOCK_THREADS) rmerge_lengths(const Factors f, offset_t *__restrict__ lengths)
{
  merge_columns<WIDTH, false>(f, nullptr, nullptr, lengths);
}

// The columns of row i from out_columns[starts[i]] on
template <int WIDTH>
__global__ void __launch_bounds__(BLOCK_THREADS)
  rmerge_columns(const Factors f, const index_t *__restrict__ starts, index_t *__restrict__ out_columns)
{
  merge_columns<WIDTH, true>(f, starts, out_columns, nullptr);
}

// Sums over aligned groups of WIDTH threads of STEPS numbers in each: number `lane` % STEPS comes out in thread `lane`. Threads halve
// what they hold with each exchange, and only then add up one number each; the tree of additions is fixed.
template <int WIDTH>
__device__ __forceinline__ scalar_t group_sums(scalar_t (&sums)[STEPS<WIDTH>], int lane)
{
#pragma unroll
  for (int half = STEPS<WIDTH> / 2; half > 0; half /= 2) {
    const bool upper = lane & half;

#pragma unroll
    for (int k = 0; k < half; k++) {
      const scalar_t kept = upper ? sums[k + half] : sums[k], given = upper ? sums[k] : sums[k + half];

      sums[k] = kept + __shfl_xor_sync(FULL_WARP, given, half);
    }
  }
#pragma unroll
  for (int half = STEPS<WIDTH>; half < WIDTH; half *= 2) sums[0] += __shfl_xor_sync(FULL_WARP, sums[0], half);
  return sums[0];
}

// The columns and sums of row i from out_columns[starts[i]] and out_values[starts[i]] on
template <int WIDTH>
__global__ void __launch_bounds__(BLOCK_THREADS)
  rmerge_columns_values(const Factors f, const index_t *__restrict__ starts, index_t *__restrict__ out_columns, scalar_t *__restrict__ out_values)
{
  const offset_t i    = ((offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x) / WIDTH;
  const int      lane = threadIdx.x % WIDTH;
  RightRow<true> right(f, i, lane);
  offset_t       place = lane;
  index_t        smallest;

  if (i < f.count) place += starts[i];
  do {
    index_t  mine = NO_COLUMN;
    scalar_t sums[STEPS<WIDTH>];

#pragma unroll
    for (int step = 0; step < STEPS<WIDTH>; step++) {
      smallest   = smallest_column<WIDTH>(right.front);
      sums[step] = right.take(f, smallest);
      if (lane == step) mine = smallest;
    }
    const scalar_t sum = group_sums<WIDTH>(sums, lane);

    if (mine != NO_COLUMN) {
      out_columns[place] = mine;
      out_values[place]  = sum;
    }
    place += STEPS<WIDTH>;
  } while (__any_sync(FULL_WARP, smallest != NO_COLUMN));
}

// The sums of row i, whose columns are known: those at known_columns[starts[i]] .. known_columns[ends[i]] take the place of minima, so
// that no step waits for the one before. The rest is as above.
template <int WIDTH>
__global__ void __launch_bounds__(BLOCK_THREADS) rmerge_values(const Factors f, const index_t *__restrict__ starts, const index_t *__restrict__ ends,
                                                               const index_t *__restrict__ known_columns, scalar_t *__restrict__ out_values)
{
  const offset_t i    = ((offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x) / WIDTH;
  const int      lane = threadIdx.x % WIDTH;
  RightRow<true> right(f, i, lane);
  offset_t       place = 0, left = 0; // of this thread's column, and how many columns there are from it on
  index_t        mine = NO_COLUMN;

  if (i < f.count) {
    place = (offset_t)starts[i] + lane;
    left  = ends[i] - place;
  }
  if (lane >= STEPS<WIDTH>) left = 0; // these threads keep no column
  if (left > 0) mine = load_once(known_columns + place);
  while (__any_sync(FULL_WARP, left > 0)) {
    const index_t now = mine;
    scalar_t      sums[STEPS<WIDTH>];

    mine = NO_COLUMN;
    if (left > STEPS<WIDTH>) mine = load_once(known_columns + place + STEPS<WIDTH>);
#pragma unroll
    for (int step = 0; step < STEPS<WIDTH>; step++) sums[step] = right.take(f, __shfl_sync(FULL_WARP, now, step, WIDTH));
    const scalar_t sum = group_sums<WIDTH>(sums, lane);

    if (left > 0) out_values[place] = sum;
    place += STEPS<WIDTH>;
    left -= STEPS<WIDTH>;
  }
}
