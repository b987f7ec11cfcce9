/* The tentative prolongator of aggregates; the parameters are those of kernels/coarsening/prolongator.cu. */
#include "common/host.h"
#include <math.h>

typedef struct {
  uint64_t nmembers, outside, ticket;
} Control;

/* begins[node] = how many nodes before it belong to an aggregate */
HOST_KERNEL(prolongator_count)
{
  const offset_t nnodes      = PARAM(offset_t, 0);
  const index_t  naggregates = PARAM(index_t, 1), *aggregates = PARAM(const index_t *, 2);
  index_t       *begins = PARAM(index_t *, 3), count = 0;

  for (offset_t node = 0; node < nnodes; node++) {
    begins[node] = count;
    count += aggregates[node] >= 0;
    if (aggregates[node] < -1 || aggregates[node] >= naggregates) PARAM(Control *, 4)->outside = 1;
  }
  begins[nnodes]                = count;
  PARAM(Control *, 4)->nmembers = (uint64_t)count;
}

/* members[begins[node]] = aggregates[node], for the nodes that belong to one */
HOST_KERNEL(prolongator_members)
{
  const index_t nnodes = PARAM(index_t, 0), *aggregates = PARAM(const index_t *, 1), *begins = PARAM(const index_t *, 2);
  index_t      *members = PARAM(index_t *, 3);

  for (index_t node = 0; node < nnodes; node++)
    if (aggregates[node] >= 0) members[begins[node]] = aggregates[node];
}

/* keys[begins[node]] = 3 aggregates[node] + turns[node], for the nodes that belong to one */
HOST_KERNEL(prolongator_keys)
{
  const index_t        nnodes = PARAM(index_t, 0), *aggregates = PARAM(const index_t *, 1), *begins = PARAM(const index_t *, 3);
  const unsigned char *turns = PARAM(const unsigned char *, 2);
  index_t             *keys  = PARAM(index_t *, 4);

  for (index_t node = 0; node < nnodes; node++)
    if (aggregates[node] >= 0) keys[begins[node]] = 3 * aggregates[node] + turns[node];
}

/* the pattern with `block` rows in the place of each, and `nvectors` columns */
HOST_KERNEL(prolongator_expand)
{
  const index_t  nrows = PARAM(index_t, 0), nvectors = PARAM(index_t, 2);
  const index_t *begins = PARAM(const index_t *, 3), *members = PARAM(const index_t *, 4);
  index_t       *rowptr = PARAM(index_t *, 5), *colidx = PARAM(index_t *, 6), entry = 0;

  rowptr[0] = 0;
  for (index_t row = 0; row < nrows; row++) {
    const index_t node = row / PARAM(index_t, 1);

    for (index_t j = 0; begins[node] < begins[node + 1] && j < nvectors; j++) colidx[entry++] = members[begins[node]] * nvectors + j;
    rowptr[row + 1] = entry;
  }
}

/* sizes[members[k]] += 1 */
HOST_KERNEL(prolongator_sizes)
{
  const index_t nmembers = PARAM(index_t, 0), *members = PARAM(const index_t *, 1);
  uint64_t     *sizes = PARAM(uint64_t *, 2);

  for (index_t k = 0; k < nmembers; k++) sizes[members[k]]++;
}

/* coarse[a] = R of the constant vector in an aggregate */
HOST_KERNEL(prolongator_norms)
{
  const index_t   naggregates = PARAM(index_t, 0);
  const uint64_t *sizes       = PARAM(const uint64_t *, 1);
  real_t         *coarse      = PARAM(real_t *, 2);

  for (index_t a = 0; a < naggregates; a++) coarse[a] = sizes[a] == 1 ? 1 : -(PetscReal)sqrt((double)sizes[a]);
}

/* values[k] = 1 / coarse[colidx[k]] */
HOST_KERNEL(prolongator_constant)
{
  const index_t nnz = PARAM(index_t, 0), *colidx = PARAM(const index_t *, 1);
  const real_t *coarse = PARAM(const real_t *, 2);
  scalar_t     *values = PARAM(scalar_t *, 3);

  for (index_t k = 0; k < nnz; k++) values[k] = 1 / coarse[colidx[k]];
}

