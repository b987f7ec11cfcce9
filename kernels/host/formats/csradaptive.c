/* Host kernels of adaptive CSR (formats/csradaptive.py): the parameters and arrays are those of kernels/formats/csradaptive.cu. Rows are
   taken in the order of the matrix. */
#include "formats/csr_arrays.h"

/* the last of the marks is the number of rows; block[0] threads make one range for each power of two up to it */
static index_t number_of_rows(const uint32_t block[3], const index_t *marks)
{
  int nranges = 0;

  while (block[0] >> nranges) nranges++;
  return marks[2 * nranges];
}

/* z = alpha A x + beta y */
HOST_KERNEL(csradaptive_spmv)
{
  const CsrRows A = csr_rows(number_of_rows(block, PARAM(const index_t *, 0)), params, 2);

  csr_product(&A, PARAM(const scalar_t *, 6), PARAM(scalar_t, 7), PARAM(scalar_t, 8), PARAM(const scalar_t *, 9), PARAM(scalar_t *, 10));
}

/* z[row] = A[row, row] */
HOST_KERNEL(csradaptive_diagonal)
{
  const CsrRows A = csr_rows(number_of_rows(block, PARAM(const index_t *, 0)), params, 2);

  csr_diagonal(&A, PARAM(scalar_t *, 6));
}
