// The graph of a matrix that is to be coarsened, as PETSc's agg makes it (petsc_gpufmt/coarsening/strength.py): blocks of rows become nodes, the
// absolute values of entries (i, j) and (j, i) are added, scaled by those of the diagonal, and small ones are left out. Sums have the order of
// agg's, so that what is compared with the threshold has the same bits.
#include "common/scan.cuh"
#include "common/search.cuh"

constexpr int SUM_BLOCKS = 6; // thread blocks of a multiprocessor at least, with which nothing spills

// A matrix, or a graph with weights. Its columns ascend in each row.
struct Matrix {
  alignas(8) index_t nrows;
  const index_t *__restrict__ rowptr, *__restrict__ colidx;
  const scalar_t *__restrict__ values; // null: there is no threshold, and none is read

  // the absolute value of an entry; 0: there is none
  __device__ __forceinline__ real_t size_of(index_t row, index_t column) const
  {
    const index_t end   = __ldg(rowptr + row + 1),
                  place = partition_point(__ldg(rowptr + row), end, [&](index_t k) { return __ldg(colidx + k) < column; });

    return place < end && __ldg(colidx + place) == column ? magnitude(__ldg(values + place)) : real_t(0);
  }
};

// The entries of the row that a team of TEAM threads has, and this thread's among them; none after the last row
template <int BLOCK_THREADS, int TEAM>
struct Row {
  index_t number, begin, end;
  int     lane;

