/* Host kernels of the hash accumulator (spgemm/hash.py). In place of tables in shared memory each has a scratch array as long as a row of
   C could be; it is all zeros between kernels. */
#include "spgemm/census.h"
#include <stdlib.h>

typedef struct {
  uint32_t bits, word; /* columns 32 word .. 32 word + 31, a bit for each that is there */
} Word;

HOST_KERNEL(spgemm_hash_words)
{
  const index_t  nrows  = PARAM(index_t, 0);
  const index_t *rowptr = PARAM(const index_t *, 1), *columns = PARAM(const index_t *, 2);
  Word          *words    = PARAM(Word *, 3);
  index_t       *word_end = PARAM(index_t *, 4);
  Control *const control  = PARAM(Control *, 5);

  for (index_t row = 0; row < nrows; row++) {
    index_t end = rowptr[row];

    for (index_t p = rowptr[row]; p < rowptr[row + 1]; p++) {
      const uint32_t word = (uint32_t)(columns[p] >> 5), bit = 1u << (columns[p] & 31);

      if (p > rowptr[row] && columns[p] <= columns[p - 1]) control->falls = 1;
      if (end > rowptr[row] && words[end - 1].word == word) words[end - 1].bits |= bit;
      else words[end++] = (Word){bit, word};
    }
    word_end[row] = end;
  }
}

/* the terms of rows; a core does not sort rows by words */
HOST_KERNEL(spgemm_hash_count_words)
{
  gpufmt_count_terms(PARAM(index_t, 0), PARAM(const index_t *, 1), PARAM(const index_t *, 2), PARAM(const index_t *, 3), PARAM(offset_t *, 7),
                     PARAM(Control *, 9));
}

static int compare_words(const void *a, const void *b)
{
  const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

  return (x > y) - (x < y);
}

/* the parameters with which both passes begin, without what the census knows of the rows, and the scratch */
typedef struct {
  index_t        nrows;
  const index_t *rows, *A_rowptr, *A_columns, *B_rowptr, *word_end;
  const Word    *words;
  uint32_t      *bitmap, *found; /* of all words of a row; those that are not 0 */
} Operands;

static Operands operands(void **params, int scratch)
{
  const index_t nwords = PARAM(index_t, 1);
  uint32_t     *bitmap = PARAM(uint32_t *, scratch);

  return (Operands){PARAM(index_t, 0),
                    PARAM(const index_t *, 3),
                    PARAM(const index_t *, 4),
                    PARAM(const index_t *, 5),
                    PARAM(const index_t *, 6),
                    PARAM(const index_t *, 7),
                    PARAM(const Word *, 8),
                    bitmap,
                    bitmap + nwords};
}

/* the words of a row of C; returns how many there are */
static index_t unite_words(const Operands *o, index_t row)
{
  index_t nfound = 0;

  for (index_t e = o->A_rowptr[row]; e < o->A_rowptr[row + 1]; e++) {
    const index_t k = o->A_columns[e];

    for (index_t p = o->B_rowptr[k]; p < o->word_end[k]; p++) {
      const Word entry = o->words[p];

      if (!o->bitmap[entry.word]) o->found[nfound++] = entry.word;
      o->bitmap[entry.word] |= entry.bits;
    }
  }
  return nfound;
}

HOST_KERNEL(spgemm_hash_bitmap_lengths)
{
  const Operands o       = operands(params, 10);
  offset_t      *lengths = PARAM(offset_t *, 9);

  for (index_t i = 0; i < o.nrows; i++) {
    const index_t row = o.rows ? o.rows[i] : i, nfound = unite_words(&o, row);

    lengths[row] = 0;
    for (index_t f = 0; f < nfound; f++) {
      lengths[row] += __builtin_popcount(o.bitmap[o.found[f]]);
      o.bitmap[o.found[f]] = 0;
    }
  }
}

HOST_KERNEL(spgemm_hash_bitmap_columns)
{
  const Operands o        = operands(params, 11);
  const index_t *C_rowptr = PARAM(const index_t *, 9);

  for (index_t i = 0; i < o.nrows; i++) {
    const index_t row = o.rows ? o.rows[i] : i, nfound = unite_words(&o, row);
    index_t      *to = PARAM(index_t *, 10) + C_rowptr[row];

    qsort(o.found, (size_t)nfound, sizeof(*o.found), compare_words);
    for (index_t f = 0; f < nfound; f++) {
      for (uint32_t bits = o.bitmap[o.found[f]]; bits; bits &= bits - 1) *to++ = (index_t)o.found[f] * 32 + __builtin_ctz(bits);
      o.bitmap[o.found[f]] = 0;
    }
  }
}

typedef struct {
  const index_t  *rowptr, *columns;
  const scalar_t *values;
} Operand;

typedef struct {
  const index_t *rowptr, *columns;
  scalar_t      *values;
} Result;

HOST_KERNEL(spgemm_hash_values)
{
  const offset_t nrows = PARAM(offset_t, 0);
  const index_t *rows  = PARAM(const index_t *, 1);
  const Operand  A = PARAM(const Operand, 3), B = PARAM(const Operand, 4);
  const Result   C    = PARAM(const Result, 5);
  scalar_t      *sums = PARAM(scalar_t *, 6);

  for (offset_t i = 0; i < nrows; i++) {
    const index_t row = rows ? rows[i] : (index_t)i;

    for (index_t e = A.rowptr[row]; e < A.rowptr[row + 1]; e++) {
      const index_t  k = A.columns[e];
      const scalar_t a = A.values[e];

      for (index_t p = B.rowptr[k]; p < B.rowptr[k + 1]; p++) sums[B.columns[p]] += a * B.values[p];
    }
    for (index_t c = C.rowptr[row]; c < C.rowptr[row + 1]; c++) {
      C.values[c]        = sums[C.columns[c]];
      sums[C.columns[c]] = 0;
    }
  }
}
