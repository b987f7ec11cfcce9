// Sums of entries of up to three arrays, as the products of parallel matrices and values at coordinates need them
// (petsc_gpufmt/patterns/entry_sum.py).
#include "common/common.cuh"

struct Sources {
  index_t second, third; // numbers of the first entries of b and c: the arrays are numbered one after another
  const scalar_t *__restrict__ a, *__restrict__ b, *__restrict__ c;

  __device__ __forceinline__ scalar_t operator[](index_t entry) const
  {
    return entry < second ? __ldg(a + entry) : entry < third ? __ldg(b + (entry - second)) : __ldg(c + (entry - third));
  }
};

// Sets found[0] unless the beginnings of `nsums` sums rise from 0 to `nterms`, and found[1] if an entry index[e] is not in [0, nentries); they
// are zeros at first. begins null: not looked at, and `nsums` is 0. A thread a sum and an entry.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS) entry_sum_check(offset_t nsums, const index_t *__restrict__ begins, offset_t nterms,
                                                                 offset_t nentries, const index_t *__restrict__ index, offset_t *__restrict__ found)
{
  const offset_t k = (offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x;

  if (begins) {
    if (k == 0 && (begins[0] != 0 || begins[nsums] != nterms)) found[0] = 1;
    if (k < nsums && begins[k + 1] < begins[k]) found[0] = 1; // all threads that write, write the same
  }
  if (k < nterms && (index[k] < 0 || index[k] >= nentries)) found[1] = 1;
}

// target[t] = sum over e in [begins[t], begins[t + 1]) of entry index[e] of the sources, in this order; with SINGLE each target has the
// one entry index[t], or t if `index` is null, and `begins` is not read. Then + added[t] unless that is null; it may be the target itself. A thread does BATCH targets,
// BLOCK_THREADS apart. Bytes a target of k entries: k (sizeof(index_t) + sizeof(scalar_t)) + sizeof(scalar_t), + sizeof(index_t) unless
// SINGLE, + sizeof(scalar_t) if there is an array to add.
template <int BLOCK_THREADS, int SINGLE>
__global__ void __launch_bounds__(BLOCK_THREADS)
  entry_sum(index_t ntargets, const index_t *__restrict__ begins, const index_t *__restrict__ index, index_t second, index_t third,
            const scalar_t *__restrict__ a, const scalar_t *__restrict__ b, const scalar_t *__restrict__ c, const scalar_t *added, scalar_t *target)
{
  constexpr int  BATCH   = 4;
  const Sources  sources = {second, third, a, b, c};
  const offset_t first   = (offset_t)blockIdx.x * (BATCH * BLOCK_THREADS) + threadIdx.x;
  index_t        begin[BATCH], end[BATCH], entry[BATCH];
  scalar_t       sum[BATCH];

#pragma unroll
  for (int k = 0; k < BATCH; k++) {
    const offset_t t = first + k * BLOCK_THREADS;

    begin[k] = end[k] = 0;
    if (t >= ntargets) continue;
    begin[k] = SINGLE ? index_t(t) : __ldg(begins + t);
    end[k]   = SINGLE ? index_t(t) + 1 : __ldg(begins + t + 1);
  }
#pragma unroll
  for (int k = 0; k < BATCH; k++) entry[k] = begin[k] >= end[k] ? index_t(-1) : SINGLE && !index ? begin[k] : load_once(index + begin[k]);
#pragma unroll
  for (int k = 0; k < BATCH; k++) sum[k] = entry[k] >= 0 ? sources[entry[k]] : scalar_t(0);
#pragma unroll
  for (int k = 0; k < BATCH; k++) {
    const offset_t t = first + k * BLOCK_THREADS;

    if (!SINGLE)
      for (offset_t e = (offset_t)begin[k] + 1; e < end[k]; e++) sum[k] += sources[load_once(index + e)];
    if (t < ntargets) target[t] = added ? sum[k] + added[t] : sum[k];
  }
}
