/* Host kernels of vector CSR (formats/csrvector.py): the parameters and arrays are those of kernels/formats/csrvector.cu. */
#include "formats/csr_arrays.h"

/* z = alpha A x + beta y */
HOST_KERNEL(csrvector_spmv)
{
  const CsrRows A = csr_rows(PARAM(index_t, 0), params, 1);

  csr_product(&A, PARAM(const scalar_t *, 5), PARAM(scalar_t, 6), PARAM(scalar_t, 7), PARAM(const scalar_t *, 8), PARAM(scalar_t *, 9));
}

/* z[row] = A[row, row] */
HOST_KERNEL(csrvector_diagonal)
{
  const CsrRows A = csr_rows(PARAM(index_t, 0), params, 1);

  csr_diagonal(&A, PARAM(scalar_t *, 5));
}
