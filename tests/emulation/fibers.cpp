// The blocks of a grid run one after another, and so do the warps of a block, each to its next barrier. The threads are carried by
// fibers: a fiber runs one thread after another to its end, and only where a thread must wait, at a barrier or at a warp operation, is
// it parked and the next fiber started. Kernels without either need one.
#include <setjmp.h>
#include <ucontext.h>
#include <cstdarg>
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
constexpr unsigned    WARP        = warpSize;

enum class Wait { BLOCK, WARP };

struct Fiber {
  ucontext_t              first; // switching by setjmp is much faster than by ucontext, which is needed to begin on a new stack
  jmp_buf                 context;
  std::unique_ptr<char[]> stack{new char[STACK_BYTES]};
  dim3                    place;  // threadIdx of the thread that it carries
  unsigned                thread; // the same, counted along x, then y, then z
  // while it waits
  Wait               wait;
  int                line;
  unsigned           mask;
  unsigned long long word;
  int                source_lane;
  WarpResult         result;
};

std::vector<std::unique_ptr<Fiber>> fibers; // kept from block to block, and from launch to launch
std::vector<Fiber *>                idle;
std::vector<Fiber *>                waiting; // of each thread of the block: the fiber on which it waits, null if it does not
jmp_buf                             scheduler;
Fiber                              *current;
unsigned                            next_thread, nthreads;
bool                                starting, warp_waits; // threads are being begun; one of the warp that was begun last waits
char                                message[200];         // what threads did wrong, empty while all is well
void (*run_thread)(void **);
void **run_params;

void fail(const char *format, ...)
{
  va_list arguments;

  if (message[0]) return;
  va_start(arguments, format);
  std::vsnprintf(message, sizeof(message), format, arguments);
  va_end(arguments);
}

const char *block_name()
{
  static char name[50];

  std::snprintf(name, sizeof(name), "block (%u,%u,%u)", blockIdx.x, blockIdx.y, blockIdx.z);
  return name;
}

// in a fiber: its thread waits, others run
void park(Wait wait, int line)
{
  Fiber *self = current;

  self->wait            = wait;
  self->line            = line;
  waiting[self->thread] = self;
  warp_waits            = true;
  if (!_setjmp(self->context)) _longjmp(scheduler, 1);
}

// in a fiber: thread after thread. A warp of which some threads wait comes to its barrier, or its end, before the next is begun.
void run_threads()
{
  do {
    const unsigned t = next_thread++;

    current->thread = t;
    threadIdx = current->place = {t % blockDim.x, t / blockDim.x % blockDim.y, t / (blockDim.x * blockDim.y)};
    run_thread(run_params);
  } while (starting && next_thread < nthreads && !(next_thread % WARP == 0 && warp_waits));
  idle.push_back(current);
  _longjmp(scheduler, 1);
}

void resume(Fiber *fiber)
{
  current   = fiber;
  threadIdx = fiber->place;
  if (!_setjmp(scheduler)) _longjmp(fiber->context, 1);
}

void start()
{
  if (idle.empty()) {
    fibers.push_back(std::make_unique<Fiber>());
    idle.push_back(fibers.back().get());
  }
  current = idle.back();
  idle.pop_back();
  getcontext(&current->first);
  current->first.uc_stack.ss_sp   = current->stack.get();
  current->first.uc_stack.ss_size = STACK_BYTES;
  current->first.uc_link          = nullptr;
  makecontext(&current->first, run_threads, 0);
  if (!_setjmp(scheduler)) setcontext(&current->first);
}

// The threads among `lanes` of a warp that wait, as a mask.
unsigned waiting_lanes(unsigned warp_begin, unsigned lanes)
{
  unsigned mask = 0;

  for (unsigned lane = 0; lane < WARP && warp_begin + lane < nthreads; lane++)
    if (lanes >> lane & 1 && waiting[warp_begin + lane]) mask |= 1u << lane;
  return mask;
}

// Whether all threads with which `fiber` is to exchange have come, of those that have not ended.
bool all_have_come(const Fiber *fiber, unsigned warp_begin)
{
  for (unsigned lanes = waiting_lanes(warp_begin, fiber->mask); lanes; lanes &= lanes - 1) {
    const Fiber *other = waiting[warp_begin + __builtin_ctz(lanes)];

    if (other->wait != Wait::WARP || other->line != fiber->line || other->mask != fiber->mask) return false;
  }
  return true;
}

void exchange(unsigned warp_begin, unsigned lanes)
{
  Fiber   *group[WARP];
  unsigned ngroup = 0, ballot = 0;

  for (unsigned rest = lanes; rest; rest &= rest - 1) {
    group[ngroup++] = waiting[warp_begin + __builtin_ctz(rest)];
    if (group[ngroup - 1]->word) ballot |= rest & -rest;
  }
  for (unsigned i = 0; i < ngroup; i++) {
    const unsigned source = group[i]->source_lane;

    group[i]->result = {lanes >> source & 1 ? waiting[warp_begin + source]->word : ~0ull, ballot};
  }
  for (unsigned i = 0; i < ngroup; i++) waiting[group[i]->thread] = nullptr;
  for (unsigned i = 0; i < ngroup && !message[0]; i++) resume(group[i]);
}

