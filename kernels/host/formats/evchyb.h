/* What the functions of EVC-HYB and those of its structure share: kernels/formats/evchyb.cuh on the host. */
#pragma once
#include "common/host.h"

typedef struct {
  offset_t begin;        /* of the slice */
  int32_t  slice, shape; /* -1: nothing to do; groups of the slice << 5 | the row is split << 4 | log2 of the warps in a team */
} Task;

typedef struct {
  int32_t first, count; /* segments of a row */
} RowSegments;
