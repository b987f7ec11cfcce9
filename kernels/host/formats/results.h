/* What a product does with the sum of a row: the structs and formulas are those of kernels/formats/results.cuh. */
#pragma once
#include "common/host.h"

#define DOT_LANES 8 /* partial sums of a dot product, which are added up at its end */

/* Called with the sum of a row; rows take the lanes in turns. All is inlined, and results are passed by value to the function that it is inlined in: so
   the compiler keeps them in registers. */
typedef void UseSum(void *result, offset_t row, int lane, scalar_t sum);

/* z = alpha A x + beta y; z may be y */
typedef struct {
  scalar_t        alpha, beta;
  const scalar_t *y;
  scalar_t       *z;
} ScaledResult;

static inline __attribute__((always_inline)) void use_scaled(void *result, offset_t row, int lane, scalar_t sum)
{
  const ScaledResult *r = (const ScaledResult *)result;

  (void)lane;
  store_result(row, sum, r->alpha, r->beta, r->y, r->z);
}

/* an empty row has nothing to add: most rows of an off-diagonal block are empty, and z is y there */
static inline int scaled_skips_empty(const ScaledResult *r)
{
  return r->y == r->z && r->beta == 1;
}

/* where the sum goes; a device makes it over its blocks by the others */
typedef struct {
  scalar_t *parts;
  unsigned *ticket;
  scalar_t *result;
} GridSum;

/* z[row] = alpha u[row] + beta x[row] + gamma d[row] (b[row] - (A x)[row]), and the dot product of w with A x, unless dot.result is null. What has the factor 0
   is not read, u may be z, and w may be x. */
typedef struct {
  alignas(8) scalar_t alpha;
  alignas(8) scalar_t beta;
  alignas(8) scalar_t gamma;
  const scalar_t *u, *d, *b, *w; /* d null: 1; b null: 0 */
  scalar_t       *z;
  GridSum         dot;
} Fused;

typedef struct {
  Fused           f;
  const scalar_t *x;
  scalar_t        parts[DOT_LANES];
} FusedResult;

/* x and the struct Fused are the parameters from `first` on */
static inline FusedResult fused_result(void **params, int first)
{
  return (FusedResult){.x = PARAM(const scalar_t *, first), .f = PARAM(const Fused, first + 1)};
}

static inline __attribute__((always_inline)) void use_fused(void *result, offset_t row, int lane, scalar_t sum)
{
  FusedResult *r = (FusedResult *)result;
  const Fused *f = &r->f;
  scalar_t new   = f->gamma *(f->d ? f->d[row] : 1) * (f->b ? f->b[row] - sum : -sum);

  if (f->beta != 0) new += f->beta * r->x[row];
  if (f->alpha != 0) new += f->alpha * f->u[row];
  f->z[row] = new;
  if (f->dot.result) r->parts[lane % DOT_LANES] += sum * f->w[row];
}

/* as scaled_skips_empty(), where an off-diagonal block adds to what the diagonal one has made */
static inline int fused_skips_empty(const FusedResult *r)
{
  return !r->f.b && r->f.u == r->f.z && r->f.alpha == 1 && r->f.beta == 0;
}

static inline void finish_fused(const FusedResult *r)
{
  scalar_t total = 0;

  for (int lane = 0; lane < DOT_LANES; lane++) total += r->parts[lane];
  if (r->f.dot.result) *r->f.dot.result = total;
}
