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

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from petsc_gpufmt.backend import Backend
from petsc_gpufmt.errors import UnsupportedError
from petsc_gpufmt.formats.csr_arrays import WARP, power_of_two
from petsc_gpufmt.plan import Launch
from petsc_gpufmt.spgemm.accumulator import Accumulator
from petsc_gpufmt.spgemm.census import LENGTH_BINS, WORD, WORD_BINS, Bins, Operands, ResultRows, count_words

THREADS = 256  # a block, of kernels that go over rows once
LARGEST_WORD = 2**32 - 2

# Symbolic phase: rows that are met by at most these numbers of words have tables of 4/3 as many slots
SMALLEST_TABLE, SMALL_TABLE, LARGE_TABLE, LARGEST_TABLE = 24, 96, 384, 1536
TABLES_TOGETHER = (512, 256, 128, 64, 32)  # slots
WARP_BITMAP, BLOCK_BITMAPS = 1024, (1024, 5120, 10240)  # words
BLOCK_TEAM, WARP_WORK = 256, 768  # rows that more words meet are worth a block

# Numeric phase: a team for each row of at most so many entries
LONGEST_UNSPLIT = LENGTH_BINS.largest
TEAMS = {500: 32, 250: 32, 125: 32, 63: 16, 32: 8, 16: 4}
VALUES_THREADS = 128
FULL_STEP = 0.9  # of the threads of a group have an entry of B, or it is halved

# Of the threads that a device runs at once: rows that would keep fewer of them busy share a launch with larger ones
FEW_THREADS = 1 / 2
# Of the same: a product of no more of them has its bins in one launch, since one launch after the other takes its time
MANY_THREADS = 8
# Of the same: where so few threads give each row a block, and rows have many terms, the warps of the block share them
SHARED_THREADS, SHARED_TERMS = 1, 1024
# Then rows join larger ones if they are fewer than these of all: that may save sorting them
FEW_TOGETHER = 1 / 8


@dataclass(frozen=True)
class Bin:
    """Rows of about one size.

    Attributes
    ----------
    rows : (count,) index array, or None for all rows
    count : number of rows
    bound : sizes are not above it; None if unlimited
    work, entries : sums over the rows of their work and of the lengths of A's rows
    """

    rows: Any
    count: int
    bound: int | None
    work: int
    entries: int

    def group(self, team: int) -> int:
        """Threads of a team that share a row of B: as many as it has entries."""
        return power_of_two(FULL_STEP * self.work / max(1, self.entries), 1, team)


def joined_bins(bins: list[Bin], ordered: Any, begin: int) -> Bin:
    """Neighbouring bins as one, whose rows are from `begin` on in the order of rows."""
    count, work, entries = (sum(sizes) for sizes in zip(*((b.count, b.work, b.entries) for b in bins), strict=True))
    return Bin(ordered[begin : begin + count], count, max(b.bound or 0 for b in bins), work, entries)


@dataclass(frozen=True)
class Kernel:
    """What makes the rows of a bin in the symbolic phase, or those of several bins in one launch.

    Attributes
    ----------
    kind : "table", "bitmap", or "tables" of several sizes
    counts : rows; for "tables", those for each of TABLES_TOGETHER
    """

    rows: Bin
    kind: str
    template: tuple[int, ...]
    threads: int
    blocks: int
    counts: tuple[int, ...]


