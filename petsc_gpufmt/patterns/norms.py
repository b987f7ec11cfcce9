"""The sums that norms of a matrix are made of, on the backend: MatNorm.

Each kernel adds up in a fixed order. What it leaves is small, and the host takes the rest of the way.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.kernel_modules import Instance, compiled_ahead
from petsc_gpufmt.backends.plan import Launch, Slot, launch_1d

BLOCK_THREADS = 256
ROW_THREADS = 8  # that share a row
PARTS = 1024  # GPUFMT_NORM_PARTS in native/gpufmt_plan.h, a block each


def plan_sum_of_squares(nnz: int, backend: Backend) -> list[Launch]:
    """Launches for PARTS numbers in RESULT, which add up to the sum of the squares of A_VALUES, `nnz` entries."""
    return [_parts("sum_of_squares", nnz, Slot.A_VALUES, Slot.RESULT, backend)]


def plan_absolute_sums(begins: Any, index: Any, backend: Backend) -> list[Launch]:
    """Launches for RESULT[t] = sum of abs(A_VALUES[index[e]]), e in [begins[t], begins[t + 1]), + Y[t] unless null.

    And for PARTS numbers in Z, unless that is null, of which the largest is the largest of the sums, but not below 0.
    Y may be RESULT.

    Parameters
    ----------
    begins : (ntargets + 1,) array of the backend's index type
    index : array of the backend's index type, or None
        None: entry e itself.
    """
    ntargets, integer = begins.size - 1, backend.index.type
    if not ntargets:
        return []
    function = backend.function("patterns/norms", "absolute_sums", (BLOCK_THREADS, ROW_THREADS))
    arguments = (integer(ntargets), begins, index, Slot.A_VALUES, Slot.Y, Slot.RESULT)
    sums = launch_1d(function, ntargets * ROW_THREADS, BLOCK_THREADS, arguments)
    return [sums, _parts("largest_part", ntargets, Slot.RESULT, Slot.Z, backend)]


def _parts(kernel: str, n: int, numbers: Slot, parts: Slot, backend: Backend) -> Launch:
    function = backend.function("patterns/norms", kernel, (BLOCK_THREADS,))
    return launch_1d(function, PARTS * BLOCK_THREADS, BLOCK_THREADS, (backend.index.type(n), numbers, parts))


@compiled_ahead("patterns/norms")
def default_kernels() -> Iterator[list[Instance]]:
    """All kernels of the file."""
    by_parts = [(kernel, (BLOCK_THREADS,)) for kernel in ("sum_of_squares", "largest_part")]
    yield [("absolute_sums", (BLOCK_THREADS, ROW_THREADS)), *by_parts]
