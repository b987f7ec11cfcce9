/* Sums over ranks within the functions of Krylov methods: numbers of states, in double precision whatever vectors have. */
#pragma once
#include "krylov/state.h"

typedef double entry_t;
#include "common/peers.h"

/* Numbers of this rank become the sums over all, of which one that has failed sends what is no number. */
static inline void NextSumOverRanks(const Ranks *ranks, int n, double numbers[], int failed)
{
  const uint64_t exchange = *ranks->arrivals->exchange + 1;

  for (int k = 0; failed && k < n; k++) numbers[k] = NAN;
  SumOverRanks(ranks, exchange, n, numbers, numbers);
  *ranks->arrivals->exchange = exchange;
}
