/* The smoothed prolongator P0 + alpha D A P0; the parameters are those of kernels/coarsening/smoothed.cu. */
#include "common/search.h"

typedef struct {
  alignas(8) index_t nrows, block, nvectors;
  const index_t *rowptr, *colidx, *aggregates, *begins;
} Smoothing;

typedef struct {
  uint64_t nnz, ticket;
} Control;

static index_t aggregate_of(const Smoothing *smoothing, index_t row)
{
  return smoothing->aggregates[smoothing->block == 1 ? row : row / smoothing->block];
}

/* where the row of P0 begins, which belongs to an aggregate */
static index_t tentative_of(const Smoothing *smoothing, index_t row)
{
  const index_t node = row / smoothing->block;

  return ((smoothing->begins ? smoothing->begins[node] - node : 0) * smoothing->block + row) * smoothing->nvectors;
}

/* the first aggregate after `last` among those of a row and of its neighbours; -1: there is no other */
static index_t next_aggregate(const Smoothing *smoothing, index_t row, index_t last)
{
  const index_t own   = aggregate_of(smoothing, row);
  index_t       first = own > last ? own : -1;

  for (index_t k = smoothing->rowptr[row]; k < smoothing->rowptr[row + 1]; k++) {
    const index_t candidate = aggregate_of(smoothing, smoothing->colidx[k]);

    if (candidate > last && (first < 0 || candidate < first)) first = candidate;
  }
  return first;
}

/* counts[row + 1] = how many aggregates a row and its neighbours belong to */
HOST_KERNEL(smoothed_count)
{
  const Smoothing smoothing = PARAM(const Smoothing, 0);
  index_t        *counts    = PARAM(index_t *, 1);

  for (index_t row = 0; row < smoothing.nrows; row++) {
    index_t count = 0;

    for (index_t a = next_aggregate(&smoothing, row, -1); a >= 0; a = next_aggregate(&smoothing, row, a)) count++;
    counts[row + 1] = count;
  }
}

/* sums up to each row in the place of the counts, each times `nvectors` */
HOST_KERNEL(smoothed_row_pointer)
{
  const offset_t nrows    = PARAM(offset_t, 0);
  const index_t  nvectors = PARAM(index_t, 1);
  index_t       *counts   = PARAM(index_t *, 2);
  uint64_t       sum      = 0;

  counts[0] = 0;
  for (offset_t row = 0; row < nrows; row++) counts[row + 1] = (index_t)(sum += (uint64_t)counts[row + 1] * (uint64_t)nvectors);
  PARAM(Control *, 3)->nnz = sum;
}

/* the columns of each row */
HOST_KERNEL(smoothed_columns)
{
  const Smoothing smoothing = PARAM(const Smoothing, 0);
  const index_t   n         = smoothing.nvectors;
  index_t        *to        = PARAM(index_t *, 2);

  for (index_t row = 0; row < smoothing.nrows; row++)
    for (index_t a = next_aggregate(&smoothing, row, -1); a >= 0; a = next_aggregate(&smoothing, row, a))
      for (index_t j = 0; j < n; j++) *to++ = a * n + j;
}

/* result = P0 + alpha D A P0 */
HOST_KERNEL(smoothed_values)
{
  const Smoothing smoothing = PARAM(const Smoothing, 0);
  const index_t  *rowptr = PARAM(const index_t *, 1), *colidx = PARAM(const index_t *, 2), n = smoothing.nvectors;
  const scalar_t *values = PARAM(const scalar_t *, 3), *tentative = PARAM(const scalar_t *, 4), *diagonal = PARAM(const scalar_t *, 5);
  const scalar_t  alpha  = PARAM(const scalar_t, 6);
  scalar_t       *result = PARAM(scalar_t *, 7);

  for (index_t row = 0; row < smoothing.nrows; row++) {
    const index_t own = aggregate_of(&smoothing, row);

    for (index_t entry = rowptr[row]; entry < rowptr[row + 1]; entry++) result[entry] = 0;
    for (index_t k = smoothing.rowptr[row]; k < smoothing.rowptr[row + 1]; k++) {
      const index_t aggregate = aggregate_of(&smoothing, smoothing.colidx[k]);
      offset_t      entry;

      if (aggregate < 0) continue;
      PARTITION_POINT(entry, rowptr[row], rowptr[row + 1], colidx[entry] < aggregate * n);
      for (index_t j = 0; j < n; j++) result[entry + j] += values[k] * tentative[tentative_of(&smoothing, smoothing.colidx[k]) + j];
    }
    for (index_t entry = rowptr[row]; entry < rowptr[row + 1]; entry++) {
      const index_t  within = colidx[entry] % n;
      const scalar_t before = colidx[entry] / n == own ? tentative[tentative_of(&smoothing, row) + within] : 0;

      result[entry] = before + alpha * (diagonal[row] * result[entry]);
    }
  }
}
