/* Rows by patterns: the arrays are those of kernels/formats/row_patterns.cuh. */
#pragma once
#include "common/host.h"
#include <limits.h>

#define NO_ENTRY (sizeof(index_t) == 4 ? (index_t)INT_MIN : (index_t)LLONG_MIN) /* where a row has ended */

typedef struct {
  const uint8_t *row_pattern;    /* of each row, in the order in which the format stores them; null if there are no patterns */
  const index_t *pattern_deltas; /* [npatterns][pattern_stride] column - row */
  alignas(8) index_t pattern_stride;
} RowPatterns;

/* column - row of all entries of the row at `position`, then NO_ENTRY up to pattern_stride */
static inline const index_t *row_deltas(const RowPatterns *patterns, offset_t position)
{
  return patterns->pattern_deltas + (offset_t)patterns->row_pattern[position] * patterns->pattern_stride;
}
