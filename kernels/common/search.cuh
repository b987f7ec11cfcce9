// Binary searches of one thread.
#pragma once
#include "common/common.cuh"

// The first position of [begin, end) that `is_before` does not hold for; it holds for all before that.
template <class Position, class IsBefore>
__device__ __forceinline__ Position partition_point(Position begin, Position end, const IsBefore is_before)
{
  while (begin < end) {
    const Position middle = begin + (end - begin) / 2;

    if (is_before(middle)) begin = middle + 1;
    else end = middle;
  }
  return begin;
}

// The segment of [first, last] that `position` lies in, the last of them if some are empty; segment s begins at begins[s].
template <class Segment, class Begin>
__device__ __forceinline__ Segment segment_of(const Begin *__restrict__ begins, Segment first, Segment last, offset_t position)
{
  return partition_point(first + 1, last + 1, [&](Segment s) { return __ldg(begins + s) <= position; }) - 1;
}
