// Runs a grid on one host thread.
#pragma once
#include <cstddef>

// Calls run_thread(params) for every thread of every block. Returns null, or a sentence if threads of a block did not come to the
// same barriers, or threads of a warp not to the same warp operations; the grid is left unfinished then. Each block finds the bytes
// of its shared memory all set (NaN as floating-point).
const char *run_grid(const unsigned grid[3], const unsigned block[3], void (*run_thread)(void **), void **params, char *shared,
                     std::size_t shared_bytes);
