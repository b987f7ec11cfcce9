// What the kernels of the hash accumulator share (spgemm/hash.py): how a team of threads walks over the terms a_ik b_kj of a row of C = A B.
//
// A team is TEAM neighbouring threads of a warp. It stages the entries k of A's row in shared memory, up to BATCH at a time: their
// values, and where row k of B begins and ends. Then groups of threads take entry after entry: a group reads as many neighbouring
// entries of row k of B in each step as it has threads. The groups of a team advance on their own, so short rows of B do not wait for long ones.
// Loops end for all threads of a warp at once: all of its teams take part in all warp operations, those without a row too.
#pragma once
#include "common/search.cuh"
#include "spgemm/census.cuh"

// 32 columns of a row of B or C: columns 32 word .. 32 word + 31, a bit for each that is there
struct alignas(8) Word {
  unsigned bits, word;
};

// the part [begin, end) of a row of B that an entry of A multiplies
struct Part {
  index_t begin, end;
};
struct alignas(sizeof(index_t) == 4 ? 16 : 8) Factor {
  index_t  begin, end;
  scalar_t value; // of the entry of A
};

__device__ __forceinline__ void set_value(Part &, const scalar_t *) { }
__device__ __forceinline__ void set_value(Factor &factor, const scalar_t *value)
{
  factor.value = __ldg(value);
}

// What is taken of rows of B: all of it.
struct WholeRows {
  template <class T>
  __device__ __forceinline__ void narrow(T &) const
  { }
};

template <int TEAM>
constexpr int BATCH = TEAM > 8 ? TEAM : 8;

// Stages the first BATCH of the `left` entries of a row of A, at `columns` and `values`; returns how many. Those that meet no entry of B
// are left out. Ends with all threads of the warp seeing what is staged.
template <int TEAM, class T, class Range>
__device__ __forceinline__ int stage(T *staged, index_t left, const index_t *__restrict__ columns, const scalar_t *__restrict__ values,
                                     const index_t *__restrict__ B_begin, const index_t *__restrict__ B_end, const Range range)
{
  constexpr int      ROUNDS = BATCH<TEAM> / TEAM;
  constexpr unsigned LANES  = TEAM == WARP ? FULL_WARP : (1u << (TEAM % WARP)) - 1;
  const int          lane = threadIdx.x % TEAM, first_lane = threadIdx.x % WARP - lane;
  T                  entry[ROUNDS];
  int                count = 0;

#pragma unroll
  for (int i = 0; i < ROUNDS; i++) {
    entry[i] = T();
    if (i * TEAM + lane < left) {
      const index_t k = __ldg(columns + i * TEAM + lane);

      set_value(entry[i], values + i * TEAM + lane);
      entry[i].begin = __ldg(B_begin + k);
      entry[i].end   = __ldg(B_end + k);
    }
  }
  __syncwarp(); // what was staged before is used up
#pragma unroll
  for (int i = 0; i < ROUNDS; i++) {
    range.narrow(entry[i]);
    const bool     some  = entry[i].begin < entry[i].end;
    const unsigned votes = __ballot_sync(FULL_WARP, some) >> first_lane & LANES;

    if (some) staged[count + __popc(votes & ((1u << lane) - 1))] = entry[i];
    count += __popc(votes);
  }
  __syncwarp();
  return count;
}

constexpr __device__ int log2_of(int n)
{
  return n > 1 ? 1 + log2_of(n / 2) : 0;
}

// How many threads a group has, a power of two: known when the kernel is compiled, or only when it runs.
template <int SIZE>
struct Group {
  static constexpr __device__ int log2() { return log2_of(SIZE); }
  static constexpr __device__ int size() { return SIZE; }
};
struct GroupOfAnySize {
  int log2_of_size;

  __device__ __forceinline__ int log2() const { return log2_of_size; }
  __device__ __forceinline__ int size() const { return 1 << log2_of_size; }
};

// Where a group of threads is among the entries that are staged. ONE_STEP: no row of B has more entries than a group has threads.
template <int TEAM, int ONE_STEP, class T, class GroupSize>
struct Cursor : GroupSize {
  const T *staged;
  int      count, next;   // entries staged; the one to be taken next
  index_t  position, end; // of this thread in B; of the part of B's row

  __device__ __forceinline__ Cursor(const T *staged, int count, GroupSize group)
    : GroupSize(group), staged(staged), count(count), next(threadIdx.x % TEAM >> this->log2()), position(0), end(0)
  { }

  __device__ __forceinline__ int lane() const { return threadIdx.x & (this->size() - 1); }

  // whether there is another step for this group
  __device__ __forceinline__ bool more() const { return next < count || (!ONE_STEP && position - lane() + this->size() < end); }

  // to the next entry of B for this thread; whether there is one in this step
  __device__ __forceinline__ bool advance()
  {
    if (!ONE_STEP && position - lane() + this->size() < end) position += this->size();
    else {
      end = 0;
      if (next < count) {
        position = staged[next].begin + lane();
        end      = staged[next].end;
      }
      next += TEAM >> this->log2();
    }
    return position < end;
  }

  // the staged entry of the last step
  __device__ __forceinline__ int current() const { return next - (TEAM >> this->log2()); }
};
