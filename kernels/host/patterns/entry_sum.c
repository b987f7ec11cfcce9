/* Sums of entries of up to three arrays; the parameters are those of kernels/patterns/entry_sum.cu. */
#include "common/host.h"

typedef struct {
  index_t         second, third; /* numbers of the first entries of b and c */
  const scalar_t *a, *b, *c;
} Sources;

static inline scalar_t entry_of(const Sources *sources, index_t entry)
{
  if (entry < sources->second) return sources->a[entry];
  return entry < sources->third ? sources->b[entry - sources->second] : sources->c[entry - sources->third];
}

/* whether the beginnings of sums do not rise from 0 to `nterms`, and whether an entry is not there */
HOST_KERNEL(entry_sum_check)
{
  const offset_t nsums = PARAM(offset_t, 0), nterms = PARAM(offset_t, 2), nentries = PARAM(offset_t, 3);
  const index_t *begins = PARAM(const index_t *, 1), *index = PARAM(const index_t *, 4);
  int            falls = begins && (begins[0] != 0 || begins[nsums] != nterms), outside = 0;

  for (offset_t t = 0; t < nsums; t++) falls |= begins[t + 1] < begins[t];
  for (offset_t e = 0; e < nterms; e++) outside |= index[e] < 0 || index[e] >= nentries;
  PARAM(offset_t *, 5)[0] = falls;
  PARAM(offset_t *, 5)[1] = outside;
}

/* target[t] = sum over e in [begins[t], begins[t + 1]) of entry index[e] of the sources; begins null: of the one entry index[t], or t if `index` is null; + added[t] unless that is null */
HOST_KERNEL(entry_sum)
{
  const index_t ntargets = PARAM(index_t, 0), *begins = PARAM(const index_t *, 1), *index = PARAM(const index_t *, 2);
  const Sources sources  = {PARAM(index_t, 3), PARAM(index_t, 4), PARAM(const scalar_t *, 5), PARAM(const scalar_t *, 6), PARAM(const scalar_t *, 7)};
  const scalar_t *added  = PARAM(const scalar_t *, 8); /* may be the target */
  scalar_t       *target = PARAM(scalar_t *, 9);

  for (offset_t t = 0; t < ntargets; t++) {
    scalar_t sum = 0;

    if (!begins) sum = entry_of(&sources, index ? index[t] : (index_t)t);
    else
      for (offset_t e = begins[t]; e < begins[t + 1]; e++) sum = e > begins[t] ? sum + entry_of(&sources, index[e]) : entry_of(&sources, index[e]);
    target[t] = added ? sum + added[t] : sum;
  }
}
