// Values in single precision (petsc_gpufmt/patterns/narrow.py).
#include "common/common.cuh"

static constexpr int   BATCH   = 4;
static constexpr float LARGEST = 3.40282347e38f, SMALLEST_NORMAL = 1.17549435e-38f;

// narrowed[e] = values[e], rounded to the nearest. To outside[0] are added those that are finite and become infinite, to outside[1] those that are
// not 0 and become 0 or subnormal. A thread does BATCH entries, BLOCK_THREADS apart. Bytes an entry: sizeof(scalar_t) + 4. Counts alone are added by
// atomics, so their order is of no matter.
template <int BLOCK_THREADS>
__global__ void __launch_bounds__(BLOCK_THREADS)
  narrow_values(index_t nnz, const scalar_t *__restrict__ values, float *__restrict__ narrowed, unsigned long long *outside)
{
  const offset_t first = (offset_t)blockIdx.x * (BATCH * BLOCK_THREADS) + threadIdx.x;
  scalar_t       value[BATCH];
  unsigned       large = 0, small = 0;

#pragma unroll
  for (int k = 0; k < BATCH; k++) value[k] = first + k * BLOCK_THREADS < nnz ? load_once(values + first + k * BLOCK_THREADS) : scalar_t(0);
#pragma unroll
  for (int k = 0; k < BATCH; k++) {
    const scalar_t magnitude = value[k] < 0 ? -value[k] : value[k];
    const float    rounded   = (float)magnitude;

    if (first + k * BLOCK_THREADS < nnz) narrowed[first + k * BLOCK_THREADS] = (float)value[k];
    large += rounded > LARGEST && magnitude - magnitude == 0; // which it is not for infinity
    small += magnitude > 0 && rounded < SMALLEST_NORMAL;
  }
  if (large) atomicAdd(outside, (unsigned long long)large);
  if (small) atomicAdd(outside + 1, (unsigned long long)small);
}
