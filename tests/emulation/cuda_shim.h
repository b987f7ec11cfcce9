// CUDA's words for a host C++ compiler: what the kernels use of them, no more. Included before a .cu file (see instance.cpp).
#pragma once

struct dim3 {
  unsigned x, y, z;
};

// of the thread that runs now; fibers.cpp sets them
extern dim3 threadIdx, blockIdx, blockDim, gridDim;

// returns when every thread of the block has come to the same line
void wait_for_block(int line);

#define __global__
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __restrict__ __restrict
#define __shared__       static // blocks run one after another
#define __syncthreads()  wait_for_block(__LINE__)

template <class T>
inline T __ldg(const T *p)
{
  return *p;
}

template <class T>
inline T __ldcs(const T *p)
{
  return *p;
}
