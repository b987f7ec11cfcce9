"""Rows of C = A B by look-up in shared memory: hash tables and bitmaps for the pattern, sorted columns for values.

Symbolic phase. B's rows are taken as words of 32 columns, a bit for each column, which shortens them wherever columns
come in runs. The words that a row of C unites are held in a hash table, or, where that would be large, in a bitmap of
all columns, or of one range of them after the other. Rows are sorted into bins by how many words meet them at most.

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
from typing import Any, NamedTuple

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.kernel_modules import Instance, compiled_ahead
from petsc_gpufmt.backends.plan import WARP, Launch, Struct, ceil_div, launch_1d, power_of_two
from petsc_gpufmt.errors import UnsupportedError
from petsc_gpufmt.spgemm.accumulator import Accumulator
from petsc_gpufmt.spgemm.census import LENGTH_BINS, WORD, WORD_BINS, Bins, Operands, ResultRows, count_words, teams

THREADS = 256  # a block, of kernels that go over rows once
LARGEST_WORD = 2**32 - 2

# Symbolic phase: rows that are met by at most these numbers of words have tables of 4/3 as many slots
SMALLEST_TABLE, SMALL_TABLE, LARGE_TABLE, LARGEST_TABLE = 24, 96, 384, 1536
TABLES_TOGETHER = (512, 256, 128, 64, 32)  # slots
WARP_BITMAP, BLOCK_BITMAPS = 1024, (1024, 5120, 10240)  # words
BLOCK_TEAM, WARP_WORK = 256, 768  # rows that more words meet are worth a block

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
# Of the same: where so few threads give each row a block, and rows have many terms, the warps of the block share them
SHARED_THREADS, SHARED_TERMS = 1, 512
# Then rows join larger ones if they are fewer than these of all: that may save sorting them
FEW_TOGETHER = 1 / 8


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
    """

    count: int
    bound: int | None
    work: int
    entries: int
    begin: int = 0
    order: Any = None

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
    return Bin(count, bins[0].bound, work, entries, bins[0].begin, bins[0].order)


class Shape(NamedTuple):
    """How rows of a bin are made in the symbolic phase.

    Attributes
    ----------
    kind : "table" or "bitmap"
    team : threads a row
    sizes : template arguments after the group
    threads : a block
    slots : of a table that may share a launch with others, else 0
    """

    kind: str
    team: int
    sizes: tuple[int, ...]
    threads: int
    slots: int