// Carries out the warp operations of a warp until all of its threads have ended or wait for the block.
void run_warp(unsigned warp_begin)
{
  const Fiber *stuck = nullptr;

  for (bool progress = true; progress && !message[0];) {
    progress = false;
    stuck    = nullptr;
    for (unsigned t = warp_begin; t < nthreads && t < warp_begin + WARP && !progress; t++) {
      if (!waiting[t] || waiting[t]->wait != Wait::WARP) continue;
      if (all_have_come(waiting[t], warp_begin)) {
        exchange(warp_begin, waiting_lanes(warp_begin, waiting[t]->mask));
        progress = true;
      } else if (!stuck) stuck = waiting[t];
    }
  }
  if (!stuck || message[0]) return;
  for (unsigned lanes = waiting_lanes(warp_begin, stuck->mask); lanes; lanes &= lanes - 1) {
    const Fiber *other = waiting[warp_begin + __builtin_ctz(lanes)];

    if (other->wait == Wait::BLOCK)
      fail("threads of warp %u of %s wait at the warp operation in line %d, another of the same mask at the barrier in line %d", warp_begin / WARP,
           block_name(), stuck->line, other->line);
    else if (other->line != stuck->line)
      fail("threads of warp %u of %s wait at different warp operations, in lines %d and %d", warp_begin / WARP, block_name(), stuck->line,
           other->line);
    else if (other->mask != stuck->mask)
      fail("threads of warp %u of %s wait at the warp operation in line %d with different masks, %08x and %08x", warp_begin / WARP, block_name(),
           stuck->line, stuck->mask, other->mask);
  }
}

void start_all_threads()
{
  warp_waits = false;
  for (next_thread = 0; next_thread < nthreads && !message[0];) {
    starting = true;
    start();
    starting = false;
    if (warp_waits && (next_thread % WARP == 0 || next_thread == nthreads)) {
      run_warp((next_thread - 1) / WARP * WARP);
      warp_waits = false;
    }
  }
}

// Whether the block has ended; if not, all threads wait at one barrier unless they have parted.
bool block_ended()
{
  unsigned nwaiting = 0;
  int      line     = 0;

  for (const Fiber *fiber : waiting) {
    if (!fiber) continue;
    if (line && fiber->line != line) {
      fail("threads of %s wait at different barriers, in lines %d and %d", block_name(), line, fiber->line);
      return true;
    }
    line = fiber->line;
    nwaiting++;
  }
  if (nwaiting && nwaiting < nthreads)
    fail("%u of %u threads of %s wait at the barrier in line %d, the others have ended", nwaiting, nthreads, block_name(), line);
  return !nwaiting || message[0];
}

void run_block()
{
  start_all_threads();
  while (!message[0] && !block_ended())
    for (unsigned warp_begin = 0; warp_begin < nthreads && !message[0]; warp_begin += WARP) {
      for (unsigned t = warp_begin; t < nthreads && t < warp_begin + WARP && !message[0]; t++) {
        Fiber *fiber = waiting[t];

        waiting[t] = nullptr;
        resume(fiber);
      }
      run_warp(warp_begin);
    }
}
} // namespace

void wait_for_block(int line)
{
  park(Wait::BLOCK, line);
}

WarpResult exchange_in_warp(unsigned mask, unsigned long long word, int source_lane, int line)
{
  Fiber *self = current;

  self->mask        = mask;
  self->word        = word;
  self->source_lane = source_lane;
  if (!(mask >> lane_in_warp() & 1))
    fail("thread %u of %s is not in its own mask %08x at the warp operation in line %d", self->thread, block_name(), mask, line);
  park(Wait::WARP, line);
  return self->result;
}

int lane_in_warp()
{
  return (int)(current->thread % WARP);
}

const char *run_grid(const unsigned grid[3], const unsigned block[3], void (*thread)(void **), void **params, char *shared, std::size_t shared_bytes)
{
  run_thread = thread;
  run_params = params;
  gridDim    = {grid[0], grid[1], grid[2]};
  blockDim   = {block[0], block[1], block[2]};
  nthreads   = block[0] * block[1] * block[2];
  message[0] = '\0';
  waiting.assign(nthreads, nullptr);
  idle.clear();
  for (auto &fiber : fibers) idle.push_back(fiber.get());
  for (blockIdx.z = 0; blockIdx.z < grid[2]; blockIdx.z++)
    for (blockIdx.y = 0; blockIdx.y < grid[1]; blockIdx.y++)
      for (blockIdx.x = 0; blockIdx.x < grid[0]; blockIdx.x++) {
        std::memset(shared, 0xff, shared_bytes);
        run_block();
        if (message[0]) return message;
      }
  return nullptr;
}
