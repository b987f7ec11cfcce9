/* Column indices of sliced storage: the arrays are those of kernels/formats/columns.cuh. */
#pragma once
#include "common/host.h"

#define SHORT_PADDING 0xFFFF

typedef struct {
  const index_t  *col;         /* full columns, -1 in padding: of all entries, or of those in wide slices */
  const uint16_t *col_offset;  /* column - base of its group, SHORT_PADDING in padding; null if all columns are full */
  const index_t  *col_base;    /* smallest column of each group */
  const offset_t *wide_offset; /* where the full columns of each slice begin in col, -1 for a slice of short ones; null if all are short */
} StoredColumns;

/* Columns of one slice: if `full` is not null, entry p has column full[p]; otherwise short_column(p). */
static inline const index_t *full_columns(const StoredColumns *columns, offset_t slice, offset_t begin)
{
  if (!columns->col_offset) return columns->col;
  if (!columns->wide_offset || columns->wide_offset[slice] < 0) return NULL;
  return columns->col + (columns->wide_offset[slice] - begin);
}

/* column of entry p in a slice of short columns, -1 in padding */
static inline index_t short_column(const StoredColumns *columns, int height, offset_t p)
{
  const uint16_t offset = columns->col_offset[p];

  return offset == SHORT_PADDING ? -1 : columns->col_base[p / height] + offset;
}

/* column of any entry, -1 in padding; `full` as returned for its slice */
static inline index_t stored_column(const StoredColumns *columns, const index_t *full, int height, offset_t p)
{
  return full ? full[p] : short_column(columns, height, p);
}
