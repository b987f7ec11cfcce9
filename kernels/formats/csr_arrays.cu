// Kernels that csrscalar, csrvector and csradaptive have in common: 16-bit columns into the arrays described in csr_arrays.cuh.
#include "common/scan.cuh"
#include "formats/csr_arrays.cuh"

// Of all rows, found[0] += those with entries, and found[1] = the most that the largest column of one is above its smallest; both 0 at first.
// col_base[row] is the smallest column, 0 in an empty row; if it is null, columns are not looked at. THREADS_PER_ROW <= 32 threads share a row.
template <int BLOCK_THREADS, int THREADS_PER_ROW>
__global__ void __launch_bounds__(BLOCK_THREADS) csr_row_spans(index_t nrows, const index_t *__restrict__ rowptr, const index_t *__restrict__ colidx,
                                                               index_t *__restrict__ col_base, count_t *__restrict__ found)
{
  __shared__ count_t nonempty, widest; // of this block
  const offset_t     row   = ((offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x) / THREADS_PER_ROW;
  const bool         leads = threadIdx.x % THREADS_PER_ROW == 0 && row < nrows;
  offset_t           k = 0, end = 0;

  if (threadIdx.x == 0) nonempty = widest = 0;
  __syncthreads();
  if (row < nrows) {
    k   = rowptr[row];
    end = rowptr[row + 1];
  }
  const unsigned with_entries = __ballot_sync(FULL_WARP, leads && k < end);

  if (threadIdx.x % WARP == 0 && with_entries) atomicAdd(&nonempty, (count_t)__popc(with_entries));
  if (col_base) {
    index_t first = k < end ? colidx[k] : index_t(0), last = first;

#pragma unroll 4
    for (k += threadIdx.x % THREADS_PER_ROW; k < end; k += THREADS_PER_ROW) {
      const index_t c = colidx[k];

      first = c < first ? c : first;
      last  = c > last ? c : last;
    }
    first = group_min(first, THREADS_PER_ROW);
    last  = group_max(last, THREADS_PER_ROW);
    if (leads) col_base[row] = first;
    const index_t span = group_max(last - first, WARP);

    if (threadIdx.x % WARP == 0) atomicMax(&widest, (count_t)span);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    if (nonempty) atomicAdd(found, nonempty);
    if (widest) atomicMax(found + 1, widest);
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
