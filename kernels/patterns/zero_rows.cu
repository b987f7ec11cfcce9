// Rows, or rows and columns, of a matrix made zeros in place (petsc_gpufmt/patterns/zero_rows.py).
#include "common/reduce.cuh"
#include "common/search.cuh"

// places[i] = the place of the diagonal entry of row i, or -1, and missing[i] = whether there is none; *found becomes 1 if a row has none.
// It is searched for where it is if the columns ascend, then in all of the row. A thread a row.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS) find_diagonal(index_t nrows, const index_t *__restrict__ rowptr, const index_t *__restrict__ colidx,
                                                               index_t *__restrict__ places, unsigned char *__restrict__ missing, index_t *found)
{
  const offset_t row = (offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x;

  if (row >= nrows) return;
  const index_t begin = __ldg(rowptr + row), end = __ldg(rowptr + row + 1);
  index_t       place = partition_point(begin, end, [&](index_t p) { return __ldg(colidx + p) < row; });

  if (place == end || __ldg(colidx + place) != row)
    for (place = begin; place < end && __ldg(colidx + place) != row;) place++;
  places[row]  = place < end ? place : index_t(-1);
  missing[row] = place == end;
  if (place == end) *found = 1; // all threads that write, write the same
}

// values[e] = 0 in the rows of `rows`, alpha at places[i], and in the columns of `columns` unless that is null. Unless b is null, in these rows
// b[i] = alpha x[i] where there is a column i, and in others b[i] -= the sum of the entries that become zeros in columns, times x: in a fixed order.
// `places` null: the matrix has no diagonal, and b stays as it is in these rows. ROW_THREADS a row. Bytes: a byte a row; sizeof(scalar_t) for each
// entry in the rows; with columns sizeof(index_t) + 1 for each entry in others.
template <int BLOCK_THREADS, int ROW_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS)
  zero_rows(index_t nrows, index_t ncols, const index_t *__restrict__ rowptr, const index_t *__restrict__ colidx, const index_t *__restrict__ places,
            const unsigned char *__restrict__ rows, const unsigned char *__restrict__ columns, scalar_t alpha, const scalar_t *__restrict__ x,
            scalar_t *b, scalar_t *values)
{
  const offset_t row    = ((offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x) / ROW_THREADS;
  const int      lane   = threadIdx.x % ROW_THREADS;
  const bool     inside = row < nrows, zeroed = inside && __ldg(rows + row);
  scalar_t       sum = 0;

  if (zeroed) {
    const offset_t place = places ? (offset_t)__ldg(places + row) : -1, end = __ldg(rowptr + row + 1);

    for (offset_t e = (offset_t)__ldg(rowptr + row) + lane; e < end; e += ROW_THREADS) values[e] = e == place ? alpha : scalar_t(0);
  } else if (inside && columns) {
    const offset_t end = __ldg(rowptr + row + 1);

    for (offset_t e = (offset_t)__ldg(rowptr + row) + lane; e < end; e += ROW_THREADS) {
      const index_t column = load_once(colidx + e);

      if (!__ldg(columns + column)) continue;
      if (b) sum += values[e] * __ldg(x + column);
      values[e] = 0;
    }
  }
  sum = group_sum(sum, ROW_THREADS);
  if (lane != 0 || !inside || !b) return;
  if (!zeroed) {
    if (columns) b[row] -= sum;
  } else if (places && row < ncols) b[row] = alpha * __ldg(x + row);
}
