/* Whether arrays are a CSR pattern; the parameters are those of kernels/pattern.cu. */
#include "host.h"

HOST_KERNEL(pattern_check)
{
  const index_t nrows = PARAM(index_t, 0), ncols = PARAM(index_t, 1), nnz = PARAM(index_t, 2), *rowptr = PARAM(const index_t *, 3), *colidx = PARAM(const index_t *, 4);
  int *const    faults    = PARAM(int *, 5);
  int           decreases = 0, outside = 0;

  for (offset_t row = 0; row < nrows; row++) decreases |= rowptr[row + 1] < rowptr[row];
  for (offset_t k = 0; k < nnz; k++) outside |= colidx[k] < 0 || colidx[k] >= ncols;
  faults[0] = rowptr[0] != 0 || rowptr[nrows] != nnz;
  faults[1] = decreases;
  faults[2] = outside;
}
