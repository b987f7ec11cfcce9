/* Words of rows in the search for aggregates, as kernels/coarsening/root.cuh says */
#pragma once
#include "common/host.h"

#define ROOT ((word_t)1 << (8 * sizeof(word_t) - 1))
