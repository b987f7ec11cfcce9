/* Lengths of the rows of a CSR pattern; the parameters are those of kernels/patterns/lengths.cu. The first of the parts, one a block, has it all. */
#include "common/host.h"
#include <petscsys.h>

/* room[row] = present[row] = rowptr[row + 1] - rowptr[row] */
HOST_KERNEL(row_lengths)
{
  const offset_t nrows  = PARAM(offset_t, 0);
  const index_t *rowptr = PARAM(const index_t *, 1);
  index_t       *room = PARAM(index_t *, 2), *present = PARAM(index_t *, 3), *parts = PARAM(index_t *, 4);
  index_t        longest = 0, nonempty = 0;

  for (offset_t row = 0; row < nrows; row++) {
    const index_t length = rowptr[row + 1] - rowptr[row];

    room[row] = present[row] = length;
    longest                  = PetscMax(longest, length);
    nonempty += length > 0;
  }
  for (uint32_t k = 0; k < 2 * grid[0]; k++) parts[k] = 0;
  parts[0] = longest;
  parts[1] = nonempty;
}

/* it is there already */
HOST_KERNEL(row_lengths_seen) { }
