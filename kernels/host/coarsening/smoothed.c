/* The smoothed prolongator P0 + alpha D A P0; the parameters are those of kernels/coarsening/smoothed.cu. */
#include "common/search.h"

enum { FEW = 32 }; /* aggregates of a row that are found at once */

typedef struct {
  alignas(8) index_t nrows, block, nvectors;
  const index_t *rowptr, *colidx, *aggregates, *begins;
  offset_t       first, naggregates;
  const index_t *other_rowptr, *other_colidx;
  alignas(8) index_t nlow, nghosts;
  const index_t *ghosts;
} Smoothing;

typedef struct {
  uint64_t nnz, ticket;
} Control;

static offset_t node_of(const Smoothing *smoothing, offset_t row)
{
  return smoothing->block == 1 ? row : row / smoothing->block;
}

static index_t aggregate_of(const Smoothing *smoothing, offset_t row)
{
  return smoothing->aggregates[node_of(smoothing, row)];
}

static int is_here(const Smoothing *smoothing, index_t aggregate)
{
  return aggregate >= smoothing->first && aggregate < smoothing->first + smoothing->naggregates;
}

/* the number of an aggregate in its block of P */
static index_t in_block(const Smoothing *smoothing, index_t aggregate)
{
  offset_t place;

  if (is_here(smoothing, aggregate)) return (index_t)(aggregate - smoothing->first);
  PARTITION_POINT(place, 0, smoothing->nghosts, smoothing->ghosts[place] < aggregate);
  return (index_t)place;
}

/* where the row of P0 begins, which belongs to an aggregate */
static offset_t tentative_of(const Smoothing *smoothing, offset_t row)
{
  const offset_t node = node_of(smoothing, row);

  return ((smoothing->begins ? smoothing->begins[node] - node : 0) * smoothing->block + row) * smoothing->nvectors;
}

/* where the entries of a row in the second block of A begin */
static offset_t others(const Smoothing *smoothing, index_t row)
{
  return smoothing->other_rowptr ? smoothing->other_rowptr[row] : 0;
}

/* keeps an aggregate after `last` among the FEW first ones that are found, which ascend */
static void keep(index_t aggregate, index_t last, index_t found[FEW], int *count)
{
  int place = *count;

  if (place && found[place - 1] == aggregate) return;
  if (aggregate <= last || (place == FEW && aggregate > found[FEW - 1])) return;
  while (place && found[place - 1] > aggregate) place--;
  if (place && found[place - 1] == aggregate) return;
  if (*count < FEW) ++*count;
  for (int k = *count - 1; k > place; k--) found[k] = found[k - 1];
  found[place] = aggregate;
}

/* the FEW first aggregates after `last` among those of a row and of its neighbours, ascending; if there are less, these are all */
static int next_aggregates(const Smoothing *smoothing, index_t row, index_t last, index_t found[FEW])
{
  int count = 0;

  keep(aggregate_of(smoothing, row), last, found, &count);
  for (index_t k = smoothing->rowptr[row]; k < smoothing->rowptr[row + 1]; k++)
    keep(aggregate_of(smoothing, smoothing->colidx[k]), last, found, &count);
  for (offset_t k = others(smoothing, row); k < others(smoothing, row + 1); k++)
    keep(aggregate_of(smoothing, (offset_t)smoothing->nrows + smoothing->other_colidx[k]), last, found, &count);
  return count;
}

