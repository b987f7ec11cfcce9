/* Host kernels of row patterns (formats/common/row_patterns.py): the parameters are those of kernels/formats/row_patterns.cu. */
#include "formats/row_patterns.h"
#include "common/search.h"
#include <string.h>

#define SLOTS 511 /* of the hash table: 8 KB with the counters */
#define LIMIT 256 /* patterns that a byte numbers */

/* all zeros at first */
typedef struct {
  int64_t  npatterns;   /* beyond LIMIT if there are too many: then some are missing */
  int64_t  nready;      /* of the device */
  uint64_t keys[SLOTS]; /* a hash table, 0: free; at last the keys alone, in ascending order */
  int64_t  rows[SLOTS]; /* a row that has the key of the slot */
} Search;

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

static void enter(uint64_t key, offset_t row, Search *search)
{
  int slot = (int)(key % SLOTS);

  while (search->keys[slot] && search->keys[slot] != key) slot = (slot + 1) % SLOTS;
  if (search->keys[slot]) return;
  search->keys[slot] = key;
  search->rows[slot] = row;
  search->npatterns++;
}

/* the keys of the table in ascending order, to its beginning, and the deltas of their rows */
static void make_table(Search *search, index_t stride, const index_t *rowptr, const index_t *colidx, index_t *deltas)
{
  uint64_t sorted[LIMIT], last = 0; /* which no key is */

  for (int id = 0; id < search->npatterns; id++, deltas += stride) {
    int next = -1;

    for (int slot = 0; slot < SLOTS; slot++)
      if (search->keys[slot] > last && (next < 0 || search->keys[slot] < search->keys[next])) next = slot;
    last = sorted[id]  = search->keys[next];
    const offset_t row = search->rows[next], begin = rowptr[row], length = rowptr[row + 1] - begin;

    for (offset_t j = 0; j < stride; j++) deltas[j] = j < length ? (index_t)(colidx[begin + j] - row) : NO_ENTRY;
  }
  memcpy(search->keys, sorted, (size_t)search->npatterns * sizeof(*sorted));
}

/* the keys of all rows, each once, and the deltas of a row for each; told[0] is how many there are */
HOST_KERNEL(row_patterns_collect)
{
  const index_t nrows = PARAM(index_t, 0), *rowptr = PARAM(const index_t *, 1), *colidx = PARAM(const index_t *, 2), most = PARAM(index_t, 3);
  Search       *search = PARAM(Search *, 5);
  int64_t      *told   = PARAM(int64_t *, 7);

  for (offset_t row = 0; row < nrows && search->npatterns <= LIMIT; row++) enter(row_key(row, rowptr, colidx), row, search);
  told[0] = search->npatterns;
  told[1] = 0;
  if (search->npatterns <= most) make_table(search, PARAM(index_t, 4), rowptr, colidx, PARAM(index_t *, 6));
}

/* the pattern whose key is that of the row; `keys` ascend */
static index_t find_pattern(uint64_t key, const uint64_t *keys, index_t npatterns)
{
  offset_t p;

  PARTITION_POINT(p, 1, npatterns, keys[p] <= key);
  return (index_t)(p - 1);
}

/* the pattern of each row; told[1] is set if a row differs from the pattern of its key */
HOST_KERNEL(row_patterns_assign)
{
  const index_t  nrows = PARAM(index_t, 0), *rowptr = PARAM(const index_t *, 1), *colidx = PARAM(const index_t *, 2);
  const index_t *row_perm = PARAM(const index_t *, 3), most = PARAM(index_t, 4), stride = PARAM(index_t, 5), *table = PARAM(const index_t *, 7);
  const Search  *search      = PARAM(const Search *, 6);
  uint8_t       *row_pattern = PARAM(uint8_t *, 8);
  int64_t       *told        = PARAM(int64_t *, 9);

  for (offset_t position = 0; position < nrows && search->npatterns <= most; position++) {
    const offset_t row = row_perm ? row_perm[position] : position, begin = rowptr[row], length = rowptr[row + 1] - begin;
    const index_t  id     = find_pattern(row_key(row, rowptr, colidx), search->keys, (index_t)search->npatterns);
    const index_t *deltas = table + (offset_t)id * stride;
    int            same   = length <= stride && (length == stride || deltas[length] == NO_ENTRY);

    for (offset_t j = 0; same && j < length; j++) same = colidx[begin + j] - row == deltas[j];
    row_pattern[position] = (uint8_t)id;
    if (!same) told[1] = 1;
  }
}
