/* The pattern of a sum of sequential matrices, by merging their sorted rows, and what makes each of its entries. */
#include "parallel/parallel.h"

/* a row that is being merged */
typedef struct {
  const PetscInt *column, *end; /* of the summand */
  const PetscInt *places;       /* of its columns in the union */
  PetscInt        entry;        /* number of the entry at `column` */
} Front;

/* a row of a summand that belongs to a row of the sum */
typedef struct {
  PetscInt summand, row;
} Share;

static inline PetscInt GlobalColumn(const GpufmtSummand *summand, PetscInt k)
{
  return summand->columns ? summand->columns[k] : summand->first_column + k;
}

/* the first column of each summand that is not merged; PETSC_INT_MAX: all are */
static inline PetscInt NextColumn(const GpufmtSummand *summand, PetscInt at)
{
  return at < summand->matrix->cmap->n ? GlobalColumn(summand, at) : PETSC_INT_MAX;
}

/* the columns of one summand before column `last`, which are of no other */
static void MergeRun(const GpufmtSummand *summand, PetscInt last, PetscInt *at, PetscInt places[], GpufmtUnion *u)
{
  const PetscInt  n       = summand->matrix->cmap->n;
  PetscInt *const columns = u->columns;
  PetscInt        k = *at, ncols = u->ncols;

  for (; k < n; k++) {
    const PetscInt column = GlobalColumn(summand, k);

    if (column >= last) break;
    columns[ncols] = column;
    places[k]      = ncols++;
  }
  *at      = k;
  u->ncols = ncols;
}

/* The columns of all summands in ascending order, and where each summand finds its own among them. Most of them are those of one summand alone, one
   after the other: a rank has most columns of its rows for itself. */
static PetscErrorCode MergeColumns(PetscInt n, const GpufmtSummand summands[], GpufmtUnion *u, PetscInt *places[])
{
  PetscInt   at[GPUFMT_MAX_SUMMANDS] = {0};
  PetscCount most                    = 0;

  PetscFunctionBegin;
  for (PetscInt s = 0; s < n; s++) {
    most += summands[s].matrix->cmap->n;
    PetscCall(PetscMalloc1(summands[s].matrix->cmap->n, &places[s]));
  }
  PetscCall(PetscMalloc1(most, &u->columns));
  for (;;) {
    PetscInt first = 0, next = PETSC_INT_MAX, after = PETSC_INT_MAX;

    for (PetscInt s = 0; s < n; s++) {
      const PetscInt column = NextColumn(&summands[s], at[s]);

      after = PetscMin(after, PetscMax(column, next));
      if (column < next) {
        next  = column;
        first = s;
      }
    }
    if (next == PETSC_INT_MAX) break;
    if (next < after) {
      MergeRun(&summands[first], after, &at[first], places[first], u);
      continue;
    }
    for (PetscInt s = 0; s < n; s++)
      if (NextColumn(&summands[s], at[s]) == next) places[s][at[s]++] = u->ncols;
    u->columns[u->ncols++] = next;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static inline PetscInt Target(const GpufmtSummand *summand, PetscInt row)
{
  return summand->targets ? summand->targets[row] : row;
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
  const PetscInt *column = front->column, *end = front->end, *places = front->places;
  PetscInt *const colidx = out->parts[k].colidx, *const begins = out->parts[k].begins, *const index = out->parts[k].index;
  PetscInt entry = front->entry, nnz = out->nnz[k], nterms = out->nterms[k];

  for (; column < end && places[*column] < last; column++) {
    colidx[nnz] = places[*column];
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
    PetscInt place = fronts[0].places[*fronts[0].column], left = 0;
    int      k;

    for (PetscInt f = 1; f < n; f++) place = PetscMin(place, fronts[f].places[*fronts[f].column]);
    k = BeginEntry(out, place);
    for (PetscInt f = 0; f < n; f++) {
      if (fronts[f].places[*fronts[f].column] == place) {
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

static PetscErrorCode MergeShares(PetscInt nsummands, const GpufmtSummand summands[], PetscInt *const places[], const PetscInt begins[],
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

      if (begin < end) fronts[n++] = (Front){colidx[s] + begin, colidx[s] + end, places[s], first[s] + begin};
    }
    MergeRow(n, fronts, out);
    for (int k = 0; k < 2; k++) u->parts[k].rowptr[i + 1] = out->nnz[k];
  }
  for (PetscInt s = 0; s < nsummands; s++) PetscCall(GpufmtPatternRestore(summands[s].matrix, &rowptr[s], &colidx[s]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MergeRows(PetscInt nsummands, const GpufmtSummand summands[], PetscInt *const places[], Output *out, GpufmtUnion *u)
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
static PetscErrorCode MergeParts(PetscInt nterms, PetscBool single, PetscInt nsummands, const GpufmtSummand summands[], PetscInt *const places[],
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

static PetscErrorCode UnionFill(int backend, PetscInt first, PetscInt last, PetscInt nsummands, const GpufmtSummand summands[], PetscInt *places[],
                                GpufmtUnion *u)
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
    if (summands[s].targets) single = PETSC_FALSE;
    PetscCall(GpufmtPatternRestore(summands[s].matrix, &rowptr, NULL));
  }
  PetscCheck(nterms <= PETSC_INT_MAX, PETSC_COMM_SELF, PETSC_ERR_SUP,
             "A parallel product adds up %" PetscInt64_FMT " entries on this rank, PetscInt counts to %" PetscInt_FMT
             ": use more ranks or configure PETSc with --with-64-bit-indices",
             nterms, PETSC_INT_MAX);
  PetscCall(MergeColumns(nsummands, summands, u, places));
  if (ncols != u->ncols) single = PETSC_FALSE;
  while (u->low < u->ncols && u->columns[u->low] < first) u->low++;
  for (u->high = u->low; u->high < u->ncols && u->columns[u->high] < last;) u->high++;
  if (u->planned) PetscCall(GpufmtUnionPlan(backend, nsummands, summands, places, u));
  else PetscCall(MergeParts((PetscInt)nterms, single, nsummands, summands, places, u));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The sum of at most GPUFMT_MAX_SUMMANDS matrices. Entries in columns [first, last) of the parallel matrix are part 0 of it, the others part 1.
   `planned`: the planner merges the rows, where the backend is, and not this file on the host. */
PetscErrorCode GpufmtUnionCreate(int backend, PetscBool planned, PetscInt nrows, PetscInt first, PetscInt last, PetscInt nsummands,
                                 const GpufmtSummand summands[], GpufmtUnion *u)
{
  PetscInt      *places[GPUFMT_MAX_SUMMANDS] = {NULL};
  PetscErrorCode ierr;

  PetscFunctionBegin;
  PetscCall(PetscMemzero(u, sizeof(*u)));
  u->nrows   = nrows;
  u->planned = planned;
  ierr       = UnionFill(backend, first, last, nsummands, summands, places, u);
  for (PetscInt s = 0; s < nsummands; s++) PetscCall(PetscFree(places[s]));
  if (ierr) PetscCall(GpufmtUnionDestroy(u));
  PetscCall(ierr);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GpufmtUnionDestroy(GpufmtUnion *u)
{
  PetscFunctionBegin;
  PetscCall(GpufmtUnionRelease(u));
  PetscCall(PetscFree(u->columns));
  for (int k = 0; k < 2; k++) {
    PetscCall(PetscFree(u->parts[k].rowptr));
    PetscCall(PetscFree2(u->parts[k].colidx, u->parts[k].index));
    PetscCall(PetscFree(u->parts[k].begins));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
