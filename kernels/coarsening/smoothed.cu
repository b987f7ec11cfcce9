// The smoothed prolongator P = P0 + alpha D A P0 of a tentative one, where D is a diagonal (petsc_gpufmt/coarsening/smoothed.py). A row of P0 has
// the columns of one aggregate, so a row of P has those of the aggregates of its neighbours: a few, which a team of threads finds by looking at
// all neighbours for each. On several ranks A and P have BLOCKS = 2 blocks of columns: those of this rank, and those of others.
#include "common/scan.cuh"
#include "common/search.cuh"

// thread blocks of a multiprocessor at least, with which nothing spills
constexpr int     COUNT_BLOCKS = 5, ROW_BLOCKS = 4;
constexpr index_t NO_AGGREGATE = index_t((~0ull >> 1) >> (64 - 8 * sizeof(index_t))); // after all others

// where the entries of a row lie in both blocks of A
struct Places {
  index_t begin, end, other_begin, other_end;
};

// The matrix A and the aggregates of its nodes. With two blocks these are counted through all ranks, nodes are rows, and column k of the second
// block is row nrows + k.
template <int BLOCKS>
struct Smoothing {
  alignas(8) index_t nrows, block, nvectors; // rows of A and of a node; columns of an aggregate
  const index_t *__restrict__ rowptr, *__restrict__ colidx, *__restrict__ aggregates;
  const index_t *__restrict__ begins; // nodes before each that belong to an aggregate; null: all do, or P0 has room for all
  // with two blocks
  offset_t first, naggregates;                                          // aggregates of this rank: first, first + 1, ...
  const index_t *__restrict__ other_rowptr, *__restrict__ other_colidx; // null: there are none
  alignas(8) index_t nlow, nghosts;                                     // columns of them that are rows of ranks before this one
  const index_t *__restrict__ ghosts;                                   // [nghosts] aggregates of other ranks in P, ascending

  __device__ __forceinline__ index_t node(index_t row) const { return block == 1 ? row : row / block; }
  __device__ __forceinline__ index_t aggregate(offset_t row) const { return __ldg(aggregates + (BLOCKS > 1 ? row : (offset_t)node((index_t)row))); }
  __device__ __forceinline__ bool    is_here(index_t number) const { return BLOCKS == 1 || (number >= first && number < first + naggregates); }

  // where the row of P0 begins, which belongs to an aggregate
  __device__ __forceinline__ offset_t tentative(offset_t row) const
  {
    if constexpr (BLOCKS > 1) return row * nvectors;
    const index_t of_node = node((index_t)row);

    return ((begins ? __ldg(begins + of_node) - of_node : 0) * block + (index_t)row) * nvectors;
  }

  __device__ __forceinline__ Places places(offset_t row) const
  {
    Places of_row = {0, 0, 0, 0};

    if (row < nrows) {
      of_row.begin = __ldg(rowptr + row);
      of_row.end   = __ldg(rowptr + row + 1);
      if (BLOCKS > 1 && other_rowptr) {
        of_row.other_begin = __ldg(other_rowptr + row);
        of_row.other_end   = __ldg(other_rowptr + row + 1);
      }
    }
    return of_row;
  }

  // the row of the arrays that the column of an entry in the second block is
  __device__ __forceinline__ offset_t other(offset_t k) const { return (offset_t)nrows + __ldg(other_colidx + k); }

  // The first aggregate after `last` among those of a row and of its neighbours, NO_AGGREGATE if there is no other. The TEAM threads of a team
  // have the same row, and get the same; all threads of the warp call it, with no places where there is no row.
  template <int TEAM>
  __device__ __forceinline__ index_t next(const Places &row, index_t own, index_t last) const
  {
    index_t    after = own > last ? own : NO_AGGREGATE;
    const auto look  = [&](index_t candidate) {
      if (candidate > last) after = min(after, candidate);
    };

    for (offset_t k = (offset_t)row.begin + threadIdx.x % TEAM; k < row.end; k += TEAM) look(aggregate(__ldg(colidx + k)));
    if constexpr (BLOCKS > 1)
#pragma unroll 1 // few rows have any
      for (offset_t k = (offset_t)row.other_begin + threadIdx.x % TEAM; k < row.other_end; k += TEAM) look(aggregate(other(k)));
    return group_min(after, TEAM);
  }

  // Calls found(aggregate) for those of a row and of its neighbours, in ascending order, by all threads of its team.
  template <int TEAM, class Found>
  __device__ __forceinline__ void each_aggregate(offset_t row, const Found found) const
  {
    const Places  of_row = places(row);
    const index_t own    = row < nrows ? aggregate(row) : index_t(-1);
    index_t       last   = -1;

    do {
      last = next<TEAM>(of_row, own, last);
      if (last < NO_AGGREGATE) found(last);
    } while (__any_sync(FULL_WARP, last < NO_AGGREGATE));
  }
};

// What is found, all zeros at first; a zero for each tile of the prefix sum follows.
struct Control {
  count_t nnz, ticket;
};

