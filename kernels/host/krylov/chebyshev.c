/* Chebyshev's iteration; the parameters are those of kernels/krylov/chebyshev.cu. */
#include "common/host.h"

enum { MOST_POINT_BLOCK = 16 }; /* rows */

typedef struct {
  alignas(8) scalar_t alpha;
  alignas(8) scalar_t beta;
  alignas(8) scalar_t gamma;
  const scalar_t *u, *x, *w, *d, *b;
  scalar_t       *z;
  offset_t        nrows;
} ChebyshevStep;

/* z = alpha u + beta x + gamma d (b - w); what is NULL is not there */
HOST_KERNEL(chebyshev_step)
{
  const ChebyshevStep s = PARAM(ChebyshevStep, 0);

  for (offset_t row = 0; row < s.nrows; row++) {
    const scalar_t residual = s.b[row] - (s.w ? s.w[row] : 0);
    scalar_t       next     = s.gamma * ((s.d ? s.d[row] : 1) * residual);

    if (s.x) next += s.beta * s.x[row];
    if (s.u) next += s.alpha * s.u[row];
    s.z[row] = next;
  }
}

/* The same with blocks of so many rows for d, one after another, each column by column; the compiler is to know their size where it is usual. */
static inline void block_step(const ChebyshevStep *s, const int size)
{
  const scalar_t *block = s->d;

  for (offset_t first = 0; first < s->nrows; first += size) {
    scalar_t product[MOST_POINT_BLOCK] = {0};

    for (int j = 0; j < size; j++, block += size) {
      const scalar_t residual = s->b[first + j] - (s->w ? s->w[first + j] : 0);

      for (int i = 0; i < size; i++) product[i] += block[i] * residual;
    }
    for (int i = 0; i < size; i++) {
      scalar_t next = s->gamma * product[i];

      if (s->x) next += s->beta * s->x[first + i];
      if (s->u) next += s->alpha * s->u[first + i];
      s->z[first + i] = next;
    }
  }
}

HOST_KERNEL(chebyshev_block_step)
{
  const ChebyshevStep s    = PARAM(ChebyshevStep, 0);
  const int           size = (int)PARAM(offset_t, 1);

  if (size == 2) block_step(&s, 2);
  else if (size == 3) block_step(&s, 3);
  else if (size == 4) block_step(&s, 4);
  else if (size == 5) block_step(&s, 5);
  else if (size == 6) block_step(&s, 6);
  else block_step(&s, size);
}
