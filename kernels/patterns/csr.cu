// Whether arrays are a CSR pattern, and values in its order (petsc_gpufmt/patterns/csr.py).
#include "common/scan.cuh"

constexpr int LENGTH_BINS = 12, LONG_ROW = 64;

// The bin of rows of so many entries: 0, 1, 2, 3-4, 5-8, ..., 257-512, more
__device__ __forceinline__ int length_bin(offset_t length)
{
  return length <= 0 ? 0 : min(33 - __clz((int)min(length, offset_t(1024)) - 1), LENGTH_BINS - 1);
}

// What csr_check finds, all zeros at first.
struct CsrFound {
  count_t ends, decreases, outside; // not 0: the row pointer does not run from 0 to nnz, it decreases, a column is not in the matrix
  count_t longest, sliced;          // entries of the longest row; of all slices of 32 rows, each padded to its longest
  count_t descends;                 // not 0: a row is longer than the next
  count_t padding[2];               // of rows of more than 64 entries to multiples of 32, and of rows of more than 128
  count_t lengths[LENGTH_BINS];     // how many rows have 0, 1, 2, 3-4, 5-8, ... entries, the last bin those of all more
};

// Whether arrays are a pattern, and how long its rows are. Threads: a row each, and an entry each, in turns.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS) csr_check(index_t nrows, index_t ncols, index_t nnz, const index_t *__restrict__ rowptr,
                                                           const index_t *__restrict__ colidx, CsrFound *__restrict__ found)
{
  __shared__ count_t shared_longest, shared_sliced, shared_padding[2], shared_lengths[LENGTH_BINS];
  const offset_t     first = (offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x, step = (offset_t)gridDim.x * BLOCK_THREADS;
  const int          lane      = threadIdx.x % WARP;
  bool               decreases = false, outside = false, descends = false;
  offset_t           longest = 0, sliced = 0, padding = 0, padding_of_longer = 0;
  count_t            in_bin = 0; // rows of the bin that the lane counts

  if (threadIdx.x < LENGTH_BINS) shared_lengths[threadIdx.x] = 0;
  if (threadIdx.x == 0) shared_longest = shared_sliced = shared_padding[0] = shared_padding[1] = 0;
  for (offset_t row = first; row - lane < nrows; row += step) { // a warp has a slice
    const offset_t length = row < nrows ? (offset_t)rowptr[row + 1] - rowptr[row] : offset_t(0);
    const offset_t width  = group_max(length);
    const int      bin    = row < nrows ? length_bin(length) : -1;

    decreases |= length < 0;
    descends |= row + 1 < nrows && length > (offset_t)rowptr[row + 2] - rowptr[row + 1];
    if (length > LONG_ROW) {
      padding += -length & (WARP - 1);
      padding_of_longer += length > 2 * LONG_ROW ? -length & (WARP - 1) : offset_t(0);
    }
    longest = max(longest, width);
    sliced += max(width, offset_t(0)) * WARP;
#pragma unroll
    for (int b = 0; b < LENGTH_BINS; b++) {
      const unsigned rows = __ballot_sync(FULL_WARP, bin == b);

      if (lane == b) in_bin += __popc(rows);
    }
  }
#pragma unroll 4
  for (offset_t k = first; k < nnz; k += step) {
    const index_t column = load_once(colidx + k);

    outside |= column < 0 || column >= ncols;
  }
  if (first == 0 && (rowptr[0] != 0 || rowptr[nrows] != nnz)) found->ends = 1;
  if (descends) found->descends = 1;
  if (decreases) found->decreases = 1; // all threads that write, write the same
  if (outside) found->outside = 1;
  padding           = group_sum(padding);
  padding_of_longer = group_sum(padding_of_longer);
  __syncthreads();
  if (lane < LENGTH_BINS && in_bin) atomicAdd(shared_lengths + lane, in_bin);
  if (lane == 0 && longest > 0) {
    atomicMax(&shared_longest, (count_t)longest);
    atomicAdd(&shared_sliced, (count_t)sliced);
    if (padding) atomicAdd(shared_padding, (count_t)padding);
    if (padding_of_longer) atomicAdd(shared_padding + 1, (count_t)padding_of_longer);
  }
  __syncthreads();
  if (threadIdx.x < LENGTH_BINS && shared_lengths[threadIdx.x]) atomicAdd(found->lengths + threadIdx.x, shared_lengths[threadIdx.x]);
  if (threadIdx.x == 0 && shared_longest) {
    atomicMax(&found->longest, shared_longest);
    atomicAdd(&found->sliced, shared_sliced);
    if (shared_padding[0]) atomicAdd(found->padding, shared_padding[0]);
    if (shared_padding[1]) atomicAdd(found->padding + 1, shared_padding[1]);
  }
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

// gathered[k] = entries[places[k]], of so many `words` of 32 bits each: a part of a pattern, or rows of any array. As many threads as entries copy word
// by word.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS) csr_gather_entries(offset_t n, const index_t *__restrict__ places, offset_t words,
                                                                    const unsigned *__restrict__ entries, unsigned *__restrict__ gathered)
{
  const offset_t nthreads = (offset_t)gridDim.x * BLOCK_THREADS;

  for (offset_t t = (offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x; t < n * words; t += nthreads) {
    const offset_t k = t / words;

    gathered[t] = entries[places[k] * words + (t - k * words)];
  }
}
