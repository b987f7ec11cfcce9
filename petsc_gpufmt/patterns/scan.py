"""What launches with a prefix sum have in common: the numbers of kernels/common/scan.cuh."""

from __future__ import annotations

import numpy as np

from petsc_gpufmt.backends.plan import ceil_div

SCAN_THREADS = 256
"""Of a block, which takes a tile."""

COUNT = np.dtype(np.uint64)
"""Of the ticket from which blocks take their tiles, and of what each tile tells those after it: all 0 at first."""


def tiles(n: int, numbers_a_thread: int = 1) -> int:
    """Blocks of a prefix sum over `n` numbers, and tiles: each is a COUNT, beside the ticket."""
    return ceil_div(n, SCAN_THREADS * numbers_a_thread)
