"""Row patterns: columns of stencil-like matrices without an index for each entry.

Where most rows look alike, as in matrices of stencils, a row needs only the number of its pattern: entry j of the row
is in column ``row + pattern_deltas[pattern, j]``. Entries keep their order within the row, so that mults are bit for
bit those with full columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.kernel_modules import Instance, compiled_ahead
from petsc_gpufmt.backends.plan import Launch, ceil_div, launch_1d
from petsc_gpufmt.patterns.csr import INT64, CsrPattern

MOST_PATTERNS = 256
"""What a byte numbers; LIMIT in the kernels."""

MOST_TABLE_BYTES = 16384
"""A table that leaves the first-level cache of a multiprocessor to x."""

SLOTS = 1024
"""Of the hash table of patterns, as in the kernels."""

UNLIKE_RATIO = 4
"""Of rows and columns, from which rows are not taken to be alike."""

STRIDE_MULTIPLE = 4
THREADS_PER_BLOCK = 256
COUNTS = 2  # how many patterns there are, and whether a row differs from the pattern of its hash
UINT8 = np.dtype(np.uint8)


class NoRowPatternsError(Exception):
    """The rows of a matrix have no small table of patterns. The text says why, as in "the matrix has ..."."""


@dataclass(frozen=True)
class RowPatterns:
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
        if not csr.nrows:
            raise NoRowPatternsError("no rows")
        stride, most = table_limits(longest, backend)
        if not most:
            raise NoRowPatternsError(
                f"rows of up to {longest} entries, too long for a table of {MOST_TABLE_BYTES} bytes"
            )
        words, in_order, deltas, row_pattern = backend.empty(
            (COUNTS + 2 * SLOTS, INT64), (most, INT64), (most * stride, backend.index), (csr.nrows, UINT8)
        )
        backend.clear(words)
        count, mismatch, pattern = words[:1], words[1:COUNTS], (csr.rowptr, csr.colidx)
        keys, rows = collect(csr, words, backend)
        table = (most, stride, keys, rows, count, *pattern, in_order, deltas)
        assigned = (csr.nrows, most, stride, count, in_order, deltas, *pattern, row_perm, row_pattern, mismatch)
        backend.run(
            [
                _launch(backend, "row_patterns_table", 1, table),
                _launch(backend, "row_patterns_assign", csr.nrows, assigned),
            ]
        )
        npatterns, differs = backend.first(words, COUNTS)  # waits for the device
        if npatterns > most:
            number = f"{npatterns}" if npatterns <= MOST_PATTERNS else f"more than {MOST_PATTERNS}"
            raise NoRowPatternsError(
                f"{number} row patterns of up to {longest} entries, where {MOST_PATTERNS} patterns in a table of "
                f"{MOST_TABLE_BYTES} bytes are the limit"
            )
        if differs:
            raise NoRowPatternsError("two row patterns with the same hash")
        return cls(row_pattern, deltas[: npatterns * stride], stride, row_perm, backend)

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


def may_be_few(csr: CsrPattern) -> bool:
    """Whether rows may be alike relative to the diagonal: those of interpolations and their transposes never are."""
    return max(csr.nrows, csr.ncols) < UNLIKE_RATIO * min(csr.nrows, csr.ncols)


def table_limits(longest: int, backend: Backend) -> tuple[int, int]:
    """Entries of a pattern in a table for rows of up to `longest` entries, and how many patterns there may be."""
    stride = ceil_div(max(longest, 1), STRIDE_MULTIPLE) * STRIDE_MULTIPLE
    return stride, min(MOST_PATTERNS, MOST_TABLE_BYTES // (stride * backend.index.itemsize))


def collect(csr: CsrPattern, words: Any, backend: Backend) -> tuple[Any, Any]:
    """Launch what finds the different rows: their hashes, in some of SLOTS places, and a row for each hash.

    Both are parts of `words`, (COUNTS + 2 SLOTS,) int64, all 0. The first word will say how many there are, more than
    MOST_PATTERNS if too many; then some are missing.
    """
    keys, rows = words[COUNTS : COUNTS + SLOTS], words[COUNTS + SLOTS :]
    threads = backend.in_turns(csr.nrows)  # blocks take rows in turns
    arguments = (csr.nrows, csr.rowptr, csr.colidx, keys, rows, words[:1])
    backend.run([_launch(backend, "row_patterns_collect", threads, arguments)])
    return keys, rows


def _launch(backend: Backend, kernel: str, n: int, arguments: tuple[Any, ...]) -> Launch:
    """The launch of a kernel of kernels/formats/row_patterns.cu with at least `n` threads."""
    return launch_1d(backend.function("formats/row_patterns", kernel, ()), n, THREADS_PER_BLOCK, arguments)


@compiled_ahead("formats/row_patterns")
def default_kernels() -> Iterator[list[Instance]]:
    """All kernels of the file."""
    yield [(f"row_patterns_{what}", ()) for what in ("collect", "table", "assign")]
