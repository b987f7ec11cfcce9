/* The order in which PETSc's agg visits rows; the parameters are those of kernels/coarsening/shuffle.cu, which says what the arrays are. */
#include "common/host.h"

HOST_KERNEL(shuffle_draw)
{
  const index_t nrows  = PARAM(index_t, 0);
  uint64_t      state  = PARAM(uint64_t, 1);
  index_t      *draws  = PARAM(index_t *, 4);
  word_t       *firsts = PARAM(word_t *, 5);

  for (index_t i = 0; i < nrows; i++) {
    state    = (state * 0x5deece66d + 0xb) & 0xffffffffffff;
    draws[i] = (index_t)((real_t)((double)state * 0x1p-48) * (real_t)nrows) % nrows;
    if (draws[i] != i && !firsts[draws[i]]) firsts[draws[i]] = (word_t)(nrows - i);
  }
}

/* by one exchange after another */
HOST_KERNEL(shuffle_follow)
{
  const index_t nrows = PARAM(index_t, 0), *draws = PARAM(const index_t *, 1);
  const word_t *firsts = PARAM(const word_t *, 2);
  index_t      *order  = PARAM(index_t *, 3);

  for (index_t i = 0; i < nrows; i++) order[i] = i;
  for (index_t i = 0; i < nrows; i++) {
    const index_t row = order[i], drawn = draws[i];

    if (firsts[drawn] != (word_t)(nrows - i)) continue;
    order[i]     = order[drawn];
    order[drawn] = row;
  }
}
