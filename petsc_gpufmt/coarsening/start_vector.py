"""The vector with which PETSc begins to estimate eigenvalues: numbers that look random, and depend on the row alone."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.kernel_modules import Instance, compiled_ahead
from petsc_gpufmt.backends.plan import Launch, Slot, launch_1d

BLOCK_THREADS = 256


def start_vector(nrows: int, first: int, backend: Backend) -> list[Launch]:
    """Launches that write the entries of so many rows to RESULT, the first of which is row `first` of all ranks."""
    if not nrows:
        return []
    fill = backend.function("coarsening/start_vector", "start_vector_fill", (BLOCK_THREADS,))
    return [launch_1d(fill, nrows, BLOCK_THREADS, (np.int64(nrows), np.int64(first), Slot.RESULT))]


@compiled_ahead("coarsening/start_vector")
def default_kernels() -> Iterator[list[Instance]]:
    """The only kernel of the file."""
    yield [("start_vector_fill", (BLOCK_THREADS,))]
