// The tentative prolongator of aggregates (petsc_gpufmt/coarsening/prolongator.py): a node has `block` rows, an aggregate `nvectors` columns. In
// the rows of an aggregate lies Q, and in the coarse near-null space R, of the QR factorization of what the near-null space has in these rows.
#include "common/scan.cuh"

// What is found, all zeros at first; a zero for each tile of the prefix sum follows.
struct Control {
  count_t nmembers, outside; // nodes that belong to an aggregate; not 0: a node belongs to one that is not there
  count_t ticket;
};

// begins[node] = how many nodes before it belong to an aggregate; begins [nnodes + 1]. A warp counts ITEMS times 32 nodes.
template <int ITEMS>
__global__ void __launch_bounds__(SCAN_THREADS)
  prolongator_count(offset_t nnodes, index_t naggregates, const index_t *__restrict__ aggregates, index_t *__restrict__ begins, Control *control)
{
  __shared__ BlockScan scan;

  prefix_sums<ITEMS>(
    scan, &control->ticket, (count_t *)(control + 1), nnodes,
    [&](offset_t node) {
      const index_t aggregate = aggregates[node];

      if (aggregate < -1 || aggregate >= naggregates) control->outside = 1; // all threads that write, write the same
      return aggregate >= 0;
    },
    [&](offset_t node, count_t before, count_t up_to) {
      begins[node] = (index_t)before;
      if (node < nnodes - 1) return;
      begins[nnodes]    = (index_t)up_to;
      control->nmembers = up_to;
    });
}

