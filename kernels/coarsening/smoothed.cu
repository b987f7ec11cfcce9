// The smoothed prolongator P = P0 + alpha D A P0 of a tentative one, where D is a diagonal (petsc_gpufmt/coarsening/smoothed.py). A row of P0 has
// the columns of one aggregate, so a row of P has those of the aggregates of its neighbours: a few, which a team of threads finds by looking at
// all neighbours for each.
#include "common/scan.cuh"

// thread blocks of a multiprocessor at least, with which nothing spills
constexpr int     COUNT_BLOCKS = 5, ROW_BLOCKS = 4;
constexpr index_t NO_AGGREGATE = index_t((~0ull >> 1) >> (64 - 8 * sizeof(index_t))); // after all others

// The matrix A and the aggregates of its nodes
struct Smoothing {
  alignas(8) index_t nrows, block, nvectors; // rows of A and of a node; columns of an aggregate
  const index_t *__restrict__ rowptr, *__restrict__ colidx, *__restrict__ aggregates;
  const index_t *__restrict__ begins; // nodes before each that belong to an aggregate; null: all do

  __device__ __forceinline__ index_t node(index_t row) const { return block == 1 ? row : row / block; }
  __device__ __forceinline__ index_t aggregate(index_t row) const { return __ldg(aggregates + node(row)); }

  // where the row of P0 begins, which belongs to an aggregate
  __device__ __forceinline__ index_t tentative(index_t row) const
  {
    const index_t of_node = node(row);

    return ((begins ? __ldg(begins + of_node) - of_node : 0) * block + row) * nvectors;
  }

  // The first aggregate after `last` among those of a row and of its neighbours, NO_AGGREGATE if there is no other. The TEAM threads of a team
  // have the same row, and get the same; all threads of the warp call it, with an empty row where there is none.
  template <int TEAM>
  __device__ __forceinline__ index_t next(index_t begin, index_t end, index_t own, index_t last) const
  {
    index_t first = own > last ? own : NO_AGGREGATE;

    for (offset_t k = (offset_t)begin + threadIdx.x % TEAM; k < end; k += TEAM) {
      const index_t candidate = aggregate(__ldg(colidx + k));

      if (candidate > last) first = min(first, candidate);
    }
    return group_min(first, TEAM);
  }

  // Calls found(aggregate) for those of a row and of its neighbours, in ascending order, by all threads of its team.
  template <int TEAM, class Found>
  __device__ __forceinline__ void each_aggregate(offset_t row, const Found found) const
  {
    const bool    exists = row < nrows;
    const index_t begin = exists ? __ldg(rowptr + row) : index_t(0), end = exists ? __ldg(rowptr + row + 1) : index_t(0);
    const index_t own  = exists ? aggregate((index_t)row) : index_t(-1);
    index_t       last = -1;

    do {
      last = next<TEAM>(begin, end, own, last);
      if (last < NO_AGGREGATE) found(last);
    } while (__any_sync(FULL_WARP, last < NO_AGGREGATE));
  }
};

// What is found, all zeros at first; a zero for each tile of the prefix sum follows.
struct Control {
  count_t nnz, ticket;
};

// counts[row + 1] = how many aggregates a row and its neighbours belong to. TEAM threads a row.
template <int BLOCK_THREADS, int TEAM>
__global__ void __launch_bounds__((BLOCK_THREADS), COUNT_BLOCKS) smoothed_count(const Smoothing smoothing, index_t *__restrict__ counts)
{
  const offset_t row   = ((offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x) / TEAM;
  index_t        count = 0;

  smoothing.each_aggregate<TEAM>(row, [&](index_t) { count++; });
  if (row < smoothing.nrows && threadIdx.x % TEAM == 0) counts[row + 1] = count;
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

// The columns of each row: those of its aggregates and of its neighbours'. TEAM threads a row.
template <int BLOCK_THREADS, int TEAM>
__global__ void __launch_bounds__((BLOCK_THREADS), ROW_BLOCKS)
  smoothed_columns(const Smoothing smoothing, const index_t *__restrict__ rowptr, index_t *__restrict__ colidx)
{
  const offset_t row = ((offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x) / TEAM;
  const index_t  n   = smoothing.nvectors;
  index_t       *to  = row < smoothing.nrows ? colidx + __ldg(rowptr + row) : colidx;

  smoothing.each_aggregate<TEAM>(row, [&](index_t aggregate) {
    for (index_t j = threadIdx.x % TEAM; j < n; j += TEAM) to[j] = aggregate * n + j;
    to += n;
  });
}

// result = P0 + alpha D A P0, entry by entry: the sum is over the neighbours in the order of their entries. TEAM threads a row have an entry of
// the result each, and read all neighbours.
template <int BLOCK_THREADS, int TEAM>
__global__ void __launch_bounds__((BLOCK_THREADS), ROW_BLOCKS)
  smoothed_values(const Smoothing smoothing, const index_t *__restrict__ rowptr, const index_t *__restrict__ colidx,
                  const scalar_t *__restrict__ values, const scalar_t *__restrict__ tentative, const scalar_t *__restrict__ diagonal, scalar_t alpha,
                  scalar_t *__restrict__ result)
{
  const offset_t row = ((offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x) / TEAM;

  if (row >= smoothing.nrows) return;
  const index_t begin = __ldg(smoothing.rowptr + row), end = __ldg(smoothing.rowptr + row + 1), last = __ldg(rowptr + row + 1),
                own = smoothing.aggregate((index_t)row);

  for (offset_t entry = (offset_t)__ldg(rowptr + row) + threadIdx.x % TEAM; entry < last; entry += TEAM) {
    const index_t column = colidx[entry], aggregate = smoothing.nvectors == 1 ? column : column / smoothing.nvectors,
                  within = column - aggregate * smoothing.nvectors;
    scalar_t      sum    = 0;

#pragma unroll 4
    for (index_t k = begin; k < end; k++) {
      const index_t neighbour = __ldg(smoothing.colidx + k);

      if (smoothing.aggregate(neighbour) == aggregate) sum += __ldg(values + k) * __ldg(tentative + smoothing.tentative(neighbour) + within);
    }
    const scalar_t before = own == aggregate ? __ldg(tentative + smoothing.tentative((index_t)row) + within) : scalar_t(0);

    result[entry] = before + alpha * (__ldg(diagonal + row) * sum);
  }
}