def shape_for(bound: int | None, largest_table: int, nwords: int, in_ranges: int) -> Shape:
    """For rows that at most `bound` words meet; see SHAPES."""
    if bound is not None and bound <= largest_table:
        slots = power_of_two(bound * 4 / 3, 32, 2048)
        team, together = min(max(slots // 8, 8), WARP), slots if slots in TABLES_TOGETHER else 0
        return Shape("table", team, (slots,), 64 if slots > 1024 else 128, together)
    if bound is not None and bound <= WARP_WORK and nwords <= WARP_BITMAP:
        return Shape("bitmap", WARP, (WARP_BITMAP, 0), 128, 0)
    return Shape("bitmap", BLOCK_TEAM, (nwords, in_ranges), BLOCK_TEAM, 0)


# Words of a row of C, up to which SHAPES are the same
WORDS = (WARP_BITMAP // 4, *BLOCK_BITMAPS)
# Bound of a bin -> Shape, for each of WORDS and for more. Which rows are given tables: finding the order in one costs
# its square, a bitmap its length.
SHAPES = tuple(
    {bound: shape_for(bound, largest_table, nwords, in_ranges) for bound in WORD_BINS.bounds}
    for largest_table, nwords, in_ranges in (
        (SMALLEST_TABLE, BLOCK_BITMAPS[0], 0),
        (SMALL_TABLE, BLOCK_BITMAPS[0], 0),
        (LARGE_TABLE, BLOCK_BITMAPS[1], 0),
        (LARGE_TABLE, BLOCK_BITMAPS[2], 0),
        (LARGEST_TABLE, BLOCK_BITMAPS[2], 1),
    )
)


@dataclass(slots=True)
class Kernel:
    """What makes the rows of a bin in the symbolic phase, or those of several bins in one launch.

    Attributes
    ----------
    kind : "table", "bitmap", or "tables" of several sizes
    counts : rows; for "tables", those for each of TABLES_TOGETHER
    listed : rows of `rows`, on the backend
    """

    rows: Bin
    kind: str
    template: tuple[int, ...]
    threads: int
    blocks: int
    counts: tuple[int, ...]
    listed: Any


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
        self.on_host = backend.name == "host"
        self.shapes = SHAPES[bisect_left(WORDS, self.nwords)]
        self.symbolic: list[Kernel] = []
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
            bins = [Bin(A.nrows, None, 0, 0)]
        else:
            teams = tuple(shape.team for shape in self.shapes.values())
            sort = (words.sizes, None, *WORD_BINS.arguments, words.control)
            bins = self._bins(words.census, WORD_BINS, teams, sort, 0, self._few_threads)
        self.symbolic = self._symbolic_kernels(bins)
        backend.run([self._symbolic_launch("lengths", kernel, words.sizes) for kernel in self.symbolic])
        return words.sizes

    def columns(self, rowptr: Any, colidx: Any) -> None:
        self.backend.run([self._symbolic_launch("columns", kernel, rowptr, colidx) for kernel in self.symbolic])
        self.symbolic, self.operands.words = [], None

    def _symbolic_kernels(self, bins: list[Bin]) -> list[Kernel]:
        """A kernel a bin; one for the tables of a product that does not fill the device with rows of one bin."""
        small = [b for b in bins if self.shapes[b.bound].slots]  # the shortest rows, which are last in order
        if len(small) < 2:
            return [self._symbolic_kernel(b) for b in bins]
        counts, blocks, threads = dict.fromkeys(TABLES_TOGETHER, 0), 0, 0
        for b in small:
            shape = self.shapes[b.bound]
            counts[shape.slots] = b.count
            blocks += ceil_div(b.count * shape.team, shape.threads)
            threads += b.count * shape.team
        if threads > MANY_THREADS * self.backend.resident_threads:
            return [self._symbolic_kernel(b) for b in bins]
        rows = joined(small)
        together = Kernel(rows, "tables", (rows.group(WARP),), 128, blocks, tuple(counts.values()), rows.rows)
        return [*(self._symbolic_kernel(b) for b in bins[: -len(small)]), together]

    def _symbolic_kernel(self, rows: Bin) -> Kernel:
        kind, team, sizes, threads, _ = self.shapes[rows.bound]
        template = (team, rows.group(min(team, WARP)), *sizes)
        return Kernel(rows, kind, template, threads, ceil_div(rows.count * team, threads), (rows.count,), rows.rows)

    def _symbolic_launch(self, operation: str, kernel: Kernel, *results: Any) -> Launch:
        A, B, words = self.operands.A, self.operands.B, self.operands.words
        assert words is not None
        function = self.backend.function(
            "spgemm/hash_symbolic", f"spgemm_hash_{kernel.kind}_{operation}", kernel.template
        )
        arguments: tuple = (kernel.listed, A.rowptr, A.colidx, B.rowptr, words.ends, words.words, *results)
        if kernel.kind == "bitmap":
            arguments = (self.nwords, *arguments, self._host_scratch(2 * self.nwords, np.uint32))
        return Launch(function, (kernel.blocks, 1, 1), (kernel.threads, 1, 1), (*kernel.counts, *arguments))

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
        sort = (None, C.rowptr, *LENGTH_BINS.arguments, C.control)
        self._ordered = []
        threads = sum([rows * team for (rows, _, _), team in zip(C.census, TEAM_OF_BIN, strict=True)])
        together = threads <= MANY_THREADS * self.backend.resident_threads
        few = min(self._few_threads, threads * FEW_TOGETHER) if together else self._few_threads
        self.numeric = self._bins(C.census, LENGTH_BINS, TEAM_OF_BIN, sort, 1, few)
        divided = [self._units(rows, C) for rows in self.numeric if not rows.bound]
        whole = [rows for rows in self.numeric if rows.bound]
        if not whole:
            return divided
        rows = joined(whole)
        if self._are_few_with_many_terms(rows):
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
        arguments = (A.nrows, A.rowptr, C.rowptr, LONGEST_UNSPLIT, C.control, rows, parts)
        backend.run([self._over_rows("spgemm_hash_list_parts", (), arguments)])
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
        sort: tuple,
        first_to_join: int,
        few: float,
    ) -> list[Bin]:
        """Rows for a launch each, or a part of one, the largest first; rows without work are in none, or with others.

        `census` has rows, work and entries for each of `bins`, `teams` the threads a row. Rows for `few` threads join
        those of the next larger bin, from bin `first_to_join` on. `sort` are the arguments of the kernel that sorts
        rows, which runs if there are several bins.
        """
        nrows = begin = self.operands.A.nrows
        found: list[Bin] = []  # the smallest first
        last: Bin | None = None
        for number in range(len(census) - 1, -1, -1):
            count, work, entries = census[number]
            if not count:
                continue
            begin -= count
            if last is None or number < first_to_join or last.count * teams[number] > few:
                last = Bin(count, bins.bounds[number], work, entries, begin)
                found.append(last)
            else:
                last.count, last.work, last.entries = last.count + count, last.work + work, last.entries + entries
                last.bound, last.begin = bins.bounds[number], begin
        found = [b for b in reversed(found) if b.bound != 0]
        if len(found) > 1 or found[0].count < nrows:
            order = self.backend.xp.empty(nrows, dtype=self.backend.index)
            self._ordered.append(order)
            arguments = (nrows, *sort, order)
            self.backend.run([self._over_rows("spgemm_hash_sort_rows", (int(bins is LENGTH_BINS),), arguments)])
            for b in found:
                b.order = order
        return found

    @property
    def _few_threads(self) -> float:
        return self.backend.resident_threads * FEW_THREADS

    def _over_rows(self, kernel: str, template: tuple[int, ...], arguments: tuple) -> Launch:
        """A launch of a thread a row."""
        function = self.backend.function("spgemm/hash", kernel, template)
        return launch_1d(function, self.operands.A.nrows, THREADS, arguments)

    def _host_scratch(self, size: int, dtype: Any) -> Any:
        """Zeros for a host kernel; device kernels have shared memory instead."""
        return self.backend.xp.zeros(size, dtype=dtype) if self.on_host else None

    def bytes_needed(self) -> int:
        A, B, index = self.operands.A, self.operands.B, self.backend.index.itemsize
        terms, scalar = self.operands.total_terms, self.backend.scalar.itemsize
        words = B.nnz * WORD.itemsize + B.nrows * index if self.operands.words is None else 0
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


@compiled_ahead("spgemm/hash_symbolic")
def symbolic_kernels() -> Iterator[list[Instance]]:
    """Each shape of a bin, by the threads that share a row of B; and tables of all sizes together."""
    shapes = {(s.kind, s.team, s.sizes) for by_bound in SHAPES for bound, s in by_bound.items() if bound != 0}
    phases = ("lengths", "columns")
    for kind, team, sizes in sorted(shapes):
        for groups in in_pairs([group for group in teams(1) if group <= team]):
            yield [(f"spgemm_hash_{kind}_{phase}", (team, group, *sizes)) for phase, group in product(phases, groups)]
    for group in teams(1):
        yield [(f"spgemm_hash_tables_{phase}", (group,)) for phase in phases]


@compiled_ahead("spgemm/hash_values")
def values_kernels() -> Iterator[list[Instance]]:
    """Rows of a bin or their parts, by the threads that share a row of B, in one step or several; and all together."""
    for bound, team in TEAMS.items():
        groups = product([group for group in teams(1) if group <= team], (0, 1))
        yield [("spgemm_hash_values", (team, group, step, bound or LONGEST_UNSPLIT, 0)) for group, step in groups]
    parts = product(teams(1), (0, 1))
    yield [("spgemm_hash_values", (WARP, group, step, LONGEST_UNSPLIT, 1)) for group, step in parts]
    for group in teams(1):
        yield [("spgemm_hash_values_together", (group, shared)) for shared in (0, 1)]


def in_pairs(items: list[int]) -> list[list[int]]:
    """Neighbours two by two."""
    return [items[i : i + 2] for i in range(0, len(items), 2)]
