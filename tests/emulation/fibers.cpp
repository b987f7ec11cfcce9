// The blocks of a grid run one after another. The threads of a block are carried by fibers: a fiber runs one thread after another to
// its end, and only where a thread must wait at a barrier is it parked and the next fiber started. Kernels without barriers need one.
#include <ucontext.h>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>
#include "cuda_shim.h"
#include "fibers.h"

dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace
{
constexpr std::size_t STACK_BYTES = 64 * 1024;

struct Fiber {
  ucontext_t              context;
  std::unique_ptr<char[]> stack{new char[STACK_BYTES]};
  dim3                    thread;   // the one that it carries
  int                     line = 0; // of the barrier where it waits, 0: it has no thread left to run
};

std::vector<std::unique_ptr<Fiber>> fibers; // kept from block to block, and from launch to launch
ucontext_t                          scheduler;
Fiber                              *current;
unsigned                            next_thread, nthreads;
void (*run_thread)(void **);
void **run_params;

void run_threads()
{
  while (next_thread < nthreads) {
    const unsigned t = next_thread++;

    threadIdx = current->thread = {t % blockDim.x, t / blockDim.x % blockDim.y, t / (blockDim.x * blockDim.y)};
    run_thread(run_params);
  }
  current->line = 0;
}

void resume(Fiber &fiber)
{
  current   = &fiber;
  threadIdx = fiber.thread;
  swapcontext(&scheduler, &fiber.context);
}

void start(Fiber &fiber)
{
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp   = fiber.stack.get();
  fiber.context.uc_stack.ss_size = STACK_BYTES;
  fiber.context.uc_link          = &scheduler;
  makecontext(&fiber.context, run_threads, 0);
  resume(fiber);
}

// Runs one block; the message if its threads part.
const char *run_block()
{
  static char message[200];
  std::size_t started = 0;

  for (next_thread = 0; next_thread < nthreads;) {
    if (started == fibers.size()) fibers.push_back(std::make_unique<Fiber>());
    start(*fibers[started++]);
  }
  for (;;) {
    unsigned waiting = 0;
    int      line    = 0;

    for (std::size_t f = 0; f < started; f++) {
      if (!fibers[f]->line) continue;
      if (line && fibers[f]->line != line) {
        std::snprintf(message, sizeof(message), "threads of block (%u,%u,%u) wait at different barriers, in lines %d and %d", blockIdx.x, blockIdx.y, blockIdx.z, line, fibers[f]->line);
        return message;
      }
      line = fibers[f]->line;
      waiting++;
    }
    if (!waiting) return nullptr;
    if (waiting < nthreads) {
      std::snprintf(message, sizeof(message), "%u of %u threads of block (%u,%u,%u) wait at the barrier in line %d, the others have ended", waiting, nthreads, blockIdx.x, blockIdx.y, blockIdx.z, line);
      return message;
    }
    for (std::size_t f = 0; f < started; f++) resume(*fibers[f]);
  }
}
} // namespace

void wait_for_block(int line)
{
  current->line = line;
  swapcontext(&current->context, &scheduler);
}

const char *run_grid(const unsigned grid[3], const unsigned block[3], void (*thread)(void **), void **params, char *shared, std::size_t shared_bytes)
{
  run_thread = thread;
  run_params = params;
  gridDim    = {grid[0], grid[1], grid[2]};
  blockDim   = {block[0], block[1], block[2]};
  nthreads   = block[0] * block[1] * block[2];
  for (blockIdx.z = 0; blockIdx.z < grid[2]; blockIdx.z++)
    for (blockIdx.y = 0; blockIdx.y < grid[1]; blockIdx.y++)
      for (blockIdx.x = 0; blockIdx.x < grid[0]; blockIdx.x++) {
        std::memset(shared, 0xff, shared_bytes);
        if (const char *message = run_block()) return message;
      }
  return nullptr;
}
