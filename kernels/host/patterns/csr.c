/* Whether arrays are a CSR pattern, and values in its order; the parameters are those of kernels/patterns/csr.cu. */
#include "common/host.h"

HOST_KERNEL(csr_check)
{
  const index_t   nrows = PARAM(index_t, 0), ncols = PARAM(index_t, 1), nnz = PARAM(index_t, 2), *rowptr = PARAM(const index_t *, 3),
                  *colidx   = PARAM(const index_t *, 4);
  offset_t *const found     = PARAM(offset_t *, 5);
  int             decreases = 0, outside = 0;
  offset_t        longest = 0;

  for (offset_t row = 0; row < nrows; row++) {
    const offset_t length = (offset_t)rowptr[row + 1] - rowptr[row];

    decreases |= rowptr[row + 1] < rowptr[row];
    if (length > longest) longest = length;
  }
  for (offset_t k = 0; k < nnz; k++) outside |= colidx[k] < 0 || colidx[k] >= ncols;
  found[0] = rowptr[0] != 0 || rowptr[nrows] != nnz;
  found[1] = decreases;
  found[2] = outside;
  found[3] = longest;
}

/* gathered[k] = values[source[k]], or values[k] if source is null */
HOST_KERNEL(csr_gather_values)
{
  const offset_t  nnz      = PARAM(index_t, 0);
  const index_t  *source   = PARAM(const index_t *, 1);
  const scalar_t *values   = PARAM(const scalar_t *, 2);
  scalar_t       *gathered = PARAM(scalar_t *, 3);

  for (offset_t k = 0; k < nnz; k++) gathered[k] = values[source ? source[k] : k];
}
