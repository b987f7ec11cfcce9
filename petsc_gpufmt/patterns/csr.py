"""The compressed sparse row pattern that every format is built from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.kernel_modules import Instance, compiled_ahead
from petsc_gpufmt.backends.plan import Launch, ceil_div, launch_1d
from petsc_gpufmt.errors import PatternError

CHECK_THREADS, CHECKS_A_THREAD = 256, 4
GATHER_THREADS, VALUES_A_THREAD = 256, 4


@dataclass(frozen=True)
class CsrPattern:
    """Pattern of an ``nrows`` x ``ncols`` sparse matrix; values are kept apart.

    Attributes
    ----------
    rowptr : (nrows + 1,) integer array, NumPy or CuPy
    colidx : (nnz,) integer array; columns of a row may come in any order and may repeat (repeated entries add up)
    source : (nnz,) integer array or None
        Where entry k finds its value in the array of values; None means at k.
    row_block, col_block : block sizes that the application has set for rows and columns (MatSetBlockSizes), 1 if none
    longest : entries of the longest row, None if not known
    """

    nrows: int
    ncols: int
    rowptr: Any
    colidx: Any
    source: Any = None
    row_block: int = 1
    col_block: int = 1
    longest: int | None = None

    @property
    def nnz(self) -> int:
        return int(self.colidx.size)

    def validated(self, backend: Backend) -> CsrPattern:
        """The pattern with its longest row known. Waits for the device.

        Raises PatternError if the row pointer decreases or a column lies outside the matrix.
        """
        fits = self.rowptr.size == self.nrows + 1
        ends, decreases, outside, longest = self._checked(backend) if fits else [1, 0, 0, 0]
        if ends:
            raise PatternError(
                f"row pointer of a {self.nrows} x {self.ncols} matrix "
                f"must run from 0 to {self.nnz} in {self.nrows + 1} entries"
            )
        if decreases:
            raise PatternError("row pointer decreases: assemble the matrix before multiplying")
        if outside:
            raise PatternError(
                f"column indices lie in [{int(self.colidx.min())}, {int(self.colidx.max())}], the "
                f"matrix has {self.ncols} columns"
            )
        return replace(self, longest=longest)

    def _checked(self, backend: Backend) -> list[int]:
        """Whether the row pointer does not run from 0 to nnz, decreases, whether a column lies outside; longest row."""
        found = backend.xp.empty(4, dtype=np.int64)
        backend.clear(found)
        threads = max(1, ceil_div(max(self.nrows, self.nnz), CHECKS_A_THREAD))
        if backend.resident_threads:
            threads = min(threads, backend.resident_threads)
        function = backend.function("patterns/csr", "csr_check", (CHECK_THREADS,))
        arguments = (self.nrows, self.ncols, self.nnz, self.rowptr, self.colidx, found)
        backend.run([launch_1d(function, threads, CHECK_THREADS, arguments)])
        return backend.first(found, 4)  # waits for the device


def gather_values(backend: Backend, nnz: int, source: Any, values: Any, gathered: Any) -> Launch:
    """gathered[k] = values[source[k]], or values[k] if `source` is None, for `nnz` > 0 entries k.

    `values` and `gathered` are arrays of scalars, or the slots that stand for them.
    """
    function = backend.function("patterns/csr", "csr_gather_values", (GATHER_THREADS, VALUES_A_THREAD))
    arguments = (backend.index.type(nnz), source, values, gathered)
    return launch_1d(function, ceil_div(nnz, VALUES_A_THREAD), GATHER_THREADS, arguments)


@compiled_ahead("patterns/csr")
def default_kernels() -> Iterator[list[Instance]]:
    """All kernels of the file."""
    yield [("csr_check", (CHECK_THREADS,)), ("csr_gather_values", (GATHER_THREADS, VALUES_A_THREAD))]
