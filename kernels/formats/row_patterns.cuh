// Rows by patterns (formats/common/row_patterns.py): entry j of a row has column row + pattern_deltas[pattern of the row][j]. The table is small
// enough to stay in the first-level cache, and most rows of a warp have the same pattern.
#pragma once
#include "common/common.cuh"

constexpr index_t NO_ENTRY = ~index_t(~0ull >> (65 - 8 * sizeof(index_t))); // the smallest index, where a row has ended

struct RowPatterns {
  const unsigned char *__restrict__ row_pattern; // of each row, in the order in which the format stores them
  const index_t *__restrict__ pattern_deltas;    // [npatterns][pattern_stride] column - row
  alignas(8) index_t pattern_stride;
};

// every STEP-th column of one row from `first` on
template <int STEP>
class PatternCursor {
public:
  typedef index_t Raw;

  __device__ __forceinline__ PatternCursor(const RowPatterns &patterns, offset_t position, int first, index_t row)
    : deltas(patterns.pattern_deltas + __ldg(patterns.row_pattern + position) * patterns.pattern_stride + first), row(row)
  { }

  __device__ __forceinline__ Raw load(int k) const { return __ldg(deltas + k * STEP); }

  __device__ __forceinline__ void advance(int k) { deltas += k * STEP; }

  static __device__ __forceinline__ Raw padding() { return NO_ENTRY; }

  __device__ __forceinline__ index_t column(Raw raw) const { return raw == NO_ENTRY ? index_t(-1) : row + raw; }

private:
  const index_t *__restrict__ deltas;
  const index_t row;
};
