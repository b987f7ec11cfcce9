"""Rows of C = A B by look-up in shared memory: hash tables and bitmaps for the pattern, sorted columns for values.

Symbolic phase. B's rows are taken as words of 32 columns, a bit for each column, which shortens them wherever columns
come in runs. The words that a row of C unites are held in a hash table, or, where that would be large, in a bitmap of
all columns, or of one range of them after the other. Rows are sorted into bins by how many words meet them at most.

Numeric phase. The columns of a row of C are known and sorted: they and the sums of the row are held in shared memory,
and each product a_ik b_kj finds its sum by binary search. Rows are sorted into bins by length; longer ones than
`LONGEST_UNSPLIT` are cut into parts of that many entries, which neither share anything nor wait for each other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from petsc_gpufmt.backend import Backend
from petsc_gpufmt.errors import UnsupportedError
from petsc_gpufmt.formats.csr_arrays import WARP, power_of_two
from petsc_gpufmt.plan import Launch
from petsc_gpufmt.spgemm.accumulator import Accumulator, Operands

THREADS = 256  # a block, of kernels that go over rows once
WORD = np.dtype(np.uint64)  # 32 bits for columns below the number of the word
LARGEST_WORD = 2**32 - 2

# Symbolic phase: rows that are met by at most these numbers of words have tables of 4/3 as many slots
LARGEST_BOUND, BOUNDS = 6144, 9
SMALL_BOUND = 48
SMALLEST_TABLE, SMALL_TABLE, LARGE_TABLE, LARGEST_TABLE = 24, 96, 384, 1536
WARP_BITMAP, BLOCK_BITMAPS = 1024, (5120, 10240)  # words
BLOCK_TEAM = 256

# Numeric phase: a team for each row of at most so many entries
LONGEST_UNSPLIT = 500
TEAMS = {500: 32, 250: 32, 125: 32, 63: 16, 32: 8, 16: 4}
VALUES_THREADS = 128
FULL_STEP = 0.9  # of the threads of a group have an entry of B, or it is halved


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


class HashAccumulator(Accumulator):
    """Rows of C by look-up in shared memory; on the host, in scratch arrays as long as a row.

    Attributes
    ----------
    symbolic : (rows, kind of kernel, template arguments, (threads, rows) a block) of each launch; until `columns` ends
    numeric : list of Bin, rows of C by length, once `values` is called; empty on the host
    """

    name = "hash"

    def __init__(self, operands: Operands, rows: Any, backend: Backend, options: dict[str, int | str]):
        """UnsupportedError for a B of more columns than words can number."""
        self.operands, self.rows, self.backend = operands, rows, backend
        self.count = operands.A.nrows if rows is None else int(rows.size)
        self.nwords = -(-operands.B.ncols // 32)
        if self.nwords > LARGEST_WORD:
            raise UnsupportedError(
                f"-mat_rmerge_accumulator hash: the right factor has {operands.B.ncols} columns, hashing takes at most "
                f"{32 * LARGEST_WORD}: use -mat_rmerge_accumulator merge, or more ranks"
            )
        self.on_host = backend.name == "host"
        self.symbolic: list[tuple[Bin, str, tuple[int, ...], tuple[int, ...]]] = []
        self.words: tuple[Any, Any] | None = None
        self.held: list[Any] = []
        self.numeric: list[Bin] = []

    # Symbolic phase

    def lengths(self, out: Any) -> None:
        if not self.count:
            return
        if not self.operands.total_terms:
            out[slice(None) if self.rows is None else self.rows] = 0
            return
        self.words = self._divide_into_words()
        bins = self._symbolic_bins()
        for empty in (b for b in bins if b.bound == 0):
            out[slice(None) if empty.rows is None else empty.rows] = 0
        self.symbolic = [self._symbolic_kernel(b) for b in bins if b.bound != 0]
        self.backend.run([self._symbolic_launch("lengths", kernel, out) for kernel in self.symbolic])

    def columns(self, rowptr: Any, colidx: Any) -> None:
        self.backend.run([self._symbolic_launch("columns", kernel, rowptr, colidx) for kernel in self.symbolic])
        self.symbolic, self.words = [], None

    def _divide_into_words(self) -> tuple[Any, Any]:
        """(nnz of B,) words, those of row k from rowptr[k] on, and (nrows of B,) where they end."""
        B, backend = self.operands.B, self.backend
        words, word_end = backend.xp.empty(B.nnz, dtype=WORD), backend.xp.empty(B.nrows, dtype=backend.index)
        team = power_of_two(B.nnz / B.nrows, 2, WARP)
        arguments = (backend.index.type(B.nrows), B.rowptr, B.colidx, words, word_end)
        backend.run([self._over_rows("spgemm_hash_words", (team,), B.nrows, *arguments)])
        return words, word_end

    def _symbolic_bins(self) -> list[Bin]:
        """Rows by the number of words that meet them."""
        A, B, backend = self.operands.A, self.operands.B, self.backend
        if self.on_host:
            return [Bin(self.rows, self.count, None, 0, 0)]
        if self.rows is None and self.operands.most_terms <= SMALL_BOUND:
            return [self._all_rows(SMALL_BOUND if self.operands.most_terms > SMALLEST_TABLE else SMALLEST_TABLE)]
        work = backend.xp.empty(A.nrows, dtype=np.int64)
        team = power_of_two(A.nnz / A.nrows, 2, WARP)
        arguments = (backend.index.type(self.count), self.rows, A.rowptr, A.colidx, B.rowptr, self.words[1], work)
        backend.run([self._over_rows("spgemm_hash_count_words", (team,), self.count, *arguments)])
        return self._sort_into_bins(work, work, LARGEST_BOUND, BOUNDS)

    def _all_rows(self, bound: int) -> Bin:
        """All rows of C in one bin: where none has many terms, that is cheaper than to look at each."""
        return Bin(None, self.count, bound, self.operands.total_terms, self.operands.A.nnz)

    def _symbolic_kernel(self, rows: Bin) -> tuple[Bin, str, tuple[int, ...], tuple[int, ...]]:
        """(rows, kind, template arguments, (threads a block, rows a block))."""
        if not self.on_host and rows.bound is not None and rows.bound <= self._largest_table:
            slots = power_of_two(rows.bound * 4 / 3, 32, 2048)
            team, threads = min(max(slots // 8, 8), WARP), 64 if slots > 1024 else 128
            return rows, "table", (team, rows.group(team), slots), (threads, threads // team)
        if rows.bound is not None and self.nwords <= WARP_BITMAP:
            return rows, "bitmap", (WARP, rows.group(WARP), WARP_BITMAP, 0), (128, 4)
        words = next((w for w in BLOCK_BITMAPS if self.nwords <= w), BLOCK_BITMAPS[-1])
        template = (BLOCK_TEAM, rows.group(WARP), words, int(self.nwords > words))
        return rows, "bitmap", template, (BLOCK_TEAM, 1)

    @property
    def _largest_table(self) -> int:
        """Bound of the rows that are given tables: finding the order in one costs its square, a bitmap its length."""
        if self.nwords <= WARP_BITMAP // 4:
            return SMALLEST_TABLE
        if self.nwords <= WARP_BITMAP:
            return SMALL_TABLE
        return LARGE_TABLE if self.nwords <= BLOCK_BITMAPS[-1] else LARGEST_TABLE

    def _symbolic_launch(self, operation: str, kernel: tuple, *results: Any) -> Launch:
        rows, kind, template, (threads, rows_a_block) = kernel
        A, B, index = self.operands.A, self.operands.B, self.backend.index.type
        function = self.backend.function("spgemm_hash_symbolic", f"spgemm_hash_{kind}_{operation}", template)
        sizes = (index(rows.count),) if kind == "table" else (index(rows.count), index(self.nwords))
        arguments = (*sizes, rows.rows, A.rowptr, A.colidx, B.rowptr, self.words[1], self.words[0], *results)
        if kind == "bitmap":
            arguments = (*arguments, self._host_scratch(2 * self.nwords, np.uint32))
        return Launch(function, (-(-rows.count // rows_a_block), 1, 1), (threads, 1, 1), arguments)

    # Numeric phase

    def values(self, rowptr: Any, colidx: Any, a_values: Any, b_values: Any, c_values: Any) -> list[Launch]:
        if not self.count or not self.operands.total_terms:
            return []
        A, B, backend = self.operands.A, self.operands.B, self.backend
        common = (A.rowptr, A.colidx, a_values, B.rowptr, B.colidx, b_values, rowptr, colidx, c_values)
        scratch = self._host_scratch(B.ncols, backend.scalar)
        self.held = [a for a in (self.rows, scratch) if a is not None]

        def launch(units: int, rows: Any, parts: Any, template: tuple[int, ...], units_a_block: int) -> Launch:
            function = backend.function("spgemm_hash_values", "spgemm_hash_values", template)
            arguments = (np.int64(units), rows, parts, *common, scratch)
            return Launch(function, (-(-units // units_a_block), 1, 1), (VALUES_THREADS, 1, 1), arguments)

        if self.on_host:
            return [launch(self.count, self.rows, None, (), self.count)]
        shortest = min(TEAMS)
        if self.rows is None and self.operands.most_terms <= shortest:
            sizes, self.numeric = None, [self._all_rows(shortest)]
        else:
            sizes = backend.xp.subtract(rowptr[1:], rowptr[:-1], dtype=np.int64)
            bins = self._sort_into_bins(sizes, self.operands.terms, LONGEST_UNSPLIT, len(TEAMS))
            self.numeric = [b for b in bins if b.bound != 0]
            self.held += [b.rows for b in bins if b.rows is not self.rows]
        longest = self._longest_right_row()
        launches = []
        for rows in self.numeric:
            capacity = rows.bound or LONGEST_UNSPLIT
            team = TEAMS[capacity]
            units, unit_rows, parts = (rows.count, rows.rows, None) if rows.bound else self._split(rows, sizes)
            group = rows.group(team) if rows.bound else self._group_of_parts(rows, unit_rows, team)
            template = (team, group, int(longest <= group), capacity, int(parts is not None))
            launches.append(launch(units, unit_rows, parts, template, VALUES_THREADS // team))
        return launches

    def _longest_right_row(self) -> int:
        A, B = self.operands.A, self.operands.B
        if B.rowptr is A.rowptr:
            return self.operands.longest_row
        return int((B.rowptr[1:] - B.rowptr[:-1]).max())  # waits for the device

    def _split(self, rows: Bin, sizes: Any) -> tuple[int, Any, Any]:
        """(number of units, row of each unit, part of the row), rows with the longest rows of A first."""
        xp, A, index = self.backend.xp, self.operands.A, self.backend.index
        listed = xp.arange(rows.count, dtype=index) if rows.rows is None else rows.rows
        listed = listed[xp.argsort(A.rowptr[listed] - A.rowptr[listed + 1])]
        ends = xp.cumsum(-(-sizes[listed] // LONGEST_UNSPLIT))
        units = xp.arange(int(ends[-1]), dtype=np.int64)  # waits for the device
        place = xp.searchsorted(ends, units, side="right")
        first = xp.concatenate([xp.zeros(1, dtype=np.int64), ends[:-1]])
        unit_rows, parts = listed[place], (units - first[place]).astype(index)
        self.held += [unit_rows, parts]
        return int(units.size), unit_rows, parts

    def _group_of_parts(self, rows: Bin, unit_rows: Any, team: int) -> int:
        """Threads that share what a part of a row of C takes from a row of B."""
        parts_a_row = max(1.0, int(unit_rows.size) / rows.count)
        return power_of_two(FULL_STEP * rows.work / max(1, rows.entries) / parts_a_row, 4, team)

    # Both phases

    def _sort_into_bins(self, sizes: Any, work: Any, largest: int, bounds: int) -> list[Bin]:
        """Rows by `sizes` (nrows,) int64, the largest first; `bounds` bounds: largest / 2^b, rounded up, and 0."""
        xp, backend, A = self.backend.xp, self.backend, self.operands.A
        nbins = bounds + 2
        census = xp.zeros((nbins, 3), dtype=np.uint64)
        scalars = (np.int32(largest), np.int32(nbins))
        listed = (backend.index.type(self.count), self.rows, sizes)
        count = self._over_rows("spgemm_hash_count_bins", (), self.count, *listed, work, A.rowptr, *scalars, census)
        full = max(1, backend.resident_threads // THREADS)  # more blocks would only queue at the census
        backend.run([replace(count, grid=(min(count.grid[0], full), 1, 1))])
        counts = backend.to_host(census).tolist()  # waits for the device
        nonempty = [b for b in range(nbins) if counts[b][0]]
        if len(nonempty) == 1:
            ordered = self.rows
        else:
            ordered, cursors = xp.empty(self.count, dtype=backend.index), xp.zeros(nbins, dtype=np.uint64)
            backend.run(
                [self._over_rows("spgemm_hash_sort_rows", (), self.count, *listed, *scalars, census, cursors, ordered)]
            )
        bins, begin = [], 0
        for b in nonempty:
            count_b, work_b, entries_b = counts[b]
            rows = ordered if len(nonempty) == 1 else ordered[begin : begin + count_b]
            bound = None if b == 0 else 0 if b == nbins - 1 else -(-largest // 2 ** (b - 1))
            bins.append(Bin(rows, count_b, bound, work_b, entries_b))
            begin += count_b
        return bins

    def _over_rows(self, kernel: str, template: tuple[int, ...], rows: int, *arguments: Any) -> Launch:
        function = self.backend.function("spgemm_hash", kernel, template)
        team = template[0] if template else 1
        return Launch(function, (-(-rows * team // THREADS), 1, 1), (THREADS, 1, 1), arguments)

    def _host_scratch(self, size: int, dtype: Any) -> Any:
        """Zeros for a host kernel; device kernels have shared memory instead."""
        return self.backend.xp.zeros(size, dtype=dtype) if self.on_host else None

    def bytes_needed(self) -> int:
        A, B, index = self.operands.A, self.operands.B, self.backend.index.itemsize
        terms, scalar = self.operands.total_terms, self.backend.scalar.itemsize
        words = B.nnz * WORD.itemsize + B.nrows * index
        if self.on_host:
            return max(words + 8 * self.nwords, B.ncols * scalar)
        sizes_and_order = A.nrows * 8 + self.count * index
        split_rows = min(self.count, terms // LONGEST_UNSPLIT)
        parts = split_rows + terms // LONGEST_UNSPLIT
        return sizes_and_order + max(words, split_rows * 4 * 8 + parts * (2 * index + 3 * 8))

    @property
    def bytes_held(self) -> int:
        return sum(int(a.nbytes) for a in self.held)

    def summary(self) -> str:
        """How many rows there are in each bin of the numeric phase, once that is planned."""
        lengths = ((b.count, f"to {b.bound}" if b.bound else f"above {LONGEST_UNSPLIT}") for b in self.numeric)
        bins = ", ".join(f"{count} {length}" for count, length in lengths)
        return f"{self.count} rows by hashing" + (f" (entries a row: {bins})" if bins else "")
