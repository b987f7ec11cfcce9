/* Aggregates of a graph whose rows lie on several ranks; the parameters are those of kernels/coarsening/parallel_aggregates.cu, which says what
   the arrays are. */
#include "coarsening/root.h"

typedef struct {
  alignas(8) index_t nrows;
  const index_t *rowptr, *colidx, *ghost_rowptr, *ghost_colidx;
} Graph;

typedef struct {
  uint64_t undecided, roots, ticket;
} Control;

/* the entries of a row, then those whose columns are ghosts: `entry` of these is neighbour `neighbour` */
static offset_t entries_of(const Graph *graph, index_t row)
{
  const offset_t ghosts = graph->ghost_rowptr ? graph->ghost_rowptr[row + 1] - graph->ghost_rowptr[row] : 0;

  return graph->rowptr[row + 1] - graph->rowptr[row] + ghosts;
}

static offset_t neighbour_of(const Graph *graph, index_t row, offset_t entry)
{
  const offset_t own = graph->rowptr[row + 1] - graph->rowptr[row];

  if (entry < own) return graph->colidx[graph->rowptr[row] + entry];
  return (offset_t)graph->nrows + graph->ghost_colidx[graph->ghost_rowptr[row] + entry - own];
}

static word_t largest_of_neighbours(const Graph *graph, index_t row, const word_t *words)
{
  const offset_t n       = entries_of(graph, row);
  word_t         largest = 0;

  for (offset_t k = 0; k < n; k++) {
    const word_t word = words[neighbour_of(graph, row, k)];

    largest = word > largest ? word : largest;
  }
  return largest;
}

static word_t hash_of(offset_t number)
{
  const int      half      = 4 * sizeof(word_t);
  const uint64_t factors[] = {0x9e3779b97f4a7c15, 0x6a09e667f3bcc909, 0xbb67ae8584caa73b};
  word_t         word      = (word_t)number + 1;

  for (int k = 0; k < 3; k++) word = (word ^ word >> half) * (word_t)factors[k] & (ROOT - 1);
  return word ^ word >> half;
}

/* words[row] = hash of its number, 0 for rows that have no neighbour */
HOST_KERNEL(parallel_words)
{
  const Graph    graph = PARAM(const Graph, 0);
  const offset_t first = PARAM(offset_t, 1);
  word_t        *words = PARAM(word_t *, 2), *nearest = PARAM(word_t *, 3);

  for (index_t row = 0; row < graph.nrows; row++) words[row] = nearest[row] = entries_of(&graph, row) < 2 ? 0 : hash_of(first + row);
}

static uint64_t mix(uint64_t bits)
{
  bits ^= bits >> 32;
  bits *= 0x9e3779b97f4a7c15;
  bits ^= bits >> 29;
  bits *= 0x6a09e667f3bcc909;
  return bits ^ bits >> 32;
}

/* sum += hash(i, j) - hash(j, i) for all entries (i, j) whose columns are ghosts */
HOST_KERNEL(parallel_asymmetry)
{
  const Graph    graph  = PARAM(const Graph, 0);
  const offset_t first  = PARAM(offset_t, 1);
  const index_t *ghosts = PARAM(const index_t *, 2);
  uint64_t      *sum    = PARAM(uint64_t *, 3);

  for (index_t row = 0; row < graph.nrows; row++)
    for (offset_t k = graph.ghost_rowptr[row]; k < graph.ghost_rowptr[row + 1]; k++) {
      const uint64_t i = (uint64_t)(first + row), j = (uint64_t)ghosts[graph.ghost_colidx[k]];

      *sum += mix(mix(i) + j) - mix(mix(j) + i);
    }
}

/* nearest[row] = largest word of its neighbours, for rows where it may change */
HOST_KERNEL(parallel_look)
{
  const Graph   graph    = PARAM(const Graph, 0);
  const int     distance = PARAM(int, 1);
  const word_t *words    = PARAM(const word_t *, 2);
  word_t       *nearest  = PARAM(word_t *, 3);

  PARAM(Control *, 4)->undecided = 0;
  for (index_t row = 0; row < graph.nrows; row++) {
    const word_t known = distance == 1 ? words[row] : nearest[row];

    if (known > 0 && known < ROOT) nearest[row] = largest_of_neighbours(&graph, row, words);
  }
}

/* decides on the undecided rows, and counts those on which it does not, and new roots */
HOST_KERNEL(parallel_decide)
{
  const Graph   graph    = PARAM(const Graph, 0);
  const int     distance = PARAM(int, 1);
  const word_t *nearest  = PARAM(const word_t *, 2);
  word_t       *words    = PARAM(word_t *, 3);
  Control      *control  = PARAM(Control *, 4);

  for (index_t row = 0; row < graph.nrows; row++) {
    const word_t word = words[row];
    word_t       largest;

    if (word == 0 || word >= ROOT) continue;
    largest = distance == 2 ? largest_of_neighbours(&graph, row, nearest) : nearest[row];
    if (largest == word) {
      words[row] = word | ROOT;
      control->roots++;
    } else if (largest < ROOT && largest > word) control->undecided++;
    else words[row] = 0;
  }
}

/* numbers[row] = first + roots before it for each root, -1 for others */
HOST_KERNEL(parallel_number)
{
  const offset_t nrows   = PARAM(offset_t, 0);
  const word_t  *words   = PARAM(const word_t *, 2);
  index_t       *numbers = PARAM(index_t *, 3), next = (index_t)PARAM(offset_t, 1);

  for (offset_t row = 0; row < nrows; row++) numbers[row] = words[row] >= ROOT ? next++ : -1;
}

/* rows that have no aggregate get that of the neighbour with the largest word, if this is of a root */
HOST_KERNEL(parallel_join)
{
  const Graph   graph   = PARAM(const Graph, 0);
  const word_t *words   = PARAM(const word_t *, 1);
  index_t      *numbers = PARAM(index_t *, 2);

  for (index_t row = 0; row < graph.nrows; row++) {
    const offset_t n = entries_of(&graph, row);
    word_t         largest;

    if (numbers[row] >= 0) continue;
    largest = largest_of_neighbours(&graph, row, words);
    for (offset_t k = 0; k < n && largest >= ROOT; k++)
      if (words[neighbour_of(&graph, row, k)] == largest) numbers[row] = numbers[neighbour_of(&graph, row, k)];
  }
}
