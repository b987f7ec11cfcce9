// Values of a matrix scaled and added to in place (petsc_gpufmt/patterns/scale_and_add.py). A thread does BATCH entries, BLOCK_THREADS apart, of a tile of
// BATCH BLOCK_THREADS, so that neither long nor empty rows leave threads idle.
#include "common/search.cuh"

static constexpr int BATCH = 4;

// The first entry that this thread does; the others follow BLOCK_THREADS apart.
template <int BLOCK_THREADS>
__device__ __forceinline__ offset_t first_entry()
{
  return (offset_t)blockIdx.x * (BATCH * BLOCK_THREADS) + threadIdx.x;
}

// tile_rows[t] = the row of the first entry of tile t, and of the last entry for t = ntiles. A thread a tile.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS)
  find_tile_rows(index_t nnz, index_t nrows, const index_t *__restrict__ rowptr, index_t ntiles, index_t *__restrict__ tile_rows)
{
  const offset_t t = (offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x, first = t * (BATCH * BLOCK_THREADS);

  if (t <= ntiles) tile_rows[t] = (index_t)segment_of(rowptr, offset_t(0), (offset_t)nrows - 1, first < nnz ? first : (offset_t)nnz - 1);
}

// values[e] *= alpha. Bytes an entry: 2 sizeof(scalar_t).
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS) scale_values(index_t nnz, scalar_t alpha, scalar_t *values)
{
  const offset_t first = first_entry<BLOCK_THREADS>();
  scalar_t       value[BATCH];

#pragma unroll
  for (int k = 0; k < BATCH; k++) value[k] = first + k * BLOCK_THREADS < nnz ? values[first + k * BLOCK_THREADS] : scalar_t(0);
#pragma unroll
  for (int k = 0; k < BATCH; k++)
    if (first + k * BLOCK_THREADS < nnz) values[first + k * BLOCK_THREADS] = alpha * value[k];
}

// values[e] *= factors[row of e]; the rows of the entries of tile t are in [tile_rows[t], tile_rows[t + 1]]. Bytes an entry: 2 sizeof(scalar_t),
// and 2 index_t and a scalar_t for each row.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS) scale_rows(index_t nnz, const index_t *__restrict__ tile_rows, const index_t *__restrict__ rowptr,
                                                            const scalar_t *__restrict__ factors, scalar_t *values)
{
  const offset_t first = first_entry<BLOCK_THREADS>();
  const index_t  low = __ldg(tile_rows + blockIdx.x), high = __ldg(tile_rows + blockIdx.x + 1);
  scalar_t       value[BATCH];

#pragma unroll
  for (int k = 0; k < BATCH; k++) value[k] = first + k * BLOCK_THREADS < nnz ? values[first + k * BLOCK_THREADS] : scalar_t(0);
#pragma unroll
  for (int k = 0; k < BATCH; k++)
    if (first + k * BLOCK_THREADS < nnz)
      values[first + k * BLOCK_THREADS] = value[k] * __ldg(factors + segment_of(rowptr, low, high, first + k * BLOCK_THREADS));
}

// values[e] *= factors[column of e]. Bytes an entry: 3 sizeof(scalar_t) + sizeof(index_t).
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS)
  scale_columns(index_t nnz, const index_t *__restrict__ colidx, const scalar_t *__restrict__ factors, scalar_t *values)
{
  const offset_t first = first_entry<BLOCK_THREADS>();
  scalar_t       value[BATCH], factor[BATCH];

#pragma unroll
  for (int k = 0; k < BATCH; k++) {
    const offset_t e = first + k * BLOCK_THREADS;

    value[k]  = e < nnz ? values[e] : scalar_t(0);
    factor[k] = e < nnz ? __ldg(factors + load_once(colidx + e)) : scalar_t(0);
  }
#pragma unroll
  for (int k = 0; k < BATCH; k++)
    if (first + k * BLOCK_THREADS < nnz) values[first + k * BLOCK_THREADS] = value[k] * factor[k];
}

