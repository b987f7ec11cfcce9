// CUDA's words for a host C++ compiler: those that the kernels may use. Included before a .cu file (see instance.cpp).
#pragma once
#include <cmath>
#include <cstring>
#include <type_traits>

struct dim3 {
  unsigned x, y, z;
};

// of the thread that runs now; fibers.cpp sets them
extern dim3 threadIdx, blockIdx, blockDim, gridDim;

struct alignas(16) longlong2 {
  long long x, y;
};

struct alignas(8) float2 {
  float x, y;
};

struct alignas(16) double2 {
  double x, y;
};

constexpr int warpSize = 32;

// returns when every thread of the block has come to the same line
void wait_for_block(int line);

struct WarpResult {
  unsigned long long word;   // of the source lane; all bits set if that lane takes no part
  unsigned           ballot; // the lanes whose word is not 0
};

// returns when all threads of the warp that `mask` names, but for those that have ended, have come to the same line
WarpResult exchange_in_warp(unsigned mask, unsigned long long word, int source_lane, int line);

// the lane of the thread that runs now
int lane_in_warp();

#define __global__
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __restrict__    __restrict
#define __shared__      static // blocks run one after another
#define __syncthreads() wait_for_block(__LINE__)

// Memory

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

template <class T>
inline T __ldca(const T *p)
{
  return *p;
}

template <class T>
inline T __ldcg(const T *p)
{
  return *p;
}

template <class T>
inline void __stcs(T *p, T value)
{
  *p = value;
}

inline void __threadfence() { }

inline void __threadfence_block() { }

inline void __threadfence_system() { }

// A clock that goes on when it is read: who waits for another thread has its time run out.
inline long long clock64()
{
  static long long ticks = 0;

  return ++ticks;
}

// The condition of a loop in a CUDA graph, of which the handle is here the address of a word.
extern "C" inline void cudaGraphSetConditional(unsigned long long loop, unsigned value)
{
  *(unsigned *)loop = value;
}

// Atomics: threads take turns only at barriers and warp operations. Those on floating-point are left out because the kernels must not use them.

template <class T>
inline T atomic_update(T *p, T value)
{
  static_assert(std::is_integral_v<T> && sizeof(T) >= 4, "no such atomic on a device");
  const T old = *p;

  *p = value;
  return old;
}

template <class T>
inline T atomicAdd(T *p, std::common_type_t<T> value)
{
  return atomic_update(p, T(*p + value));
}

template <class T>
inline T atomicMin(T *p, std::common_type_t<T> value)
{
  return atomic_update(p, value < *p ? value : *p);
}

template <class T>
inline T atomicMax(T *p, std::common_type_t<T> value)
{
  return atomic_update(p, value > *p ? value : *p);
}

template <class T>
inline T atomicExch(T *p, std::common_type_t<T> value)
{
  return atomic_update(p, value);
}

template <class T>
inline T atomicCAS(T *p, std::common_type_t<T> compare, std::common_type_t<T> value)
{
  return atomic_update(p, *p == compare ? value : *p);
}

template <class T>
inline T atomicOr(T *p, std::common_type_t<T> value)
{
  return atomic_update(p, T(*p | value));
}

// Warp operations. `width` cuts a warp into segments; a lane outside of the segment means the calling thread's own, as on a device.

inline void __syncwarp(unsigned mask = 0xffffffff, int line = __builtin_LINE())
{
  exchange_in_warp(mask, 0, 0, line);
}

inline unsigned __ballot_sync(unsigned mask, int predicate, int line = __builtin_LINE())
{
  return exchange_in_warp(mask, predicate != 0, 0, line).ballot;
}

inline int __any_sync(unsigned mask, int predicate, int line = __builtin_LINE())
{
  return exchange_in_warp(mask, predicate != 0, 0, line).ballot != 0;
}

inline int __all_sync(unsigned mask, int predicate, int line = __builtin_LINE())
{
  return exchange_in_warp(mask, predicate == 0, 0, line).ballot == 0;
}

template <class T>
inline T shuffle(unsigned mask, T value, int source_lane, int line)
{
  static_assert(std::is_arithmetic_v<T> && (sizeof(T) == 4 || sizeof(T) == 8), "no such shuffle on a device");
  unsigned long long word = 0;

  std::memcpy(&word, &value, sizeof(T));
  word = exchange_in_warp(mask, word, source_lane, line).word;
  std::memcpy(&value, &word, sizeof(T));
  return value;
}

template <class T>
inline T __shfl_sync(unsigned mask, T value, int source, int width = warpSize, int line = __builtin_LINE())
{
  const int first = lane_in_warp() / width * width;

  return shuffle(mask, value, first + (source & (width - 1)), line);
}

template <class T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize, int line = __builtin_LINE())
{
  const int lane = lane_in_warp();

  return shuffle(mask, value, lane % width < (int)delta ? lane : lane - (int)delta, line);
}

template <class T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize, int line = __builtin_LINE())
{
  const int lane = lane_in_warp();

  return shuffle(mask, value, lane % width + (int)delta >= width ? lane : lane + (int)delta, line);
}

template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = warpSize, int line = __builtin_LINE())
{
  const int lane = lane_in_warp(), source = lane ^ lanes;

  return shuffle(mask, value, source / width > lane / width ? lane : source, line);
}

// Arithmetic

using std::fabs;
using std::hypot;
using std::isfinite;
using std::sqrt;

template <class A, class B>
constexpr std::common_type_t<A, B> min(A a, B b)
{
  using T = std::common_type_t<A, B>;

  return T(b) < T(a) ? T(b) : T(a);
}

template <class A, class B>
constexpr std::common_type_t<A, B> max(A a, B b)
{
  using T = std::common_type_t<A, B>;

  return T(a) < T(b) ? T(b) : T(a);
}

inline int __popc(unsigned word)
{
  return __builtin_popcount(word);
}

inline int __ffs(int word)
{
  return __builtin_ffs(word);
}

inline int __clz(int word)
{
  return word ? __builtin_clz((unsigned)word) : 32;
}
