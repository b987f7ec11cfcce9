// The condition of a loop in a CUDA graph (petsc_gpufmt/backends/loop.py, native/runtime/loop.c).
#include "common/common.cuh"

// No library has it: the driver knows it, and puts it in as it loads the module. The assembler lets it pass from CUDA 12.3 on.
extern "C" __device__ void cudaGraphSetConditional(unsigned long long loop, unsigned value);

// The loop ends if the word that `stop` points to is not 0. One thread, which reads 8 bytes.
__global__ void loop_set_condition(unsigned long long loop, const long long *__restrict__ stop)
{
  cudaGraphSetConditional(loop, __ldg(stop) == 0);
}
