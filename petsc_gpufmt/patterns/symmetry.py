"""Whether a pattern is symmetric."""

from __future__ import annotations

from collections.abc import Iterator

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.kernel_modules import Instance, compiled_ahead
from petsc_gpufmt.backends.plan import launch_1d
from petsc_gpufmt.patterns.csr import CsrPattern
from petsc_gpufmt.patterns.scan import COUNT

BLOCK_THREADS = 256


def is_symmetric(pattern: CsrPattern, backend: Backend) -> bool:
    """Whether a square pattern has (j, i) for each entry (i, j), and all entries of the diagonal. Waits for the device.

    Columns are taken to ascend in each row: where they do not, a symmetric pattern may be found not to be.
    """
    (found,) = backend.empty((1, COUNT))
    backend.clear(found)
    if pattern.nrows:
        function = backend.function("patterns/symmetry", "symmetry_check", (BLOCK_THREADS,))
        arguments = (backend.index.type(pattern.nrows), pattern.rowptr, pattern.colidx, found)
        backend.run([launch_1d(function, backend.in_turns(pattern.nrows), BLOCK_THREADS, arguments)])
    return not backend.first(found, 1)[0]  # waits for the device


@compiled_ahead("patterns/symmetry")
def default_kernels() -> Iterator[list[Instance]]:
    """All kernels of the file."""
    yield [("symmetry_check", (BLOCK_THREADS,))]