// members[begins[node]] = aggregates[node], for the nodes that belong to one. A thread a node.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS)
  prolongator_members(index_t nnodes, const index_t *__restrict__ aggregates, const index_t *__restrict__ begins, index_t *__restrict__ members)
{
  const offset_t node = (offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x;

  if (node < nnodes && aggregates[node] >= 0) members[begins[node]] = aggregates[node];
}

// keys[begins[node]] = 3 aggregates[node] + turns[node], for the nodes that belong to one. A thread a node.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS)
  prolongator_keys(index_t nnodes, const index_t *__restrict__ aggregates, const unsigned char *__restrict__ turns,
                   const index_t *__restrict__ begins, index_t *__restrict__ keys)
{
  const offset_t node = (offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x;

  if (node < nnodes && aggregates[node] >= 0) keys[begins[node]] = 3 * aggregates[node] + turns[node];
}

// The pattern with `block` rows in the place of each of one entry, and `nvectors` columns in the place of each. A thread a row.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS)
  prolongator_expand(index_t nrows, index_t block, index_t nvectors, const index_t *__restrict__ begins, const index_t *__restrict__ members,
                     index_t *__restrict__ rowptr, index_t *__restrict__ colidx)
{
  const offset_t i = (offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x;

  if (i >= nrows) return;
  const index_t row = (index_t)i, node = row / block, begin = __ldg(begins + node), count = __ldg(begins + node + 1) - begin;
  const index_t first = (begin * block + count * (row - node * block)) * nvectors;

  if (row == 0) rowptr[0] = 0;
  rowptr[row + 1] = first + count * nvectors;
  for (index_t j = 0; j < count * nvectors; j++) colidx[first + j] = __ldg(members + begin) * nvectors + j;
}

// sizes[members[k]] += 1. A thread an entry; sums of whole numbers are the same in any order.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS) prolongator_sizes(index_t nmembers, const index_t *__restrict__ members, count_t *__restrict__ sizes)
{
  const offset_t k = (offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x;

  if (k < nmembers) atomicAdd(sizes + members[k], count_t(1));
}

// coarse[a] = R of the constant vector in an aggregate, with LAPACK's sign: 1 in one row, else -sqrt(rows). A thread an aggregate.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS)
  prolongator_norms(index_t naggregates, const count_t *__restrict__ sizes, real_t *__restrict__ coarse)
{
  const offset_t a = (offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x;

  if (a < naggregates) coarse[a] = sizes[a] == 1 ? real_t(1) : -sqrt((real_t)sizes[a]);
}

// values[k] = 1 / coarse[colidx[k]]: Q of the constant vector. A thread an entry.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS)
  prolongator_constant(index_t nnz, const index_t *__restrict__ colidx, const real_t *__restrict__ coarse, scalar_t *__restrict__ values)
{
  const offset_t k = (offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x;

  if (k < nnz) values[k] = 1 / __ldg(coarse + load_once(colidx + k));
}

// The rows of an aggregate, node after node, each with its entries in the prolongator
struct Rows {
  const index_t *__restrict__ nodes, *__restrict__ rowptr; // nodes of the aggregate; row pointer of the prolongator
  index_t   block, count;
  scalar_t *values;

  __device__ __forceinline__ index_t   number(index_t r) const { return __ldg(nodes + r / block) * block + r % block; }
  __device__ __forceinline__ scalar_t *operator[](index_t r) const { return values + __ldg(rowptr + number(r)); }
};

// What the kernel below reads: the nodes of aggregate a are nodes[begins[a]] to nodes[begins[a + 1] - 1], where begins has `turns` numbers for each.
struct Factored {
  alignas(8) index_t naggregates, turns, block, nvectors, stride; // stride: rows of the near-null space
  const index_t *__restrict__ begins, *__restrict__ nodes, *__restrict__ rowptr;
  const real_t *__restrict__ near_null; // [nvectors][stride] column by column
};

// QR factorization of each aggregate by Householder's reflections, with LAPACK's signs: Q into the values of the prolongator, where the
// factorization is done in place, and R into coarse [nvectors][naggregates * nvectors], column by column. If there are more columns than
// rows, rows of zeros are added. TEAM threads an aggregate; thread t has rows t, t + TEAM, ... of it, and nobody else touches these. Sums over rows
// have the order of a fixed tree.
template <int BLOCK_THREADS, int TEAM>
__global__ void __launch_bounds__((BLOCK_THREADS), (1024 / BLOCK_THREADS))
  prolongator_orthogonalize(const Factored factored, scalar_t *values, real_t *__restrict__ coarse)
{
  const offset_t aggregate = ((offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x) / TEAM;
  const bool     exists    = aggregate < factored.naggregates;
  const index_t  begin     = exists ? __ldg(factored.begins + aggregate * factored.turns) : index_t(0),
                 end       = exists ? __ldg(factored.begins + (aggregate + 1) * factored.turns) : index_t(0);
  const index_t  lane = threadIdx.x % TEAM, n = factored.nvectors, ncols = factored.naggregates * n;
  const Rows     rows = {factored.nodes + begin, factored.rowptr, factored.block, (end - begin) * factored.block, values};
  real_t        *R    = coarse + aggregate * n;

  for (index_t r = lane; r < rows.count; r += TEAM)
    for (index_t j = 0; j < n; j++) rows[r][j] = __ldg(factored.near_null + (offset_t)j * factored.stride + rows.number(r));

  // reflection k is 1 - tau v v^T with v = (0, .., 0, 1, ...): v lies below the diagonal of column k, and tau on it once R is copied
  const index_t first_below = lane + TEAM;
  for (index_t k = 0; k < n; k++) {
    const bool    mine  = k < rows.count && k % TEAM == lane;
    const index_t below = k / TEAM * TEAM + (lane > k % TEAM ? lane : first_below); // the thread's first row after k
    real_t        sum = 0, beta, tau = 0;

    for (index_t r = below; r < rows.count; r += TEAM) sum += square(rows[r][k]);
    sum                = group_sum(sum, TEAM);
    const real_t alpha = group_sum(mine ? real_part(rows[k][k]) : real_t(0), TEAM);

    beta = alpha;
    if (sum > 0) {
      beta               = alpha < 0 ? sqrt(alpha * alpha + sum) : -sqrt(alpha * alpha + sum);
      tau                = (beta - alpha) / beta;
      const real_t scale = 1 / (alpha - beta);

      for (index_t r = below; r < rows.count; r += TEAM) rows[r][k] *= scale;
    }
    if (mine) {
      R[(offset_t)k * ncols + k] = beta;
      rows[k][k]                 = tau;
    }
    for (index_t j = k + 1; j < n; j++) {
      real_t dot = mine ? real_part(rows[k][j]) : real_t(0);

      for (index_t r = below; r < rows.count; r += TEAM) dot += real_part(rows[r][k]) * real_part(rows[r][j]);
      dot = tau * group_sum(dot, TEAM);
      for (index_t r = below; r < rows.count; r += TEAM) rows[r][j] -= dot * rows[r][k];
      if (mine) R[(offset_t)j * ncols + k] = real_part(rows[k][j]) - dot;
    }
  }
  if (exists)
    for (index_t i = lane; i < n; i += TEAM)
      for (index_t j = 0; j < (i < rows.count ? i : n); j++) R[(offset_t)j * ncols + i] = 0;

  // columns of Q from the last: each is a column of 1 reflected, where row k of later columns is 0 before reflection k
  for (index_t k = n - 1; k >= 0; k--) {
    const bool    mine  = k < rows.count && k % TEAM == lane;
    const index_t below = k / TEAM * TEAM + (lane > k % TEAM ? lane : first_below);
    const real_t  tau   = group_sum(mine ? real_part(rows[k][k]) : real_t(0), TEAM);

    for (index_t j = k + 1; j < n; j++) {
      const bool reflected = j < rows.count;
      real_t     dot       = 0;

      for (index_t r = below; reflected && r < rows.count; r += TEAM) dot += real_part(rows[r][k]) * real_part(rows[r][j]);
      dot = tau * group_sum(dot, TEAM);
      for (index_t r = below; reflected && r < rows.count; r += TEAM) rows[r][j] -= dot * rows[r][k];
      if (mine) rows[k][j] = reflected ? -dot : real_t(0);
    }
    for (index_t r = below; r < rows.count; r += TEAM) rows[r][k] *= -tau;
    if (mine) rows[k][k] = 1 - tau;
  }
}
