// Where BSR (formats/bsr/bsr.py) has its blocks and their entries.
//
// block_offsets [nblock_rows + 1] says how many blocks each block row has. Consecutive block rows, SLICE of them, are a slice: 1 for kernels
// K2 and K3, a warp for K1. A slice holds the first blocks of all its block rows, then the second blocks of those that have one, and so on:
// the blocks of one such diagonal are side by side. Their entries, in a block column by column, are interleaved in pieces:
//   val[base * SIZE + k / PIECE * PIECE * n + rank * PIECE + k % PIECE]  entry k of SIZE, of block `rank` of the n blocks of a diagonal
// whose first is block `base` of all. With slices of one block row, that is entry k of block `base`.
#pragma once
#include "common/reduce.cuh"
#include "common/search.cuh"

constexpr int LANES = 32;

// Two entries are read at once, 16 bytes in double precision, where blocks have an even number of them: all pieces are aligned then.
template <int SIZE>
constexpr int PIECE = SIZE % 2 ? 1 : 2;

struct alignas(2 * sizeof(scalar_t)) Pair {
  scalar_t first, second;
};

// An entry of a block that is none of the matrix: x is not used there, so Inf and NaN in x stay where they belong.
__device__ __forceinline__ bool is_padding(scalar_t value)
{
  union {
    scalar_t value;
    unsigned words[sizeof(scalar_t) / sizeof(unsigned)];
  } bits = {value};

  return value == 0 && bits.words[sizeof(scalar_t) / sizeof(unsigned) - 1] != 0;
}

// One lane's block of a diagonal; all lanes of a warp, a block row each, go through the diagonals of a slice together.
struct Diagonal {
  offset_t base;    // the diagonal's first block
  unsigned present; // lanes whose block rows have a block there

  __device__ __forceinline__ bool here(unsigned lane) const { return present >> lane & 1; }
  __device__ __forceinline__ int  size() const { return __popc(present); }
  __device__ __forceinline__ int  rank(unsigned lane) const { return __popc(present & ((1u << lane) - 1)); }
};

// The diagonals `first`, first + STEP, ... of a slice
template <int STEP>
struct Walk {
  int      length, j; // blocks of the lane's block row; number of the next diagonal
  offset_t base;

  __device__ __forceinline__ Walk(offset_t slice_begin, int length, int first) : length(length), j(first)
  {
    base = slice_begin + group_sum((offset_t)min(length, first));
  }

  __device__ __forceinline__ Diagonal next()
  {
    const Diagonal diagonal = {base, __ballot_sync(~0u, length > j)};

    base += diagonal.size();
#pragma unroll
    for (int i = 1; i < STEP; i++) base += __popc(__ballot_sync(~0u, length > j + i));
    j += STEP;
    return diagonal;
  }
};

// The first of places begin .. end whose block column is not less than `wanted`.
__device__ __forceinline__ index_t lower_bound(index_t begin, index_t end, const index_t *__restrict__ colidx, index_t col_block, index_t wanted)
{
  return partition_point(begin, end, [&](index_t p) { return colidx[p] / col_block < wanted; });
}
