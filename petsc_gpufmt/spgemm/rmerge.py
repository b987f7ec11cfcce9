"""RMerge: rows of C by merging rows of B (Gremse, Hoefter, Schwen, Kiessling, Naumann, SISC 37, 2015).

A row of A with at most 32 entries is merged at once, by a sub-warp of the smallest sufficient width (section 2.2). A
longer one is cut into pieces of `merge_width` entries, A = A_2 G_1, whose merged rows T_1 = G_1 B are merged again,
C = A_2 T_1, and so on while too many pieces are left (section 2.3). G_1 has the columns and values of A; the pieces
of higher levels are consecutive and their values are one, so no array holds either.

Beyond the paper: rows are binned by length, and a row is done at the level that it needs; an intermediate that would
pass `merge_buffer` bytes is made for one range of columns after the other. Where the rows of both factors are short and
no width is asked for, columns are found by a sorting network.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.kernel_modules import Instance, compiled_ahead
from petsc_gpufmt.backends.plan import WARP, Launch, Struct, ceil_div, launch_1d, power_of_two
from petsc_gpufmt.backends.program import Program, Step
from petsc_gpufmt.patterns.csr import CsrPattern
from petsc_gpufmt.spgemm.accumulator import Accumulator
from petsc_gpufmt.spgemm.census import Operands, ResultRows
from petsc_gpufmt.spgemm.splitting import LeftRows, Level, Splitting, bins, offsets, split

DEFAULT_WIDTH = 16
BLOCK_THREADS = 128
# Entries of a row of A or of B that a network takes at most
LARGEST_NETWORK = 8
RESULTS = {"lengths": "lengths terms control", "columns": "rowptr colidx"}
NETWORKS = tuple(power_of_two(entries, 2, LARGEST_NETWORK) for entries in range(LARGEST_NETWORK + 1))
# Default of `merge_buffer`: of what is free on a device, or of a host
FREE_SHARE = 1 / 8
HOST_BUFFER = 1 << 30


class RightRows(NamedTuple):
    """A right factor: CSR arrays on the backend, and which of its columns are merged. `values` may be a Slot."""

    rowptr: Any
    columns: Any
    col_begin: int
    col_end: int
    values: Any = None


@dataclass
class ColumnRange:
    """Columns [begin, end) of B, and what was found there.

    Attributes
    ----------
    rowptr : of the intermediate of each level
    before : (rows that are split,) int64, entries of each row of C left of the range
    """

    begin: int
    end: int
    rowptr: list[Any] = field(default_factory=list)
    before: Any = None

    def parts(self, count: int) -> list[ColumnRange]:
        """The range cut into `count` parts, or single columns."""
        bounds = sorted(set(np.linspace(self.begin, self.end, count + 1).astype(np.int64).tolist()))
        return [ColumnRange(begin, end) for begin, end in zip(bounds[:-1], bounds[1:], strict=True)]


class Intermediates:
    """Columns and values of the intermediates T_l of one range of columns; T_l takes the room of T_(l-2)."""

    def __init__(self, backend: Backend):
        self.backend = backend
        self.arrays: dict[tuple[int, Any], Any] = {}

    def columns(self, level: int, size: int = 0) -> Any:
        return self._array(level, self.backend.index, size)

    def values(self, level: int) -> Any:
        return self._array(level, self.backend.scalar, self.columns(level).size)

    def _array(self, level: int, dtype: Any, size: int) -> Any:
        key = (level % 2, dtype)
        if key not in self.arrays or self.arrays[key].size < size:
            self.arrays[key] = self.backend.xp.empty(size, dtype=dtype)
        return self.arrays[key]

    @property
    def nbytes(self) -> int:
        return sum(int(a.nbytes) for a in self.arrays.values())


def network_sizes(longest_left: int, longest_right: int, width: int) -> tuple[int, int] | None:
    """(threads a row, entries of B a thread) of the network that finds columns, and counts the terms as it does.

    None where rows are too long for it, or are to be merged `width` at once.
    """
    if width or max(longest_left, longest_right) > LARGEST_NETWORK:
        return None
    return NETWORKS[longest_left], NETWORKS[longest_right]


@functools.cache
def network_program(operation: str, network: tuple[int, int]) -> Program:
    """The network that finds lengths or columns, and for lengths counts terms too."""
    names = f"nrows A_rowptr A_colidx B_rowptr B_colidx {RESULTS[operation]}"
    return Program(names, Step("spgemm/rmerge_network", f"rmerge_network_{operation}", network, BLOCK_THREADS, names))


class MergeAccumulator(Accumulator):
    """Rows of C by row merging.

    Attributes
    ----------
    network : what `network_sizes` says
    direct : list of LeftRows, rows that are merged at once
    splitting : Splitting of the others, None if there are none
    iterations : calls of MulLimited in the words of the paper: 1 + splittings of the longest row
    """

    name = "merge"

    def __init__(self, operands: Operands, backend: Backend, options: dict[str, int | str]):
        self.operands, self.backend = operands, backend
        width = int(options["merge_width"])
        self.width, self.limit = width or DEFAULT_WIDTH, width or WARP
        self.given_buffer = int(options["merge_buffer"])
        left = operands.longest_left
        self.network = network_sizes(left, operands.longest_right, width)
        self.splitting: Splitting | None = None
        self.split_terms = 0
        self._direct_rows = None if left <= self.limit else self._take_long_rows()
        self.ranges: list[ColumnRange] = []
        self.intermediates = Intermediates(backend)

    @functools.cached_property
    def _left(self) -> CsrPattern:
        """A in arrays that can be computed with."""
        A, xp = self.operands.A, self.backend.xp
        return replace(A, rowptr=xp.asarray(A.rowptr), colidx=xp.asarray(A.colidx))

    @functools.cached_property
    def direct(self) -> list[LeftRows]:
        A, rows = self._left, self._direct_rows
        left = LeftRows(0, A.rowptr[:-1], A.rowptr[1:], A.colidx)
        left = left if rows is None else left.part(rows, 0)
        mean = A.nnz / A.nrows if rows is None and A.nrows else 0.0
        return bins(left, min(self.limit, self.operands.longest_left), self.backend, mean)

    @functools.cached_property
    def buffer_bytes(self) -> int:
        """Bytes that intermediates may take, but for those of one column."""
        if self.given_buffer:
            return self.given_buffer
        free = self.backend.free_bytes()
        return HOST_BUFFER if free is None else int(free * FREE_SHARE)

    def _take_long_rows(self) -> Any:
        """Split the rows with more than `limit` entries; an index array of the others."""
        A, backend = self._left, self.backend
        rows = backend.xp.arange(A.nrows, dtype=backend.index)
        is_long = A.rowptr[1:] - A.rowptr[:-1] > self.limit
        long_rows = rows[is_long]  # waits for the device
        self.split_terms = int(backend.xp.asarray(self.operands.terms)[long_rows].sum())  # waits for the device
        self.splitting = split(A, long_rows, self.operands.longest_left, self.limit, self.width, backend)
        return rows[~is_long]

    @property
    def iterations(self) -> int:
        return 1 + len(self.levels)

    @property
    def levels(self) -> list[Level]:
        return self.splitting.levels if self.splitting else []

    # Symbolic phase

    def lengths(self) -> Any:
        if self.network:
            lengths, terms, control = self.operands.lengths, self.operands.terms, self.operands.control
            self._by_network("lengths", (lengths, terms, control))
            return lengths
        out = self.backend.xp.empty(self.operands.A.nrows, dtype=np.int64)
        for left in self.direct:
            lengths = self._count(left, self._right())
            if left.rows is None:
                return lengths
            out[left.rows] = lengths
        if self.splitting:
            self._count_split_rows(self.splitting.rows, out)
        return out

    def columns(self, rowptr: Any, colidx: Any) -> None:
        if self.network:
            self._by_network("columns", (rowptr, colidx))
            return
        rowptr = self.backend.xp.asarray(rowptr)
        for left in self.direct:
            to, _ = self._place(left, rowptr)
            self.backend.run([self._launch("rmerge_columns", left, self._right(), to, colidx)])
        if self.splitting:
            merged = len(self.ranges) == 1 and len(self.levels) <= 2  # still there, from `lengths`
            for number in range(len(self.ranges)):
                self.backend.run(self._split_columns(number, rowptr, colidx, merged))

    def _by_network(self, operation: str, results: tuple[Any, ...]) -> None:
        A, B = self.operands.A, self.operands.B
        assert self.network is not None
        blocks = ceil_div(A.nrows * self.network[0], BLOCK_THREADS)
        given = (A.nrows, A.rowptr, A.colidx, B.rowptr, B.colidx, *results)
        self.backend.carry_out(network_program(operation, self.network), (blocks,), given)

    def _count(self, left: LeftRows, right: RightRows) -> Any:
        """(left.count,) int64, numbers of columns of the rows."""
        lengths = self.backend.xp.empty(left.count, dtype=np.int64)
        self.backend.run([self._launch("rmerge_lengths", left, right, lengths)])
        return lengths

    def _count_split_rows(self, rows: Any, out: Any) -> None:
        first = self.levels[0].pieces
        out[rows] = 0
        pending = [ColumnRange(0, self.operands.B.ncols)]
        while pending:
            part = pending.pop(0)
            lengths = self._count(first, self._right(part))
            entries = int(lengths.sum())  # waits for the device
            if entries > self._largest_intermediate and part.end - part.begin > 1:
                pending = part.parts(ceil_div(entries, self._largest_intermediate)) + pending
                continue
            part.before = out[rows]
            self._count_levels(part, lengths, out)
            self.ranges.append(part)

    @property
    def _largest_intermediate(self) -> int:
        """Entries of the intermediates of one level."""
        entry = self.backend.index.itemsize + self.backend.scalar.itemsize
        levels = min(2, len(self.levels))
        return max(1, min(self.buffer_bytes // (levels * entry), self.backend.largest_index))

    def _count_levels(self, part: ColumnRange, lengths: Any, out: Any) -> None:
        """Intermediates of a range, level by level; adds to `out` what rows of C have there."""
        right = self._right(part)
        for number, level in enumerate(self.levels):
            if number:
                lengths = self._count(level.pieces, right)
            starts = offsets(lengths, self.backend)
            columns = self.intermediates.columns(number, int(starts[-1]))
            self.backend.run([self._launch("rmerge_columns", level.pieces, right, starts, columns)])
            part.rowptr.append(starts)
            right = self._right_of_level(part, number)
            for left in level.last:
                out[left.rows] += self._count(left, right)

    def _split_columns(self, number_of_part: int, rowptr: Any, colidx: Any, merged: bool) -> list[Launch]:
        """The columns of split rows in one range; `merged` if the intermediates are there already."""
        part = self.ranges[number_of_part]
        launches, right = [], self._right(part)
        for number, level in enumerate(self.levels):
            if not merged:
                columns = self.intermediates.columns(number)
                launches.append(self._launch("rmerge_columns", level.pieces, right, part.rowptr[number], columns))
            right = self._right_of_level(part, number)
            for left in level.last:
                to, _ = self._place(left, rowptr, number_of_part)
                launches.append(self._launch("rmerge_columns", left, right, to, colidx))
        return launches

    # Numeric phase

    def values(self, C: ResultRows, colidx: Any, a_values: Any, b_values: Any, c_values: Any) -> list[Launch]:
        rowptr = self.backend.xp.asarray(C.rowptr)
        if self.splitting and not self.ranges:  # another accumulator has found the columns
            self._count_split_rows(self.splitting.rows, self.backend.xp.empty(self.operands.A.nrows, dtype=np.int64))
        right = self._right(values=b_values)
        launches = [
            self._launch("rmerge_values", left, right, *self._place(left, rowptr), colidx, c_values, weights=a_values)
            for left in self.direct
        ]
        for number_of_part, part in enumerate(self.ranges):
            right = self._right(part, b_values)
            for number, level in enumerate(self.levels):
                made = self._right_of_level(part, number, self.intermediates.values(number))
                outputs = (made.rowptr, made.columns, made.values)
                weights = None if number else a_values
                launches.append(self._launch("rmerge_columns_values", level.pieces, right, *outputs, weights=weights))
                right = made
                for left in level.last:
                    place = self._place(left, rowptr, number_of_part)
                    launches.append(self._launch("rmerge_values", left, right, *place, colidx, c_values, weights=None))
        return launches

    # What phases share

    def _right(self, part: ColumnRange | None = None, values: Any = None) -> RightRows:
        """B, or some of its columns."""
        B = self.operands.B
        begin, end = (part.begin, part.end) if part else (0, B.ncols)
        return RightRows(B.rowptr, B.colidx, begin, end, values)

    def _right_of_level(self, part: ColumnRange, number: int, values: Any = None) -> RightRows:
        """The intermediate of a level, which has columns of `part` only."""
        columns = self.intermediates.columns(number)
        return RightRows(part.rowptr[number], columns, 0, self.operands.B.ncols, values)

    def _place(self, left: LeftRows, rowptr: Any, part: int | None = None) -> tuple[Any, Any]:
        """Where the rows of `left` begin and end in C, or those of their columns that lie in one of the ranges."""
        if left.rows is None:
            return rowptr[:-1], rowptr[1:]
        starts, ends = rowptr[left.rows], rowptr[left.rows + 1]
        if part is None:
            return starts, ends
        begins = [(starts + p.before[left.places]).astype(rowptr.dtype) for p in self.ranges[part : part + 2]]
        return begins[0], begins[1] if len(begins) == 2 else ends

    def _launch(self, kernel: str, left: LeftRows, right: RightRows, *outputs: Any, weights: Any = None) -> Launch:
        """A pass over rows of a left factor; `weights` of its entries, where values are wanted and not all are 1."""
        function = self.backend.function("spgemm/rmerge", kernel, (left.width,))
        factors = Struct(
            *(left.count, left.begin, left.end, left.columns, weights),
            *(right.rowptr, right.columns, right.values),
            *(right.col_begin, right.col_end, self.operands.B.ncols),
        )
        return launch_1d(function, left.count * left.width, BLOCK_THREADS, (factors, *outputs))

    # Sizes and words

    def bytes_needed(self) -> int:
        index, scalar = self.backend.index.itemsize, self.backend.scalar.itemsize
        direct = self.operands.A.nrows if self._direct_rows is None else self._direct_rows.size
        needed = self.operands.A.nrows * 8 + direct * (8 + 4 * index)
        if self.splitting:
            levels = self.splitting.levels
            pieces = sum(level.pieces.count for level in levels)
            entries = min(self.split_terms, self._largest_intermediate)
            needed += pieces * (8 + 3 * index) + min(2, len(levels)) * entries * (index + scalar)
        return needed

    @property
    def bytes_held(self) -> int:
        index = self.backend.index.itemsize
        held = sum(left.count for left in self.direct if left.rows is not None) * 3 * index
        if self.splitting:
            pieces = sum(level.pieces.count for level in self.splitting.levels)
            held += pieces * (2 + len(self.ranges)) * index + self.splitting.rows.size * (2 + len(self.ranges)) * index
        return held + self.intermediates.nbytes

    def summary(self) -> str:
        if self.network:
            return f"merge: rows of {self.network[0]} by {self.network[1]} in a network"
        widths = ", ".join(f"{left.count} rows {left.width} wide" for left in self.direct)
        if not self.splitting:
            return f"merge: {widths}"
        ranges = f", {len(self.ranges)} ranges of columns" if len(self.ranges) > 1 else ""
        pieces = ", ".join(str(level.pieces.count) for level in self.splitting.levels)
        split_rows = f"{self.splitting.rows.size} rows in {pieces} pieces of {self.width}{ranges}"
        return f"merge: {widths}{', ' if widths else ''}{split_rows}"


@compiled_ahead("spgemm/rmerge_network")
def default_kernels() -> Iterator[list[Instance]]:
    """All networks."""
    sizes = (2, 4, LARGEST_NETWORK)
    for threads in sizes:
        templates = [(threads, entries) for entries in sizes]
        yield list(product(("rmerge_network_lengths", "rmerge_network_columns"), templates))
