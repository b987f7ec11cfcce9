/* What the host kernels of ELLPACK, ELLPACK-R and JDS share: entry j of the row at `position` is at jd_ptr[j] + position, or at
   j * height + position if jd_ptr is null. */
#pragma once
#include "common/host.h"

typedef struct {
  index_t         nrows, width; /* width: entries of each row, where lengths is null */
  offset_t        height;
  const offset_t *jd_ptr;
  const index_t  *lengths, *perm; /* lengths: entries of the row at each position; perm: its row, null if that is the position */
  const index_t  *col;
  const scalar_t *val;
} EllMatrix;

#define PANEL 512 /* rows that are summed together, column by column: their sums stay in the first-level cache, the matrix is read in long runs */

static inline index_t longest_row(const EllMatrix *A, offset_t first, int rows)
{
  index_t longest = 0;

  if (!A->lengths) return A->width;
  for (int i = 0; i < rows; i++)
    if (A->lengths[first + i] > longest) longest = A->lengths[first + i];
  return longest;
}

/* z = alpha A x + beta y; x null: z = diagonal of A. y is not read if beta is 0, and z may be y. */
VECTOR_CLONES static void ell_product(const EllMatrix *A, const scalar_t *x, scalar_t alpha, scalar_t beta, const scalar_t *y, scalar_t *z)
{
  for (offset_t first = 0; first < A->nrows; first += PANEL) {
    const int     rows       = A->nrows - first < PANEL ? (int)(A->nrows - first) : PANEL;
    const index_t longest    = longest_row(A, first, rows);
    scalar_t      sum[PANEL] = {0};
    int           active     = rows;

    if (!longest && y == z && beta == 1) continue; /* nothing to add; most rows of an off-diagonal block are empty */
    for (index_t j = 0; j < longest; j++) {
      const offset_t  begin = (A->jd_ptr ? A->jd_ptr[j] : j * A->height) + first;
      const index_t  *c     = A->col + begin;
      const scalar_t *v     = A->val + begin;

      if (A->lengths)
        while (A->lengths[first + active - 1] <= j) active--; /* where rows are sorted, a jagged diagonal ends here */
      if (x) {
        for (int i = 0; i < active; i++) sum[i] += v[i] * (c[i] >= 0 ? x[c[i]] : 0);
      } else {
        for (int i = 0; i < active; i++)
          if (c[i] == (A->perm ? A->perm[first + i] : first + i)) sum[i] += v[i];
      }
    }
    for (int i = 0; i < rows; i++) store_result(A->perm ? A->perm[first + i] : first + i, sum[i], alpha, beta, y, z);
  }
}

/* Copies the CSR entries of each row to its places and fills it with padding up to the longest row of its group. Rows of a group are
   neighbours in memory, and what is written of them together stays in cache. */
#define ELL_FILL(Entry, A, positions, group, rowptr, source, entries, stored, padding) \
  for (offset_t first = 0; first < (positions); first += (group)) \
    for (offset_t position = first; position < first + (group) && position < (positions); position++) { \
      const index_t  width = (A)->lengths ? (A)->lengths[first] : (A)->width; \
      const int      real  = position < (A)->nrows; \
      const offset_t row = real && (A)->perm ? (A)->perm[position] : position, begin = real ? (rowptr)[row] : 0, \
                     count = real ? (rowptr)[row + 1] - begin : 0; \
      for (index_t j = 0; j < width; j++) { \
        (stored)[((A)->jd_ptr ? (A)->jd_ptr[j] : j * (A)->height) + position] = j < count ? (entries)[(source) ? (source)[begin + j] : begin + j] \
                                                                                          : (padding); \
      } \
    }
