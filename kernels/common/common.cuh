// Types and helpers of all device kernels. SCALAR and INDEX are defined by the compiler call (petsc_gpufmt/backends/kernel_sources.py).
//
// A parameter may be a struct (Struct in petsc_gpufmt/backends/plan.py), with the same members on the host: each begins a word of 8 bytes, so smaller
// ones are alignas(8). The compiler knows of a parameter that it is read alone, but not of arrays that a struct points to: __ldg() says so.
#pragma once
#include "common/complex.cuh"

typedef SCALAR                 scalar_t;
typedef RealOf<scalar_t>::type real_t; // of its magnitude
typedef INDEX                  index_t;
typedef long long              offset_t; // positions in stored arrays: padding may pass 2^31 where the nonzeros do not

template <int BYTES>
struct Unsigned;
template <>
struct Unsigned<4> {
  typedef unsigned type;
};
template <>
struct Unsigned<8> {
  typedef unsigned long long type;
};
typedef Unsigned<sizeof(index_t)>::type word_t; // as wide as an index

// Matrix data is read once a product: loads that do not displace x from the cache.
template <class T>
__device__ __forceinline__ T load_once(const T *p)
{
  return __ldcs(p);
}

// What the entries of a row are summed with. `column` is -1 in padding, where nothing may be read.
struct VectorOperand { // the row of A x
  const scalar_t *__restrict__ x;

  __device__ __forceinline__ void add(scalar_t &sum, scalar_t value, index_t column, index_t) const
  {
    sum += value * (column >= 0 ? __ldg(x + column) : scalar_t(0));
  }
};
struct DiagonalOperand { // the diagonal entry of the row; other entries may be Inf or NaN
  __device__ __forceinline__ void add(scalar_t &sum, scalar_t value, index_t column, index_t row) const
  {
    if (column == row) sum += value;
  }
};

// z[row] = alpha sum + beta y[row]; y is not read where beta is 0, and z may be y
__device__ __forceinline__ void store_result(offset_t row, scalar_t sum, scalar_t alpha, scalar_t beta, const scalar_t *y, scalar_t *z)
{
  z[row] = beta == 0 ? alpha * sum : alpha * sum + beta * y[row];
}
