/* Launches one after the other, for petsc_gpufmt/backends/driver.py: Python's call of a function of the driver takes as long as the launch. */
#include "runtime/runtime.h"

/* cuLaunchKernel(), of which Python has the address: PETSc may not know CUDA, and tests have a driver of their own */
typedef int (*LaunchKernel)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);

/* A launch is a head, and the places of its arguments among the words that all launches share. The number of its blocks in the first dimension is
   a word too, since with the arguments it is what changes from one use to the next; with none, the launch is left out. */
enum { FUNCTION, BLOCKS, GRID_Y, GRID_Z, BLOCK_X, BLOCK_Y, BLOCK_Z, SHARED_BYTES, NARGUMENTS, HEAD, MOST_ARGUMENTS = 64 };

/* Returns what the driver says of the first launch that it refuses; 0: all are queued. */
PETSC_EXTERN int GpufmtLaunchAll(LaunchKernel launch, int64_t nlaunches, const uint64_t heads[], uint64_t words[], void *stream)
{
  void *params[MOST_ARGUMENTS];

  for (; nlaunches > 0; nlaunches--, heads += HEAD + heads[NARGUMENTS]) {
    const uint64_t wanted = words[heads[BLOCKS]];
    const unsigned blocks = wanted < UINT_MAX ? (unsigned)wanted : UINT_MAX; /* which the driver refuses */
    int            code;

    if (!blocks) continue;
    for (uint64_t i = 0; i < heads[NARGUMENTS]; i++) params[i] = &words[heads[HEAD + i]];
    code = launch((void *)(uintptr_t)heads[FUNCTION], blocks, (unsigned)heads[GRID_Y], (unsigned)heads[GRID_Z], (unsigned)heads[BLOCK_X],
                  (unsigned)heads[BLOCK_Y], (unsigned)heads[BLOCK_Z], (unsigned)heads[SHARED_BYTES], stream, params, NULL);
    if (code) return code;
  }
  return 0;
}
