/* Aggregates of the rows of a graph; the parameters are those of kernels/coarsening/aggregates.cu, which says what the arrays are. */
#include "coarsening/root.h"

typedef struct {
  alignas(8) index_t nrows;
  const index_t *rowptr, *colidx;
} Graph;

typedef struct {
  const index_t  *rows;
  const uint64_t *count;
  index_t        *kept;
  uint64_t       *nkept, *cleared;
} Visit;

typedef struct {
  uint64_t rounds, naggregates, outside, missing, ticket;
} Control;

/* whether a row has no neighbour but itself */
static int alone(const Graph *graph, index_t row)
{
  return graph->rowptr[row + 1] - graph->rowptr[row] < 2;
}

static word_t largest_of_neighbours(const Graph *graph, index_t row, const word_t *words)
{
  word_t largest = 0;

  for (index_t k = graph->rowptr[row]; k < graph->rowptr[row + 1]; k++) {
    const word_t word = words[graph->colidx[k]];

    largest = word > largest ? word : largest;
  }
  return largest;
}

static uint64_t rows_of(const Graph *graph, const Visit *visit)
{
  return visit->rows ? *visit->count : (uint64_t)graph->nrows;
}

static index_t row_of(const Visit *visit, uint64_t i)
{
  return visit->rows ? visit->rows[i] : (index_t)i;
}

static void keep(const Visit *visit, index_t row)
{
  if (visit->kept) visit->kept[(*visit->nkept)++] = row;
}

/* words[order[k]] = nrows - k */
HOST_KERNEL(aggregates_order)
{
  const index_t nrows = PARAM(index_t, 0), *order = PARAM(const index_t *, 1);
  word_t       *words = PARAM(word_t *, 2);

  for (index_t k = 0; k < nrows; k++) {
    if (order[k] >= 0 && order[k] < nrows) words[order[k]] = (word_t)(nrows - k);
    else PARAM(Control *, 3)->outside = 1;
  }
}

/* nearest[row] = largest word of its neighbours; rows are kept whose neighbours are no roots, and not all decided */
HOST_KERNEL(aggregates_nearest)
{
  const Graph   graph   = PARAM(const Graph, 0);
  const Visit   visit   = PARAM(const Visit, 1);
  const word_t *words   = PARAM(const word_t *, 2);
  word_t       *nearest = PARAM(word_t *, 3);

  *visit.cleared = 0;
  for (uint64_t i = 0; i < rows_of(&graph, &visit); i++) {
    const index_t row     = row_of(&visit, i);
    const word_t  largest = largest_of_neighbours(&graph, row, words);

    nearest[row] = largest;
    if (largest > 0 && largest < ROOT) keep(&visit, row);
  }
}

/* decides on the undecided rows of a visit; those are kept on which it does not */
HOST_KERNEL(aggregates_decide)
{
  const Graph   graph    = PARAM(const Graph, 0);
  const Visit   visit    = PARAM(const Visit, 1);
  const int     distance = PARAM(int, 2);
  const word_t *nearest  = PARAM(const word_t *, 3);
  word_t       *words    = PARAM(word_t *, 4);
  Control      *control  = PARAM(Control *, 5);

  *visit.cleared = 0;
  control->rounds += rows_of(&graph, &visit) > 0;
  for (uint64_t i = 0; i < rows_of(&graph, &visit); i++) {
    const index_t row     = row_of(&visit, i);
    const word_t  word    = words[row];
    const word_t  largest = distance == 2 ? largest_of_neighbours(&graph, row, nearest) : nearest[row];

    if (word == 0) control->missing = 1;
    if (largest >= ROOT || (!visit.rows && alone(&graph, row))) words[row] = 0;
    else if (largest <= word) words[row] = word | ROOT;
    else keep(&visit, row);
  }
}

/* aggregates[row] = how many roots come before it, for each root */
HOST_KERNEL(aggregates_number)
{
  const offset_t nrows      = PARAM(offset_t, 0);
  const word_t  *words      = PARAM(const word_t *, 1);
  index_t       *aggregates = PARAM(index_t *, 2), count = 0;

  for (offset_t row = 0; row < nrows; row++)
    if (words[row] >= ROOT) aggregates[row] = count++;
  PARAM(Control *, 3)->naggregates = (uint64_t)count;
}

/* aggregates[row] = that of the first root among its neighbours, or else among theirs; -1: none; turns[row]: see the device's */
HOST_KERNEL(aggregates_assign)
{
  const Graph    graph = PARAM(const Graph, 0);
  const index_t *order = PARAM(const index_t *, 2);
  const word_t  *words = PARAM(const word_t *, 3), *nearest = PARAM(const word_t *, 4);
  index_t       *aggregates = PARAM(index_t *, 5);
  unsigned char *turns      = PARAM(unsigned char *, 6);

  for (index_t row = 0; row < graph.nrows; row++) {
    const word_t noted = nearest[row], largest = turns ? largest_of_neighbours(&graph, row, nearest) : 0, root = noted >= ROOT ? noted : largest;
    const int    decided = words[row] >= ROOT;

    if (!decided) aggregates[row] = root >= ROOT ? aggregates[order[graph.nrows - (index_t)(root - ROOT)]] : -1;
    if (turns) turns[row] = decided ? 0 : noted >= ROOT && largest != noted ? 2 : 1;
  }
}
