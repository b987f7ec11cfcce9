/* Whether arrays are a CSR pattern, and values in its order; the parameters are those of kernels/patterns/csr.cu. */
#include <string.h>
#include "common/host.h"

#define SLICE_HEIGHT 32
#define LENGTH_BINS  12
#define LONG_ROW     64

typedef struct {
  offset_t ends, decreases, outside, longest, sliced, descends, padding[2], lengths[LENGTH_BINS];
} CsrFound;

/* the bin of rows of so many entries: 0, 1, 2, 3-4, 5-8, ..., 257-512, more */
static inline int length_bin(offset_t length)
{
  if (length <= 1) return length > 0;
  const int bin = 65 - __builtin_clzll((unsigned long long)length - 1);

  return bin < LENGTH_BINS ? bin : LENGTH_BINS - 1;
}

HOST_KERNEL(csr_check)
{
  const index_t   nrows = PARAM(index_t, 0), ncols = PARAM(index_t, 1), nnz = PARAM(index_t, 2), *rowptr = PARAM(const index_t *, 3),
                  *colidx = PARAM(const index_t *, 4);
  CsrFound *const found   = PARAM(CsrFound *, 5);
  int             outside = 0;

  for (offset_t first = 0; first < nrows; first += SLICE_HEIGHT) {
    offset_t width = 0;

    for (offset_t row = first; row < nrows && row < first + SLICE_HEIGHT; row++) {
      const offset_t length = (offset_t)rowptr[row + 1] - rowptr[row];

      found->decreases |= length < 0;
      found->descends |= row + 1 < nrows && length > (offset_t)rowptr[row + 2] - rowptr[row + 1];
      found->lengths[length_bin(length)]++;
      for (int i = 0; i < 2; i++)
        if (length > LONG_ROW << i) found->padding[i] += -length & (SLICE_HEIGHT - 1);
      if (length > width) width = length;
    }
    found->sliced += width * SLICE_HEIGHT;
    if (width > found->longest) found->longest = width;
  }
  for (offset_t k = 0; k < nnz; k++) outside |= colidx[k] < 0 || colidx[k] >= ncols;
  found->ends    = rowptr[0] != 0 || rowptr[nrows] != nnz;
  found->outside = outside;
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

static inline void gather(offset_t n, const index_t places[], size_t bytes, const char entries[], char gathered[])
{
  for (offset_t k = 0; k < n; k++) memcpy(gathered + (size_t)k * bytes, entries + (size_t)places[k] * bytes, bytes);
}

/* gathered[k] = entries[places[k]], of so many words of 32 bits each; where the compiler knows how many, no call copies them */
HOST_KERNEL(csr_gather_entries)
{
  const offset_t n = PARAM(offset_t, 0), words = PARAM(offset_t, 2);
  const index_t *places   = PARAM(const index_t *, 1);
  const char    *entries  = PARAM(const char *, 3);
  char          *gathered = PARAM(char *, 4);

  if (words == 1) gather(n, places, sizeof(uint32_t), entries, gathered);
  else if (words == 2) gather(n, places, 2 * sizeof(uint32_t), entries, gathered);
  else gather(n, places, (size_t)words * sizeof(uint32_t), entries, gathered);
}
