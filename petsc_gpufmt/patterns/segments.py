"""What launches over entries in segments have in common: the numbers of kernels/patterns/segments.cuh."""

from __future__ import annotations

from petsc_gpufmt.backends.plan import ceil_div

BLOCK_THREADS, BATCH = 256, 4
"""Of kernels over entries: threads of a block, and entries of each."""

NUMBERS_A_THREAD = 4
"""Of a prefix sum over segments or entries."""

SORT_THREADS, ENTRIES_A_THREAD, PIECE = 512, 4, 512
"""A block sorts about SORT_THREADS * ENTRIES_A_THREAD entries; segments longer than PIECE are merged from pieces."""


def windows(nentries: int) -> int:
    """Blocks that put so many entries in order in their segments."""
    return ceil_div(nentries, SORT_THREADS * ENTRIES_A_THREAD - PIECE + 1)
