/* The graph of a matrix that is to be coarsened; the parameters are those of kernels/coarsening/strength.cu, which says what they are. */
#include "common/search.h"
#include <math.h>
#include <petscsys.h>

typedef struct {
  alignas(8) index_t nrows;
  const index_t  *rowptr, *colidx;
  const scalar_t *values;
} Matrix;

typedef struct {
  uint64_t disordered, sparse, apart;
} Found;

typedef struct {
  Matrix        graph;
  const real_t *scales;
  alignas(8) real_t threshold;
  alignas(8) int keep_diagonal;
} Filter;

typedef struct {
  uint64_t nnz, longest, ticket;
} Control;

/* what blocks are made of */
static PetscReal size_of(scalar_t value)
{
  const PetscReal real = (PetscReal)value;

  return real < 0 ? -real : real;
}

/* the absolute value of an entry; 0: there is none */
static PetscReal magnitude(const Matrix *matrix, index_t row, index_t column)
{
  const offset_t end = matrix->rowptr[row + 1];
  offset_t       place;

  PARTITION_POINT(place, matrix->rowptr[row], end, matrix->colidx[place] < column);
  return place < end && matrix->colidx[place] == column ? PetscAbsScalar(matrix->values[place]) : 0;
}

HOST_KERNEL(strength_check)
{
  const Matrix  matrix = PARAM(const Matrix, 0);
  const index_t bs     = PARAM(index_t, 1);
  Found        *found  = PARAM(Found *, 2);

  for (index_t row = 0; row < matrix.nrows; row++) {
    const index_t *columns = matrix.colidx + matrix.rowptr[row], *first = matrix.rowptr + row / bs * bs;
    const index_t  count  = matrix.rowptr[row + 1] - matrix.rowptr[row];
    index_t        within = 0;

    if (count % bs || count != first[1] - first[0]) found->sparse = 1;
    for (index_t k = 0; k < count; k++) {
      const index_t column = columns[k];

      if (k > 0 && columns[k - 1] >= column) found->disordered = 1;
      if (bs == 1) continue;
      if (column != matrix.colidx[first[0] + k] || column % bs != within) found->sparse = 1;
      if (column / bs != columns[k - within] / bs) found->apart = 1;
      within = within + 1 < bs ? within + 1 : 0;
    }
  }
}

HOST_KERNEL(strength_dense_blocks)
{
  const Matrix  matrix = PARAM(const Matrix, 0);
  const index_t nnodes = PARAM(index_t, 1), bs = PARAM(index_t, 2);
  index_t      *rowptr = PARAM(index_t *, 3), *colidx = PARAM(index_t *, 4), entry = 0;
  scalar_t     *weights = PARAM(scalar_t *, 5);

  for (index_t node = 0; node < nnodes; node++) {
    const index_t *rows = matrix.rowptr + node * bs;

    rowptr[node] = entry;
    for (index_t k = 0; k < rows[1] - rows[0]; k += bs, entry++) {
      PetscReal sum = 0;

      colidx[entry] = matrix.colidx[rows[0] + k] / bs;
      if (!weights) continue;
      for (index_t i = 0; i < bs; i++)
        for (index_t j = 0; j < bs; j++) sum += size_of(matrix.values[rows[i] + k + j]);
      weights[entry] = sum;
    }
  }
  rowptr[nnodes] = entry;
}

HOST_KERNEL(strength_coordinates)
{
  const Matrix  matrix = PARAM(const Matrix, 0);
  const index_t bs = PARAM(index_t, 1), nnz = matrix.rowptr[matrix.nrows];
  const int     mirrored = PARAM(int, 2);
  index_t      *rows = PARAM(index_t *, 3), *cols = PARAM(index_t *, 4);
  scalar_t     *magnitudes = PARAM(scalar_t *, 5);

  for (index_t row = 0; row < matrix.nrows; row++)
    for (index_t k = matrix.rowptr[row]; k < matrix.rowptr[row + 1]; k++) {
      rows[k] = row / bs;
      cols[k] = matrix.colidx[k] / bs;
      if (magnitudes) magnitudes[k] = size_of(matrix.values[k]);
      if (!mirrored) continue;
      rows[nnz + k] = cols[k];
      cols[nnz + k] = rows[k];
    }
}

HOST_KERNEL(strength_add_transpose)
{
  const Matrix   matrix = PARAM(const Matrix, 0);
  const index_t *rowptr = PARAM(const index_t *, 1), *colidx = PARAM(const index_t *, 2);
  scalar_t      *weights = PARAM(scalar_t *, 3);

  for (index_t row = 0; row < matrix.nrows; row++)
    for (index_t k = rowptr[row]; k < rowptr[row + 1]; k++) weights[k] = magnitude(&matrix, row, colidx[k]) + magnitude(&matrix, colidx[k], row);
}

HOST_KERNEL(strength_scales)
{
  const Matrix matrix = PARAM(const Matrix, 0);
  real_t      *scales = PARAM(real_t *, 1);

  for (index_t row = 0; row < matrix.nrows; row++) {
    const PetscReal diagonal = magnitude(&matrix, row, row);

    scales[row] = diagonal == 0 ? 0 : (PetscReal)sqrt((double)(1 / diagonal));
  }
}

static int keeps(const Filter *filter, index_t row, index_t k)
{
  const index_t   column   = filter->graph.colidx[k];
  const PetscReal strength = PetscAbsScalar(filter->graph.values[k]) * filter->scales[row] * filter->scales[column];

  return filter->keep_diagonal ? column == row || !(strength <= filter->threshold) : strength > filter->threshold;
}

HOST_KERNEL(strength_count)
{
  const Filter filter = PARAM(const Filter, 0);
  index_t     *counts = PARAM(index_t *, 1);

  for (index_t row = 0; row < filter.graph.nrows; row++) {
    counts[row + 1] = 0;
    for (index_t k = filter.graph.rowptr[row]; k < filter.graph.rowptr[row + 1]; k++) counts[row + 1] += keeps(&filter, row, k);
  }
}

HOST_KERNEL(strength_row_pointer)
{
  const offset_t nrows   = PARAM(offset_t, 0);
  index_t       *counts  = PARAM(index_t *, 1);
  Control       *control = PARAM(Control *, 2);

  counts[0] = 0;
  for (offset_t row = 0; row < nrows; row++) {
    if ((uint64_t)counts[row + 1] > control->longest) control->longest = (uint64_t)counts[row + 1];
    counts[row + 1] += counts[row];
  }
  control->nnz = (uint64_t)counts[nrows];
}

HOST_KERNEL(strength_columns)
{
  const Filter filter = PARAM(const Filter, 0);
  index_t     *to     = PARAM(index_t *, 2);

  for (index_t row = 0; row < filter.graph.nrows; row++)
    for (index_t k = filter.graph.rowptr[row]; k < filter.graph.rowptr[row + 1]; k++)
      if (keeps(&filter, row, k)) *to++ = filter.graph.colidx[k];
}