// counts[row + 1], other_counts[row + 1] = how many aggregates of this rank, and of others, a row and its neighbours belong to. TEAM threads a row.
template <int BLOCK_THREADS, int TEAM, int BLOCKS>
__global__ void __launch_bounds__((BLOCK_THREADS), (BLOCKS > 1 ? ROW_BLOCKS : COUNT_BLOCKS))
  smoothed_count(const Smoothing<BLOCKS> smoothing, index_t *__restrict__ counts, index_t *__restrict__ other_counts)
{
  const offset_t row   = ((offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x) / TEAM;
  index_t        count = 0, others = 0;

  smoothing.template each_aggregate<TEAM>(row, [&](index_t aggregate) {
    if (smoothing.is_here(aggregate)) count++;
    else others++;
  });
  if (row >= smoothing.nrows || threadIdx.x % TEAM) return;
  counts[row + 1] = count;
  if constexpr (BLOCKS > 1) other_counts[row + 1] = others;
}

// Sums up to each row in the place of the counts, each times `nvectors`; word 0 becomes 0. A warp adds up ITEMS times 32 rows.
template <int ITEMS>
__global__ void __launch_bounds__(SCAN_THREADS) smoothed_row_pointer(offset_t nrows, index_t nvectors, index_t *counts, Control *control)
{
  __shared__ BlockScan scan;

  prefix_sums<ITEMS>(
    scan, &control->ticket, (count_t *)(control + 1), nrows, [&](offset_t row) { return (count_t)counts[row + 1] * nvectors; },
    [&](offset_t row, count_t, count_t up_to) {
      if (row == 0) counts[0] = 0;
      counts[row + 1] = (index_t)up_to;
      if (row == nrows - 1) control->nnz = up_to;
    });
}

// The columns of each row: those of its aggregates and of its neighbours', in each block of P. TEAM threads a row.
template <int BLOCK_THREADS, int TEAM, int BLOCKS>
__global__ void __launch_bounds__((BLOCK_THREADS), ROW_BLOCKS)
  smoothed_columns(const Smoothing<BLOCKS> smoothing, const index_t *__restrict__ rowptr, index_t *__restrict__ colidx,
                   const index_t *__restrict__ other_rowptr, index_t *__restrict__ other_colidx)
{
  const offset_t row    = ((offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x) / TEAM;
  const bool     exists = row < smoothing.nrows;
  const index_t  n      = smoothing.nvectors;
  index_t       *to     = exists ? colidx + __ldg(rowptr + row) : colidx;
  index_t       *others = BLOCKS > 1 && exists ? other_colidx + __ldg(other_rowptr + row) : other_colidx;
  const auto     write  = [&](index_t *&place, index_t aggregate) {
    for (index_t j = threadIdx.x % TEAM; j < n; j += TEAM) place[j] = aggregate * n + j;
    place += n;
  };

  smoothing.template each_aggregate<TEAM>(row, [&](index_t aggregate) {
    if (smoothing.is_here(aggregate)) write(to, BLOCKS > 1 ? index_t(aggregate - smoothing.first) : aggregate);
    else write(others, partition_point(index_t(0), smoothing.nghosts, [&](index_t g) { return __ldg(smoothing.ghosts + g) < aggregate; }));
  });
}

// result = P0 + alpha D A P0 in block `which` of P, entry by entry: the sum is over the neighbours in the order of their columns among those of all
// ranks. TEAM threads a row have an entry of the result each, and read all neighbours.
template <int BLOCK_THREADS, int TEAM, int BLOCKS>
__global__ void __launch_bounds__((BLOCK_THREADS), ROW_BLOCKS)
  smoothed_values(const Smoothing<BLOCKS> smoothing, int which, const index_t *__restrict__ rowptr, const index_t *__restrict__ colidx,
                  const scalar_t *__restrict__ values, const scalar_t *__restrict__ other_values, const scalar_t *__restrict__ tentative,
                  const scalar_t *__restrict__ diagonal, scalar_t alpha, scalar_t *__restrict__ result)
{
  const offset_t row = ((offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x) / TEAM;

  if (row >= smoothing.nrows) return;
  const Places  of_row = smoothing.places(row);
  const index_t last = __ldg(rowptr + row + 1), own = smoothing.aggregate(row), n = smoothing.nvectors;

  for (offset_t entry = (offset_t)__ldg(rowptr + row) + threadIdx.x % TEAM; entry < last; entry += TEAM) {
    const index_t column = colidx[entry], in_block = n == 1 ? column : column / n, within = column - in_block * n;
    index_t       aggregate = in_block;
    offset_t      other     = of_row.other_begin;
    scalar_t      sum       = 0;
    const auto    add       = [&](offset_t neighbour, const scalar_t *value) {
      if (smoothing.aggregate(neighbour) == aggregate) sum += __ldg(value) * __ldg(tentative + smoothing.tentative(neighbour) + within);
    };

    if constexpr (BLOCKS > 1) {
      aggregate = which ? __ldg(smoothing.ghosts + in_block) : index_t(smoothing.first + in_block);
      for (; other < of_row.other_end && __ldg(smoothing.other_colidx + other) < smoothing.nlow; other++)
        add(smoothing.other(other), other_values + other);
    }
#pragma unroll 4
    for (index_t k = of_row.begin; k < of_row.end; k++) add(__ldg(smoothing.colidx + k), values + k);
    if constexpr (BLOCKS > 1)
      for (; other < of_row.other_end; other++) add(smoothing.other(other), other_values + other);
    const scalar_t before = own == aggregate ? __ldg(tentative + smoothing.tentative(row) + within) : scalar_t(0);

    result[entry] = before + alpha * (__ldg(diagonal + row) * sum);
  }
}
