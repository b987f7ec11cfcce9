"""Rows of C = A B by look-up in shared memory: hash tables and bitmaps for the pattern, sorted columns for values.

Symbolic phase. B's rows are taken as words of 32 columns, a bit for each column, which shortens them wherever columns
come in runs. The words that a row of C unites are held in a hash table, or, where that would be large, in a bitmap of
all columns, or of one range of them after the other. Rows are sorted into bins by how many words meet them at most. The
host does not wait for that in a product of few rows: there are launches for all bins that there may be.

Numeric phase. The columns of a row of C are known and sorted: they and the sums of the row are held in shared memory,
and each product a_ik b_kj finds its sum by binary search. Rows are sorted into bins by length; longer ones than
`LONGEST_UNSPLIT` are cut into parts of that many entries, which neither share anything nor wait for each other, and the
warps of a block share each of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.kernel_modules import Instance, compiled_ahead, in_parts
from petsc_gpufmt.backends.plan import WARP, Launch, Struct, ceil_div, power_of_two
from petsc_gpufmt.backends.program import Program, Step
from petsc_gpufmt.errors import UnsupportedError
from petsc_gpufmt.patterns.csr import CsrPattern
from petsc_gpufmt.spgemm.accumulator import Accumulator
from petsc_gpufmt.spgemm.census import (
    BY_WORDS,
    LENGTH_BINS,
    WORD,
    WORD_BINS,
    Bins,
    Operands,
    ResultRows,
    count_words,
    teams,
)
from petsc_gpufmt.spgemm.hash_all_bins import AllBins
from petsc_gpufmt.spgemm.hash_shapes import BLOCK_BITMAPS, SHAPES, SMALLEST_TABLES, TEAMS_OF_BINS, WORDS

THREADS = 256  # a block, of kernels that go over rows once
LARGEST_WORD = 2**32 - 2

# Numeric phase: a team for each row of at most so many entries
LONGEST_UNSPLIT = LENGTH_BINS.largest
TEAMS: dict[int | None, int] = {500: 32, 250: 32, 125: 32, 63: 16, 32: 8, 16: 4}
TEAM_OF_BIN = tuple(TEAMS.get(bound or 0, 0) for bound in LENGTH_BINS.bounds)  # 0 for rows that are cut, or empty
VALUES_THREADS = 128
FULL_STEP = 0.9  # of the threads of a group have an entry of B, or it is halved

# Of the threads that a device runs at once: rows that would keep fewer of them busy share a launch with larger ones
FEW_THREADS = 1 / 2
# Of the same: a product of no more of them has its bins in one launch, since one launch after the other takes its time
MANY_THREADS = 8
# Threads that a row is thought to take in the symbolic phase, before more is known
USUAL_TEAM = 16
# Of the same: where so few threads give each row a block, and rows have many terms, the warps of the block share them
SHARED_THREADS, SHARED_TERMS = 1, 512
# Then rows join larger ones if they are fewer than these of all: that may save sorting them
FEW_TOGETHER = 1 / 8

# Rows in order of their words, and of their lengths
SORT_ROWS = tuple(
    Program(
        names := "nrows words rowptr largest nbins control order",
        Step("spgemm/hash", "spgemm_hash_sort_rows", (by_length,), THREADS, names),
    )
    for by_length in (0, 1)
)
LIST_PARTS = Program(
    names := "nrows A_rowptr rowptr largest control rows parts",
    Step("spgemm/hash", "spgemm_hash_list_parts", (), THREADS, names),
)


@dataclass(slots=True)
class Bin:
    """Rows of about one size, or of neighbouring bins.

    Attributes
    ----------
    count : number of rows
    bound : sizes are not above it; None if unlimited
    work, entries : sums over the rows of their work and of the lengths of A's rows
    begin : how many rows come before them in `order`
    order : (nrows of C,) index array, all rows in the order in which they are taken; None if these are all in their own
    first, last : numbers of the bins that the kernels know
    """

    count: int
    bound: int | None
    work: int
    entries: int
    begin: int = 0
    order: Any = None
    first: int = 0
    last: int = 0

    @property
    def rows(self) -> Any:
        """(count,) index array, or None for all rows."""
        return None if self.order is None else self.order[self.begin : self.begin + self.count]

    def group(self, team: int) -> int:
        """Threads of a team that share a row of B: as many as it has entries."""
        return power_of_two(FULL_STEP * self.work / max(1, self.entries), 1, team)


def joined(bins: list[Bin]) -> Bin:
    """Neighbouring bins as one, the largest rows first."""
    if len(bins) == 1:
        return bins[0]
    count = work = entries = 0
    for b in bins:
        count, work, entries = count + b.count, work + b.work, entries + b.entries
    largest, smallest = bins[0], bins[-1]
    return Bin(count, largest.bound, work, entries, largest.begin, largest.order, largest.first, smallest.last)


@dataclass(slots=True)
class Kernel:
    """What makes the rows of neighbouring bins in the symbolic phase.

    Attributes
    ----------
    kind : "table", "bitmap", or "tables" of several sizes
    own : its arguments before those that all have: which rows
    """

    rows: Bin
    kind: str
    template: tuple[int, ...]
    threads: int
    blocks: int
    own: tuple[Any, ...]


def needs_no_census(A: CsrPattern, B: CsrPattern, backend: Backend) -> bool:
    """Whether A B is so small that a wait for the census takes longer than launches for all bins that there may be."""
    few = A.nrows * USUAL_TEAM <= MANY_THREADS * backend.resident_threads
    return few and ceil_div(B.ncols, 32) <= BLOCK_BITMAPS[-1]


@dataclass(slots=True)
class Units:
    """What a launch of the numeric phase takes: rows of C of one bin or, together, of several; or parts of rows.

    Attributes
    ----------
    kernel, template : what is launched
    own : its arguments before those that all have: counts; rows, None for all; which part of its row a unit is, None
        for all of it
    """

    kernel: str
    template: tuple[int, ...]
    blocks: int
    own: tuple[Any, ...]


class HashAccumulator(Accumulator):
    """Rows of C by look-up in shared memory; on the host, in scratch arrays as long as a row.

    Attributes
    ----------
    symbolic : list of Kernel; until `columns` ends
    all_bins : AllBins in place of these, where the host does not wait for the census
    numeric : list of Bin, rows of C by length, once `values` is called; empty on the host
    units : list of Units, a launch each, once `values` is called
    """

    name = "hash"

    def __init__(self, operands: Operands, backend: Backend, options: dict[str, int | str]):
        """UnsupportedError for a B of more columns than words can number."""
        self.operands, self.backend = operands, backend
        self.nwords = ceil_div(operands.B.ncols, 32)
        if self.nwords > LARGEST_WORD:
            raise UnsupportedError(
                f"-mat_rmerge_accumulator hash: the right factor has {operands.B.ncols} columns, hashing takes at most "
                f"{32 * LARGEST_WORD}: use -mat_rmerge_accumulator merge, or more ranks"
            )
        self.on_host, self._makes_words = backend.name == "host", operands.words is None
        self.shapes = SHAPES[bisect_left(WORDS, self.nwords)]
        self.symbolic: list[Kernel] = []
        self.all_bins: AllBins | None = None
        self.numeric: list[Bin] = []
        self.units: list[Units] = []
        self.held: list[Any] = []
        self._ordered: list[Any] = []  # arrays of rows in the order in which they are taken

    # Symbolic phase

    def lengths(self) -> Any:
        A, B, backend = self.operands.A, self.operands.B, self.backend
        if self.operands.words is None:
            self.operands.words = count_words(A, B, backend).words
        words = self.operands.words
        assert words is not None  # without terms there are no lengths to find
        if self.on_host:
            self.symbolic = [self._symbolic_kernel(Bin(A.nrows, None, 0, 0))]
        elif words.census is None:
            self.all_bins = AllBins(self.operands, backend, self.nwords)
            return self.all_bins.lengths()
        else:
            teams = tuple(shape.team for shape in self.shapes.values())
            bins = self._bins(words.census, WORD_BINS, teams, 0, self._few_threads)
            self._put_in_order(bins, WORD_BINS, (words.sizes, None, words.control))
            self.symbolic = self._symbolic_kernels(bins)
        backend.run([self._symbolic_launch("lengths", kernel, words.sizes) for kernel in self.symbolic])
        return words.sizes

    def columns(self, rowptr: Any, colidx: Any) -> None:
        if self.all_bins:
            self.all_bins.columns(rowptr, colidx)
        else:
            self.backend.run([self._symbolic_launch("columns", kernel, rowptr, colidx) for kernel in self.symbolic])
        self.symbolic, self.all_bins, self.operands.words = [], None, None

    def _symbolic_kernels(self, bins: list[Bin]) -> list[Kernel]:
        """A kernel a bin; one for the tables of a product that does not fill the device with rows of one bin."""
        small = [b for b in bins if self.shapes[b.bound].slots]  # the shortest rows, which are last in order
        if len(small) < 2:
            return [self._symbolic_kernel(b) for b in bins]
        if sum([b.count * self.shapes[b.bound].team for b in small]) > MANY_THREADS * self.backend.resident_threads:
            return [self._symbolic_kernel(b) for b in bins]
        rows = joined(small)
        rows.last = SMALLEST_TABLES  # empty rows have nothing to make
        own = self._which_rows("tables", rows)
        together = Kernel(rows, "tables", (), 128, self._blocks_of_tables(rows), own)
        return [*(self._symbolic_kernel(b) for b in bins[: -len(small)]), together]

    def _symbolic_kernel(self, rows: Bin) -> Kernel:
        kind, team, sizes, threads, _ = self.shapes[rows.bound]
        template = (team, rows.group(min(team, WARP)), *sizes) if kind == "table" else (team, *sizes)
        return Kernel(rows, kind, template, threads, ceil_div(rows.count * team, threads), self._which_rows(kind, rows))

    def _blocks_of_tables(self, rows: Bin) -> int:
        """Of tables that share a launch, for the rows of all bins."""
        assert self.operands.words is not None and self.operands.words.census is not None
        census = self.operands.words.census
        return sum([ceil_div(census[number][0], TEAMS_OF_BINS[number]) for number in range(rows.first, rows.last + 1)])

    def _which_rows(self, kind: str, rows: Bin) -> tuple[Any, ...]:
        """The arguments that say which rows a kernel makes."""
        if kind == "table":
            return rows.count, rows.rows
        words = self.operands.words
        assert words is not None
        binned = Struct(None if self.on_host else words.control[BY_WORDS:], rows.first, rows.last)
        if kind == "tables":
            return binned, rows.order
        return self.operands.A.nrows, self.nwords, binned, rows.order

    def _symbolic_launch(self, operation: str, kernel: Kernel, *results: Any) -> Launch:
        A, B, words = self.operands.A, self.operands.B, self.operands.words
        assert words is not None
        function = self.backend.function(
            "spgemm/hash_symbolic", f"spgemm_hash_{kernel.kind}_{operation}", kernel.template
        )
        arguments = (*kernel.own, A.rowptr, A.colidx, B.rowptr, words.ends, words.words, *results)
        if kernel.kind == "bitmap":
            arguments = (*arguments, self._host_scratch(2 * self.nwords, np.dtype(np.uint32)))
        return Launch(function, (kernel.blocks, 1, 1), (kernel.threads, 1, 1), arguments)

    # Numeric phase

    def values(self, C: ResultRows, colidx: Any, a_values: Any, b_values: Any, c_values: Any) -> list[Launch]:
        A, B, backend = self.operands.A, self.operands.B, self.backend
        if not self.units:
            self.units = self._divide(C)
        scratch = self._host_scratch(B.ncols, backend.scalar)
        self.held = [a for a in (scratch, *self._ordered) if a is not None]
        operands = (Struct(A.rowptr, A.colidx, a_values), Struct(B.rowptr, B.colidx, b_values))
        arguments = (*operands, Struct(C.rowptr, colidx, c_values), scratch)
        launches = []
        for units in self.units:
            function = backend.function("spgemm/hash_values", units.kernel, units.template)
            launches.append(Launch(function, (units.blocks, 1, 1), (VALUES_THREADS, 1, 1), units.own + arguments))
        return launches

    def _divide(self, C: ResultRows) -> list[Units]:
        """The rows of C, and parts of long ones, for a launch each."""
        if self.on_host:
            return [Units("spgemm_hash_values", (), 1, (self.operands.A.nrows, None, None))]
        self._ordered = []
        threads = sum([rows * team for (rows, _, _), team in zip(C.census, TEAM_OF_BIN, strict=True)])
        together = threads <= MANY_THREADS * self.backend.resident_threads
        few = min(self._few_threads, threads * FEW_TOGETHER) if together else self._few_threads
        self.numeric = self._bins(C.census, LENGTH_BINS, TEAM_OF_BIN, 1, few)
        whole = [rows for rows in self.numeric if rows.bound]
        shared = bool(whole) and self._are_few_with_many_terms(joined(whole))
        if shared and (rows := joined(whole)).count == self.operands.A.nrows:
            return [self._units_shared(rows)]  # in any order: all run at once
        self._put_in_order(self.numeric, LENGTH_BINS, (None, C.rowptr, C.control))
        divided = [self._units(rows, C) for rows in self.numeric if not rows.bound]
        if not whole:
            return divided
        rows = joined(whole)
        if shared:
            return [*divided, self._units_shared(rows)]
        if together and len(whole) > 1:
            return [*divided, self._units_together(whole, rows)]
        return divided + [self._units(rows, C) for rows in whole]

    def _units(self, rows: Bin, C: ResultRows) -> Units:
        """The rows of one bin, or their parts."""
        capacity = rows.bound or LONGEST_UNSPLIT
        team = TEAMS[capacity]
        count, listed, parts = (rows.count, rows.rows, None) if rows.bound else self._parts(C)
        group = rows.group(team) if rows.bound else self._group_of_parts(rows, count, team)
        one_step = int(self.operands.longest_right <= group)
        template = (team, group, one_step, capacity, int(parts is not None))
        units_a_block = VALUES_THREADS // team if rows.bound else 1
        return Units("spgemm_hash_values", template, ceil_div(count, units_a_block), (count, listed, parts))

    def _are_few_with_many_terms(self, rows: Bin) -> bool:
        """Whether a warp for each row would leave the device idle, as on coarse levels of multigrid methods."""
        few = rows.count * VALUES_THREADS <= SHARED_THREADS * self.backend.resident_threads
        return few and rows.work >= SHARED_TERMS * rows.count

    def _units_shared(self, rows: Bin) -> Units:
        """A block for each row."""
        group = rows.group(WARP)
        template = (WARP, group, int(self.operands.longest_right <= group), LONGEST_UNSPLIT, 1)
        return Units("spgemm_hash_values", template, rows.count, (rows.count, rows.rows, None))

    def _units_together(self, bins: list[Bin], rows: Bin) -> Units:
        """`rows`, those of several bins."""
        wide = [b for b in bins if TEAMS[b.bound] == WARP]
        shared = bool(wide) and self._are_few_with_many_terms(joined(wide))
        counts, blocks = dict.fromkeys(TEAMS, 0), 0
        for b in bins:
            counts[b.bound] = b.count
            threads = VALUES_THREADS if shared and TEAMS[b.bound] == WARP else TEAMS[b.bound]
            blocks += ceil_div(b.count * threads, VALUES_THREADS)
        template = rows.group(WARP), int(shared)
        return Units("spgemm_hash_values_together", template, blocks, (*counts.values(), rows.rows))

    def _parts(self, C: ResultRows) -> tuple[int, Any, Any]:
        """(number of parts, row of each, number of each in its row): those of rows too long to be one unit."""
        backend, A, index = self.backend, self.operands.A, self.backend.index
        rows, parts = backend.empty((C.parts, index), (C.parts, index))
        given = (A.nrows, A.rowptr, C.rowptr, LONGEST_UNSPLIT, C.control, rows, parts)
        backend.carry_out(LIST_PARTS, (ceil_div(A.nrows, THREADS),), given)
        self._ordered += [rows, parts]
        return C.parts, rows, parts

    def _group_of_parts(self, rows: Bin, units: int, team: int) -> int:
        """Threads that share what a part of a row of C takes from a row of B."""
        parts_a_row = max(1.0, units / rows.count)
        return power_of_two(FULL_STEP * rows.work / max(1, rows.entries) / parts_a_row, 4, team)

    # Both phases

    def _bins(
        self,
        census: list[tuple[int, int, int]],
        bins: Bins,
        teams: tuple[int, ...],
        first_to_join: int,
        few: float,
    ) -> list[Bin]:
        """Rows for a launch each, or a part of one, the largest first; rows without work are in none, or with others.

        `census` has rows, work and entries for each of `bins`, `teams` the threads a row. Rows for `few` threads join
        those of the next larger bin, from bin `first_to_join` on.
        """
        begin = self.operands.A.nrows
        found: list[Bin] = []  # the smallest first
        last: Bin | None = None
        for number in range(len(census) - 1, -1, -1):
            count, work, entries = census[number]
            if not count:
                continue
            begin -= count
            if last is None or number < first_to_join or last.count * teams[number] > few:
                last = Bin(count, bins.bounds[number], work, entries, begin, None, number, number)
                found.append(last)
            else:
                last.count, last.work, last.entries = last.count + count, last.work + work, last.entries + entries
                last.bound, last.begin, last.first = bins.bounds[number], begin, number
        return [b for b in reversed(found) if b.bound != 0]

    def _put_in_order(self, found: list[Bin], bins: Bins, sizes: tuple[Any, Any, Any]) -> None:
        """Give what `_bins` has found the rows, sorted unless one bin has them all.

        `sizes`: their words, C's row pointer, one of them None, and the counters.
        """
        nrows = self.operands.A.nrows
        if len(found) == 1 and found[0].count == nrows:
            return
        if bins is LENGTH_BINS:
            (order,) = self.backend.empty((nrows, self.backend.index))
            self._ordered.append(order)
        else:
            assert self.operands.words is not None
            order = self.operands.words.order
        for b in found:
            b.order = order
        words, rowptr, control = sizes
        given = (nrows, words, rowptr, *bins.arguments, control, order)
        self.backend.carry_out(SORT_ROWS[bins is LENGTH_BINS], (ceil_div(nrows, THREADS),), given)

    @property
    def _few_threads(self) -> float:
        return self.backend.resident_threads * FEW_THREADS

    def _host_scratch(self, size: int, dtype: Any) -> Any:
        """Zeros for a host kernel; device kernels have shared memory instead."""
        if not self.on_host:
            return None
        return self.backend.empty((size, dtype), zeros=1)[0]

    def bytes_needed(self) -> int:
        A, B, index = self.operands.A, self.operands.B, self.backend.index.itemsize
        terms, scalar = self.operands.total_terms, self.backend.scalar.itemsize
        words = B.nnz * WORD.itemsize + B.nrows * index if self._makes_words else 0
        if self.on_host:
            return max(words + 8 * self.nwords, B.ncols * scalar)
        parts = min(A.nrows, terms // LONGEST_UNSPLIT) + terms // LONGEST_UNSPLIT
        return A.nrows * index + max(words, parts * 2 * index)

    @property
    def bytes_held(self) -> int:
        return sum([a.nbytes for a in self.held])

    def summary(self) -> str:
        """How many rows there are in each bin of the numeric phase, once that is planned."""
        lengths = ((b.count, f"to {b.bound}" if b.bound else f"above {LONGEST_UNSPLIT}") for b in self.numeric)
        bins = ", ".join(f"{count} {length}" for count, length in lengths)
        return f"{self.operands.A.nrows} rows by hashing" + (f" (entries a row: {bins})" if bins else "")


@compiled_ahead("spgemm/hash")
def rows_kernels() -> Iterator[list[Instance]]:
    """Rows put in order, and cut."""
    yield [("spgemm_hash_sort_rows", (0,)), ("spgemm_hash_sort_rows", (1,)), ("spgemm_hash_list_parts", ())]


@compiled_ahead("spgemm/hash_values")
def values_kernels() -> Iterator[list[Instance]]:
    """Rows of a bin or their parts, by the threads that share a row of B, in one step or several; and all together."""
    for bound, team in TEAMS.items():
        groups = product([group for group in teams(1) if group <= team], (0, 1))
        templates = [(team, group, step, bound or LONGEST_UNSPLIT, 0) for group, step in groups]
        yield from in_parts([("spgemm_hash_values", template) for template in templates], 4)
    templates = [(WARP, group, step, LONGEST_UNSPLIT, 1) for group, step in product(teams(1), (0, 1))]
    yield from in_parts([("spgemm_hash_values", template) for template in templates], 4)
    for template in product(teams(1), (0, 1)):
        yield [("spgemm_hash_values_together", template)]
