// Words of rows in the search for aggregates
#pragma once
#include "common/common.cuh"

// What is known of a row: 0, it is no root; else a number that is larger the earlier the row comes, with this bit if it is a root. So the largest
// of some words is that of the root that comes first, or else of the undecided row that does.
constexpr word_t ROOT = word_t(1) << (8 * sizeof(word_t) - 1);
