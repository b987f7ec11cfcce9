"""Sums of entries of arrays: how the products of parallel matrices merge rows and add up what several products make.

And how values that are given in the order of coordinates become those of a matrix.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.kernel_modules import Instance, compiled_ahead
from petsc_gpufmt.backends.plan import Launch, Slot, ceil_div, launch_1d
from petsc_gpufmt.errors import PatternError

BLOCK_THREADS = 256
TARGETS_PER_THREAD = 4  # BATCH in kernels/patterns/entry_sum.cu


def plan_entry_sum(begins: Any, index: Any, sizes: tuple[int, int, int], backend: Backend) -> list[Launch]:
    """Launches for RESULT[t] = sum over e in [begins[t], begins[t + 1]) of entry index[e], in this order.

    The entries are those of A_VALUES, then those of B_VALUES, then those of C_VALUES, counted through. If slot Y is
    not null, Y[t] is added last; it may be RESULT.

    Parameters
    ----------
    begins : (ntargets + 1,) array of the backend's index type, or None
        None: the one entry index[t] for target t.
    index : array of the backend's index type
    sizes : entries of the three arrays; an array without entries is not read

    Raises PatternError if `begins` or `index` point outside.
    """
    _check(begins, index, sum(sizes), backend)
    return known_entry_sum(begins, index, sizes, backend)


def known_entry_sum(begins: Any, index: Any, sizes: tuple[int, int, int], backend: Backend) -> list[Launch]:
    """`plan_entry_sum` of arrays that were made here: they are not looked at.

    `index` None, where `begins` is None too: each entry by itself, in their order.
    """
    terms = sum(sizes) if index is None else index.size
    ntargets = int(terms if begins is None else begins.size - 1)
    if not ntargets:
        return []
    function = backend.function("patterns/entry_sum", "entry_sum", (BLOCK_THREADS, int(begins is None)))
    integer = backend.index.type
    arguments = (
        *(integer(ntargets), begins, index, integer(sizes[0]), integer(sizes[0] + sizes[1])),
        *(Slot.A_VALUES, Slot.B_VALUES, Slot.C_VALUES, Slot.Y, Slot.RESULT),
    )
    return [launch_1d(function, ceil_div(ntargets, TARGETS_PER_THREAD), BLOCK_THREADS, arguments)]


def _check(begins: Any, index: Any, nentries: int, backend: Backend) -> None:
    """Waits for the device."""
    nsums = 0 if begins is None else begins.size - 1
    if not max(nsums, index.size):
        return
    (found,) = backend.empty((2, np.dtype(np.int64)), zeros=1)
    function = backend.function("patterns/entry_sum", "entry_sum_check", (BLOCK_THREADS,))
    arguments = (np.int64(nsums), begins, np.int64(index.size), np.int64(nentries), index, found)
    backend.run([launch_1d(function, max(nsums, index.size), BLOCK_THREADS, arguments)])
    falls, outside = backend.first(found, 2)
    if falls:
        raise PatternError(f"the beginnings of sums must rise from 0 to {index.size}, the number of their entries")
    if outside:
        entries = backend.to_host(index)
        raise PatternError(f"entries {entries.min()} to {entries.max()} of {nentries} are to be summed")


@compiled_ahead("patterns/entry_sum")
def default_kernels() -> Iterator[list[Instance]]:
    """Of any number of entries, and of one each; and what looks at them."""
    yield [("entry_sum_check", (BLOCK_THREADS,)), *(("entry_sum", (BLOCK_THREADS, one)) for one in (0, 1))]
