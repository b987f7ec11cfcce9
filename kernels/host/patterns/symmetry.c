/* Whether a pattern is symmetric; the parameters are those of kernels/patterns/symmetry.cu. */
#include "common/search.h"

HOST_KERNEL(symmetry_check)
{
  const index_t nrows = PARAM(index_t, 0), *rowptr = PARAM(const index_t *, 1), *colidx = PARAM(const index_t *, 2);
  offset_t     *found = PARAM(offset_t *, 3);

  for (index_t row = 0; row < nrows && !*found; row++) {
    int diagonal = 0;

    for (offset_t k = rowptr[row]; k < rowptr[row + 1] && !*found; k++) {
      const index_t column = colidx[k];
      offset_t      place;

      if (column == row) {
        diagonal = 1;
        continue;
      }
      PARTITION_POINT(place, rowptr[column], rowptr[column + 1], colidx[place] < row);
      *found = place == rowptr[column + 1] || colidx[place] != row;
    }
    if (!diagonal) *found = 1;
  }
}
