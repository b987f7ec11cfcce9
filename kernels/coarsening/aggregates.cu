// Aggregates of the rows of a graph: independent sets of roots, and the root of each other row (petsc_gpufmt/coarsening/aggregates.py).
//
// The roots are those that a greedy algorithm finds which visits the rows in a given order. It makes a row a root if no root is within the
// distance, 1 or 2. Rounds find the same: a row becomes a root once it comes before all undecided rows within the distance, and is none
// once a root is there. A row is a neighbour of itself, and rows at distance 2 are neighbours of neighbours: each row notes the largest word of
// its neighbours, and the largest of what its neighbours have noted is that within distance 2.
//   words [nrows]      what is known of each row: 0, it is no root; else how many rows the order has from it on, with the bit ROOT if it is a
//                      root. So the largest of some words is that of the root that comes first, or else of the undecided row that does.
//   nearest [nrows]    the largest word of a row's neighbours
#include "coarsening/root.cuh"
#include "common/scan.cuh"

// Thread blocks of a multiprocessor at least, with which nothing spills
constexpr int VISIT_BLOCKS = 5;

struct Graph {
  alignas(8) index_t nrows;
  const index_t *__restrict__ rowptr, *__restrict__ colidx;

  // Whether a row has no neighbour but itself
  __device__ __forceinline__ bool alone(index_t row) const { return __ldg(rowptr + row + 1) - __ldg(rowptr + row) < 2; }
};

// The rows that a launch visits, and which of them it keeps for the next round
struct Visit {
  const index_t *__restrict__ rows;  // null: all rows of the graph
  const count_t *__restrict__ count; // of `rows`
  index_t *__restrict__ kept;        // null: none are
  count_t *nkept, *cleared;          // how many are kept, 0 at first; the same of the round after, which becomes 0
};

// What is found, all zeros at first; a zero for each tile of the prefix sum follows.
struct Control {
  count_t rounds, naggregates;
  count_t outside, missing; // not 0: the order has a number that is no row, a row is not in the order
  count_t ticket;
};

// The largest word of the neighbours of each thread's row, 0 for row -1. The TEAM threads of a team read their rows one after another. All
// threads of the warp call it.
template <int TEAM>
__device__ __forceinline__ word_t largest_of_neighbours(const Graph &graph, index_t row, const word_t *__restrict__ words)
{
  const index_t begin = row >= 0 ? __ldg(graph.rowptr + row) : index_t(0), end = row >= 0 ? __ldg(graph.rowptr + row + 1) : index_t(0);
  const int     lane   = threadIdx.x % TEAM;
  word_t        result = 0;

#pragma unroll 4
  for (int member = 0; member < TEAM; member++) {
    const index_t first = __shfl_sync(FULL_WARP, begin, member, TEAM), last = __shfl_sync(FULL_WARP, end, member, TEAM);
    word_t        largest = 0;

    for (offset_t k = (offset_t)first + lane; k < last; k += TEAM) largest = max(largest, __ldg(words + __ldg(graph.colidx + k)));
    largest = group_max(largest, TEAM);
    if (lane == member) result = largest;
  }
  return result;
}

// Calls stays(row) for each row of a visit, by all threads of a warp at a time, with row -1 where there is none; those for which it holds are
// kept, in the order in which blocks come. All threads of the block call it.
template <int BLOCK_THREADS, class Stays>
__device__ __forceinline__ void visit_rows(const Graph &graph, const Visit &visit, const Stays stays)
{
  constexpr int      WARPS = BLOCK_THREADS / WARP;
  __shared__ count_t places[WARPS]; // of the first row that each warp keeps
  const int          lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  const offset_t     count = visit.rows ? (offset_t)*visit.count : (offset_t)graph.nrows;

  if (blockIdx.x == 0 && threadIdx.x == 0) *visit.cleared = 0;
  for (offset_t first = (offset_t)blockIdx.x * BLOCK_THREADS; first < count; first += (offset_t)gridDim.x * BLOCK_THREADS) {
    const offset_t i    = first + threadIdx.x;
    const index_t  row  = i >= count ? index_t(-1) : visit.rows ? visit.rows[i] : (index_t)i;
    const unsigned keep = __ballot_sync(FULL_WARP, stays(row));

    if (!visit.kept) continue;
    if (lane == 0) places[warp] = __popc(keep);
    __syncthreads();
    if (threadIdx.x == 0) {
      count_t total = 0;

      for (int w = 0; w < WARPS; w++) total += places[w];
      count_t place = total ? atomicAdd(visit.nkept, total) : count_t(0);

      for (int w = 0; w < WARPS; w++) {
        const count_t of_warp = places[w];

        places[w] = place;
        place += of_warp;
      }
    }
    __syncthreads();
    if (keep >> lane & 1) visit.kept[places[warp] + __popc(keep & ((1u << lane) - 1))] = row;
    __syncthreads();
  }
}