// values[index[e]] += alpha x[e], no two entries in the same place; index null: values[e]. Bytes an entry: 3 sizeof(scalar_t), + sizeof(index_t).
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS)
  add_values(index_t nnz, const index_t *__restrict__ index, scalar_t alpha, const scalar_t *__restrict__ x, scalar_t *values)
{
  const offset_t first = first_entry<BLOCK_THREADS>();
  offset_t       place[BATCH];
  scalar_t       value[BATCH], term[BATCH];

#pragma unroll
  for (int k = 0; k < BATCH; k++) {
    const offset_t e = first + k * BLOCK_THREADS;

    place[k] = e < nnz && index ? (offset_t)load_once(index + e) : e;
    term[k]  = e < nnz ? load_once(x + e) : scalar_t(0);
  }
#pragma unroll
  for (int k = 0; k < BATCH; k++) value[k] = first + k * BLOCK_THREADS < nnz ? values[place[k]] : scalar_t(0);
#pragma unroll
  for (int k = 0; k < BATCH; k++)
    if (first + k * BLOCK_THREADS < nnz) values[place[k]] = value[k] + alpha * term[k];
}

// index[e] = the place in another matrix, whose rows are sorted, of entry e. Column c is columns[c] there (null: c). *missing becomes 1 if
// there is no such place, or the columns of a row do not ascend: two entries might then have the same place.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS)
  locate_entries(index_t nnz, const index_t *__restrict__ tile_rows, const index_t *__restrict__ rowptr, const index_t *__restrict__ colidx,
                 const index_t *__restrict__ columns, const index_t *__restrict__ target_rowptr, const index_t *__restrict__ target_colidx,
                 index_t *index, index_t *missing)
{
  const offset_t first     = first_entry<BLOCK_THREADS>();
  const index_t  first_row = __ldg(tile_rows + blockIdx.x), last_row = __ldg(tile_rows + blockIdx.x + 1);

  for (int k = 0; k < BATCH; k++) {
    const offset_t e = first + k * BLOCK_THREADS;

    if (e >= nnz) return;
    const index_t row = segment_of(rowptr, first_row, last_row, e), own = __ldg(colidx + e), column = columns ? __ldg(columns + own) : own;
    const index_t end   = __ldg(target_rowptr + row + 1),
                  place = partition_point(__ldg(target_rowptr + row), end, [&](index_t p) { return __ldg(target_colidx + p) < column; });

    index[e] = place;
    if (place == end || __ldg(target_colidx + place) != column || (e > __ldg(rowptr + row) && __ldg(colidx + e - 1) >= own)) *missing = 1;
  }
}

// places[i] = the place of the diagonal entry of row i, whose columns ascend. *missing becomes 1 if a row has none. A thread a row.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS)
  locate_diagonal(index_t nrows, const index_t *__restrict__ rowptr, const index_t *__restrict__ colidx, index_t *places, index_t *missing)
{
  const offset_t row = (offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x;

  if (row >= nrows) return;
  const index_t end = __ldg(rowptr + row + 1), place = partition_point(__ldg(rowptr + row), end, [&](index_t p) { return __ldg(colidx + p) < row; });

  places[row] = place;
  if (place == end || __ldg(colidx + place) != row) *missing = 1;
}

// values[places[i]] = x[i], or alpha where x is null, + kept[places[i]] unless that is null; it may be `values`. A thread a row.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS) set_diagonal(index_t nrows, const index_t *__restrict__ places, scalar_t alpha,
                                                              const scalar_t *__restrict__ x, const scalar_t *kept, scalar_t *values)
{
  const offset_t row = (offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x;

  if (row >= nrows) return;
  const index_t  place = load_once(places + row);
  const scalar_t value = x ? load_once(x + row) : alpha;

  values[place] = kept ? kept[place] + value : value;
}
