// Aggregates of a graph whose rows lie on several ranks (petsc_gpufmt/coarsening/parallel_aggregates.py), by the rounds of aggregates.cu.
//
// Rows come in the order of a hash of their numbers, which all ranks know. A rank has rows that follow each other, and knows of the rows of
// others that are next to these: its ghosts. An array has an entry for each row of the rank, then one for each ghost, which its own rank sends
// between two launches.
//   words      what is known of each row
//   nearest    the largest word of its neighbours; a row is a neighbour of itself
//   numbers    its aggregate, counted through all ranks; -1: none so far
#include "coarsening/root.cuh"
#include "common/scan.cuh"

// Thread blocks of a multiprocessor at least, with which nothing spills
constexpr int VISIT_BLOCKS = 5;

struct Graph {
  alignas(8) index_t nrows;
  const index_t *__restrict__ rowptr, *__restrict__ colidx;             // columns of this rank
  const index_t *__restrict__ ghost_rowptr, *__restrict__ ghost_colidx; // ghosts; null: there are none

  // Calls visit(neighbour) for each neighbour of a row, by the TEAM threads of a team in turns; none for a row beyond the last.
  template <int TEAM, class Visit>
  __device__ __forceinline__ void neighbours(offset_t row, const Visit visit) const
  {
    const int lane = threadIdx.x % TEAM;

    if (row >= nrows) return;
    for (offset_t k = (offset_t)__ldg(rowptr + row) + lane, end = __ldg(rowptr + row + 1); k < end; k += TEAM) visit(__ldg(colidx + k));
    if (!ghost_rowptr) return;
    for (offset_t k = (offset_t)__ldg(ghost_rowptr + row) + lane, end = __ldg(ghost_rowptr + row + 1); k < end; k += TEAM)
      visit((offset_t)nrows + __ldg(ghost_colidx + k));
  }

  // Whether a row has no neighbour but itself
  __device__ __forceinline__ bool alone(offset_t row) const
  {
    const offset_t entries = (offset_t)rowptr[row + 1] - rowptr[row];

    return entries + (ghost_rowptr ? (offset_t)ghost_rowptr[row + 1] - ghost_rowptr[row] : 0) < 2;
  }

  // The largest word of the neighbours of a row, in all threads of its team. All threads of the warp call it.
  template <int TEAM>
  __device__ __forceinline__ word_t largest(offset_t row, const word_t *__restrict__ words) const
  {
    word_t result = 0;

    neighbours<TEAM>(row, [&](offset_t neighbour) { result = max(result, __ldg(words + neighbour)); });
    return group_max(result, TEAM);
  }
};

// What is found, all zeros at first; a zero for each tile of the prefix sum follows.
struct Control {
  count_t undecided, roots; // rows after a round, rows so far
  count_t ticket;
};

// A number below ROOT for each row, not 0, and another one for each: steps that can be undone mix its bits
__device__ __forceinline__ word_t hash_of(offset_t number)
{
  constexpr int                HALF      = 4 * sizeof(word_t);
  constexpr unsigned long long FACTORS[] = {0x9e3779b97f4a7c15ull, 0x6a09e667f3bcc909ull, 0xbb67ae8584caa73bull};
  word_t                       word      = (word_t)number + 1;

#pragma unroll
  for (int k = 0; k < 3; k++) word = (word ^ word >> HALF) * (word_t)FACTORS[k] & (ROOT - 1);
  return word ^ word >> HALF;
}

