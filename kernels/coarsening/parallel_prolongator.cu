// Nodes of a rank, and aggregates of this rank and of others (petsc_gpufmt/coarsening/parallel_prolongator.py). Those of this rank have the numbers
// first, first + 1, ..., first + naggregates - 1.
#include "common/scan.cuh"
#include "common/search.cuh"

struct OwnAggregates {
  alignas(8) offset_t first, naggregates;

  __device__ __forceinline__ bool has(index_t number) const { return number >= first && number < first + naggregates; }
};

// What is found, all zeros at first; a zero for each tile of the prefix sum follows.
struct Control {
  count_t count;
  count_t ticket;
};

// The nodes whose aggregates belong to other ranks, and these. A warp counts ITEMS times 32 nodes.
template <int ITEMS>
__global__ void __launch_bounds__(SCAN_THREADS) parallel_elsewhere(offset_t nnodes, const OwnAggregates own, const index_t *__restrict__ numbers,
                                                                   index_t *__restrict__ nodes, index_t *__restrict__ aggregates, Control *control)
{
  __shared__ BlockScan scan;

  prefix_sums<ITEMS>(
    scan, &control->ticket, (count_t *)(control + 1), nnodes,
    [&](offset_t node) {
      const index_t number = numbers[node];

      return number >= 0 && !own.has(number);
    },
    [&](offset_t node, count_t before, count_t up_to) {
      if (up_to > before) {
        nodes[before]      = (index_t)node;
        aggregates[before] = numbers[node];
      }
      if (node == nnodes - 1) control->count = up_to;
    });
}

// Of each node of this rank, and of `nreceived` nodes of others behind them: here[node] its aggregate among those of this rank, or -1; of
// those of this rank, there[node] its aggregate among `ghosts`, which ascend, or -1. A thread a node.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS)
  parallel_split(offset_t nnodes, offset_t nreceived, const OwnAggregates own, const index_t *__restrict__ numbers,
                 const index_t *__restrict__ received, index_t nghosts, const index_t *__restrict__ ghosts, index_t *__restrict__ here,
                 index_t *__restrict__ there)
{
  const offset_t node = (offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x;

  if (node >= nnodes + nreceived) return;
  if (node >= nnodes) {
    here[node] = received[node - nnodes];
    return;
  }
  const index_t number = numbers[node];
  const bool    mine   = own.has(number);

  here[node]  = mine ? (index_t)(number - own.first) : index_t(-1);
  there[node] = number < 0 || mine ? index_t(-1) : partition_point(index_t(0), nghosts, [&](index_t g) { return __ldg(ghosts + g) < number; });
}

// Of each row of this rank: its aggregate, and `nvectors` values, which lie in one of two blocks of rows: those with aggregates of this rank, and
// those with others. A row without an aggregate has zeros. A thread a row.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS)
  parallel_rows(offset_t nrows, index_t block, index_t nvectors, const OwnAggregates own, const index_t *__restrict__ numbers,
                const index_t *__restrict__ rowptr, const scalar_t *__restrict__ values, const index_t *__restrict__ other_rowptr,
                const scalar_t *__restrict__ other_values, index_t *__restrict__ of_rows, scalar_t *__restrict__ rows)
{
  const offset_t row = (offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x;

  if (row >= nrows) return;
  const index_t   number = numbers[block == 1 ? row : row / block];
  const scalar_t *from   = own.has(number) ? values + rowptr[row] : other_values + other_rowptr[row];

  of_rows[row] = number;
  for (index_t j = 0; j < nvectors; j++) rows[row * nvectors + j] = number < 0 ? scalar_t(0) : from[j];
}
