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
from petsc_gpufmt.backends.plan import ceil_div, launch_1d
from petsc_gpufmt.patterns.csr import CsrPattern

MOST_PATTERNS = 256
"""What a byte numbers; LIMIT in the kernels."""

MOST_TABLE_BYTES = 16384
"""A table that leaves the first-level cache of a multiprocessor to x."""

SLOTS = 1024
"""Of the hash table of patterns, as in the kernels."""

STRIDE_MULTIPLE = 4
THREADS_PER_BLOCK = 256


class NoRowPatternsError(Exception):
    """The rows of a matrix have no small table of patterns. The text says why, as in "the matrix has ..."."""


@dataclass(frozen=True)
class RowPatterns:
    """The patterns of (nrows,) rows.

    Attributes
    ----------
    row_pattern : (nrows,) uint8; pattern of each row, in the order of `row_perm`
    pattern_deltas : (npatterns, stride) index; column - row of each entry, then the smallest index
    row_perm : (nrows,) index or None; the row at each place of `row_pattern`
    """

    row_pattern: Any
    pattern_deltas: Any
    row_perm: Any
    backend: Backend

    @classmethod
    def find(cls, csr: CsrPattern, longest: int, row_perm: Any, backend: Backend) -> RowPatterns:
        """The patterns of `csr`, whose longest row has `longest` entries. Raises NoRowPatternsError.

        Every row is compared with its pattern: a collision of hashes cannot give a wrong matrix.
        """
        if not csr.nrows:
            raise NoRowPatternsError("no rows")
        stride = ceil_div(max(longest, 1), STRIDE_MULTIPLE) * STRIDE_MULTIPLE
        row_bytes = stride * backend.index.itemsize
        if row_bytes > MOST_TABLE_BYTES:
            raise NoRowPatternsError(
                f"rows of up to {longest} entries, too long for a table of {MOST_TABLE_BYTES} bytes"
            )
        keys, rows = collect(csr, backend)
        if keys.size > min(MOST_PATTERNS, MOST_TABLE_BYTES // row_bytes):
            count = f"{keys.size}" if keys.size <= MOST_PATTERNS else f"more than {MOST_PATTERNS}"
            raise NoRowPatternsError(
                f"{count} row patterns of up to {longest} entries, where {MOST_PATTERNS} patterns in a table of "
                f"{MOST_TABLE_BYTES} bytes are the limit"
            )
        index, xp = backend.index.type, backend.xp
        found = xp.asarray(np.stack([keys.view(np.int64), rows]))
        deltas = xp.empty((keys.size, stride), dtype=backend.index)
        pattern = (csr.rowptr, csr.colidx)
        run(backend, "row_patterns_table", keys.size * THREADS_PER_BLOCK, (index(stride), found[1], *pattern, deltas))
        row_pattern = xp.empty(csr.nrows, dtype=np.uint8)
        mismatch = xp.zeros(1, dtype=np.int32)
        sizes = (index(csr.nrows), index(keys.size), index(stride))
        arguments = (*sizes, found[0], deltas, *pattern, row_perm, row_pattern, mismatch)
        run(backend, "row_patterns_assign", csr.nrows, arguments)
        if backend.to_host(mismatch)[0]:
            raise NoRowPatternsError("two row patterns with the same hash")
        return cls(row_pattern, deltas, row_perm, backend)

    @property
    def members(self) -> tuple[Any, Any, Any]:
        """Those of RowPatterns in the kernels."""
        return self.row_pattern, self.pattern_deltas, int(self.pattern_deltas.shape[1])

    @property
    def npatterns(self) -> int:
        return int(self.pattern_deltas.shape[0])

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
        of_row = deltas[row_pattern]
        return np.where(of_row == np.iinfo(deltas.dtype).min, -1, rows[:, None] + of_row).astype(deltas.dtype)

    def summary(self) -> str:
        """The mode in words."""
        return f"{self.npatterns} row pattern{'' if self.npatterns == 1 else 's'}"


def collect(csr: CsrPattern, backend: Backend) -> tuple[np.ndarray, np.ndarray]:
    """Hashes of the different rows, ascending, and a row for each: (npatterns,) uint64 and int64.

    More than MOST_PATTERNS of them if there are too many; then some are missing.
    """
    table = backend.xp.zeros(2 * SLOTS + 1, dtype=np.int64)  # keys, rows, how many
    threads = min(csr.nrows, max(1, backend.resident_threads))  # blocks take rows in turns
    parts = (table[:SLOTS], table[SLOTS : 2 * SLOTS], table[2 * SLOTS :])
    arguments = (backend.index.type(csr.nrows), csr.rowptr, csr.colidx, *parts)
    run(backend, "row_patterns_collect", threads, arguments)
    host_table = backend.to_host(table)
    keys, rows = host_table[:SLOTS].view(np.uint64), host_table[SLOTS : 2 * SLOTS]
    order = np.argsort(keys)
    order = order[keys[order] > 0]
    return keys[order], rows[order]


def run(backend: Backend, kernel: str, n: int, arguments: tuple[Any, ...]) -> None:
    """Launch a kernel of kernels/formats/row_patterns.cu with at least `n` threads."""
    function = backend.function("formats/row_patterns", kernel, ())
    backend.run([launch_1d(function, n, THREADS_PER_BLOCK, arguments)])


@compiled_ahead("formats/row_patterns")
def default_kernels() -> Iterator[list[Instance]]:
    """All kernels of the file."""
    yield [(f"row_patterns_{what}", ()) for what in ("collect", "table", "assign")]
