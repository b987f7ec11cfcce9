// Sums of Krylov methods over ranks that reach memory of each other, within the kernels that make them.
#pragma once
#include "common/peers.cuh"
#include "krylov/state.cuh"

// sums[k] of the state becomes the sum of totals[k] over all ranks, of which one that has failed sends what is not a number. All threads of the last block of a
// launch call it, with the same totals, and find the sums there.
template <int BLOCK_THREADS, int N>
__device__ __forceinline__ void put_sums_of_ranks(const Ranks<double> &ranks, offset_t failed, const scalar_t (&totals)[N], double *sums)
{
  const count_t exchange = ranks.next();

  send_parts<BLOCK_THREADS>(ranks, exchange, N, [&](int which) {
    double part = totals[0];

#pragma unroll
    for (int k = 1; k < N; k++)
      if (k == which) part = totals[k];
    return failed ? not_a_number<double>() : part;
  });
  receive_sums<BLOCK_THREADS>(ranks, exchange, N, sums);
  if (threadIdx.x == 0) *ranks.arrivals->exchange = exchange;
}

// What the last block of a launch has added up becomes sums[0 .. N - 1] of the state: of all ranks, or of this one alone, which its first thread writes.
template <int BLOCK_THREADS, bool OF_RANKS, int N>
__device__ __forceinline__ void put_sums(const Ranks<double> &ranks, offset_t failed, const scalar_t (&totals)[N], double *sums)
{
  if constexpr (OF_RANKS) put_sums_of_ranks<BLOCK_THREADS>(ranks, failed, totals, sums);
  else if (threadIdx.x == 0) {
#pragma unroll
    for (int k = 0; k < N; k++) sums[k] = totals[k];
  }
}
