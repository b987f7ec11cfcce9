// What a product does with the sum of a row, beside what is in common.cuh: formats have one kernel for each of these.
// `is_empty()` tells whether the row is known to have no entries; it is asked only where that matters.
#pragma once
#include "common/sums.cuh"

// z = alpha A x + beta y; z may be y
struct ScaledResult {
  static constexpr bool ROW_BY_ROW = false;

  scalar_t        alpha, beta;
  const scalar_t *y;
  scalar_t       *z;

  template <class IsEmpty>
  __device__ __forceinline__ void use(offset_t row, scalar_t sum, const IsEmpty is_empty) const
  {
    // an empty row has nothing to add: most rows of an off-diagonal block are empty, and z is y there
    if (y != z || beta != 1 || !is_empty()) store_result(row, sum, alpha, beta, y, z);
  }
};

// z[row] = alpha u[row] + beta x[row] + gamma d[row] (b[row] - (A x)[row]), and in `dot` the sum over all rows of w[row] (A x)[row], unless
// dot.parts is null. So one kernel makes steps of Richardson's or Chebyshev's iteration, with the inverse d of a diagonal, and products that
// leave a dot product. What has the factor 0 is not read, u may be z, and w may be x. Bytes a row beside those of the product: u, d, b and w once,
// those that are there.
struct Fused {
  alignas(8) scalar_t alpha;
  alignas(8) scalar_t beta;
  alignas(8) scalar_t gamma;
  const scalar_t *u;
  const scalar_t *__restrict__ d; // null: 1
  const scalar_t *__restrict__ b; // null: 0
  const scalar_t *__restrict__ w;
  scalar_t *z;
  GridSum   dot;
};

// What one thread makes of the sums of its rows
struct FusedResult {
  static constexpr bool ROW_BY_ROW = true; // several at once would take registers that the product needs

  const Fused &f;
  const scalar_t *__restrict__ x;
  scalar_t part = 0; // of the dot product

  template <class IsEmpty>
  __device__ __forceinline__ void use(offset_t row, scalar_t sum, const IsEmpty is_empty)
  {
    // as in ScaledResult, where an off-diagonal block adds to what the diagonal one has made
    if (!f.b && f.u == f.z && f.alpha == 1 && f.beta == 0 && is_empty()) return;
    scalar_t result = f.gamma * (f.d ? __ldg(f.d + row) : scalar_t(1)) * (f.b ? __ldg(f.b + row) - sum : -sum);

    if (f.beta != 0) result += f.beta * __ldg(x + row);
    if (f.alpha != 0) result += f.alpha * f.u[row];
    f.z[row] = result;
    if (f.dot.parts) part += sum * __ldg(f.w + row);
  }

  // all threads of the launch call it
  template <int BLOCK_THREADS>
  __device__ __forceinline__ void finish() const
  {
    if (f.dot.parts) grid_sum<BLOCK_THREADS>(part, f.dot);
  }
};

// Calls use_row(q) for each row of a thread that has several: q = first, first + STEP, ... below `end`.
template <class Result, int STEP, class UseRow>
__device__ __forceinline__ void for_rows(int first, int end, const UseRow use_row)
{
  if constexpr (Result::ROW_BY_ROW) {
#pragma unroll 1
    for (int q = first; q < end; q += STEP) use_row(q);
  } else
    for (int q = first; q < end; q += STEP) use_row(q);
}
