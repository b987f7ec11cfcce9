// Types and helpers of all device kernels. SCALAR and INDEX are defined by the compiler call (petsc_gpufmt/compile.py).
#pragma once

typedef SCALAR scalar_t;
typedef INDEX index_t;
typedef long long offset_t; // positions in stored arrays: padding may pass 2^31 where the nonzeros do not

// Matrix data is read once a product: loads that do not displace x from the cache.
template <class T>
__device__ __forceinline__ T load_once(const T *p)
{
  return __ldcs(p);
}
