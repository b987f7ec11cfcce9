/* The pattern of a sum of up to three matrices; the parameters are those of kernels/patterns/union.cu. */
#include "common/host.h"

typedef struct {
  const index_t *rowptr, *colidx, *places;
  alignas(8) index_t first_row, first_entry; /* numbers of its first row and entry among those of all */
} Summand;

typedef struct {
  alignas(8) index_t nrows, ncols, low, high, count;
  const index_t *begins, *shares;
  Summand        summands[3];
  index_t       *positions;
} Sum;

typedef struct {
  index_t *lengths, *more; /* entries of rows, and how many terms they have beyond one for each */
} PartCounts;

typedef struct {
  const index_t *rowptr, *more;
  index_t       *colidx, *begins, *index;
} Part;

/* where the next entry of a part goes; part NULL: it is counted */
typedef struct {
  const Part *part;
  index_t     entry, term;
} PartWriter;

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
static void merge_row(const Sum *sum, offset_t i, PartWriter writers[2], index_t *occurs)
{
  const offset_t first = first_share(sum, i), last = first_share(sum, i + 1);
  offset_t       row;

  for (offset_t share = first; share < last; share++) {
    const Summand *summand = summand_of(sum, i, share, &row);

    sum->positions[share] = summand->rowptr[row];
  }
  for (;;) {
    index_t     next = sum->ncols;
    PartWriter *writer;

    for (offset_t share = first; share < last; share++) {
      const index_t place = next_place(sum, i, share);

      next = place < next ? place : next;
    }
    if (next == sum->ncols) return;
    writer = &writers[next < sum->low || next >= sum->high];
    if (writer->part) {
      writer->part->colidx[writer->entry] = writer == writers ? next - sum->low : next;
      if (writer->part->begins) writer->part->begins[writer->entry] = writer->term;
      if (writer != writers) occurs[next] = 1;
    }
    writer->entry++;
    for (offset_t share = first; share < last; share++) {
      if (next_place(sum, i, share) != next) continue;
      if (writer->part) writer->part->index[writer->term] = summand_of(sum, i, share, &row)->first_entry + sum->positions[share];
      writer->term++;
      sum->positions[share]++;
    }
  }
}

/* lengths of rows in each part, and how many terms they have beyond one for each entry */
HOST_KERNEL(union_count)
{
  const Sum *sum = &PARAM(const Sum, 0);

  for (int k = 0; k < 2; k++) PARAM(PartCounts, 1 + k).lengths[0] = PARAM(PartCounts, 1 + k).more[0] = 0;
  for (offset_t row = 0; row < sum->nrows; row++) {
    PartWriter writers[2] = {{0}};

    merge_row(sum, row, writers, NULL);
    for (int k = 0; k < 2; k++) {
      PARAM(PartCounts, 1 + k).lengths[row + 1] = writers[k].entry;
      PARAM(PartCounts, 1 + k).more[row + 1]    = writers[k].term - writers[k].entry;
    }
  }
}

/* the sum of the first of n numbers up to each, in its place; returns that of all */
static uint64_t prefix_sums(index_t *numbers, offset_t n)
{
  uint64_t sum = 0;

  for (offset_t i = 0; i < n; i++) numbers[i] = (index_t)(sum += (uint64_t)numbers[i]);
  return sum;
}

/* sums up to each row in the place of the arrays of union_count, and those of all rows */
HOST_KERNEL(union_row_pointers)
{
  const offset_t nrows   = PARAM(offset_t, 0);
  uint64_t      *control = PARAM(uint64_t *, 3);

  for (int k = 0; k < 2; k++) {
    control[2 * k]     = prefix_sums(PARAM(PartCounts, 1 + k).lengths + 1, nrows);
    control[2 * k + 1] = prefix_sums(PARAM(PartCounts, 1 + k).more + 1, nrows);
  }
}

/* numbers of the columns that occur, and these columns */
HOST_KERNEL(union_number_columns)
{
  const offset_t ncols  = PARAM(offset_t, 0);
  index_t       *occurs = PARAM(index_t *, 1), *ghosts = PARAM(index_t *, 2), number = 0;

  for (offset_t column = 0; column < ncols; column++) {
    const index_t here = occurs[column];

    occurs[column] = number;
    if (here) ghosts[number++] = (index_t)column;
  }
  PARAM(uint64_t *, 3)[0] = (uint64_t)number;
}

/* colidx[k] = numbers[colidx[k]] */
HOST_KERNEL(union_renumber)
{
  const index_t nnz = PARAM(index_t, 0), *numbers = PARAM(const index_t *, 1);
  index_t      *colidx = PARAM(index_t *, 2);

  for (offset_t k = 0; k < nnz; k++) colidx[k] = numbers[colidx[k]];
}

/* places of all columns: of those from first to last - 1 by a shift, of the others as they are given */
HOST_KERNEL(union_places)
{
  const index_t  ncols = PARAM(index_t, 0), first = PARAM(index_t, 1), last = PARAM(index_t, 2), shift = PARAM(index_t, 3);
  const index_t *others = PARAM(const index_t *, 4);
  index_t       *places = PARAM(index_t *, 5);

  for (index_t c = 0; c < ncols; c++) places[c] = c < first ? others[c] : c < last ? c + shift : others[c - (last - first)];
}

typedef struct {
  alignas(8) index_t nrows, first, last, outside; /* rows first to last - 1 belong to rows 0, 1, ..., or the others, if `outside` */
  const index_t *given;                           /* to which each row belongs; NULL: as above */
} RowsOf;

typedef struct {
  alignas(8) index_t nrows, end, share; /* rows of the sum, and of all summands; most that are of none in a column */
  RowsOf summands[3];
} Targets;

static index_t target_of(const RowsOf *rows, index_t row)
{
  const int within = row >= rows->first && row < rows->last;

  if (rows->given) return rows->given[row];
  if (rows->outside) return within ? -1 : row < rows->first ? row : row - (rows->last - rows->first);
  return within ? row - rows->first : -1;
}

/* the rows of all summands as a matrix with one entry each, in the column of their row of the sum */
HOST_KERNEL(union_targets)
{
  const Targets  t      = PARAM(const Targets, 0);
  index_t *const rowptr = PARAM(index_t *, 1), *const colidx = PARAM(index_t *, 2);

  index_t number = 0;

  for (int s = 0; s < 3; s++)
    for (index_t row = 0; row < t.summands[s].nrows; row++, number++) {
      const index_t target = target_of(&t.summands[s], row);

      rowptr[number] = number;
      colidx[number] = target >= 0 ? target : t.nrows + number / t.share;
    }
  rowptr[t.end] = t.end;
}

/* the entries and terms of both parts, and the columns that occur in part 1; the rows are done in their order, so that all but the arrays
   that are written is known */
HOST_KERNEL(union_fill)
{
  const Sum *sum        = &PARAM(const Sum, 0);
  index_t   *occurs     = PARAM(index_t *, 3);
  PartWriter writers[2] = {
    {&PARAM(const Part, 1), 0, 0},
    {&PARAM(const Part, 2), 0, 0}
  };

  for (offset_t row = 0; row < sum->nrows; row++) merge_row(sum, row, writers, occurs);
  for (int k = 0; k < 2; k++)
    if (writers[k].part->begins) writers[k].part->begins[writers[k].entry] = writers[k].term;
}
