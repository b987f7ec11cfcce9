/* Binary search: kernels/common/search.cuh on the host. */
#pragma once
#include "common/host.h"

/* `p` becomes the first place of [begin, end) for which `is_before`, an expression in p, does not hold; it holds for all before that.
   `begin` and `end` are read once, before p is written. */
#define PARTITION_POINT(p, begin, end, is_before) \
  do { \
    offset_t first_ = (begin), end_ = (end); \
\
    while (first_ < end_) { \
      (p) = first_ + (end_ - first_) / 2; \
      if (is_before) first_ = (p) + 1; \
      else end_ = (p); \
    } \
    (p) = first_; \
  } while (0)