/* counts[row + 1] = how many aggregates a row and its neighbours belong to, of this rank and of others */
HOST_KERNEL(smoothed_count)
{
  const Smoothing smoothing    = PARAM(const Smoothing, 0);
  index_t        *counts       = PARAM(index_t *, 1);
  index_t        *other_counts = PARAM(index_t *, 2);
  index_t         found[FEW]   = {0};

  for (index_t row = 0; row < smoothing.nrows; row++) {
    index_t count[2] = {0, 0}, last = -1;
    int     n;

    do {
      n = next_aggregates(&smoothing, row, last, found);
      for (int i = 0; i < n; i++) count[!is_here(&smoothing, found[i])]++;
      last = found[FEW - 1];
    } while (n == FEW);
    counts[row + 1] = count[0];
    if (other_counts) other_counts[row + 1] = count[1];
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

/* the columns of each row in each block of P */
HOST_KERNEL(smoothed_columns)
{
  const Smoothing smoothing = PARAM(const Smoothing, 0);
  const index_t   n         = smoothing.nvectors;
  index_t        *to[2] = {PARAM(index_t *, 2), PARAM(index_t *, 4)}, found[FEW] = {0};

  for (index_t row = 0; row < smoothing.nrows; row++) {
    index_t last = -1;
    int     count;

    do {
      count = next_aggregates(&smoothing, row, last, found);
      for (int i = 0; i < count; i++) {
        const int     which = !is_here(&smoothing, found[i]);
        const index_t first = in_block(&smoothing, found[i]) * n;

        for (index_t j = 0; j < n; j++) *to[which]++ = first + j;
      }
      last = found[FEW - 1];
    } while (count == FEW);
  }
}

/* a row of a block of P */
typedef struct {
  int            which;
  index_t        begin, end;
  const index_t *colidx;
  scalar_t      *result;
  index_t        aggregate; /* of the last neighbour that was added, as many follow of the same one; -1: none */
  offset_t       entry;     /* its first one */
} Row;

/* what a neighbour has in the row of A P0 */
static void add(const Smoothing *smoothing, Row *row, offset_t neighbour, scalar_t value, const scalar_t *tentative)
{
  const index_t   aggregate = aggregate_of(smoothing, neighbour), n = smoothing->nvectors;
  const scalar_t *from = tentative + tentative_of(smoothing, neighbour);

  if (aggregate < 0 || is_here(smoothing, aggregate) == row->which) return;
  if (aggregate != row->aggregate) {
    const index_t column = in_block(smoothing, aggregate) * n;

    PARTITION_POINT(row->entry, row->begin, row->end, row->colidx[row->entry] < column);
    row->aggregate = aggregate;
  }
  for (index_t j = 0; j < n; j++) row->result[row->entry + j] += value * from[j];
}

/* result = P0 + alpha D A P0 in a block of P */
HOST_KERNEL(smoothed_values)
{
  const Smoothing smoothing = PARAM(const Smoothing, 0);
  const int       which     = PARAM(const int, 1);
  const index_t  *rowptr = PARAM(const index_t *, 2), *colidx = PARAM(const index_t *, 3), n = smoothing.nvectors;
  const scalar_t *values = PARAM(const scalar_t *, 4), *other_values = PARAM(const scalar_t *, 5), *tentative = PARAM(const scalar_t *, 6);
  const scalar_t *diagonal = PARAM(const scalar_t *, 7), alpha = PARAM(const scalar_t, 8);
  scalar_t       *result = PARAM(scalar_t *, 9);

  for (index_t i = 0; i < smoothing.nrows; i++) {
    Row            row = {which, rowptr[i], rowptr[i + 1], colidx, result, -1, 0};
    const index_t  own = aggregate_of(&smoothing, i);
    const offset_t end = others(&smoothing, i + 1);
    offset_t       k   = others(&smoothing, i);

    if (row.begin == row.end) continue;
    for (index_t entry = row.begin; entry < row.end; entry++) result[entry] = 0;
    for (; k < end && smoothing.other_colidx[k] < smoothing.nlow; k++)
      add(&smoothing, &row, (offset_t)smoothing.nrows + smoothing.other_colidx[k], other_values[k], tentative);
    for (index_t j = smoothing.rowptr[i]; j < smoothing.rowptr[i + 1]; j++) add(&smoothing, &row, smoothing.colidx[j], values[j], tentative);
    for (; k < end; k++) add(&smoothing, &row, (offset_t)smoothing.nrows + smoothing.other_colidx[k], other_values[k], tentative);
    for (index_t entry = row.begin; entry < row.end; entry++) {
      const index_t  within    = colidx[entry] % n;
      const index_t  aggregate = which ? smoothing.ghosts[colidx[entry] / n] : (index_t)(smoothing.first + colidx[entry] / n);
      const scalar_t before    = aggregate == own ? tentative[tentative_of(&smoothing, i) + within] : 0;

      result[entry] = before + alpha * (diagonal[i] * result[entry]);
    }
  }
}
