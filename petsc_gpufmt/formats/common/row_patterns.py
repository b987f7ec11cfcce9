"""Row patterns: columns of stencil-like matrices without an index for each entry.

Where most rows look alike, as in matrices of stencils, a row needs only the number of its pattern: entry j of the row
is in column ``row + pattern_deltas[pattern, j]``. Entries keep their order within the row, so that mults are bit for
bit those with full columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.kernel_modules import Instance, compiled_ahead
from petsc_gpufmt.backends.plan import ceil_div
from petsc_gpufmt.backends.program import Program, Step
from petsc_gpufmt.patterns.csr import INT64, CsrPattern

MOST_PATTERNS = 256
"""What a byte numbers; LIMIT in the kernels."""

MOST_TABLE_BYTES = 16384
"""A table that leaves the first-level cache of a multiprocessor to x."""

SEARCH_WORDS = 1024
"""Of `Search` in the kernels."""

UNLIKE_RATIO = 4
"""Of rows and columns, from which rows are not taken to be alike."""

STRIDE_MULTIPLE = 4
THREADS_PER_BLOCK = 256
TOLD = 2  # words of the kernels for the host
UINT8 = np.dtype(np.uint8)

SEARCH = Program(
    "nrows rowptr colidx row_perm most stride words deltas row_pattern told",
    Step(
        "formats/row_patterns",
        "row_patterns_collect",
        (),
        THREADS_PER_BLOCK,
        "nrows rowptr colidx most stride words deltas told",
    ),
    Step(
        "formats/row_patterns",
        "row_patterns_assign",
        (),
        THREADS_PER_BLOCK,
        "nrows rowptr colidx row_perm most stride words deltas row_pattern told",
    ),
)
"""What finds the patterns; the blocks of the first kernel take rows in turns."""


class NoRowPatternsError(Exception):
    """The rows of a matrix have no small table of patterns. The text says why, as in "the matrix has ..."."""


class RowPatterns(NamedTuple):
    """The patterns of (nrows,) rows.

    Attributes
    ----------
    row_pattern : (nrows,) uint8; pattern of each row, in the order of `row_perm`
    pattern_deltas : (npatterns * stride,) index; column - row of each entry, then the smallest index, row by row
    stride : entries of a pattern in `pattern_deltas`
    row_perm : (nrows,) index or None; the row at each place of `row_pattern`
    """

    row_pattern: Any
    pattern_deltas: Any
    stride: int
    row_perm: Any
    backend: Backend

    @classmethod
    def find(cls, csr: CsrPattern, longest: int, row_perm: Any, backend: Backend) -> RowPatterns:
        """The patterns of `csr`, whose longest row has `longest` entries. Waits once. Raises NoRowPatternsError.

        Every row is compared with its pattern: a collision of hashes cannot give a wrong matrix.
        """
        return Search.begin(csr, longest, row_perm, backend).found()

    @property
    def members(self) -> tuple[Any, Any, Any]:
        """Those of RowPatterns in the kernels."""
        return self.row_pattern, self.pattern_deltas, self.stride

    @property
    def npatterns(self) -> int:
        return int(self.pattern_deltas.size) // self.stride

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return int(self.row_pattern.nbytes) + int(self.pattern_deltas.nbytes)

    @property
    def bytes_per_mult(self) -> int:
        """Bytes of them that a mult reads: all, once."""
        return self.nbytes

    def decode(self) -> np.ndarray:
        """(nrows, stride) columns of the rows in the order of `row_perm`, -1 after the last one."""
        row_pattern, deltas = self.backend.to_host(self.row_pattern), self.backend.to_host(self.pattern_deltas)
        rows = np.arange(row_pattern.size) if self.row_perm is None else self.backend.to_host(self.row_perm)
        of_row = deltas.reshape(-1, self.stride)[row_pattern]
        return np.where(of_row == np.iinfo(deltas.dtype).min, -1, rows[:, None] + of_row).astype(deltas.dtype)

    def summary(self) -> str:
        """The mode in words."""
        return f"{self.npatterns} row pattern{'' if self.npatterns == 1 else 's'}"


@dataclass(slots=True)
class Search:
    """Row patterns that are being looked for, by launches that have begun; one search at a time.

    Attributes
    ----------
    longest, stride, most : entries of the longest row, and of a pattern; how many patterns there may be
    told : (TOLD,) int64 that will say how many there are, and whether a row differs from the pattern of its hash
    pattern_deltas : (most * stride,) index
    row_pattern, row_perm : as of RowPatterns
    """

    longest: int
    stride: int
    most: int
    told: Any
    pattern_deltas: Any
    row_pattern: Any
    row_perm: Any
    backend: Backend

    @classmethod
    def begin(cls, csr: CsrPattern, longest: int, row_perm: Any, backend: Backend) -> Search:
        """Launch what finds the patterns; NoRowPatternsError if it is known that there is no table of them."""
        if not csr.nrows:
            raise NoRowPatternsError("no rows")
        stride, most = table_limits(longest, backend)
        if not most:
            raise NoRowPatternsError(
                f"rows of up to {longest} entries, too long for a table of {MOST_TABLE_BYTES} bytes"
            )
        words, deltas, row_pattern = backend.empty(
            (SEARCH_WORDS, INT64), (most * stride, backend.index), (csr.nrows, UINT8), zeros=1
        )
        told = backend.told(TOLD)
        rows, in_turns = (ceil_div(n, THREADS_PER_BLOCK) for n in (csr.nrows, backend.in_turns(csr.nrows)))
        given = (csr.nrows, csr.rowptr, csr.colidx, row_perm, most, stride, words, deltas, row_pattern, told)
        backend.carry_out(SEARCH, (in_turns, rows), given)
        return cls(longest, stride, most, told, deltas, row_pattern, row_perm, backend)

    def found(self) -> RowPatterns:
        """The patterns; waits for the device. NoRowPatternsError if they are too many."""
        npatterns, differs = self.backend.first(self.told, TOLD)  # waits for the device
        if npatterns > self.most:
            number = f"{npatterns}" if npatterns <= MOST_PATTERNS else f"more than {MOST_PATTERNS}"
            raise NoRowPatternsError(
                f"{number} row patterns of up to {self.longest} entries, where {MOST_PATTERNS} patterns in a table of "
                f"{MOST_TABLE_BYTES} bytes are the limit"
            )
        if differs:
            raise NoRowPatternsError("two row patterns with the same hash")
        deltas = self.pattern_deltas[: npatterns * self.stride]
        return RowPatterns(self.row_pattern, deltas, self.stride, self.row_perm, self.backend)


def may_be_few(csr: CsrPattern) -> bool:
    """Whether rows may be alike relative to the diagonal: those of interpolations and their transposes never are."""
    return max(csr.nrows, csr.ncols) < UNLIKE_RATIO * min(csr.nrows, csr.ncols)


def table_limits(longest: int, backend: Backend) -> tuple[int, int]:
    """Entries of a pattern in a table for rows of up to `longest` entries, and how many patterns there may be."""
    stride = ceil_div(max(longest, 1), STRIDE_MULTIPLE) * STRIDE_MULTIPLE
    return stride, min(MOST_PATTERNS, MOST_TABLE_BYTES // (stride * backend.index.itemsize))


@compiled_ahead("formats/row_patterns")
def default_kernels() -> Iterator[list[Instance]]:
    """All kernels of the file."""
    yield [(f"row_patterns_{what}", ()) for what in ("collect", "assign")]
