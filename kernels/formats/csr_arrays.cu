// Kernels that csrscalar, csrvector and csradaptive have in common: 16-bit columns into the arrays described in csr_arrays.cuh.
#include "formats/csr_arrays.cuh"

// Smallest column of each row, and the largest minus it; 0 and 0 for an empty row. THREADS_PER_ROW <= 32 threads share a row.
template <int BLOCK_THREADS, int THREADS_PER_ROW>
__global__ void __launch_bounds__(BLOCK_THREADS) csr_row_spans(index_t nrows, const index_t *__restrict__ rowptr, const index_t *__restrict__ colidx,
                                                               index_t *__restrict__ col_base, index_t *__restrict__ row_span)
{
  const offset_t row = ((offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x) / THREADS_PER_ROW;
  offset_t       k = 0, end = 0;

  if (row < nrows) {
    k   = rowptr[row];
    end = rowptr[row + 1];
  }
  index_t first = k < end ? colidx[k] : index_t(0), last = first;

#pragma unroll 4
  for (k += threadIdx.x % THREADS_PER_ROW; k < end; k += THREADS_PER_ROW) {
    const index_t c = colidx[k];

    first = c < first ? c : first;
    last  = c > last ? c : last;
  }
  first = group_min(first, THREADS_PER_ROW);
  last  = group_max(last, THREADS_PER_ROW);
  if (threadIdx.x % THREADS_PER_ROW == 0 && row < nrows) {
    col_base[row] = first;
    row_span[row] = last - first;
  }
}

// stored[k] = colidx[k] - col_base[row of k]: the structure pass of 16-bit columns
template <int BLOCK_THREADS, int THREADS_PER_ROW>
__global__ void __launch_bounds__(BLOCK_THREADS)
  csr_fill_offsets(index_t nrows, const index_t *__restrict__ rowptr, const index_t *__restrict__ col_base, const index_t *__restrict__ colidx,
                   unsigned short *__restrict__ stored)
{
  const offset_t row = ((offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x) / THREADS_PER_ROW;

  if (row >= nrows) return;
  const index_t  base = col_base[row];
  const offset_t end  = rowptr[row + 1];

#pragma unroll 4
  for (offset_t k = rowptr[row] + threadIdx.x % THREADS_PER_ROW; k < end; k += THREADS_PER_ROW) stored[k] = (unsigned short)(colidx[k] - base);
}
