/* The pattern of a sum of sequential matrices, by merging their sorted rows, and what makes each of its entries. */
#include "parallel/parallel.h"

/* a row that is being merged */
typedef struct {
  const PetscInt     *column, *end; /* of the summand */
  const GpufmtPlaces *places;       /* of its columns in the union */
  PetscInt            entry;        /* number of the entry at `column` */
} Front;

/* a row of a summand that belongs to a row of the sum */
typedef struct {
  PetscInt summand, row;
} Share;

static inline PetscInt Place(const GpufmtPlaces *places, PetscInt column)
{
  if (column < places->first) return places->others[column];
  return column < places->last ? column + places->shift : places->others[column - (places->last - places->first)];
}

/* The columns of all summands, and where each summand finds its own among them. A rank has most columns of its rows for itself: those that it owns,
   which nobody lists. */
static PetscErrorCode MergeColumns(PetscLayout layout, PetscInt n, const GpufmtSummand summands[], GpufmtUnion *u, GpufmtPlaces places[])
{
  GpufmtColumns *columns                 = &u->columns;
  PetscInt       at[GPUFMT_MAX_SUMMANDS] = {0};
  PetscCount     most                    = 0;

  PetscFunctionBegin;
  for (PetscInt s = 0; s < n; s++) {
    most += summands[s].columns.nothers;
    PetscCall(PetscMalloc1(summands[s].columns.nothers, &places[s].others));
  }
  PetscCall(PetscMalloc1(most, &columns->others));
  columns->first = layout->rstart;
  columns->nown  = layout->n;
  for (;;) {
    PetscInt  next = PETSC_INT_MAX, place;
    PetscBool owned;

    for (PetscInt s = 0; s < n; s++)
      if (at[s] < summands[s].columns.nothers) next = PetscMin(next, summands[s].columns.others[at[s]]);
    if (next == PETSC_INT_MAX) break;
    owned = (PetscBool)(next >= layout->rstart && next < layout->rend);
    place = owned ? columns->nlow + next - layout->rstart : columns->nothers + (next < layout->rstart ? 0 : layout->n);
    for (PetscInt s = 0; s < n; s++)
      if (at[s] < summands[s].columns.nothers && summands[s].columns.others[at[s]] == next) places[s].others[at[s]++] = place;
    if (owned) continue;
    if (next < layout->rstart) columns->nlow++;
    columns->others[columns->nothers++] = next;
  }
  for (PetscInt s = 0; s < n; s++) {
    places[s].first = summands[s].columns.nlow;
    places[s].last  = summands[s].columns.nlow + summands[s].columns.nown;
    places[s].shift = columns->nlow - summands[s].columns.nlow;
  }
  u->ncols = columns->nown + columns->nothers;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static inline PetscInt Target(const GpufmtSummand *summand, PetscInt row)
{
  if (summand->targets) return summand->targets[row];
  if ((row < summand->first_row || row >= summand->last_row) != summand->outside) return -1;
  return !summand->outside || row < summand->first_row ? row - (summand->outside ? 0 : summand->first_row)
                                                       : row - (summand->last_row - summand->first_row);
}

/* whether rows belong to the rows of their numbers, each to another one */
static PetscBool InTheirPlaces(const GpufmtSummand *summand)
{
  return (PetscBool)(!summand->targets && !summand->outside && !summand->first_row && summand->last_row == summand->matrix->rmap->n);
}

/* the shares of each row of the sum, in the order of summands and rows */
static PetscErrorCode FindShares(PetscInt nrows, PetscInt n, const GpufmtSummand summands[], PetscInt **begins, Share **shares)
{
  PetscInt *begin;

  PetscFunctionBegin;
  PetscCall(PetscCalloc1(nrows + 2, begins));
  begin = *begins; /* in the end that of each row */
  for (PetscInt s = 0; s < n; s++)
    for (PetscInt row = 0; row < summands[s].matrix->rmap->n; row++)
      if (Target(&summands[s], row) >= 0) begin[Target(&summands[s], row) + 2]++;
  for (PetscInt i = 0; i < nrows; i++) begin[i + 2] += begin[i + 1];
  PetscCall(PetscMalloc1(begin[nrows + 1], shares));
  for (PetscInt s = 0; s < n; s++)
    for (PetscInt row = 0; row < summands[s].matrix->rmap->n; row++)
      if (Target(&summands[s], row) >= 0) (*shares)[begin[Target(&summands[s], row) + 1]++] = (Share){s, row};
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* where the next entry of each part goes */
typedef struct {
  GpufmtUnionPart *parts;
  PetscInt         low, high; /* places of columns in part 0 */
  PetscInt         nnz[2], nterms[2];
} Output;

static inline int BeginEntry(Output *out, PetscInt place)
{
  const int        k    = place < out->low || place >= out->high;
  GpufmtUnionPart *part = &out->parts[k];

  part->colidx[out->nnz[k]] = place;
  if (part->begins) part->begins[out->nnz[k]] = out->nterms[k];
  out->nnz[k]++;
  return k;
}

static inline void AddTerm(Output *out, int k, PetscInt entry)
{
  out->parts[k].index[out->nterms[k]++] = entry;
}

/* the entries of a front before place `last`, which all go to part k */
static void CopyRun(Front *front, PetscInt last, int k, Output *out)
{
  const GpufmtPlaces *places = front->places;
  const PetscInt     *column = front->column, *end = front->end;
  PetscInt *const colidx = out->parts[k].colidx, *const begins = out->parts[k].begins, *const index = out->parts[k].index;
  PetscInt entry = front->entry, nnz = out->nnz[k], nterms = out->nterms[k];

  for (; column < end && Place(places, *column) < last; column++) {
    colidx[nnz] = Place(places, *column);
    if (begins) begins[nnz] = nterms;
    index[nterms++] = entry++;
    nnz++;
  }
  front->column  = column;
  front->entry   = entry;
  out->nnz[k]    = nnz;
  out->nterms[k] = nterms;
}

static void MergeRow(PetscInt n, Front fronts[], Output *out)
{
  while (n > 1) {
    PetscInt place = Place(fronts[0].places, *fronts[0].column), left = 0;
    int      k;

    for (PetscInt f = 1; f < n; f++) place = PetscMin(place, Place(fronts[f].places, *fronts[f].column));
    k = BeginEntry(out, place);
    for (PetscInt f = 0; f < n; f++) {
      if (Place(fronts[f].places, *fronts[f].column) == place) {
        AddTerm(out, k, fronts[f].entry++);
        fronts[f].column++;
      }
      if (fronts[f].column < fronts[f].end) fronts[left++] = fronts[f];
    }
    n = left;
  }
  if (n == 1) { /* most rows are those of one summand alone */
    CopyRun(&fronts[0], out->low, 1, out);
    CopyRun(&fronts[0], out->high, 0, out);
    CopyRun(&fronts[0], PETSC_INT_MAX, 1, out);
  }
}

static PetscErrorCode MergeShares(PetscInt nsummands, const GpufmtSummand summands[], const GpufmtPlaces places[], const PetscInt begins[],
                                  const Share shares[], Front fronts[], Output *out, GpufmtUnion *u)
{
  const PetscInt *rowptr[GPUFMT_MAX_SUMMANDS], *colidx[GPUFMT_MAX_SUMMANDS];
  PetscInt        first[GPUFMT_MAX_SUMMANDS + 1] = {0};

  PetscFunctionBegin;
  for (PetscInt s = 0; s < nsummands; s++) {
    PetscCall(GpufmtPatternGet(summands[s].matrix, &rowptr[s], &colidx[s]));
    first[s + 1] = first[s] + u->sizes[s];
  }
  for (PetscInt i = 0; i < u->nrows; i++) {
    PetscInt n = 0;

    for (PetscInt k = begins[i]; k < begins[i + 1]; k++) {
      const PetscInt s = shares[k].summand, begin = rowptr[s][shares[k].row], end = rowptr[s][shares[k].row + 1];

      if (begin < end) fronts[n++] = (Front){colidx[s] + begin, colidx[s] + end, &places[s], first[s] + begin};
    }
    MergeRow(n, fronts, out);
    for (int k = 0; k < 2; k++) u->parts[k].rowptr[i + 1] = out->nnz[k];
  }
  for (PetscInt s = 0; s < nsummands; s++) PetscCall(GpufmtPatternRestore(summands[s].matrix, &rowptr[s], &colidx[s]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MergeRows(PetscInt nsummands, const GpufmtSummand summands[], const GpufmtPlaces places[], Output *out, GpufmtUnion *u)
{
  PetscInt      *begins = NULL, most = 0;
  Share         *shares = NULL;
  Front         *fronts = NULL;
  PetscErrorCode ierr;

  PetscFunctionBegin;
  ierr = FindShares(u->nrows, nsummands, summands, &begins, &shares);
  for (PetscInt i = 0; i < u->nrows && !ierr; i++) most = PetscMax(most, begins[i + 1] - begins[i]);
  if (!ierr) ierr = PetscMalloc1(most, &fronts);
  if (!ierr) ierr = MergeShares(nsummands, summands, places, begins, shares, fronts, out, u);
  PetscCall(PetscFree(fronts));
  PetscCall(PetscFree(shares));
  PetscCall(PetscFree(begins));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* the two parts, merged on the host */
static PetscErrorCode MergeParts(PetscInt nterms, PetscBool single, PetscInt nsummands, const GpufmtSummand summands[], const GpufmtPlaces places[],
                                 GpufmtUnion *u)
{
  Output out = {.parts = u->parts, .low = u->low, .high = u->high};

  PetscFunctionBegin;
  for (int k = 0; k < 2; k++) {
    const PetscInt most = k && !u->low && u->high == u->ncols ? 0 : nterms;

    PetscCall(PetscCalloc1(u->nrows + 1, &u->parts[k].rowptr));
    PetscCall(PetscMalloc2(most, &u->parts[k].colidx, most, &u->parts[k].index));
    if (!single) PetscCall(PetscMalloc1(most + 1, &u->parts[k].begins));
  }
  PetscCall(MergeRows(nsummands, summands, places, &out, u));
  for (int k = 0; k < 2 && !single; k++) u->parts[k].begins[out.nnz[k]] = out.nterms[k];
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode UnionFill(int backend, PetscLayout columns, PetscBool splits, PetscInt nsummands, const GpufmtSummand summands[],
                                GpufmtPlaces places[], GpufmtUnion *u)
{
  PetscInt64 nterms = 0;
  PetscCount ncols  = 0;
  PetscBool  single = PETSC_TRUE; /* no entry has two terms, as far as rows and columns tell */

  PetscFunctionBegin;
  for (PetscInt s = 0; s < nsummands; s++) {
    const PetscInt *rowptr;

    PetscCall(GpufmtPatternGet(summands[s].matrix, &rowptr, NULL));
    u->sizes[s] = rowptr[summands[s].matrix->rmap->n];
    nterms += u->sizes[s];
    ncols += summands[s].matrix->cmap->n;
    if (!InTheirPlaces(&summands[s])) single = PETSC_FALSE;
    PetscCall(GpufmtPatternRestore(summands[s].matrix, &rowptr, NULL));
  }
  PetscCheck(nterms <= PETSC_INT_MAX, PETSC_COMM_SELF, PETSC_ERR_SUP,
             "A parallel product adds up %" PetscInt64_FMT " entries on this rank, PetscInt counts to %" PetscInt_FMT
             ": use more ranks or configure PETSc with --with-64-bit-indices",
             nterms, PETSC_INT_MAX);
  PetscCall(MergeColumns(columns, nsummands, summands, u, places));
  if (ncols != u->ncols) single = PETSC_FALSE;
  u->low  = splits ? u->columns.nlow : 0;
  u->high = splits ? u->columns.nlow + u->columns.nown : u->ncols;
  if (u->planned) PetscCall(GpufmtUnionPlan(backend, nsummands, summands, places, u));
  else PetscCall(MergeParts((PetscInt)nterms, single, nsummands, summands, places, u));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The sum of at most GPUFMT_MAX_SUMMANDS matrices of a layout of columns, which has all that this rank owns. If it splits, entries in these are part 0
   of it, and the others part 1. `planned`: the planner merges the rows, where the backend is, and not this file on the host. */
PetscErrorCode GpufmtUnionCreate(int backend, PetscBool planned, PetscInt nrows, PetscLayout columns, PetscBool splits, PetscInt nsummands,
                                 const GpufmtSummand summands[], GpufmtUnion *u)
{
  GpufmtPlaces   places[GPUFMT_MAX_SUMMANDS] = {{0}};
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(PetscMemzero(u, sizeof(*u)));
  u->nrows   = nrows;
  u->planned = planned;
  ierr       = UnionFill(backend, columns, splits, nsummands, summands, places, u);
  for (PetscInt s = 0; s < nsummands; s++) PetscCall(PetscFree(places[s].others));
  if (ierr) PetscCall(GpufmtUnionDestroy(u));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtUnionDestroy(GpufmtUnion *u)
{
  PetscFunctionBegin;
  PetscCall(GpufmtUnionRelease(u));
  PetscCall(PetscFree(u->columns.others));
  for (int k = 0; k < 2; k++) {
    PetscCall(PetscFree(u->parts[k].rowptr));
    PetscCall(PetscFree2(u->parts[k].colidx, u->parts[k].index));
    PetscCall(PetscFree(u->parts[k].begins));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
