/* What host kernels of sparse products count: the fields are those of kernels/spgemm/census.cuh. */
#pragma once
#include "common/host.h"

enum { BINS = 16 };

typedef struct {
  uint64_t rows, work, entries;
} Census;

typedef struct {
  uint64_t terms, most_terms, longest_left, longest_right, falls, nnz, longest, carried, ticket;
  Census   words[BINS], lengths[BINS];
  uint64_t parts[BINS], word_cursors[BINS], length_cursors[BINS], part_cursors[BINS];
} Control;

/* terms[i] = sum over the entries k of row i of A of the length of row k of B, and what `control` says of them */
void gpufmt_count_terms(index_t nrows, const index_t *rowptr, const index_t *colidx, const index_t *right_rowptr, offset_t *terms, Control *control);
