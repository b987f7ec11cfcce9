// What the kernels of csrscalar, csrvector and csradaptive share: how a team of threads sums a row of CSR.
//
// Arrays (formats/common/csr_arrays.py)
//   rowptr [nrows + 1]  row i has entries rowptr[i] .. rowptr[i + 1]
//   col [nnz]           SHORT_INDEX 0: the column, index_t; SHORT_INDEX 1: column - col_base[row] in 16 bits
//   col_base [nrows]    smallest column of each row; null with SHORT_INDEX 0
//   val [nnz]
#pragma once
#include "common/reduce.cuh"

template <int SHORT_INDEX>
struct StoredColumn {
  typedef index_t type;
};
template <>
struct StoredColumn<1> {
  typedef unsigned short type;
};

// Sum of entries 0, stride, 2 stride, ... of the `left` entries at col and val, in this order. Four are loaded before the first is
// used, the rest in one predicated batch. A warp reads the lines of its rows in pieces, one after another: they must stay in the
// first-level cache meanwhile, so there is no load_once() here.
template <int SHORT_INDEX, class Operand>
__device__ __forceinline__ scalar_t partial_sum(index_t left, int stride, const typename StoredColumn<SHORT_INDEX>::type *__restrict__ col,
                                                index_t base, const scalar_t *__restrict__ val, index_t row, const Operand operand)
{
  constexpr int BATCH = 4;
  scalar_t      sum   = 0;

  for (; left > (BATCH - 1) * stride; left -= BATCH * stride, col += BATCH * stride, val += BATCH * stride) {
    index_t  c[BATCH];
    scalar_t v[BATCH];

#pragma unroll
    for (int k = 0; k < BATCH; k++) {
      c[k] = __ldg(col + k * stride);
      v[k] = __ldg(val + k * stride);
    }
#pragma unroll
    for (int k = 0; k < BATCH; k++) operand.add(sum, v[k], SHORT_INDEX ? base + c[k] : c[k], row);
  }
  if (left > 0) {
    index_t  c[BATCH - 1];
    scalar_t v[BATCH - 1];

#pragma unroll
    for (int k = 0; k < BATCH - 1; k++) {
      c[k] = k * stride < left ? index_t(__ldg(col + k * stride)) : index_t(-1);
      v[k] = k * stride < left ? __ldg(val + k * stride) : scalar_t(0);
    }
#pragma unroll
    for (int k = 0; k < BATCH - 1; k++) operand.add(sum, v[k], SHORT_INDEX && c[k] >= 0 ? base + c[k] : c[k], row);
  }
  return sum;
}

// z[row] = alpha (row of A) x + beta y[row] with THREADS_PER_ROW <= 32 neighbouring threads for each row. Bytes a row of k entries:
// k (index_t or 2, + sizeof(scalar_t)) + 2 sizeof(scalar_t) + sizeof(index_t), + sizeof(index_t) with SHORT_INDEX. Deterministic: a
// fixed tree of sums, no atomics.
template <int THREADS_PER_ROW, int BLOCK_THREADS, int SHORT_INDEX, class Operand>
__device__ __forceinline__ void product(index_t nrows, const index_t *__restrict__ rowptr,
                                        const typename StoredColumn<SHORT_INDEX>::type *__restrict__ col, const index_t *__restrict__ col_base,
                                        const scalar_t *__restrict__ val, const Operand operand, scalar_t alpha, scalar_t beta, const scalar_t *y,
                                        scalar_t *z)
{
  const offset_t row   = ((offset_t)blockIdx.x * BLOCK_THREADS + threadIdx.x) / THREADS_PER_ROW;
  const int      lane  = threadIdx.x % THREADS_PER_ROW;
  index_t        begin = 0, end = 0, base = 0;

  if (row < nrows) {
    begin = rowptr[row];
    end   = rowptr[row + 1];
    if constexpr (SHORT_INDEX) base = col_base[row];
  }
  const scalar_t sum = group_sum(partial_sum<SHORT_INDEX>(end - begin - lane, THREADS_PER_ROW, col + begin + lane, base, val + begin + lane,
                                                          (index_t)row, operand),
                                 THREADS_PER_ROW);

  // an empty row has nothing to add: most rows of an off-diagonal block are empty, and z is y there
  if (lane == 0 && row < nrows && (begin != end || y != z || beta != 1)) store_result(row, sum, alpha, beta, y, z);
}
