"""Adaptive CSR: threads a row by the length of the row.

Dahai Guo and William Gropp, *Adaptive thread distributions for SpMV on a GPU*, 2012, as described in Guo, Gropp, Olson,
*A hybrid format for better performance of sparse matrix-vector multiplication on a GPU*, 2016, section 1 and figure 1.

Rows are dealt to ranges by their length: at most 8 entries, 16, 32, ... Range r has 2^r threads a row, and the last
one, for all rows that are longer, a whole block. A permutation groups the rows by range, so that each block works on
rows of one range; the arrays of CSR stay as they are. All ranges are multiplied in one launch.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.kernel_modules import Instance, compiled_ahead
from petsc_gpufmt.backends.plan import ceil_div
from petsc_gpufmt.formats.common.csr_arrays import CsrFormat
from petsc_gpufmt.patterns.csr import CsrPattern

ENTRIES_A_THREAD = 8  # at most, but for rows longer than a block can divide so


class CsrAdaptive(CsrFormat):
    """One matrix in CSR, multiplied with 1 to `block_threads` threads a row.

    Attributes
    ----------
    rows_of_range : list of int; rows in each range, range r having 2^r threads a row
    blocks_of_range : list of int
    marks : (2 nranges + 1,) index; the first block of each range, the first position of each range, nrows
    row_perm : (nrows,) index or None; row_perm[position] = row, None if rows lie grouped by range already
    """

    name = "csradaptive"
    default_block_threads = 256

    def __init__(self, csr: CsrPattern, backend: Backend, index: str, block_threads: int):
        super().__init__(csr, backend, index, block_threads)
        xp = backend.xp
        ranges = ranges_of_rows(xp.asarray(csr.rowptr), block_threads, xp)
        nranges = block_threads.bit_length()
        self.rows_of_range = [int(n) for n in backend.to_host(xp.bincount(ranges, minlength=nranges))]
        self.blocks_of_range = [ceil_div(rows * 2**r, block_threads) for r, rows in enumerate(self.rows_of_range)]
        first_block = [sum(self.blocks_of_range[:r]) for r in range(nranges)]
        first_position = [sum(self.rows_of_range[:r]) for r in range(nranges + 1)]
        self.marks = xp.asarray(first_block + first_position, dtype=backend.index)
        grouped = bool((ranges[1:] >= ranges[:-1]).all())
        # stable: rows of a range keep their order, and with it what neighbours share of x
        self.row_perm = None if grouped else xp.argsort(ranges, kind="stable").astype(backend.index)

    @property
    def nblocks(self) -> int:
        return sum(self.blocks_of_range)

    @property
    def row_arguments(self) -> tuple[Any, ...]:
        return self.marks, self.row_perm, self.rowptr

    def summary(self) -> str:
        return f"1 to {self.block_threads} threads a row, {super().summary()}"

    def detail(self) -> str:
        lines = [
            f"threads a row {2**r}: rows {rows}, blocks {blocks}"
            for r, (rows, blocks) in enumerate(zip(self.rows_of_range, self.blocks_of_range, strict=True))
            if rows
        ]
        return "\n".join(lines)


def ranges_of_rows(rowptr: Any, block_threads: int, xp: Any) -> Any:
    """(nrows,) uint8: the smallest r with at most 8 * 2^r entries in the row; 2^r is `block_threads` at most."""
    bounds = ENTRIES_A_THREAD * 2 ** xp.arange(block_threads.bit_length() - 1)
    return xp.searchsorted(bounds, xp.diff(rowptr), side="left").astype(xp.uint8)


@compiled_ahead("formats/csradaptive")
def default_kernels() -> Iterator[list[Instance]]:
    """Products, with full columns and with those of 16 bits."""
    templates = product((CsrAdaptive.default_block_threads,), (0, 1))
    yield list(product(("csradaptive_spmv", "csradaptive_diagonal"), templates))
