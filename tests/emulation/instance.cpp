// One instance of one kernel, to be launched from outside. The compiler call defines KERNEL_FILE and KERNEL, such as "pjds.cu" and
// pjds_spmv<32, 1, 4>.
#include <utility>
#include "cuda_shim.h"
#include KERNEL_FILE
#include "fibers.h"

template <class... Parameters, std::size_t... I>
static void call(void (*kernel)(Parameters...), void **params, std::index_sequence<I...>)
{
  kernel(*static_cast<Parameters *>(params[I])...);
}

template <class... Parameters>
static void call(void (*kernel)(Parameters...), void **params)
{
  call(kernel, params, std::index_sequence_for<Parameters...>());
}

static void run_thread(void **params)
{
  call(KERNEL, params);
}

// The linker's names for the zero-initialised data of this library, which are the __shared__ variables of the kernel.
extern "C" __attribute__((visibility("hidden"))) char __bss_start[], _end[];

// launches the kernel; params[i] points to argument i. Returns null, or what the threads of a block did wrong
extern "C" const char *launch(const unsigned grid[3], const unsigned block[3], void **params)
{
  return run_grid(grid, block, run_thread, params, __bss_start, _end - __bss_start);
}