typedef struct {
  alignas(8) index_t naggregates, turns, block, nvectors, stride;
  const index_t *begins, *nodes, *rowptr;
  const real_t  *near_null;
} Factored;

/* the rows of an aggregate, node after node */
typedef struct {
  const index_t *nodes, *rowptr;
  index_t        block, count;
  scalar_t      *values;
} Rows;

static index_t number_of(const Rows *rows, index_t r)
{
  return rows->nodes[r / rows->block] * rows->block + r % rows->block;
}

static scalar_t *entries_of(const Rows *rows, index_t r)
{
  return rows->values + rows->rowptr[number_of(rows, r)];
}

/* reflects column j below row k, in which it is `at_row`; returns what row k becomes */
static scalar_t reflect(const Rows *rows, index_t k, index_t j, scalar_t tau, scalar_t at_row)
{
  scalar_t dot = at_row;

  for (index_t r = k + 1; r < rows->count; r++) dot += entries_of(rows, r)[k] * entries_of(rows, r)[j];
  dot *= tau;
  for (index_t r = k + 1; r < rows->count; r++) entries_of(rows, r)[j] -= dot * entries_of(rows, r)[k];
  return at_row - dot;
}

/* R of the rows, which is stored with `ncols` entries a column; reflection k stays below the diagonal of column k, its tau on it */
static void factor(const Rows *rows, index_t n, real_t *R, index_t ncols)
{
  for (index_t j = 0; j < n; j++)
    for (index_t i = 0; i < n; i++) R[(offset_t)j * ncols + i] = 0;
  for (index_t k = 0; k < n && k < rows->count; k++) {
    const PetscReal alpha = (PetscReal)entries_of(rows, k)[k];
    PetscReal       sum = 0, beta = alpha, tau = 0;

    for (index_t r = k + 1; r < rows->count; r++) sum += (PetscReal)entries_of(rows, r)[k] * (PetscReal)entries_of(rows, r)[k];
    if (sum > 0) {
      const PetscReal norm = (PetscReal)sqrt(alpha * alpha + sum);

      beta = alpha < 0 ? norm : -norm;
      tau  = (beta - alpha) / beta;
      for (index_t r = k + 1; r < rows->count; r++) entries_of(rows, r)[k] /= alpha - beta;
    }
    R[(offset_t)k * ncols + k] = beta;
    entries_of(rows, k)[k]     = tau;
    for (index_t j = k + 1; j < n; j++) R[(offset_t)j * ncols + k] = (real_t)reflect(rows, k, j, tau, entries_of(rows, k)[j]);
  }
}

/* Q in the place of the reflections */
static void form_columns(const Rows *rows, index_t n)
{
  for (index_t k = (n < rows->count ? n : rows->count) - 1; k >= 0; k--) {
    const scalar_t tau = entries_of(rows, k)[k];

    for (index_t j = k + 1; j < n; j++) entries_of(rows, k)[j] = j < rows->count ? reflect(rows, k, j, tau, 0) : 0;
    for (index_t r = k + 1; r < rows->count; r++) entries_of(rows, r)[k] *= -tau;
    entries_of(rows, k)[k] = 1 - tau;
  }
}

/* QR factorization of each aggregate: Q into the values of the prolongator, R into `coarse` */
HOST_KERNEL(prolongator_orthogonalize)
{
  const Factored factored = PARAM(const Factored, 0);
  const index_t  n        = factored.nvectors;

  for (index_t a = 0; a < factored.naggregates; a++) {
    const index_t begin = factored.begins[a * factored.turns];
    const Rows rows = {factored.nodes + begin, factored.rowptr, factored.block, (factored.begins[(a + 1) * factored.turns] - begin) * factored.block,
                       PARAM(scalar_t *, 1)};

    for (index_t r = 0; r < rows.count; r++)
      for (index_t j = 0; j < n; j++) entries_of(&rows, r)[j] = factored.near_null[(offset_t)j * factored.stride + number_of(&rows, r)];
    factor(&rows, n, PARAM(real_t *, 2) + a * n, factored.naggregates * n);
    form_columns(&rows, n);
  }
}
