/* What the host kernels of csrscalar, csrvector and csradaptive share: rows of CSR, one after another. The arrays are those of
   kernels/formats/csr_arrays.cuh; how many threads a row has on a device is of no matter here. */
#pragma once
#include "formats/results.h"

#define csr_product  IN_ITS_PRECISION(csr_product)
#define csr_diagonal IN_ITS_PRECISION(csr_diagonal)
#define csr_fused    IN_ITS_PRECISION(csr_fused)

typedef struct {
  index_t         nrows;
  const index_t  *rowptr;
  const void     *col;      /* index_t; uint16_t from col_base of the row unless that is null */
  const index_t  *col_base; /* null: full columns */
  const scalar_t *val;
} CsrRows;

/* rowptr, col, col_base and val are parameters i, i + 1, ... of the product kernels */
static inline CsrRows csr_rows(index_t nrows, void **params, int i)
{
  return (CsrRows){nrows, PARAM(const index_t *, i), PARAM(const void *, i + 1), PARAM(const index_t *, i + 2), PARAM(const scalar_t *, i + 3)};
}

/* z = alpha A x + beta y; y is not read if beta is 0, and z may be y */
__attribute__((visibility("hidden"))) void csr_product(const CsrRows *A, const scalar_t *x, scalar_t alpha, scalar_t beta, const scalar_t *y,
                                                       scalar_t *z);

/* z = alpha u + beta x + gamma d (b - A x), row by row, and the dot product of w with A x */
__attribute__((visibility("hidden"))) void csr_fused(const CsrRows *A, FusedResult result);

/* z[row] = A[row, row] */
__attribute__((visibility("hidden"))) void csr_diagonal(const CsrRows *A, scalar_t *z);
