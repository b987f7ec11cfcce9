/* Host kernels that csrscalar, csrvector and csradaptive have in common: the parameters and arrays are those of kernels/formats/csr_arrays.cu. */
#include "formats/csr_arrays.h"

/* sum[row] = sum of TERM over the entries k of each row with column c, then FINISH */
#define FOR_ROWS(Column, base, TERM, FINISH) \
  for (offset_t row = 0; row < A->nrows; row++) { \
    const offset_t begin = A->rowptr[row], end = A->rowptr[row + 1]; \
    const Column  *col = A->col; \
    scalar_t       sum = 0; \
    for (offset_t k = begin; k < end; k++) { \
      const index_t c = (base) + (index_t)col[k]; \
      TERM; \
    } \
    FINISH; \
  }

#define ADD_PRODUCT sum += A->val[k] * x[c]
#define ADD_DIAGONAL \
  if (c == row) sum += A->val[k]
/* an empty row has nothing to add: most rows of an off-diagonal block are empty, and z is y there */
#define STORE \
  if (begin != end || y != z || beta != 1) store_result(row, sum, alpha, beta, y, z)

VECTOR_CLONES void csr_product(const CsrRows *A, const scalar_t *x, scalar_t alpha, scalar_t beta, const scalar_t *y, scalar_t *z)
{
  if (A->col_base) FOR_ROWS(uint16_t, A->col_base[row], ADD_PRODUCT, STORE)
  else FOR_ROWS(index_t, 0, ADD_PRODUCT, STORE)
}

#define FUSE \
  if (begin != end || !fused_skips_empty(&result)) use_fused(&result, row, (int)(row % DOT_LANES), sum)

VECTOR_CLONES void csr_fused(const CsrRows *A, FusedResult result)
{
  const scalar_t *x = result.x;

  if (A->col_base) FOR_ROWS(uint16_t, A->col_base[row], ADD_PRODUCT, FUSE)
  else FOR_ROWS(index_t, 0, ADD_PRODUCT, FUSE)
  finish_fused(&result);
}

void csr_diagonal(const CsrRows *A, scalar_t *z)
{
  if (A->col_base) FOR_ROWS(uint16_t, A->col_base[row], ADD_DIAGONAL, z[row] = sum)
  else FOR_ROWS(index_t, 0, ADD_DIAGONAL, z[row] = sum)
}

/* of all rows, found[0] += those with entries, found[1] = the largest column of one minus its smallest, if col_base is not null */
HOST_KERNEL(csr_row_spans)
{
  const index_t nrows = PARAM(index_t, 0), *rowptr = PARAM(const index_t *, 1), *colidx = PARAM(const index_t *, 2);
  index_t      *col_base = PARAM(index_t *, 3);
  uint64_t     *found    = PARAM(uint64_t *, 4);

  for (offset_t row = 0; row < nrows; row++) {
    const offset_t begin = rowptr[row], end = rowptr[row + 1];

    found[0] += begin < end;
    if (col_base) {
      index_t first = begin < end ? colidx[begin] : 0, last = first;

      for (offset_t k = begin; k < end; k++) {
        first = colidx[k] < first ? colidx[k] : first;
        last  = colidx[k] > last ? colidx[k] : last;
      }
      col_base[row] = first;
      if ((uint64_t)(last - first) > found[1]) found[1] = last - first;
    }
  }
}

/* stored[k] = colidx[k] - col_base[row of k]: the structure pass of 16-bit columns */
HOST_KERNEL(csr_fill_offsets)
{
  const index_t nrows = PARAM(index_t, 0), *rowptr = PARAM(const index_t *, 1), *col_base = PARAM(const index_t *, 2),
                *colidx = PARAM(const index_t *, 3);
  uint16_t     *stored  = PARAM(uint16_t *, 4);

  for (offset_t row = 0; row < nrows; row++)
    for (offset_t k = rowptr[row]; k < rowptr[row + 1]; k++) stored[k] = (uint16_t)(colidx[k] - col_base[row]);
}
