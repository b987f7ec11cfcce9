/* The pattern of a sum of up to three matrices; the parameters are those of kernels/union.cu. */
#include "host.h"

typedef struct {
  const index_t *rowptr, *colidx, *places;
  index_t        first_row, first_entry; /* numbers of its first row and entry among those of all */
} Summand;

typedef struct {
  index_t        nrows, ncols, low, high, count;
  const index_t *begins, *shares;
  Summand        summands[3];
  index_t       *positions;
} Sum;

/* where the next entry of a part goes; all NULL: it is counted */
typedef struct {
  index_t *colidx, *begins, *index;
  index_t  entry, term;
} Part;

enum {
  SUM_PARAMETERS = 21
};

static Sum sum_of(void **params)
{
  Sum sum = {PARAM(index_t, 0), PARAM(index_t, 1), PARAM(index_t, 2), PARAM(index_t, 3), PARAM(index_t, 4), PARAM(const index_t *, 5), PARAM(const index_t *, 6), {{0}}, PARAM(index_t *, 20)};

  for (int s = 0; s < 3; s++) {
    sum.summands[s] = (Summand){PARAM(const index_t *, 11 + 3 * s), PARAM(const index_t *, 12 + 3 * s), PARAM(const index_t *, 13 + 3 * s), 0, 0};
    if (s) {
      sum.summands[s].first_row   = PARAM(index_t, 6 + s);
      sum.summands[s].first_entry = PARAM(index_t, 8 + s);
    }
  }
  return sum;
}

/* the summand to whose row a share of row i belongs, and that row */
static const Summand *summand_of(const Sum *sum, offset_t i, offset_t share, offset_t *row)
{
  const Summand *summands = sum->summands;
  int            s        = 0;

  if (!sum->begins) {
    *row = i;
    return &summands[share - i * sum->count];
  }
  while (s < 2 && sum->shares[share] >= summands[s + 1].first_row) s++;
  *row = sum->shares[share] - summands[s].first_row;
  return &summands[s];
}

static offset_t first_share(const Sum *sum, offset_t row)
{
  return sum->begins ? (offset_t)sum->begins[row] : row * sum->count;
}

/* the place of the next entry of a share, the number of columns if it has no more */
static index_t next_place(const Sum *sum, offset_t i, offset_t share)
{
  offset_t       row;
  const Summand *summand = summand_of(sum, i, share, &row);

  return sum->positions[share] < summand->rowptr[row + 1] ? summand->places[summand->colidx[sum->positions[share]]] : sum->ncols;
}

/* the entries of row i in ascending order, each with its terms in the order of the shares */
static void merge_row(const Sum *sum, offset_t i, Part parts[2], index_t *occurs)
{
  const offset_t first = first_share(sum, i), last = first_share(sum, i + 1);
  offset_t       row;

  for (offset_t share = first; share < last; share++) {
    const Summand *summand = summand_of(sum, i, share, &row);

    sum->positions[share] = summand->rowptr[row];
  }
  for (;;) {
    index_t next = sum->ncols;
    Part   *part;

    for (offset_t share = first; share < last; share++) {
      const index_t place = next_place(sum, i, share);

      next = place < next ? place : next;
    }
    if (next == sum->ncols) return;
    part = &parts[next < sum->low || next >= sum->high];
    if (part->colidx) part->colidx[part->entry] = part == parts ? next - sum->low : next;
    if (part->begins) part->begins[part->entry] = part->term;
    if (occurs && part != parts) occurs[next] = 1;
    part->entry++;
    for (offset_t share = first; share < last; share++) {
      if (next_place(sum, i, share) != next) continue;
      if (part->index) part->index[part->term] = summand_of(sum, i, share, &row)->first_entry + sum->positions[share];
      part->term++;
      sum->positions[share]++;
    }
  }
}

/* lengths of rows in each part, and how many terms they have beyond one for each entry */
HOST_KERNEL(union_count)
{
  const Sum sum     = sum_of(params);
  index_t  *several = PARAM(index_t *, SUM_PARAMETERS + 4);

  for (int k = 0; k < 2; k++) PARAM(index_t *, SUM_PARAMETERS + k)[0] = PARAM(index_t *, SUM_PARAMETERS + 2 + k)[0] = 0;
  for (offset_t row = 0; row < sum.nrows; row++) {
    Part parts[2] = {{0}};

    merge_row(&sum, row, parts, NULL);
    for (int k = 0; k < 2; k++) {
      PARAM(index_t *, SUM_PARAMETERS + k)[row + 1]     = parts[k].entry;
      PARAM(index_t *, SUM_PARAMETERS + 2 + k)[row + 1] = parts[k].term - parts[k].entry;
      if (parts[k].term > parts[k].entry) several[k] = 1;
    }
  }
}

/* the entries and terms of both parts, and the columns that occur in part 1; the rows are done in their order, so that all but the arrays
   that are written is known */
HOST_KERNEL(union_fill)
{
  const Sum sum      = sum_of(params);
  index_t  *occurs   = PARAM(index_t *, SUM_PARAMETERS + 10);
  Part      parts[2] = {{0}};

  for (int k = 0; k < 2; k++) {
    parts[k].colidx = PARAM(index_t *, SUM_PARAMETERS + 4 + 3 * k);
    parts[k].begins = PARAM(index_t *, SUM_PARAMETERS + 5 + 3 * k);
    parts[k].index  = PARAM(index_t *, SUM_PARAMETERS + 6 + 3 * k);
  }
  for (offset_t row = 0; row < sum.nrows; row++) merge_row(&sum, row, parts, occurs);
  for (int k = 0; k < 2; k++)
    if (parts[k].begins) parts[k].begins[parts[k].entry] = parts[k].term;
}
