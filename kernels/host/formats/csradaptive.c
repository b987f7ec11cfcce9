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

/* z = alpha u + beta x + gamma d (b - A x), row by row, and the dot product of w with A x */
HOST_KERNEL(csradaptive_fused)
{
  const CsrRows A = csr_rows(number_of_rows(block, PARAM(const index_t *, 0)), params, 2);

  csr_fused(&A, fused_result(params, 6));
}

/* z[row] = A[row, row] */
HOST_KERNEL(csradaptive_diagonal)
{
  const CsrRows A = csr_rows(number_of_rows(block, PARAM(const index_t *, 0)), params, 2);

  csr_diagonal(&A, PARAM(scalar_t *, 6));
}

/* the range of a row: at most 8 * 2^range entries, but for the last of the ranges */
static int range_of(const index_t *rowptr, offset_t row, int nranges)
{
  const offset_t length = (offset_t)rowptr[row + 1] - rowptr[row];
  int            range  = 0;

  while (range < nranges - 1 && length > (offset_t)8 << range) range++;
  return range;
}

/* found[r] += rows of range r; found[nranges] > 0 if a row comes after one of a higher range */
HOST_KERNEL(csradaptive_count_rows)
{
  const index_t nrows = PARAM(index_t, 0), *rowptr = PARAM(const index_t *, 2);
  const int     nranges = PARAM(int, 1);
  uint64_t     *found   = PARAM(uint64_t *, 3);
  int           before  = 0;

  for (offset_t row = 0; row < nrows; row++) {
    const int range = range_of(rowptr, row, nranges);

    found[range]++;
    found[nranges] += range < before;
    before = range;
  }
}

/* row_perm[position] = row: the rows of each range in their order, from the position on that the marks give */
HOST_KERNEL(csradaptive_order_rows)
{
  const index_t nrows = PARAM(index_t, 0), *rowptr = PARAM(const index_t *, 2), *marks = PARAM(const index_t *, 3);
  const int     nranges  = PARAM(int, 1);
  index_t      *row_perm = PARAM(index_t *, 5), next[32];

  for (int r = 0; r < nranges; r++) next[r] = marks[nranges + r];
  for (offset_t row = 0; row < nrows; row++) row_perm[next[range_of(rowptr, row, nranges)]++] = (index_t)row;
}
