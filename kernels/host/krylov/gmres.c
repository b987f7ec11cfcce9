/* GMRES; the parameters are those of kernels/krylov/gmres.cu. */
#include "krylov/ranks.h"
#include <petscsys.h>

enum { TILE = 512 }; /* rows of all vectors that are gone over together, so that what is made of them stays in the cache */

/* GpufmtGmresColumn, GpufmtGmresState */
typedef struct {
  double  norm, cosine, sine, entry, next, residual;
  int64_t happy;
} Column;

struct State {
  double  limit, divergence, haptol, square, norm, next;
  int64_t iteration, most, stop, alone, flexible, nterms;
};

typedef struct {
  State    *state;
  scalar_t *parts;
  unsigned *ticket;
  offset_t  nrows, restart;
} Gmres;

/* ---- what follows the state ---- */

static inline Column *ColumnOf(const Gmres *g, offset_t iteration)
{
  return (Column *)((char *)(g->state + 1) + iteration * (offset_t)(sizeof(Column) + 2 * (size_t)(g->restart + 1) * sizeof(double)));
}

static inline double *Dots(const Gmres *g, offset_t iteration)
{
  return (double *)(ColumnOf(g, iteration) + 1);
}

static inline double *Rotated(const Gmres *g, offset_t iteration)
{
  return Dots(g, iteration) + g->restart + 1;
}

/* 0: the sums; 1: addresses of the basis; 2: weights; 3: addresses of terms */
static inline double *Words(const Gmres *g, int which)
{
  return (double *)ColumnOf(g, g->restart) + which * (g->restart + 1);
}

static inline const scalar_t *Vector(const double *addresses, offset_t k)
{
  return (const scalar_t *)(intptr_t)((const offset_t *)addresses)[k];
}

/* ---- an iteration ---- */

static void EndColumn(const Gmres *g, double diagonal)
{
  State        *state     = g->state;
  const int64_t iteration = state->iteration;
  const double  norm = sqrt(state->square), bound = fabs(norm / state->next), haptol = bound > state->haptol ? state->haptol : bound;
  Column        column = {.norm = norm, .entry = state->next, .next = state->next};

  column.happy = state->flexible ? !(norm > haptol) : norm < haptol;
  if (!column.happy) {
    const double length = sqrt(diagonal * diagonal + norm * norm);

    if (length != 0) { /* as for what is no number */
      column.cosine = diagonal / length;
      column.sine   = norm / length;
    }
    column.next     = -(column.sine * state->next);
    column.entry    = column.cosine * state->next;
    column.residual = fabs(column.next);
    diagonal        = column.cosine * diagonal + column.sine * norm;
  }
  Rotated(g, iteration)[iteration] = diagonal;
  *ColumnOf(g, iteration)          = column;
  state->norm                      = norm;
  state->next                      = column.next;
  state->iteration++;
  if (column.happy || (column.cosine == 0 && column.sine == 0) || column.residual <= state->limit || !(column.residual < state->divergence))
    state->stop = STOPPED_BY_TEST;
  else if (state->iteration >= state->most) state->stop = STOPPED_BY_COUNT;
}

static void EndIteration(const Gmres *g)
{
  const int64_t iteration = g->state->iteration;
  const double *sums      = Words(g, 0);
  double        carried   = sums[0];

  for (int64_t k = 0; k <= iteration; k++) Dots(g, iteration)[k] = sums[k];
  for (int64_t k = 0; k < iteration; k++) {
    const Column *rotation = ColumnOf(g, k);
    const double  below    = sums[k + 1];

    Rotated(g, iteration)[k] = rotation->cosine * carried + rotation->sine * below;
    carried                  = rotation->cosine * below - rotation->sine * carried;
  }
  EndColumn(g, carried);
}

/* sums of factors[k] times the k-th of the vectors, in `n` rows from `first` on */
static void Combine(offset_t first, offset_t n, offset_t count, const double *factors, const double *addresses, scalar_t sums[TILE])
{
  for (offset_t row = 0; row < n; row++) sums[row] = 0;
  for (offset_t k = 0; k < count; k++) {
    const scalar_t *vector = Vector(addresses, k) + first, factor = (scalar_t)factors[k];

    for (offset_t row = 0; row < n; row++) sums[row] += factor * vector[row];
  }
}

HOST_KERNEL(gmres_scale)
{
  const Gmres    g      = PARAM(Gmres, 0);
  scalar_t      *w      = PARAM(scalar_t *, 1);
  const double   norm   = g.state->norm;
  const scalar_t factor = norm != 0 || g.state->flexible ? (scalar_t)(1 / norm) : (scalar_t)1;

  if (g.state->stop) return;
  for (offset_t row = 0; row < g.nrows; row++) w[row] *= factor;
}

HOST_KERNEL(gmres_dots)
{
  const Gmres     g     = PARAM(Gmres, 0);
  const scalar_t *w     = PARAM(const scalar_t *, 1);
  const offset_t  count = g.state->iteration + 1;
  double         *sums  = Words(&g, 0);

  if (g.state->stop) return;
  for (offset_t k = 0; k < count; k++) sums[k] = 0;
  for (offset_t first = 0; first < g.nrows; first += TILE) {
    const offset_t last = PetscMin(first + TILE, g.nrows);

    for (offset_t k = 0; k < count; k++) {
      const scalar_t *vector = Vector(Words(&g, 1), k);
      scalar_t        sum    = 0;

      for (offset_t row = first; row < last; row++) sum += w[row] * vector[row];
      sums[k] += (double)sum;
    }
  }
}

HOST_KERNEL(gmres_update)
{
  const Gmres    g     = PARAM(Gmres, 0);
  scalar_t      *w     = PARAM(scalar_t *, 1);
  const Ranks    ranks = PARAM(Ranks, 2);
  const offset_t nrows = PARAM(offset_t, 3) ? 0 : g.nrows;
  double         total = 0;

  if (g.state->stop) return;
  for (offset_t first = 0; first < nrows; first += TILE) {
    const offset_t n = PetscMin(TILE, nrows - first);
    scalar_t       sums[TILE], square = 0;

    Combine(first, n, g.state->iteration + 1, Words(&g, 0), Words(&g, 1), sums);
    for (offset_t row = 0; row < n; row++) {
      const scalar_t left = w[first + row] - sums[row];

      w[first + row] = left;
      square += left * left;
    }
    total += (double)square;
  }
  g.state->square = total;
  if (ranks.messages) NextSumOverRanks(&ranks, 1, &g.state->square, !!PARAM(offset_t, 3));
  if (ranks.messages || g.state->alone) EndIteration(&g);
}

HOST_KERNEL(gmres_end)
{
  const Gmres g = PARAM(Gmres, 0);

  if (!g.state->stop) EndIteration(&g);
}

HOST_KERNEL(gmres_combine)
{
  const Gmres g    = PARAM(Gmres, 0);
  scalar_t   *x    = PARAM(scalar_t *, 1);
  const int   adds = PARAM(int, 2);

  for (offset_t first = 0; first < g.nrows; first += TILE) {
    const offset_t n = PetscMin(TILE, g.nrows - first);
    scalar_t       sums[TILE];

    Combine(first, n, g.state->nterms, Words(&g, 2), Words(&g, 3), sums);
    for (offset_t row = 0; row < n; row++) x[first + row] = adds ? x[first + row] + sums[row] : sums[row];
  }
}