  __device__ __forceinline__ Row(index_t nrows, const index_t *__restrict__ rowptr)
  {
    const offset_t row    = ((offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x) / TEAM;
    const bool     exists = row < nrows;

    number = exists ? (index_t)row : index_t(-1);
    begin  = exists ? __ldg(rowptr + row) : index_t(0);
    end    = exists ? __ldg(rowptr + row + 1) : index_t(0);
    lane   = threadIdx.x % TEAM;
  }
};

// What is found, all zeros at first; not 0: the columns of a row do not ascend; a block of rows is not dense by agg's rule; entries that agg
// takes for one block, if that rule holds everywhere, are of several.
struct Found {
  count_t disordered, sparse, apart;
};

// Looks at the rows of a matrix. By agg's rule a block of rows is dense if all have the same columns, and these begin and end as blocks do.
// TEAM threads a row.
template <int BLOCK_THREADS, int TEAM>
__global__ void __launch_bounds__(BLOCK_THREADS) strength_check(const Matrix matrix, index_t block, Found *__restrict__ found)
{
  const Row<BLOCK_THREADS, TEAM> row(matrix.nrows, matrix.rowptr);

  if (row.number < 0) return;
  const index_t first = row.number / block * block, count = row.end - row.begin, begin = __ldg(matrix.rowptr + first);
  bool          disordered = false, apart = false, sparse = count % block || count != __ldg(matrix.rowptr + first + 1) - begin;

  for (offset_t k = row.lane; k < count; k += TEAM) {
    const index_t column = __ldg(matrix.colidx + row.begin + k), within = (index_t)(k % block);

    disordered |= k > 0 && __ldg(matrix.colidx + row.begin + k - 1) >= column;
    sparse |= column != __ldg(matrix.colidx + begin + k) || column % block != within;
    apart |= column / block != __ldg(matrix.colidx + row.begin + k - within) / block;
  }
  if (disordered) found->disordered = 1; // all threads that write, write the same
  if (sparse) found->sparse = 1;
  if (apart) found->apart = 1;
}

// The graph of a matrix of dense blocks; weights [nnz / block^2], which may be null: the sums of absolute values of a block, row by row. TEAM
// threads a node.
template <int BLOCK_THREADS, int TEAM>
__global__ void __launch_bounds__((BLOCK_THREADS), SUM_BLOCKS)
  strength_dense_blocks(const Matrix matrix, index_t nnodes, index_t block, index_t *__restrict__ rowptr, index_t *__restrict__ colidx,
                        scalar_t *__restrict__ weights)
{
  const offset_t node = ((offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x) / TEAM;
  const int      lane = threadIdx.x % TEAM;

  if (node >= nnodes) return;
  const index_t *rows  = matrix.rowptr + node * block;
  const index_t  begin = __ldg(rows), count = (__ldg(rows + 1) - begin) / block, to = begin / block / block;

  if (lane == 0) rowptr[node] = to;
  if (lane == 0 && node == nnodes - 1) rowptr[nnodes] = to + count;
  for (offset_t e = lane; e < count; e += TEAM) {
    real_t sum = 0;

    colidx[to + e] = __ldg(matrix.colidx + begin + e * block) / block;
    if (!weights) continue;
    for (index_t i = 0; i < block; i++)
      for (index_t j = 0; j < block; j++) sum += fabs(real_part(__ldg(matrix.values + __ldg(rows + i) + e * block + j)));
    weights[to + e] = sum;
  }
}

// The node of the row and of the column of each entry, and its absolute value unless `magnitudes` is null. If `mirrored` is not 0, the same with
// rows and columns exchanged follows, after all entries. TEAM threads a row.
template <int BLOCK_THREADS, int TEAM>
__global__ void __launch_bounds__((BLOCK_THREADS), SUM_BLOCKS)
  strength_coordinates(const Matrix matrix, index_t block, int mirrored, index_t *__restrict__ rows, index_t *__restrict__ cols,
                       scalar_t *__restrict__ magnitudes)
{
  const Row<BLOCK_THREADS, TEAM> row(matrix.nrows, matrix.rowptr);
  const offset_t                 nnz  = mirrored ? (offset_t)__ldg(matrix.rowptr + matrix.nrows) : offset_t(0);
  const index_t                  node = row.number / block;

  for (offset_t k = (offset_t)row.begin + row.lane; k < row.end; k += TEAM) {
    const index_t other = __ldg(matrix.colidx + k) / block;

    rows[k] = node;
    cols[k] = other;
    if (magnitudes) magnitudes[k] = fabs(real_part(__ldg(matrix.values + k)));
    if (!mirrored) continue;
    rows[nnz + k] = other;
    cols[nnz + k] = node;
  }
}

// weights[k] = |a_ij| + |a_ji| for each entry (i, j) of a pattern that has all those of the matrix and of its transpose. TEAM threads a row.
template <int BLOCK_THREADS, int TEAM>
__global__ void __launch_bounds__(BLOCK_THREADS)
  strength_add_transpose(const Matrix matrix, const index_t *__restrict__ rowptr, const index_t *__restrict__ colidx, scalar_t *__restrict__ weights)
{
  const Row<BLOCK_THREADS, TEAM> row(matrix.nrows, rowptr);

  for (offset_t k = (offset_t)row.begin + row.lane; k < row.end; k += TEAM) {
    const index_t column = __ldg(colidx + k);

    weights[k] = matrix.size_of(row.number, column) + matrix.size_of(column, row.number);
  }
}

// scales[row] = 1 / sqrt of the absolute value of its diagonal entry, 0 where that is 0 or missing. A thread a row.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS) strength_scales(const Matrix matrix, real_t *__restrict__ scales)
{
  const offset_t row = (offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x;

  if (row >= matrix.nrows) return;
  const real_t diagonal = matrix.size_of((index_t)row, (index_t)row);

  scales[row] = diagonal == 0 ? real_t(0) : sqrt(1 / diagonal);
}

// A graph of which those entries stay whose weight, scaled on both sides, is above the threshold; if `keep_diagonal` is not 0, those of the
// diagonal too.
struct Filter {
  Matrix graph;
  const real_t *__restrict__ scales;
  alignas(8) real_t threshold;
  alignas(8) int keep_diagonal;

  __device__ __forceinline__ bool keeps(index_t row, index_t column, offset_t k) const
  {
    const real_t weight = magnitude(__ldg(graph.values + k)), strength = weight * __ldg(scales + row) * __ldg(scales + column);

    return keep_diagonal ? column == row || !(strength <= threshold) : strength > threshold;
  }
};

// counts[row + 1] = how many entries of a row stay. TEAM threads a row.
template <int BLOCK_THREADS, int TEAM>
__global__ void __launch_bounds__(BLOCK_THREADS) strength_count(const Filter filter, index_t *__restrict__ counts)
{
  const Row<BLOCK_THREADS, TEAM> row(filter.graph.nrows, filter.graph.rowptr);
  index_t                        count = 0;

  for (offset_t k = (offset_t)row.begin + row.lane; k < row.end; k += TEAM) count += filter.keeps(row.number, __ldg(filter.graph.colidx + k), k);
  count = group_sum(count, TEAM);
  if (row.number >= 0 && row.lane == 0) counts[row.number + 1] = count;
}

// What is found of the rows, all zeros at first; a zero for each tile of the prefix sum follows.
struct Control {
  count_t nnz, longest, ticket;
};

// Sums up to each row in the place of the counts; word 0 becomes 0. A warp adds up ITEMS times 32 rows.
template <int ITEMS>
__global__ void __launch_bounds__(SCAN_THREADS) strength_row_pointer(offset_t nrows, index_t *counts, Control *control)
{
  __shared__ BlockScan scan;
  count_t              longest = 0;

  prefix_sums<ITEMS>(
    scan, &control->ticket, (count_t *)(control + 1), nrows,
    [&](offset_t row) {
      const index_t count = counts[row + 1];

      longest = max(longest, (count_t)count);
      return count;
    },
    [&](offset_t row, count_t, count_t up_to) {
      if (row == 0) counts[0] = 0;
      counts[row + 1] = (index_t)up_to;
      if (row == nrows - 1) control->nnz = up_to;
    });
  longest = group_max(longest);
  if (threadIdx.x % WARP == 0 && longest) atomicMax(&control->longest, longest);
}

// The columns of the entries that stay, in their order. TEAM threads a row.
template <int BLOCK_THREADS, int TEAM>
__global__ void __launch_bounds__(BLOCK_THREADS)
  strength_columns(const Filter filter, const index_t *__restrict__ rowptr, index_t *__restrict__ colidx)
{
  const Row<BLOCK_THREADS, TEAM> row(filter.graph.nrows, filter.graph.rowptr);
  const int                      first_lane = threadIdx.x % WARP - row.lane; // of the team
  index_t                       *to         = row.number >= 0 ? colidx + __ldg(rowptr + row.number) : colidx;

  for (offset_t first = row.begin; __any_sync(FULL_WARP, first < row.end); first += TEAM) {
    const offset_t k      = first + row.lane;
    const index_t  column = k < row.end ? __ldg(filter.graph.colidx + k) : index_t(-1);
    const bool     stays  = column >= 0 && filter.keeps(row.number, column, k);
    const unsigned team   = __ballot_sync(FULL_WARP, stays) >> first_lane & (FULL_WARP >> (WARP - TEAM));

    if (stays) to[__popc(team & ((1u << row.lane) - 1))] = column;
    to += __popc(team);
  }
}
