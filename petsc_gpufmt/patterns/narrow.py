"""Values of a matrix in single precision, on the backend: what a store in that precision is refreshed from."""

from __future__ import annotations

from collections.abc import Iterator

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.kernel_modules import Instance, compiled_ahead
from petsc_gpufmt.backends.plan import Launch, Slot, ceil_div, launch_1d

BLOCK_THREADS = 256
BATCH = 4  # entries a thread, as in kernels/patterns/narrow.cu


def plan_narrow(nnz: int, backend: Backend) -> list[Launch]:
    """Launches for RESULT[e] = A_VALUES[e] as float32, for all `nnz` entries.

    To Z, (2,) uint64, are added how many are finite and become infinite, and how many are not 0 and become 0 or
    subnormal.
    """
    if not nnz:
        return []
    function = backend.function("patterns/narrow", "narrow_values", (BLOCK_THREADS,))
    arguments = (backend.index.type(nnz), Slot.A_VALUES, Slot.RESULT, Slot.Z)
    return [launch_1d(function, ceil_div(nnz, BATCH), BLOCK_THREADS, arguments)]


@compiled_ahead("patterns/narrow")
def default_kernels() -> Iterator[list[Instance]]:
    """The kernel of the file."""
    yield [("narrow_values", (BLOCK_THREADS,))]
