// What the kernels of EVC-HYB and those of its structure share (formats/evchyb/).
#pragma once
#include "common/reduce.cuh"

constexpr int HEIGHT = 32;

struct alignas(16) Task {
  offset_t begin; // of the slice
  int      slice; // -1: nothing to do
  int      shape; // groups of the slice << 5 | the row is split << 4 | log2 of the warps in a team
};

struct RowSegments {
  int first, count;
};
