"""RMerge: rows of C by merging rows of B (Gremse, Hoefter, Schwen, Kiessling, Naumann, SISC 37, 2015).

A row of A with at most 32 entries is merged at once, by a sub-warp of the smallest sufficient width (section 2.2). A
longer one is cut into pieces of `merge_width` entries, A = A_2 G_1, whose merged rows T_1 = G_1 B are merged again,
C = A_2 T_1, and so on while too many pieces are left (section 2.3). G_1 has the columns and values of A; the pieces
of higher levels are consecutive and their values are one, so no array holds either.

Beyond the paper: rows are binned by length, and a row is done at the level that it needs; an intermediate that would
pass `merge_buffer` bytes is made for one range of columns after the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from petsc_gpufmt.backend import Backend
from petsc_gpufmt.errors import OptionError
from petsc_gpufmt.formats.csr_arrays import WARP, power_of_two
from petsc_gpufmt.plan import Launch
from petsc_gpufmt.spgemm.accumulator import Accumulator, Operands
from petsc_gpufmt.spgemm.splitting import WIDTHS, LeftRows, Splitting, bins, offsets, split

DEFAULT_WIDTH = 16
BLOCK_THREADS, MOVE_THREADS = 128, 256
# Default of `merge_buffer`: of what is free on a device, or of a host
FREE_SHARE = 1 / 8
HOST_BUFFER = 1 << 30
# Room for columns whose number is not known yet, in units of the memory of the operands
LARGEST_ROOM = 2


@dataclass(frozen=True)
class RightRows:
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
        bounds = np.unique(np.linspace(self.begin, self.end, count + 1).astype(np.int64)).tolist()
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


class MergeAccumulator(Accumulator):
    """Rows of C by row merging.

    Attributes
    ----------
    direct : list of LeftRows, rows that are merged at once
    splitting : Splitting of the others, None if there are none
    iterations : calls of MulLimited in the words of the paper: 1 + splittings of the longest row
    """

    name = "merge"

    def __init__(self, operands: Operands, rows: Any, backend: Backend, options: dict[str, int | str]):
        """OptionError for a width or a buffer that is not offered."""
        self.operands, self.backend = operands, backend
        width = int(options["merge_width"])
        if width and width not in WIDTHS:
            choices = ", ".join(map(str, WIDTHS))
            raise OptionError(f"-mat_rmerge_width {width}: choose one of {choices}, or 0 for automatic")
        self.width, limit = width or DEFAULT_WIDTH, width or WARP
        self.given_buffer = int(options["merge_buffer"])
        if self.given_buffer < 0:
            raise OptionError(f"-mat_rmerge_buffer {self.given_buffer}: give a number of bytes, or 0 for automatic")
        self.splitting: Splitting | None = None
        rows, self.direct_terms, self.split_terms = self._take_long_rows(rows, limit)
        A = operands.A
        direct = LeftRows(0, A.rowptr[:-1], A.rowptr[1:], A.colidx)
        direct = direct if rows is None else direct.part(rows, 0)
        mean = A.nnz / A.nrows if rows is None and A.nrows else 0.0
        self.direct = bins(direct, min(limit, operands.longest_row), backend, mean)
        self.found: list[tuple[Any, Any, Any]] = []  # of each of `direct`: starts, columns, lengths
        self.ranges: list[ColumnRange] = []
        self.intermediates = Intermediates(backend)

    @cached_property
    def buffer_bytes(self) -> int:
        """Bytes that intermediates may take, but for those of one column."""
        if self.given_buffer:
            return self.given_buffer
        free = self.backend.free_bytes()
        return HOST_BUFFER if free is None else int(free * FREE_SHARE)

    def _take_long_rows(self, rows: Any, limit: int) -> tuple[Any, int, int]:
        """Split those of `rows` (None: all) with more than `limit` entries; the others, and the terms of both."""
        A, operands, terms = self.operands.A, self.operands, self.operands.terms
        if operands.longest_row <= limit:
            return rows, operands.total_terms if rows is None else int(terms[rows].sum()), 0
        if rows is None:
            rows = self.backend.xp.arange(A.nrows, dtype=self.backend.index)
        is_long = A.rowptr[rows + 1] - A.rowptr[rows] > limit
        long_rows, rows = rows[is_long], rows[~is_long]  # waits for the device
        if long_rows.size:
            self.splitting = split(A, long_rows, operands.longest_row, limit, self.width, self.backend)
        return rows, int(terms[rows].sum()), int(terms[long_rows].sum())

    @property
    def iterations(self) -> int:
        return 1 + (len(self.splitting.levels) if self.splitting else 0)

    # Symbolic phase

    def lengths(self, out: Any) -> None:
        for left in self.direct:
            starts, columns, lengths = self._count_and_keep(left) if self._may_keep() else (None, None, None)
            if lengths is None:
                lengths = self._count(left, self._right())
            self.found.append((starts, columns, lengths))
            if left.rows is None:
                out[:] = lengths
            else:
                out[left.rows] = lengths
        if self.splitting:
            self._count_split_rows(out)

    def columns(self, rowptr: Any, colidx: Any) -> None:
        for left, (starts, columns, lengths) in zip(self.direct, self.found, strict=True):
            to, _ = self._place(left, rowptr)
            if columns is None:
                self.backend.run([self._launch("rmerge_columns", left, self._right(), to, colidx, None)])
            else:
                self._move(lengths, starts, columns, to, colidx)
        self.found.clear()
        if self.splitting:
            merged = len(self.ranges) == 1 and len(self.splitting.levels) <= 2  # still there, from `lengths`
            for number in range(len(self.ranges)):
                self.backend.run(self._split_columns(number, rowptr, colidx, merged))

    def _count(self, left: LeftRows, right: RightRows) -> Any:
        """(left.count,) int64, numbers of columns of the rows."""
        lengths = self.backend.xp.empty(left.count, dtype=np.int64)
        self.backend.run([self._launch("rmerge_lengths", left, right, lengths)])
        return lengths

    @property
    def _room(self) -> int:
        """Bytes of the columns of all rows that are merged at once, if no two terms had one column."""
        return self.direct_terms * self.backend.index.itemsize

    def _may_keep(self) -> bool:
        """Whether columns are stored where they are counted, and moved into place when that is known.

        Moving costs much less than merging again; but the room for all terms must not be large beside the operands.
        """
        A, B, index, scalar = self.operands.A, self.operands.B, self.backend.index, self.backend.scalar
        operands = (A.nnz + B.nnz) * (index.itemsize + scalar.itemsize)
        return self._room <= LARGEST_ROOM * operands and self.direct_terms <= np.iinfo(index).max

    def _count_and_keep(self, left: LeftRows) -> tuple[Any, Any, Any]:
        """Where rows begin in an array with room for all of their terms, the array, and numbers of columns."""
        xp, terms = self.backend.xp, self.operands.terms
        starts = offsets(terms if left.rows is None else terms[left.rows], self.backend)
        room = self.direct_terms if left.rows is None else int(starts[-1])
        columns, lengths = xp.empty(room, dtype=self.backend.index), xp.empty(left.count, dtype=np.int64)
        self.backend.run([self._launch("rmerge_columns", left, self._right(), starts, columns, lengths)])
        return starts, columns, lengths

    def _move(self, lengths: Any, starts: Any, columns: Any, to: Any, colidx: Any) -> None:
        lanes = power_of_two(columns.size / lengths.size / 4, 2, WARP)
        function = self.backend.function("spgemm", "spgemm_move_rows", (MOVE_THREADS, lanes))
        arguments = (self.backend.index.type(lengths.size), lengths, starts, columns, to, colidx)
        blocks = -(-lengths.size * lanes // MOVE_THREADS)
        self.backend.run([Launch(function, (blocks, 1, 1), (MOVE_THREADS, 1, 1), arguments)])

    def _count_split_rows(self, out: Any) -> None:
        rows, first = self.splitting.rows, self.splitting.levels[0].pieces
        out[rows] = 0
        pending = [ColumnRange(0, self.operands.B.ncols)]
        while pending:
            part = pending.pop(0)
            lengths = self._count(first, self._right(part))
            entries = int(lengths.sum())  # waits for the device
            if entries > self._largest_intermediate and part.end - part.begin > 1:
                pending = part.parts(-(-entries // self._largest_intermediate)) + pending
                continue
            part.before = out[rows]
            self._count_levels(part, lengths, out)
            self.ranges.append(part)

    @property
    def _largest_intermediate(self) -> int:
        """Entries of the intermediates of one level."""
        entry = self.backend.index.itemsize + self.backend.scalar.itemsize
        levels = min(2, len(self.splitting.levels))
        return max(1, min(self.buffer_bytes // (levels * entry), int(np.iinfo(self.backend.index).max)))

    def _count_levels(self, part: ColumnRange, lengths: Any, out: Any) -> None:
        """Intermediates of a range, level by level; adds to `out` what rows of C have there."""
        right = self._right(part)
        for number, level in enumerate(self.splitting.levels):
            if number:
                lengths = self._count(level.pieces, right)
            starts = offsets(lengths, self.backend)
            columns = self.intermediates.columns(number, int(starts[-1]))
            self.backend.run([self._launch("rmerge_columns", level.pieces, right, starts, columns, None)])
            part.rowptr.append(starts)
            right = self._right_of_level(part, number)
            for left in level.last:
                out[left.rows] += self._count(left, right)

    def _split_columns(self, number_of_part: int, rowptr: Any, colidx: Any, merged: bool) -> list[Launch]:
        """The columns of split rows in one range; `merged` if the intermediates are there already."""
        part = self.ranges[number_of_part]
        launches, right = [], self._right(part)
        for number, level in enumerate(self.splitting.levels):
            if not merged:
                columns = self.intermediates.columns(number)
                launches.append(self._launch("rmerge_columns", level.pieces, right, part.rowptr[number], columns, None))
            right = self._right_of_level(part, number)
            for left in level.last:
                to, _ = self._place(left, rowptr, number_of_part)
                launches.append(self._launch("rmerge_columns", left, right, to, colidx, None))
        return launches

    # Numeric phase

    def values(self, rowptr: Any, colidx: Any, a_values: Any, b_values: Any, c_values: Any) -> list[Launch]:
        if self.splitting and not self.ranges:  # another accumulator has found the columns
            self._count_split_rows(self.backend.xp.empty(self.operands.A.nrows, dtype=np.int64))
        right = self._right(values=b_values)
        launches = [
            self._launch("rmerge_values", left, right, *self._place(left, rowptr), colidx, c_values, weights=a_values)
            for left in self.direct
        ]
        for number_of_part, part in enumerate(self.ranges):
            right = self._right(part, b_values)
            for number, level in enumerate(self.splitting.levels):
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

    def _launch(self, kernel: str, left: LeftRows, right: RightRows, *outputs: Any, **weights: Any) -> Launch:
        """A pass over rows of a left factor; `weights` of its entries for the kernel that takes values."""
        index = self.backend.index.type
        function = self.backend.function("rmerge", kernel, (left.width,))
        values = (right.values,) if weights else ()
        arguments = (
            *(index(left.count), left.begin, left.end, left.columns, *weights.values()),
            *(right.rowptr, right.columns, *values),
            *(index(right.col_begin), index(right.col_end), index(self.operands.B.ncols)),
            *outputs,
        )
        blocks = -(-left.count * left.width // BLOCK_THREADS)
        return Launch(function, (blocks, 1, 1), (BLOCK_THREADS, 1, 1), arguments)

    # Sizes and words

    def bytes_needed(self) -> int:
        index, scalar = self.backend.index.itemsize, self.backend.scalar.itemsize
        needed = sum(left.count for left in self.direct) * (8 + 4 * index) + (self._room if self._may_keep() else 0)
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
        widths = ", ".join(f"{left.count} rows {left.width} wide" for left in self.direct)
        if not self.splitting:
            return f"merge: {widths}"
        ranges = f", {len(self.ranges)} ranges of columns" if len(self.ranges) > 1 else ""
        pieces = ", ".join(str(level.pieces.count) for level in self.splitting.levels)
        split_rows = f"{self.splitting.rows.size} rows in {pieces} pieces of {self.width}{ranges}"
        return f"merge: {widths}{', ' if widths else ''}{split_rows}"
