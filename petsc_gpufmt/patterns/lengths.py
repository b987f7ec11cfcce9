"""Lengths of the rows of a CSR pattern, on the backend: PETSc keeps them beside the row pointer.

One plan serves patterns of any number of rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.kernel_modules import Instance, compiled_ahead
from petsc_gpufmt.backends.plan import Launch, Slot

BLOCK_THREADS = 256
MOST_BLOCKS = 1024


class Lengths(NamedTuple):
    """Launches for patterns of ALPHA rows, an integer of 8 bytes, with the row pointer in X.

    Attributes
    ----------
    launches : launches for Y[row] = Z[row] = X[row + 1] - X[row]
    seen : (2,) array of the backend's index type, the longest row and how many rows have entries
    """

    launches: list[Launch]
    seen: Any


def lengths(backend: Backend) -> Lengths:
    """Lengths of rows of patterns of any size."""
    parts = backend.empty((2 * MOST_BLOCKS, backend.index))[0]

    def launch(kernel: str, blocks: int, *arguments: Any) -> Launch:
        function = backend.function("patterns/lengths", kernel, (BLOCK_THREADS,))
        return Launch(function, (blocks, 1, 1), (BLOCK_THREADS, 1, 1), arguments)

    launches = [
        launch("row_lengths", MOST_BLOCKS, Slot.ALPHA, Slot.X, Slot.Y, Slot.Z, parts),
        launch("row_lengths_seen", 1, backend.index.type(MOST_BLOCKS), parts),
    ]
    return Lengths(launches, parts[:2])


@compiled_ahead("patterns/lengths")
def default_kernels() -> Iterator[list[Instance]]:
    """All kernels of the file."""
    yield [(kernel, (BLOCK_THREADS,)) for kernel in ("row_lengths", "row_lengths_seen")]
