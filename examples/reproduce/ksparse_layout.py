"""The balanced layout of figure 8: long block rows cut into segments, whose results are added up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from measure import GivenMatrix
from report import SAME, Found, line

from petsc_gpufmt.bench.matrices import blocked_pattern, with_random_values
from petsc_gpufmt.formats.bsr.parameters import NEVER

if TYPE_CHECKING:
    from report import Setting

LENGTHS = (5, 2, 3, 11, 6, 1, 8)
"""Blocks in each block row: any that need as many segments as in the figure."""

LIMIT, BLOCK_SIZE = 3, 2
SEGMENT_POINTER = (0, 2, 3, 4, 8, 10, 11, 14)
SEGMENTS = (3, 2, 2, 3, 3, 3, 3, 2, 3, 3, 1, 3, 3, 2)


def figure_8(setting: Setting) -> Iterator[Found]:
    """The segment pointer with lambda = 3, the blocks of segments, and the product with and without a cut."""
    index = setting.place.backend.index
    rowptr = np.concatenate([[0], np.cumsum(LENGTHS)]).astype(index)
    columns = np.concatenate([np.arange(n) for n in LENGTHS]).astype(index)
    blocks = blocked_pattern(rowptr, columns, BLOCK_SIZE)
    scalar = setting.place.backend.scalar
    matrix = with_random_values(*blocks, max(LENGTHS) * BLOCK_SIZE, scalar, setting.rng)
    given = GivenMatrix(matrix, setting.place, setting.rng, BLOCK_SIZE)
    to_host = setting.place.backend.to_host
    balanced = given.store("bsr", {"lambda": LIMIT})
    pointer, offsets = to_host(balanced.segment_ptr).tolist(), to_host(balanced.segment_offsets)
    yield f"Blocks of block rows: {' '.join(map(str, LENGTHS))}. Segment pointer: {' '.join(map(str, pointer))}."
    for place, (published, ours) in enumerate(zip(SEGMENT_POINTER, pointer, strict=True)):
        yield line(f"segment pointer of block row {place}", published, ours, "", SAME, 0)
    right = sum(int(ours == blocks_of) for ours, blocks_of in zip(np.diff(offsets), SEGMENTS, strict=True))
    yield line(f"segments of at most {LIMIT} blocks, as long as the figure's", len(SEGMENTS), right, "", SAME, 0)
    given.mult(balanced)  # compares the product with A x
    given.mult(given.store("bsr", {"lambda": NEVER}))
    yield "Products with and without a cut are A x within the bound of rounding."
