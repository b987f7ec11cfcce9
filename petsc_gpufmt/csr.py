"""The compressed sparse row pattern that every format is built from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from petsc_gpufmt.backend import Backend
from petsc_gpufmt.errors import PatternError
from petsc_gpufmt.plan import Launch

CHECK_THREADS, CHECKS_A_THREAD = 256, 4


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
    """

    nrows: int
    ncols: int
    rowptr: Any
    colidx: Any
    source: Any = None
    row_block: int = 1
    col_block: int = 1

    @property
    def nnz(self) -> int:
        return int(self.colidx.size)

    def validate(self, backend: Backend) -> None:
        """Raise PatternError if the row pointer decreases or a column lies outside the matrix. Waits for the device."""
        fits = self.rowptr.size == self.nrows + 1
        ends, decreases, outside = self._faults(backend) if fits else [1, 0, 0]
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

    def _faults(self, backend: Backend) -> list[int]:
        """Whether the row pointer does not run from 0 to nnz, decreases, and whether a column lies outside."""
        faults = backend.xp.empty(3, dtype=np.int32)
        backend.clear(faults)
        blocks = max(1, -(-max(self.nrows, self.nnz) // (CHECK_THREADS * CHECKS_A_THREAD)))
        if backend.resident_threads:
            blocks = min(blocks, max(1, backend.resident_threads // CHECK_THREADS))
        sizes = (backend.index.type(n) for n in (self.nrows, self.ncols, self.nnz))
        function = backend.function("pattern", "pattern_check", (CHECK_THREADS,))
        arguments = (*sizes, self.rowptr, self.colidx, faults)
        backend.run([Launch(function, (blocks, 1, 1), (CHECK_THREADS, 1, 1), arguments)])
        return backend.first(faults, 3)  # waits for the device
