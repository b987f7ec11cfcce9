// Whether arrays are a CSR pattern, and values in its order (petsc_gpufmt/patterns/csr.py).
#include "common/scan.cuh"

// Sets found[0] unless the row pointer runs from 0 to nnz, found[1] if it decreases, found[2] if a column is not in the matrix, and found[3]
// to the length of the longest row; they are zeros at first.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS) csr_check(index_t nrows, index_t ncols, index_t nnz, const index_t *__restrict__ rowptr,
                                                           const index_t *__restrict__ colidx, count_t *__restrict__ found)
{
  constexpr int       NWARPS = BLOCK_THREADS / WARP;
  __shared__ offset_t longest_of_warps[NWARPS];
  const offset_t      first = (offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x, step = (offset_t)gridDim.x * BLOCK_THREADS;
  bool                decreases = false, outside = false;
  offset_t            longest = 0;

#pragma unroll 4
  for (offset_t row = first; row < nrows; row += step) {
    const offset_t length = (offset_t)rowptr[row + 1] - rowptr[row];

    decreases |= rowptr[row + 1] < rowptr[row];
    longest = max(longest, length);
  }
#pragma unroll 4
  for (offset_t k = first; k < nnz; k += step) {
    const index_t column = load_once(colidx + k);

    outside |= column < 0 || column >= ncols;
  }
  if (first == 0 && (rowptr[0] != 0 || rowptr[nrows] != nnz)) found[0] = 1;
  if (decreases) found[1] = 1; // all threads that write, write the same
  if (outside) found[2] = 1;
  longest = group_max(longest);
  if (threadIdx.x % WARP == 0) longest_of_warps[threadIdx.x / WARP] = longest;
  __syncthreads();
  if (threadIdx.x > 0) return;
  for (int warp = 1; warp < NWARPS; warp++) longest = max(longest, longest_of_warps[warp]);
  if (longest > 0) atomicMax(found + 3, (count_t)longest);
}

// gathered[k] = values[source[k]], or values[k] if source is null: values in the order of a pattern. A thread copies VALUES_PER_THREAD.
template <int BLOCK_THREADS, int VALUES_PER_THREAD>
__global__ void __launch_bounds__(BLOCK_THREADS)
  csr_gather_values(index_t nnz, const index_t *__restrict__ source, const scalar_t *__restrict__ values, scalar_t *__restrict__ gathered)
{
  const offset_t first = (offset_t)blockIdx.x * BLOCK_THREADS * VALUES_PER_THREAD + threadIdx.x;
  scalar_t       v[VALUES_PER_THREAD];

#pragma unroll
  for (int i = 0; i < VALUES_PER_THREAD; i++) {
    const offset_t k = first + i * BLOCK_THREADS;

    v[i] = k < nnz ? values[source ? source[k] : k] : scalar_t(0);
  }
#pragma unroll
  for (int i = 0; i < VALUES_PER_THREAD; i++) {
    const offset_t k = first + i * BLOCK_THREADS;

    if (k < nnz) gathered[k] = v[i];
  }
}
