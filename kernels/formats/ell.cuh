// What ELLPACK, ELLPACK-R and JDS share: entry j of all rows lies side by side, at place(j) + position, and one thread sums one row.
#pragma once
#include "common/common.cuh"

struct Rectangle { // every column as long as all others
  offset_t height;

  __device__ __forceinline__ offset_t operator()(index_t j) const { return j * height; }
};
struct JaggedDiagonals { // columns of decreasing length; all threads of a warp read the same word
  const offset_t *__restrict__ jd_ptr;

  __device__ __forceinline__ offset_t operator()(index_t j) const { return __ldg(jd_ptr + j); }
};

// Sum of the first `count` entries of the row at `position`. Four entries are loaded before the first is used, the rest in one
// predicated batch: a row of seven takes two waits for memory, not four. The order of additions is fixed.
template <class Place, class Operand>
__device__ __forceinline__ scalar_t row_sum(index_t count, offset_t position, const Place place, const index_t *__restrict__ col,
                                            const scalar_t *__restrict__ val, offset_t row, const Operand operand)
{
  constexpr int BATCH = 4;
  scalar_t      sum   = 0;
  index_t       j     = 0;

  col += position;
  val += position;
#pragma unroll 1 // more need more than 32 registers
  for (; j + BATCH <= count; j += BATCH) {
    index_t  c[BATCH];
    scalar_t v[BATCH];

#pragma unroll
    for (int k = 0; k < BATCH; k++) {
      const offset_t p = place(j + k);

      c[k] = load_once(col + p);
      v[k] = load_once(val + p);
    }
#pragma unroll
    for (int k = 0; k < BATCH; k++) operand.add(sum, v[k], c[k], (index_t)row);
  }
  if (j < count) {
    index_t  c[BATCH - 1];
    scalar_t v[BATCH - 1];

#pragma unroll
    for (int k = 0; k < BATCH - 1; k++) {
      const offset_t p = j + k < count ? place(j + k) : 0;

      c[k] = j + k < count ? load_once(col + p) : index_t(-1);
      v[k] = j + k < count ? load_once(val + p) : scalar_t(0);
    }
#pragma unroll
    for (int k = 0; k < BATCH - 1; k++) operand.add(sum, v[k], c[k], (index_t)row);
  }
  return sum;
}

// Copies entries k .. k_end of the pattern, read at source[k] or at k if source is null, to places begin, begin + step, ... of the row at
// `position`, and fills the row with padding up to its `width`.
template <class Place, class Entry>
__device__ __forceinline__ void fill_row(index_t begin, index_t step, index_t width, offset_t position, const Place place, offset_t k, offset_t k_end,
                                         const index_t *__restrict__ source, const Entry *__restrict__ entries, Entry *__restrict__ stored,
                                         Entry padding)
{
  for (offset_t j = begin; j < width; j += step)
    stored[place((index_t)j) + position] = k + j < k_end ? entries[source ? source[k + j] : k + j] : padding;
}
