"""Sums of entries of arrays: how the products of parallel matrices merge rows and add up what several products make."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.kernel_modules import Instance, compiled_ahead
from petsc_gpufmt.backends.plan import Launch, Slot, ceil_div, launch_1d
from petsc_gpufmt.errors import PatternError

BLOCK_THREADS = 256
TARGETS_PER_THREAD = 4  # BATCH in kernels/patterns/entry_sum.cu


def plan_entry_sum(begins: Any, index: Any, sizes: tuple[int, int, int], backend: Backend) -> list[Launch]:
    """Launches for RESULT[t] = sum over e in [begins[t], begins[t + 1]) of entry index[e], in this order.

    The entries are those of A_VALUES, then those of B_VALUES, then those of C_VALUES, counted through.

    Parameters
    ----------
    begins : (ntargets + 1,) array of the backend's index type, or None
        None: the one entry index[t] for target t.
    index : array of the backend's index type
    sizes : entries of the three arrays; an array without entries is not read

    Raises PatternError if `begins` or `index` point outside.
    """
    _check(begins, index, sum(sizes))
    return known_entry_sum(begins, index, sizes, backend)


def known_entry_sum(begins: Any, index: Any, sizes: tuple[int, int, int], backend: Backend) -> list[Launch]:
    """`plan_entry_sum` of arrays that were made here: they are not looked at."""
    ntargets = int(index.size if begins is None else begins.size - 1)
    if not ntargets:
        return []
    function = backend.function("patterns/entry_sum", "entry_sum", (BLOCK_THREADS, int(begins is None)))
    integer = backend.index.type
    arguments = (
        *(integer(ntargets), begins, index, integer(sizes[0]), integer(sizes[0] + sizes[1])),
        *(Slot.A_VALUES, Slot.B_VALUES, Slot.C_VALUES, Slot.RESULT),
    )
    return [launch_1d(function, ceil_div(ntargets, TARGETS_PER_THREAD), BLOCK_THREADS, arguments)]


def _check(begins: Any, index: Any, nentries: int) -> None:
    if begins is not None:
        rise = not bool((begins[1:] < begins[:-1]).any())
        if int(begins[0]) or int(begins[-1]) != index.size or not rise:
            raise PatternError(f"the beginnings of sums must rise from 0 to {index.size}, the number of their entries")
    if index.size and (int(index.min()) < 0 or int(index.max()) >= nentries):
        raise PatternError(f"entries {int(index.min())} to {int(index.max())} of {nentries} are to be summed")


@compiled_ahead("patterns/entry_sum")
def default_kernels() -> Iterator[list[Instance]]:
    """Of any number of entries, and of one each."""
    yield [("entry_sum", (BLOCK_THREADS, one)) for one in (0, 1)]
