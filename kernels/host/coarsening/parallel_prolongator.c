/* Nodes of a rank, and aggregates of this rank and of others; the parameters are those of kernels/coarsening/parallel_prolongator.cu. */
#include "common/search.h"

typedef struct {
  offset_t first, naggregates;
} OwnAggregates;

static int has(const OwnAggregates *own, index_t number)
{
  return number >= own->first && number < own->first + own->naggregates;
}

/* the nodes whose aggregates belong to other ranks, and these */
HOST_KERNEL(parallel_elsewhere)
{
  const offset_t      nnodes  = PARAM(offset_t, 0);
  const OwnAggregates own     = PARAM(const OwnAggregates, 1);
  const index_t      *numbers = PARAM(const index_t *, 2);
  index_t            *nodes = PARAM(index_t *, 3), *aggregates = PARAM(index_t *, 4);
  uint64_t           *count = PARAM(uint64_t *, 5);

  for (offset_t node = 0; node < nnodes; node++) {
    if (numbers[node] < 0 || has(&own, numbers[node])) continue;
    nodes[*count]          = (index_t)node;
    aggregates[(*count)++] = numbers[node];
  }
}

/* the aggregate of each node among those of this rank, and among ghosts; -1: none of these */
HOST_KERNEL(parallel_split)
{
  const offset_t      nnodes = PARAM(offset_t, 0), nreceived = PARAM(offset_t, 1);
  const OwnAggregates own     = PARAM(const OwnAggregates, 2);
  const index_t      *numbers = PARAM(const index_t *, 3), *received = PARAM(const index_t *, 4);
  const index_t       nghosts = PARAM(index_t, 5), *ghosts = PARAM(const index_t *, 6);
  index_t            *here = PARAM(index_t *, 7), *there = PARAM(index_t *, 8);

  for (offset_t node = 0; node < nnodes; node++) {
    const index_t number = numbers[node];
    offset_t      place  = -1;

    here[node] = has(&own, number) ? (index_t)(number - own.first) : -1;
    if (number >= 0 && here[node] < 0) PARTITION_POINT(place, 0, nghosts, ghosts[place] < number);
    there[node] = (index_t)place;
  }
  for (offset_t k = 0; k < nreceived; k++) here[nnodes + k] = received[k];
}

/* the aggregate of each row, and its values, which lie in one of two blocks */
HOST_KERNEL(parallel_rows)
{
  const offset_t      nrows        = PARAM(offset_t, 0);
  const index_t       rows_of_node = PARAM(index_t, 1), nvectors = PARAM(index_t, 2);
  const OwnAggregates own       = PARAM(const OwnAggregates, 3);
  const index_t      *numbers   = PARAM(const index_t *, 4);
  const index_t      *rowptr[2] = {PARAM(const index_t *, 5), PARAM(const index_t *, 7)};
  const scalar_t     *values[2] = {PARAM(const scalar_t *, 6), PARAM(const scalar_t *, 8)};
  index_t            *of_rows   = PARAM(index_t *, 9);
  scalar_t           *rows      = PARAM(scalar_t *, 10);

  for (offset_t row = 0; row < nrows; row++) {
    const index_t number = numbers[row / rows_of_node];
    const int     which  = !has(&own, number);

    of_rows[row] = number;
    for (index_t j = 0; j < nvectors; j++) *rows++ = number < 0 ? 0 : values[which][rowptr[which][row] + j];
  }
}
