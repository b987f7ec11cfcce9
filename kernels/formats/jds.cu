// Kernels of JDS with CSR-like multiplication (formats/jds.py). Cevahir, Nukada, Matsuoka 2009, sections 2.1 and 3.1, figure 3.
//
// Arrays
//   jd_ptr [ndiagonals + 1]  jagged diagonal j, entry j of all rows that have one, occupies entries jd_ptr[j] .. jd_ptr[j + 1] of col
//                            and val; all are multiples of ALIGNMENT, the rest of a diagonal is padding
//   nz_count [nrows]         entries of each row in the sorted order: decreasing
//   perm [nrows]             perm[sorted position] = row; null if rows keep their order
//   col [nstored]            column of each entry, -1 in padding: x is not read there
//   val [nstored]            value of each entry, 0 in padding
//
// Threads: one for each row in products, blockDim = (BLOCK_THREADS); blockDim = (ROWS, THREADS_PER_ROW) in fills.
#include "formats/ell.cuh"

template <int BLOCK_THREADS, class Operand>
__device__ __forceinline__ void product(index_t nrows, const offset_t *__restrict__ jd_ptr, const index_t *__restrict__ nz_count,
                                        const index_t *__restrict__ perm, const index_t *__restrict__ col, const scalar_t *__restrict__ val,
                                        const Operand operand, scalar_t alpha, scalar_t beta, const scalar_t *y, scalar_t *z)
{
  const offset_t position = (offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x;

  if (position >= nrows) return;
  const index_t count = nz_count[position];
  // an empty row has nothing to add: most rows of an off-diagonal block are empty, and z is y there
  if (!count && y == z && beta == 1) return;
  const offset_t row = perm ? perm[position] : position;
  store_result(row, row_sum(count, position, JaggedDiagonals{jd_ptr}, col, val, row, operand), alpha, beta, y, z);
}

// z = alpha A x + beta y; y is not read if beta is 0, and z may be y. Bytes a row of k entries: k (sizeof(index_t) + sizeof(scalar_t))
// + 2 sizeof(index_t) + 2 sizeof(scalar_t); rows of a warp have nearly the same length. Writes are scattered by perm.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS)
  jds_spmv(index_t nrows, const offset_t *__restrict__ jd_ptr, const index_t *__restrict__ nz_count, const index_t *__restrict__ perm,
           const index_t *__restrict__ col, const scalar_t *__restrict__ val, const scalar_t *__restrict__ x, scalar_t alpha, scalar_t beta,
           const scalar_t *y, scalar_t *z)
{
  product<BLOCK_THREADS>(nrows, jd_ptr, nz_count, perm, col, val, VectorOperand{x}, alpha, beta, y, z);
}

// The basic multiplication of JDS, which the paper compares with: the entries of one jagged diagonal, a thread to each, times x. `partial`,
// in the sorted order, holds the sums; the first diagonal sets all `nrows` of them, the others add to the first `count`.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS)
  jds_add_diagonal(index_t nrows, index_t count, offset_t first, offset_t adds, const index_t *__restrict__ col, const scalar_t *__restrict__ val,
                   const scalar_t *__restrict__ x, scalar_t *__restrict__ partial)
{
  const offset_t position = (offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x;

  if (position >= (adds ? count : nrows)) return;
  const index_t  column  = position < count ? col[first + position] : -1;
  const scalar_t product = column >= 0 ? val[first + position] * x[column] : scalar_t(0);

  partial[position] = adds ? partial[position] + product : product;
}

// z[row] = A[row, row]
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS)
  jds_diagonal(index_t nrows, const offset_t *__restrict__ jd_ptr, const index_t *__restrict__ nz_count, const index_t *__restrict__ perm,
               const index_t *__restrict__ col, const scalar_t *__restrict__ val, scalar_t *z)
{
  product<BLOCK_THREADS>(nrows, jd_ptr, nz_count, perm, col, val, DiagonalOperand{}, 1, 0, nullptr, z);
}

// One sorted position in each of ROWS lanes, THREADS_PER_ROW threads to a row: what they read of a row lies in few cache lines. A jagged
// diagonal reaches to the end of the alignment group in which its rows end, so the first row of a group tells how many reach it.
template <int ROWS, int THREADS_PER_ROW, class Entry>
__device__ __forceinline__ void fill(index_t nrows, index_t alignment, const offset_t *__restrict__ jd_ptr, const index_t *__restrict__ nz_count,
                                     const index_t *__restrict__ perm, const index_t *__restrict__ rowptr, const index_t *__restrict__ source,
                                     const Entry *__restrict__ entries, Entry *__restrict__ stored, Entry padding)
{
  const offset_t position = (offset_t)blockIdx.x * ROWS + threadIdx.x;
  const offset_t group    = position - position % alignment;
  offset_t       k = 0, k_end = 0;

  if (group >= nrows) return;
  if (position < nrows) {
    const offset_t row = perm ? perm[position] : position;

    k     = rowptr[row];
    k_end = rowptr[row + 1];
  }
  fill_row(threadIdx.y, THREADS_PER_ROW, nz_count[group], position, JaggedDiagonals{jd_ptr}, k, k_end, source, entries, stored, padding);
}

// structure pass: columns into the jagged diagonals
template <int ROWS, int THREADS_PER_ROW>
__global__ void __launch_bounds__((ROWS * THREADS_PER_ROW))
  jds_fill_columns(index_t nrows, index_t alignment, const offset_t *__restrict__ jd_ptr, const index_t *__restrict__ nz_count,
                   const index_t *__restrict__ perm, const index_t *__restrict__ rowptr, const index_t *__restrict__ source,
                   const index_t *__restrict__ entries, index_t *__restrict__ stored)
{
  fill<ROWS, THREADS_PER_ROW, index_t>(nrows, alignment, jd_ptr, nz_count, perm, rowptr, source, entries, stored, -1);
}

// value pass: the refresh after a change of values
template <int ROWS, int THREADS_PER_ROW>
__global__ void __launch_bounds__((ROWS * THREADS_PER_ROW))
  jds_fill_values(index_t nrows, index_t alignment, const offset_t *__restrict__ jd_ptr, const index_t *__restrict__ nz_count,
                  const index_t *__restrict__ perm, const index_t *__restrict__ rowptr, const index_t *__restrict__ source,
                  const scalar_t *__restrict__ entries, scalar_t *__restrict__ stored)
{
  fill<ROWS, THREADS_PER_ROW, scalar_t>(nrows, alignment, jd_ptr, nz_count, perm, rowptr, source, entries, stored, 0);
}
