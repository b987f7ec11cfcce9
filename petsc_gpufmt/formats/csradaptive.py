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

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.kernel_modules import Instance, compiled_ahead
from petsc_gpufmt.backends.plan import Fused, Launch, Slot, ceil_div, launch_1d
from petsc_gpufmt.formats.common.csr_arrays import CsrFormat
from petsc_gpufmt.formats.common.fused import fused_argument, leaves_a_sum
from petsc_gpufmt.patterns.csr import INT64, CsrPattern

TILE_ROWS, TILE_THREADS = 512, 256  # of a block that groups rows, as in kernels/formats/csradaptive.cu


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
        nranges = block_threads.bit_length()
        self.rows_of_range, grouped = count_rows(csr.rowptr, nranges, backend)
        self.blocks_of_range = [ceil_div(rows * 2**r, block_threads) for r, rows in enumerate(self.rows_of_range)]
        first_block = [sum(self.blocks_of_range[:r]) for r in range(nranges)]
        first_position = [sum(self.rows_of_range[:r]) for r in range(nranges + 1)]
        self.marks = backend.adopt(np.array(first_block + first_position, dtype=backend.index))
        # rows of a range keep their order, and with it what neighbours share of x
        self.row_perm = None if grouped else order_rows(csr.rowptr, nranges, self.marks, backend)

    @property
    def nblocks(self) -> int:
        return sum(self.blocks_of_range)

    @property
    def row_arguments(self) -> tuple[Any, ...]:
        return self.marks, self.row_perm, self.rowptr

    def fused(self, operation: Fused) -> list[Launch] | None:
        if not self.nrows and not leaves_a_sum(operation):
            return []
        nblocks = max(1, self.nblocks)
        fused, after = fused_argument(operation, nblocks, self.backend)
        return [self._product("fused", nblocks, Slot.X, fused), *after]

    def summary(self) -> str:
        return f"1 to {self.block_threads} threads a row, {super().summary()}"

    def detail(self) -> str:
        lines = [
            f"threads a row {2**r}: rows {rows}, blocks {blocks}"
            for r, (rows, blocks) in enumerate(zip(self.rows_of_range, self.blocks_of_range, strict=True))
            if rows
        ]
        return "\n".join(lines)


def count_rows(rowptr: Any, nranges: int, backend: Backend) -> tuple[list[int], bool]:
    """Rows in each range, and whether rows lie grouped by range already. Waits for the device.

    A row is in the first range r of `nranges` <= 10 for which it has at most 8 * 2^r entries, or in the last.
    """
    nrows = rowptr.size - 1
    (found,) = backend.empty((nranges + 1, INT64))
    backend.clear(found)
    if nrows:
        function = backend.function("formats/csradaptive", "csradaptive_count_rows", ())
        arguments = (backend.index.type(nrows), nranges, rowptr, found)
        backend.run([launch_1d(function, ceil_div(nrows, TILE_ROWS) * TILE_THREADS, TILE_THREADS, arguments)])
    *rows, falls = backend.first(found, nranges + 1)  # waits for the device
    return rows, not falls


def order_rows(rowptr: Any, nranges: int, marks: Any, backend: Backend) -> Any:
    """(nrows,) index: rows grouped by range, those of each range in their order, for `nrows` > 0."""
    nrows = rowptr.size - 1
    ntiles = ceil_div(nrows, TILE_ROWS)
    row_perm, states = backend.empty((nrows, backend.index), (1 + nranges * ntiles, INT64))
    backend.clear(states)
    function = backend.function("formats/csradaptive", "csradaptive_order_rows", ())
    arguments = (backend.index.type(nrows), nranges, rowptr, marks, states, row_perm)
    backend.run([launch_1d(function, ntiles * TILE_THREADS, TILE_THREADS, arguments)])
    return row_perm


@compiled_ahead("formats/csradaptive")
def default_kernels() -> Iterator[list[Instance]]:
    """Products, with full columns and with those of 16 bits, and what groups rows by range."""
    templates = product((CsrAdaptive.default_block_threads,), (0, 1))
    yield list(product(("csradaptive_spmv", "csradaptive_fused", "csradaptive_diagonal"), templates))
    yield [("csradaptive_count_rows", ()), ("csradaptive_order_rows", ())]