// words[order[k]] = nrows - k. A thread a row.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS)
  aggregates_order(index_t nrows, const index_t *__restrict__ order, word_t *__restrict__ words, Control *__restrict__ control)
{
  const offset_t k = (offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x;

  if (k >= nrows) return;
  const index_t row = order[k];

  if (row >= 0 && row < nrows) words[row] = (word_t)(nrows - k);
  else control->outside = 1; // all threads that write, write the same
}

// nearest[row] = largest word of its neighbours, for the rows of a visit; those are kept whose neighbours are no roots, and not all decided.
// Threads: a row each, TEAM of them share the reading, in turns.
template <int BLOCK_THREADS, int TEAM>
__global__ void __launch_bounds__((BLOCK_THREADS), VISIT_BLOCKS)
  aggregates_nearest(const Graph graph, const Visit visit, const word_t *__restrict__ words, word_t *__restrict__ nearest)
{
  visit_rows<BLOCK_THREADS>(graph, visit, [&](index_t row) {
    const word_t largest = largest_of_neighbours<TEAM>(graph, row, words);

    if (row >= 0) nearest[row] = largest;
    return largest > 0 && largest < ROOT;
  });
}

// Decides on the undecided rows of a visit; those are kept on which it does not. The first visit is to all rows. Threads as of
// aggregates_nearest.
template <int BLOCK_THREADS, int TEAM>
__global__ void __launch_bounds__((BLOCK_THREADS), VISIT_BLOCKS)
  aggregates_decide(const Graph graph, const Visit visit, int distance, const word_t *__restrict__ nearest, word_t *words, Control *control)
{
  if (blockIdx.x == 0 && threadIdx.x == 0 && (!visit.rows || *visit.count)) control->rounds++;
  visit_rows<BLOCK_THREADS>(graph, visit, [&](index_t row) {
    const word_t largest = distance == 2 ? largest_of_neighbours<TEAM>(graph, row, nearest) : row >= 0 ? nearest[row] : word_t(0);

    if (row < 0) return false;
    const word_t word = words[row];

    if (word == 0) control->missing = 1; // all threads that write, write the same
    if (largest >= ROOT || (!visit.rows && graph.alone(row))) words[row] = 0;
    else if (largest <= word) words[row] = word | ROOT;
    else return true;
    return false;
  });
}

// aggregates[row] = how many roots come before it, for each root. A warp counts ITEMS times 32 rows.
template <int ITEMS>
__global__ void __launch_bounds__(SCAN_THREADS)
  aggregates_number(offset_t nrows, const word_t *__restrict__ words, index_t *__restrict__ aggregates, Control *control)
{
  __shared__ BlockScan scan;

  prefix_sums<ITEMS>(
    scan, &control->ticket, (count_t *)(control + 1), nrows, [&](offset_t row) { return words[row] >= ROOT; },
    [&](offset_t row, count_t before, count_t up_to) {
      if (up_to > before) aggregates[row] = (index_t)before;
      if (row == nrows - 1) control->naggregates = up_to;
    });
}

// aggregates[row] = that of the root among its neighbours that comes first; at distance 2, if there is none, that of the first among their
// neighbours; -1 if there is none either. turns[row] = 0 for a root, 1 for a row whose root is the first within the distance, else 2: in this
// order agg has the rows of an aggregate; null: at distance 1 it has them in theirs. Threads as of aggregates_nearest.
template <int BLOCK_THREADS, int TEAM>
__global__ void __launch_bounds__((BLOCK_THREADS), VISIT_BLOCKS)
  aggregates_assign(const Graph graph, int                       distance, const index_t *__restrict__ order, const word_t *__restrict__ words,
                    const word_t *__restrict__ nearest, index_t *aggregates, unsigned char *__restrict__ turns)
{
  const offset_t step = (offset_t)gridDim.x * BLOCK_THREADS;

  for (offset_t first = (offset_t)blockIdx.x * BLOCK_THREADS; first < graph.nrows; first += step) {
    const offset_t i       = first + threadIdx.x;
    const bool     decided = i >= graph.nrows || words[i] >= ROOT;
    const word_t   noted   = decided ? word_t(0) : nearest[i];
    const word_t   largest = distance == 2 ? largest_of_neighbours<TEAM>(graph, decided ? index_t(-1) : (index_t)i, nearest) : word_t(0);
    const word_t   root    = noted >= ROOT ? noted : largest;

    if (!decided) aggregates[i] = root >= ROOT ? aggregates[__ldg(order + (graph.nrows - (offset_t)(root - ROOT)))] : index_t(-1);
    if (turns && i < graph.nrows) turns[i] = decided ? 0 : noted >= ROOT && largest != noted ? 2 : 1;
  }
}
