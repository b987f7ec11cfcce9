/* The pattern of a matrix from coordinates; the parameters are those of kernels/patterns/coo.cu. A core puts a row in order whatever its length, so
   no coo_merge is needed. */
#include "common/host.h"
#include <stdlib.h>

#define SHORT_ROW 32 /* is sorted by insertion */

typedef struct {
  index_t number, column;
} Entry;

typedef struct {
  offset_t noutside, ticket;
} OutsideControl;

typedef struct {
  offset_t outside, nterms, longest, ticket;
} RowControl;

typedef struct {
  offset_t repeats, disordered, ticket;
} EntryControl;

/* Lists the entries that are not left out and do not lie in the given rows and columns; the lists may be null: they are counted */
HOST_KERNEL(coo_outside)
{
  const offset_t nentries  = PARAM(offset_t, 0);
  const index_t  first_row = PARAM(index_t, 1), nrows = PARAM(index_t, 2), first_col = PARAM(index_t, 3), ncols = PARAM(index_t, 4),
                 *rows = PARAM(const index_t *, 5), *cols = PARAM(const index_t *, 6);
  index_t       *rows_outside = PARAM(index_t *, 7), *cols_outside = PARAM(index_t *, 8), *numbers = PARAM(index_t *, 9);
  offset_t       n = 0;

  for (offset_t k = 0; k < nentries; k++) {
    if (rows[k] < 0 || cols[k] < 0) continue;
    if (rows[k] >= first_row && rows[k] - first_row < nrows && cols[k] >= first_col && cols[k] - first_col < ncols) continue;
    if (numbers) {
      rows_outside[n] = rows[k];
      cols_outside[n] = cols[k];
      numbers[n]      = (index_t)k;
    }
    n++;
  }
  PARAM(OutsideControl *, 10)->noutside = n;
}

/* Adds the entries of each row to counts [nrows]; slots[k] = how many of its row were counted before entry k, -1 if it is left out */
HOST_KERNEL(coo_count)
{
  const index_t nentries = PARAM(index_t, 0), first_row = PARAM(index_t, 1), nrows = PARAM(index_t, 2), first_col = PARAM(index_t, 3),
                ncols = PARAM(index_t, 4), *rows = PARAM(const index_t *, 6), *cols = PARAM(const index_t *, 7);
  const int     is_part = PARAM(int, 5);
  index_t      *counts = PARAM(index_t *, 8), *slots = PARAM(index_t *, 9);
  RowControl   *control = PARAM(RowControl *, 10);

  for (index_t k = 0; k < nentries; k++) {
    const int     given = rows[k] >= 0 && cols[k] >= 0;
    const index_t row = given ? rows[k] - first_row : -1, column = given ? cols[k] - first_col : -1;
    const int     inside = row >= 0 && row < nrows && column >= 0 && column < ncols;

    if (given && !inside && !is_part && !control->outside) control->outside = (offset_t)nentries - k;
    slots[k] = inside ? counts[row]++ : -1;
  }
}

/* Puts in the place of each count the sum of those before it */
HOST_KERNEL(coo_row_pointer)
{
  const offset_t ncounts = PARAM(offset_t, 0);
  index_t       *counts = PARAM(index_t *, 1), sum = 0;

  for (offset_t row = 0; row < ncounts; row++) {
    const index_t count = counts[row];

    counts[row] = sum;
    sum += count;
  }
  PARAM(RowControl *, 2)->nterms = sum;
}

/* Brings each entry to its row, which begins at begins[row]; `numbers` may be null */
HOST_KERNEL(coo_scatter)
{
  const index_t  nentries = PARAM(index_t, 0), first_number = PARAM(index_t, 1), *numbers = PARAM(const index_t *, 2), first_row = PARAM(index_t, 3),
                 first_col = PARAM(index_t, 4);
  const index_t *rows = PARAM(const index_t *, 5), *cols = PARAM(const index_t *, 6), *begins = PARAM(const index_t *, 7),
                *slots = PARAM(const index_t *, 8);
  Entry *entries       = PARAM(Entry *, 9);

  for (index_t k = 0; k < nentries; k++)
    if (slots[k] >= 0) entries[begins[rows[k] - first_row] + slots[k]] = (Entry){numbers ? numbers[k] : first_number + k, cols[k] - first_col};
}

static int compare(const void *left, const void *right)
{
  const Entry a = *(const Entry *)left, b = *(const Entry *)right;

  return a.column != b.column ? (a.column > b.column) - (a.column < b.column) : (a.number > b.number) - (a.number < b.number);
}

/* Puts each row in order by column; entries of a column come in the order of their numbers, and stay so */
HOST_KERNEL(coo_sort)
{
  const index_t nrows = PARAM(index_t, 1), *begins = PARAM(const index_t *, 2);
  Entry        *entries = PARAM(Entry *, 3);

  for (index_t row = 0; row < nrows; row++) {
    Entry *const  of_row = entries + begins[row];
    const index_t length = begins[row + 1] - begins[row];

    if (length > SHORT_ROW) qsort(of_row, (size_t)length, sizeof(Entry), compare);
    else
      for (index_t i = 1; i < length; i++) {
        const Entry entry = of_row[i];
        index_t     place = i;

        for (; place > 0 && of_row[place - 1].column > entry.column; place--) of_row[place] = of_row[place - 1];
        of_row[place] = entry;
      }
  }
}

/* Turns the numbers of entries that have the place of the one before into their complements, which are negative, and counts them */
HOST_KERNEL(coo_mark_repeats)
{
  const index_t       nrows = PARAM(index_t, 1), *begins = PARAM(const index_t *, 2);
  Entry *const        entries = PARAM(Entry *, 3);
  EntryControl *const control = PARAM(EntryControl *, 4);

  for (index_t row = 0; row < nrows; row++)
    for (index_t p = begins[row]; p < begins[row + 1]; p++) {
      if (entries[p].number != p) control->disordered = 1;
      if (p == begins[row] || entries[p].column != entries[p - 1].column) continue;
      entries[p].number = ~entries[p].number;
      control->repeats++;
    }
}

/* The matrix without repeats: its columns, and the sums that its entries are; index and begins_of_sums may be null */
HOST_KERNEL(coo_fill)
{
  const offset_t nterms  = PARAM(offset_t, 0);
  const Entry   *entries = PARAM(const Entry *, 1);
  index_t       *colidx = PARAM(index_t *, 2), *begins_of_sums = PARAM(index_t *, 3), *index = PARAM(index_t *, 4);
  offset_t       nnz = 0;

  for (offset_t p = 0; p < nterms; p++) {
    const Entry entry = entries[p];

    if (index) index[p] = entry.number >= 0 ? entry.number : ~entry.number;
    if (entry.number < 0) continue;
    if (begins_of_sums) begins_of_sums[nnz] = (index_t)p;
    colidx[nnz++] = entry.column;
  }
  if (begins_of_sums) begins_of_sums[nnz] = (index_t)nterms;
}

/* The row pointer of the matrix without repeats in the place of that with them */
HOST_KERNEL(coo_drop_repeats)
{
  const offset_t nrows = PARAM(offset_t, 0);
  const index_t  nnz = PARAM(index_t, 1), *begins_of_sums = PARAM(const index_t *, 2);
  index_t       *rowptr = PARAM(index_t *, 3), t = 0;

  for (offset_t row = 0; row <= nrows; row++) {
    while (t < nnz && begins_of_sums[t] < rowptr[row]) t++;
    rowptr[row] = t;
  }
}
