/* Host kernels of row patterns (formats/common/row_patterns.py): the parameters are those of kernels/formats/row_patterns.cu. */
#include "formats/row_patterns.h"
#include "common/search.h"

#define SLOTS 1024 /* of the hash table, a power of two */
#define LIMIT 256  /* patterns that a byte numbers */

/* 64-bit hash of the length and the deltas of a row; never 0, which marks a free slot */
static inline uint64_t row_key(offset_t row, const index_t *rowptr, const index_t *colidx)
{
  uint64_t key = (uint64_t)(rowptr[row + 1] - rowptr[row]);

  for (offset_t k = rowptr[row]; k < rowptr[row + 1]; k++) {
    key = (key ^ (uint64_t)(colidx[k] - row)) * UINT64_C(0x9E3779B97F4A7C15);
    key ^= key >> 29;
  }
  return key ? key : 1;
}

/* the keys of all rows, and for each key a row that has it; ends with *npatterns beyond LIMIT if there are too many */
HOST_KERNEL(row_patterns_collect)
{
  const index_t nrows = PARAM(index_t, 0), *rowptr = PARAM(const index_t *, 1), *colidx = PARAM(const index_t *, 2);
  uint64_t     *keys      = PARAM(uint64_t *, 3);
  offset_t     *rows      = PARAM(offset_t *, 4);
  int          *npatterns = PARAM(int *, 5);

  for (offset_t row = 0; row < nrows && *npatterns <= LIMIT; row++) {
    const uint64_t key  = row_key(row, rowptr, colidx);
    int            slot = (int)(key % SLOTS);

    while (keys[slot] && keys[slot] != key) slot = (slot + 1) % SLOTS;
    if (keys[slot]) continue;
    keys[slot] = key;
    rows[slot] = row;
    ++*npatterns;
  }
}

/* the keys of the table in ascending order, and the deltas of their rows; nothing if there are too many */
HOST_KERNEL(row_patterns_table)
{
  const index_t   most = PARAM(index_t, 0), stride = PARAM(index_t, 1);
  const uint64_t *keys      = PARAM(const uint64_t *, 2);
  const offset_t *rows      = PARAM(const offset_t *, 3);
  const int       npatterns = *PARAM(const int *, 4);
  const index_t  *rowptr = PARAM(const index_t *, 5), *colidx = PARAM(const index_t *, 6);
  uint64_t       *sorted = PARAM(uint64_t *, 7), last = 0; /* which no key is */
  index_t        *deltas = PARAM(index_t *, 8);

  for (int id = 0; npatterns <= most && id < npatterns; id++, deltas += stride) {
    int next = -1;

    for (int slot = 0; slot < SLOTS; slot++)
      if (keys[slot] > last && (next < 0 || keys[slot] < keys[next])) next = slot;
    last = sorted[id]  = keys[next];
    const offset_t row = rows[next], begin = rowptr[row], length = rowptr[row + 1] - begin;

    for (offset_t j = 0; j < stride; j++) deltas[j] = j < length ? (index_t)(colidx[begin + j] - row) : NO_ENTRY;
  }
}

/* the pattern whose key is that of the row; `keys` ascend */
static index_t find_pattern(uint64_t key, const uint64_t *keys, index_t npatterns)
{
  offset_t p;

  PARTITION_POINT(p, 1, npatterns, keys[p] <= key);
  return (index_t)(p - 1);
}

/* the pattern of each row; *mismatch is set if a row differs from the pattern of its key */
HOST_KERNEL(row_patterns_assign)
{
  const index_t   nrows = PARAM(index_t, 0), most = PARAM(index_t, 1), stride = PARAM(index_t, 2), npatterns = *PARAM(const int *, 3);
  const uint64_t *keys   = PARAM(const uint64_t *, 4);
  const index_t  *table  = PARAM(const index_t *, 5);
  const index_t  *rowptr = PARAM(const index_t *, 6), *colidx = PARAM(const index_t *, 7), *row_perm = PARAM(const index_t *, 8);
  uint8_t        *row_pattern = PARAM(uint8_t *, 9);
  int            *mismatch    = PARAM(int *, 10);

  for (offset_t position = 0; position < nrows && npatterns <= most; position++) {
    const offset_t row = row_perm ? row_perm[position] : position, begin = rowptr[row], length = rowptr[row + 1] - begin;
    const index_t  id     = find_pattern(row_key(row, rowptr, colidx), keys, npatterns);
    const index_t *deltas = table + (offset_t)id * stride;
    int            same   = length <= stride && (length == stride || deltas[length] == NO_ENTRY);

    for (offset_t j = 0; same && j < length; j++) same = colidx[begin + j] - row == deltas[j];
    row_pattern[position] = (uint8_t)id;
    if (!same) *mismatch = 1;
  }
}
