// Kernels of scalar CSR (formats/csrscalar.py): one thread a row. The arrays are those of csr_arrays.cuh.
#include "formats/csr_arrays.cuh"

// z = alpha A x + beta y; y is not read if beta is 0, and z may be y
template <int BLOCK_THREADS, int SHORT_INDEX>
__global__ void __launch_bounds__(BLOCK_THREADS)
  csrscalar_spmv(index_t nrows, const index_t *__restrict__ rowptr, const typename StoredColumn<SHORT_INDEX>::type *__restrict__ col,
                 const index_t *__restrict__ col_base, const scalar_t *__restrict__ val, const scalar_t *__restrict__ x, scalar_t alpha,
                 scalar_t beta, const scalar_t *y, scalar_t *z)
{
  product<1, BLOCK_THREADS, SHORT_INDEX>(nrows, rowptr, col, col_base, val, VectorOperand{x}, alpha, beta, y, z);
}

// z[row] = A[row, row]
template <int BLOCK_THREADS, int SHORT_INDEX>
__global__ void __launch_bounds__(BLOCK_THREADS)
  csrscalar_diagonal(index_t nrows, const index_t *__restrict__ rowptr, const typename StoredColumn<SHORT_INDEX>::type *__restrict__ col,
                     const index_t *__restrict__ col_base, const scalar_t *__restrict__ val, scalar_t *z)
{
  product<1, BLOCK_THREADS, SHORT_INDEX>(nrows, rowptr, col, col_base, val, DiagonalOperand{}, 1, 0, nullptr, z);
}