// words[row] = hash of its number, 0 for rows that have no neighbour. A thread a row.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS)
  parallel_words(const Graph graph, offset_t first, word_t *__restrict__ words, word_t *__restrict__ nearest)
{
  const offset_t row = (offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x;

  if (row < graph.nrows) words[row] = nearest[row] = graph.alone(row) ? word_t(0) : hash_of(first + row);
}

__device__ __forceinline__ count_t mix(count_t bits)
{
  bits ^= bits >> 32;
  bits *= 0x9e3779b97f4a7c15ull;
  bits ^= bits >> 29;
  bits *= 0x6a09e667f3bcc909ull;
  return bits ^ bits >> 32;
}

// sum += hash(i, j) - hash(j, i) for all entries (i, j) whose columns are ghosts: over all ranks 0 if these are symmetric, and hardly
// otherwise. A thread a row.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS)
  parallel_asymmetry(const Graph graph, offset_t first, const index_t *__restrict__ ghosts, count_t *__restrict__ sum)
{
  const offset_t row  = (offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x;
  count_t        mine = 0;

  if (row < graph.nrows)
    for (offset_t k = graph.ghost_rowptr[row], end = graph.ghost_rowptr[row + 1]; k < end; k++) {
      const count_t i = (count_t)(first + row), j = (count_t)ghosts[graph.ghost_colidx[k]];

      mine += mix(mix(i) + j) - mix(mix(j) + i);
    }
  mine = group_sum(mine);
  if (mine && threadIdx.x % WARP == 0) atomicAdd(sum, mine); // whole numbers: the same in any order
}

// nearest[row] = largest word of its neighbours, for rows where it may change: at distance 1 those on which it is not decided, at distance 2
// those that know no root next to them, and a neighbour that may become one. TEAM threads a row.
template <int BLOCK_THREADS, int TEAM>
__global__ void __launch_bounds__((BLOCK_THREADS), VISIT_BLOCKS)
  parallel_look(const Graph graph, int distance, const word_t *__restrict__ words, word_t *__restrict__ nearest, Control *__restrict__ control)
{
  const offset_t thread = (offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x, row = thread / TEAM;
  const word_t   known = row >= graph.nrows ? word_t(0) : distance == 1 ? words[row] : nearest[row];
  const bool     looks = known > 0 && known < ROOT;

  if (thread == 0) control->undecided = 0;
  if (!__any_sync(FULL_WARP, looks)) return;
  const word_t largest = graph.largest<TEAM>(looks ? row : graph.nrows, words);

  if (looks && threadIdx.x % TEAM == 0) nearest[row] = largest;
}

// Decides on the undecided rows, and counts those on which it does not, and new roots. TEAM threads a row.
template <int BLOCK_THREADS, int TEAM>
__global__ void __launch_bounds__((BLOCK_THREADS), VISIT_BLOCKS)
  parallel_decide(const Graph graph, int distance, const word_t *__restrict__ nearest, word_t *__restrict__ words, Control *__restrict__ control)
{
  const offset_t row  = ((offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x) / TEAM;
  const word_t   word = row >= graph.nrows ? word_t(0) : words[row];
  const bool     open = word > 0 && word < ROOT;

  if (!__any_sync(FULL_WARP, open)) return;
  const word_t largest = distance == 2 ? graph.largest<TEAM>(open ? row : graph.nrows, nearest) : open ? nearest[row] : word_t(0);
  const bool   counts = open && threadIdx.x % TEAM == 0, root = counts && largest == word, stays = counts && largest < ROOT && largest > word;

  if (root) words[row] = word | ROOT;
  else if (counts && !stays) words[row] = 0;
  const unsigned roots = __ballot_sync(FULL_WARP, root), left = __ballot_sync(FULL_WARP, stays);

  if (threadIdx.x % WARP == 0 && roots) atomicAdd(&control->roots, (count_t)__popc(roots));
  if (threadIdx.x % WARP == 0 && left) atomicAdd(&control->undecided, (count_t)__popc(left));
}

// numbers[row] = first + roots before it for each root, -1 for others. A warp counts ITEMS times 32 rows.
template <int ITEMS>
__global__ void __launch_bounds__(SCAN_THREADS)
  parallel_number(offset_t nrows, offset_t first, const word_t *__restrict__ words, index_t *__restrict__ numbers, Control *control)
{
  __shared__ BlockScan scan;

  prefix_sums<ITEMS>(
    scan, &control->ticket, (count_t *)(control + 1), nrows, [&](offset_t row) { return words[row] >= ROOT; },
    [&](offset_t row, count_t before, count_t up_to) { numbers[row] = up_to > before ? (index_t)(first + (offset_t)before) : index_t(-1); });
}

// Rows that have no aggregate get that of the neighbour with the largest word, if this is of a root. With `words` that is the first root next to
// them; with `nearest` the first that is next to a neighbour, whose aggregate is known by then. TEAM threads a row; what is read of `numbers`
// is not written in the same launch.
template <int BLOCK_THREADS, int TEAM>
__global__ void __launch_bounds__((BLOCK_THREADS), VISIT_BLOCKS) parallel_join(const Graph graph, const word_t *__restrict__ words, index_t *numbers)
{
  const offset_t row    = ((offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x) / TEAM;
  const bool     joins  = row < graph.nrows && numbers[row] < 0;
  index_t        number = -1;

  if (!__any_sync(FULL_WARP, joins)) return;
  const offset_t of      = joins ? row : (offset_t)graph.nrows;
  const word_t   largest = graph.largest<TEAM>(of, words);

  if (largest >= ROOT)
    graph.neighbours<TEAM>(of, [&](offset_t neighbour) {
      if (__ldg(words + neighbour) == largest) number = numbers[neighbour];
    });
  number = group_max(number, TEAM);
  if (joins && threadIdx.x % TEAM == 0) numbers[row] = number;
}
