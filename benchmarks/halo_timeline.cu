// What halo_timeline.py launches before and after the kernels of a plan, and to compare the clocks of device and host. Times are nanoseconds of the
// device's global timer.

typedef unsigned long long count_t;

__device__ __forceinline__ count_t global_timer()
{
  count_t now;

  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

// stamps[0] is the number of stamps, of which the first `capacity` are kept: what they are of, and the time. Kernels of several streams may stamp at
// once; those of one stream in their order. One thread; of a larger grid, the first one.
extern "C" __global__ void timeline_stamp(count_t *stamps, long long capacity, long long what)
{
  if (blockIdx.x || blockIdx.y) return;

  const count_t now = global_timer(), k = atomicAdd(stamps, count_t(1));

  if (k >= count_t(capacity)) return;
  stamps[1 + 2 * k] = what;
  stamps[2 + 2 * k] = now;
}

// For so many nanoseconds clock[0], in memory of the host, is the time, each time that it has gone on; clock[1] is the shortest step that it has taken.
// One thread.
extern "C" __global__ void timeline_clock(volatile count_t *clock, count_t nanoseconds)
{
  const count_t first = global_timer();
  count_t       last = first, step = nanoseconds;

  while (last - first < nanoseconds) {
    const count_t now = global_timer();

    if (now == last) continue;
    if (now - last < step) step = now - last;
    last     = now;
    clock[0] = now;
  }
  clock[1] = step;
  __threadfence_system();
}
