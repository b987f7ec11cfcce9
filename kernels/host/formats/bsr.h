/* Where BSR has its blocks and their entries: kernels/formats/bsr.cuh on the host. */
#pragma once
#include "common/host.h"
#include <string.h>

#define LANES      32
#define BLOCK_ROWS 5 /* of a block of kernel K1, at most */

/* an entry of a block that is none of the matrix: -0, in its last part if it is complex */
static inline int is_padding(scalar_t value)
{
  unsigned char bytes[sizeof(scalar_t)];

  memcpy(bytes, &value, sizeof(scalar_t));
  return value == 0 && bytes[sizeof(scalar_t) - 1] != 0;
}

/* one block of a slice of `height` block rows */
struct block {
  offset_t        base;          /* first block of its diagonal */
  offset_t        j;             /* number of its diagonal */
  int             lane, rank, n; /* block row in the slice; place in the diagonal; blocks of the diagonal, 0 after the last block of the slice */
  int             height;
  const offset_t *offsets; /* of the slice's block rows */
};

static inline offset_t blocks_of_lane(const struct block *block, int lane)
{
  return block->offsets[lane + 1] - block->offsets[lane];
}

/* goes on to the next block of the diagonal from `lane` on, or of the next diagonal */
static inline void find_from(struct block *block, int lane)
{
  while (lane < block->height && blocks_of_lane(block, lane) <= block->j) lane++;
  block->lane = lane;
}

static inline void begin_diagonal(struct block *block)
{
  block->rank = block->n = 0;
  for (int lane = 0; lane < block->height; lane++) block->n += blocks_of_lane(block, lane) > block->j;
  find_from(block, 0);
}

static inline struct block first_block(int slice, offset_t first_row, offset_t nblock_rows, const offset_t *offsets)
{
  struct block block = {.base    = offsets[first_row],
                        .height  = nblock_rows - first_row < slice ? (int)(nblock_rows - first_row) : slice,
                        .offsets = offsets + first_row};

  begin_diagonal(&block);
  return block;
}

static inline void next_block(struct block *block)
{
  if (++block->rank < block->n) find_from(block, block->lane + 1);
  else {
    block->base += block->n;
    block->j++;
    begin_diagonal(block);
  }
}

/* where entry k, column by column, of a block of `size` entries is */
static inline offset_t place_of_entry(const struct block *block, offset_t size, offset_t k)
{
  const int piece = size % 2 ? 1 : 2;

  return block->base * size + k / piece * piece * block->n + block->rank * piece + k % piece;
}