@dataclass(frozen=True)
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
        self.nwords = -(-operands.B.ncols // 32)
        if self.nwords > LARGEST_WORD:
            raise UnsupportedError(
                f"-mat_rmerge_accumulator hash: the right factor has {operands.B.ncols} columns, hashing takes at most "
                f"{32 * LARGEST_WORD}: use -mat_rmerge_accumulator merge, or more ranks"
            )
        self.on_host = backend.name == "host"
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
        if self.on_host:
            bins = [Bin(None, A.nrows, None, 0, 0)]
        else:
            sort = (words.sizes, None, *WORD_BINS.arguments, words.control)
            bins = self._bins(
                words.census, WORD_BINS, lambda bound: self._kernel_for(bound)[1][0], sort, 0, self._few_threads
            )
        self.symbolic = self._together([self._symbolic_kernel(b) for b in bins])
        backend.run([self._symbolic_launch("lengths", kernel, words.sizes) for kernel in self.symbolic])
        return words.sizes

    def columns(self, rowptr: Any, colidx: Any) -> None:
        self.backend.run([self._symbolic_launch("columns", kernel, rowptr, colidx) for kernel in self.symbolic])
        self.symbolic, self.operands.words = [], None

    def _kernel_for(self, bound: int | None) -> tuple[str, tuple[int, ...]]:
        """(kind, its template arguments but for the group) for rows that at most `bound` words meet."""
        if bound is not None and bound <= self._largest_table:
            slots = power_of_two(bound * 4 / 3, 32, 2048)
            return "table", (min(max(slots // 8, 8), WARP), slots)
        if bound is not None and bound <= WARP_WORK and self.nwords <= WARP_BITMAP:
            return "bitmap", (WARP, WARP_BITMAP, 0)
        words = next((w for w in BLOCK_BITMAPS if self.nwords <= w), BLOCK_BITMAPS[-1])
        return "bitmap", (BLOCK_TEAM, words, int(self.nwords > words))

    def _symbolic_kernel(self, rows: Bin) -> Kernel:
        kind, (team, *sizes) = self._kernel_for(rows.bound)
        threads = max(team, 64 if kind == "table" and sizes[0] > 1024 else 128)
        template = (team, rows.group(min(team, WARP)), *sizes)
        return Kernel(rows, kind, template, threads, -(-rows.count * team // threads), (rows.count,))

    def _together(self, kernels: list[Kernel]) -> list[Kernel]:
        """The tables of a product that does not fill the device with rows of one bin, in one launch."""

        def is_small(kernel: Kernel) -> bool:
            return kernel.kind == "table" and kernel.template[-1] in TABLES_TOGETHER

        tables = {k.template[-1]: k for k in kernels if is_small(k)}
        threads = sum(k.rows.count * k.template[0] for k in tables.values())
        if len(tables) < 2 or threads > MANY_THREADS * self.backend.resident_threads:
            return kernels
        others = [k for k in kernels if not is_small(k)]  # of longer rows, which are first in order
        begin = sum(k.rows.count for k in others)
        counts = tuple(tables[slots].rows.count if slots in tables else 0 for slots in TABLES_TOGETHER)
        rows = joined_bins([k.rows for k in tables.values()], self._ordered[0], begin)
        blocks = sum(k.blocks for k in tables.values())
        return [*others, Kernel(rows, "tables", (rows.group(WARP),), 128, blocks, counts)]

    @property
    def _largest_table(self) -> int:
        """Bound of the rows that are given tables: finding the order in one costs its square, a bitmap its length."""
        if self.on_host:
            return 0
        if self.nwords <= WARP_BITMAP // 4:
            return SMALLEST_TABLE
        if self.nwords <= WARP_BITMAP:
            return SMALL_TABLE
        return LARGE_TABLE if self.nwords <= BLOCK_BITMAPS[-1] else LARGEST_TABLE

    def _symbolic_launch(self, operation: str, kernel: Kernel, *results: Any) -> Launch:
        rows, A, B, index = kernel.rows, self.operands.A, self.operands.B, self.backend.index.type
        words = self.operands.words
        function = self.backend.function(
            "spgemm_hash_symbolic", f"spgemm_hash_{kernel.kind}_{operation}", kernel.template
        )
        arguments: tuple = (rows.rows, A.rowptr, A.colidx, B.rowptr, words.ends, words.words, *results)
        if kernel.kind == "bitmap":
            arguments = (index(self.nwords), *arguments, self._host_scratch(2 * self.nwords, np.uint32))
        return Launch(function, (kernel.blocks, 1, 1), (kernel.threads, 1, 1), (*map(index, kernel.counts), *arguments))

    # Numeric phase

    def values(self, C: ResultRows, colidx: Any, a_values: Any, b_values: Any, c_values: Any) -> list[Launch]:
        A, B, backend = self.operands.A, self.operands.B, self.backend
        if not self.units:
            self.units = self._divide(C)
        scratch = self._host_scratch(B.ncols, backend.scalar)
        self.held = [a for a in (scratch, *self._ordered) if a is not None]
        arguments = (A.rowptr, A.colidx, a_values, B.rowptr, B.colidx, b_values, C.rowptr, colidx, c_values, scratch)
        launches = []
        for units in self.units:
            function = backend.function("spgemm_hash_values", units.kernel, units.template)
            launches.append(Launch(function, (units.blocks, 1, 1), (VALUES_THREADS, 1, 1), units.own + arguments))
        return launches

    def _divide(self, C: ResultRows) -> list[Units]:
        """The rows of C, and parts of long ones, for a launch each."""
        if self.on_host:
            return [Units("spgemm_hash_values", (), 1, (np.int64(self.operands.A.nrows), None, None))]
        sort = (None, C.rowptr, *LENGTH_BINS.arguments, C.control)
        self._ordered = []
        threads = sum(count * TEAMS.get(LENGTH_BINS.bound(i) or 0, 0) for i, (count, _, _) in enumerate(C.census))
        together = threads <= MANY_THREADS * self.backend.resident_threads
        few = min(self._few_threads, threads * FEW_TOGETHER) if together else self._few_threads
        self.numeric = self._bins(C.census, LENGTH_BINS, lambda bound: TEAMS[bound or LONGEST_UNSPLIT], sort, 1, few)
        divided = [self._units(rows, C) for rows in self.numeric if not rows.bound]
        whole = [rows for rows in self.numeric if rows.bound]
        if self._are_few_with_many_terms(whole):
            return [*divided, self._units_shared(whole)]
        if together and len(whole) > 1:
            return [*divided, self._units_together(whole)]
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
        own = (np.int64(count), listed, parts)
        return Units("spgemm_hash_values", template, -(-count // units_a_block), own)

    def _are_few_with_many_terms(self, bins: list[Bin]) -> bool:
        """Whether a warp for each row would leave the device idle, as on coarse levels of multigrid methods."""
        count = sum(b.count for b in bins)
        few = 0 < count * VALUES_THREADS <= SHARED_THREADS * self.backend.resident_threads
        return few and sum(b.work for b in bins) >= SHARED_TERMS * count

    def _units_shared(self, bins: list[Bin]) -> Units:
        """The rows of several bins, a block each."""
        rows = self._joined_whole(bins)
        group = rows.group(WARP)
        template = (WARP, group, int(self.operands.longest_right <= group), LONGEST_UNSPLIT, 1)
        return Units("spgemm_hash_values", template, rows.count, (np.int64(rows.count), rows.rows, None))

    def _joined_whole(self, bins: list[Bin]) -> Bin:
        """All bins of rows that are not divided, as one."""
        if len(bins) == 1:
            return bins[0]
        return joined_bins(bins, self._ordered[0], sum(b.count for b in self.numeric if not b.bound))

    def _units_together(self, bins: list[Bin]) -> Units:
        """The rows of several bins."""
        counts = {capacity: sum(b.count for b in bins if b.bound == capacity) for capacity in TEAMS}
        rows = self._joined_whole(bins)
        blocks = sum(-(-count * TEAMS[capacity] // VALUES_THREADS) for capacity, count in counts.items())
        own = (*map(np.int64, counts.values()), rows.rows)
        return Units("spgemm_hash_values_together", (rows.group(WARP),), blocks, own)

    def _parts(self, C: ResultRows) -> tuple[int, Any, Any]:
        """(number of parts, row of each, number of each in its row): those of rows too long to be one unit."""
        backend, A, index = self.backend, self.operands.A, self.backend.index
        rows, parts = backend.empty((C.parts, index), (C.parts, index))
        arguments = (index.type(A.nrows), A.rowptr, C.rowptr, np.int32(LONGEST_UNSPLIT), C.control, rows, parts)
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
        team_of: Callable[[int | None], int],
        sort: tuple,
        first_to_join: int,
        few: float,
    ) -> list[Bin]:
        """Rows for a launch each, or a part of one, the largest first; rows without work are in none, or with others.

        `census` has rows, work and entries for each of `bins`. Rows for `few` threads join those of the next larger
        bin, from bin `first_to_join` on. `sort` are the arguments of the kernel that sorts rows, which runs if there
        are several bins.
        """
        joined: list[tuple[int, int, int | None, int, int]] = []  # first row in order, then as in Bin
        begins = np.cumsum([0, *(rows for rows, _, _ in census)]).tolist()
        pending: tuple[int, int | None, int, int] | None = None  # count, bound, work, entries
        for number in range(bins.count + 1, -1, -1):
            count, work, entries = census[number]
            if not count:
                continue
            bound = bins.bound(number)
            if pending and (number < first_to_join or pending[0] * team_of(bound) > few):
                joined.append((begins[number + 1], *pending))
                pending = None
            if pending:
                count, work, entries = count + pending[0], work + pending[2], entries + pending[3]
            pending = count, bound, work, entries
        if pending:
            joined.append((begins[0], *pending))
        joined = [j for j in joined if j[2] != 0]
        nrows = self.operands.A.nrows
        if len(joined) == 1 and joined[0][1] == nrows:
            return [Bin(None, *joined[0][1:])]
        ordered = self.backend.xp.empty(nrows, dtype=self.backend.index)
        self._ordered.append(ordered)
        by_length = int(bins is LENGTH_BINS)
        arguments = (self.backend.index.type(nrows), *sort, ordered)
        self.backend.run([self._over_rows("spgemm_hash_sort_rows", (by_length,), arguments)])
        return [Bin(ordered[begin : begin + rest[0]], *rest) for begin, *rest in reversed(joined)]

    @property
    def _few_threads(self) -> float:
        return self.backend.resident_threads * FEW_THREADS

    def _over_rows(self, kernel: str, template: tuple[int, ...], arguments: tuple) -> Launch:
        """A launch of a thread a row."""
        function = self.backend.function("spgemm_hash", kernel, template)
        return Launch(function, (-(-self.operands.A.nrows // THREADS), 1, 1), (THREADS, 1, 1), arguments)

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
        return sum(int(a.nbytes) for a in self.held)

    def summary(self) -> str:
        """How many rows there are in each bin of the numeric phase, once that is planned."""
        lengths = ((b.count, f"to {b.bound}" if b.bound else f"above {LONGEST_UNSPLIT}") for b in self.numeric)
        bins = ", ".join(f"{count} {length}" for count, length in lengths)
        return f"{self.operands.A.nrows} rows by hashing" + (f" (entries a row: {bins})" if bins else "")
