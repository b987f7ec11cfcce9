"""The compressed sparse row pattern that every format is built from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from petsc_gpufmt.errors import PatternError


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

    def validate(self) -> None:
        """Raise PatternError if the row pointer decreases or a column lies outside the matrix."""
        if self.rowptr.size != self.nrows + 1 or int(self.rowptr[0]) != 0 or int(self.rowptr[-1]) != self.nnz:
            raise PatternError(
                f"row pointer of a {self.nrows} x {self.ncols} matrix "
                f"must run from 0 to {self.nnz} in {self.nrows + 1} entries"
            )
        if bool((self.rowptr[1:] < self.rowptr[:-1]).any()):
            raise PatternError("row pointer decreases: assemble the matrix before multiplying")
        if self.nnz and (int(self.colidx.min()) < 0 or int(self.colidx.max()) >= self.ncols):
            raise PatternError(
                f"column indices lie in [{int(self.colidx.min())}, {int(self.colidx.max())}], the "
                f"matrix has {self.ncols} columns"
            )

    def transposed(self, xp: Any) -> CsrPattern:
        """Pattern of the transpose, its ``source`` pointing back into the values of this one. `xp` is numpy or cupy."""
        index = self.colidx.dtype
        entries = xp.arange(self.nnz, dtype=xp.int64)
        rows = xp.searchsorted(self.rowptr[1:], entries, side="right").astype(index)
        order = xp.argsort(self.colidx, kind="stable").astype(index)
        rowptr = xp.zeros(self.ncols + 1, dtype=index)
        if self.nnz:
            rowptr[1:] = xp.cumsum(xp.bincount(self.colidx, minlength=self.ncols))
        source = order if self.source is None else self.source[order]
        return CsrPattern(self.ncols, self.nrows, rowptr, rows[order], source, self.col_block, self.row_block)
