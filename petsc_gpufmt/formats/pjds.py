"""pJDS, padded jagged diagonals storage (Kreutzer et al. 2012, section II-A), generalised by a sort window.

Rows are sorted by decreasing length within windows of ``sigma_window`` rows, cut into slices of ``slice_height`` rows
(the paper's b_r), and every slice is padded to its longest row and stored column by column. ``sigma_window = n`` is
the paper's format; ``sigma_window = 1`` keeps the order of rows. The kernels write to the rows' own places, so results
are never permuted. Columns are stored in the fewest bytes: as row patterns, in 16 bits, or in full.

In the literature on SELL-C-sigma a slice is called a chunk.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.kernel_modules import Instance, compiled_ahead
from petsc_gpufmt.backends.plan import WARP, Fused, Launch, Slot, Struct, ceil_div
from petsc_gpufmt.errors import OptionError
from petsc_gpufmt.formats.common import columns
from petsc_gpufmt.formats.common.base import Format, Stats
from petsc_gpufmt.formats.common.columns import StoredColumns
from petsc_gpufmt.formats.common.fused import fused_argument, is_added, leaves_a_sum
from petsc_gpufmt.formats.common.known import NOTHING, Known
from petsc_gpufmt.formats.common.row_patterns import NoRowPatternsError, RowPatterns, Search, may_be_few
from petsc_gpufmt.formats.common.sliced_rows import Slices, cut
from petsc_gpufmt.option_value import AUTO
from petsc_gpufmt.patterns.csr import SLICE_HEIGHT, CsrPattern, RowCounts

SLICE_HEIGHTS = (8, 16, 32, 64, 128)
THREADS_PER_ROW = (1, 2, 4, 8, 16, 32)
BLOCK_THREADS = (64, 128, 256, 512)
AUTOMATIC, ALL_ROWS = 0, -1
PATTERN = "pattern"
"""Choice of columns that are in a dictionary of row patterns, after those of columns.py."""

INDEX_PATTERN = 3
"""Index mode of the kernels for row patterns, after those of columns.py."""

NO_COLUMNS, NO_PATTERNS = (None, None, None, None), (None, None, 0)
"""Members of StoredColumns and RowPatterns where the columns are in the other."""

# Automatic window: the smallest of these whose padding is acceptable. A small window keeps neighbouring rows together,
# which keeps their accesses to x in cache; padding costs its bytes.
AUTOMATIC_WINDOWS = (1, 1024, 16384, ALL_ROWS)
ACCEPTABLE_FILL_RATIO = 0.03
THREADS_PER_PADDING = 8  # and padding that costs the threads of a device, for each so many, one entry
DEFAULT_BLOCK_THREADS = 128
MOST_BLOCK_THREADS = BLOCK_THREADS[-1]  # larger blocks leave a part of the registers to nobody
# Entries that a thread loads before it uses the first, where it has at most so many on average, and where it has more.
SMALL_BATCH, LARGE_BATCH = 4, 7
# Mean width of slices up to which a thread has the row of a diagonal entry.
LONG_DIAGONAL_ROW = 32
# Where at most one row in so many has entries, as in blocks of columns of other ranks, all rows are sorted: those with
# entries come first, and what is added to a vector is launched over them alone.
MOSTLY_EMPTY = 4
# Columns of fewer entries come from the second-level cache in less time than it takes to launch a kernel.
FEW_ENTRIES = 1 << 17
# A device does not look for patterns in fewer rows if these need sorting: they are seldom alike, and it would wait.
MANY_ROWS = 200_000


class Pjds(Format):
    """One matrix in pJDS.

    Attributes
    ----------
    slice_offsets : (nslices + 1,) int64; slice s occupies entries slice_offsets[s] to slice_offsets[s + 1]
    columns : StoredColumns of all stored entries, or RowPatterns in the sorted order
    val : (nstored,) scalar; 0 for padding
    row_perm : (nrows,) index or None; row_perm[sorted position] = row, None if rows keep their order
    filled : sorted positions after which all rows are known to be empty
    rowptr, source : of the CSR pattern, kept for REFRESH
    """

    name = "pjds"
    default_options = {
        "slice_height": AUTOMATIC,
        "sigma_window": AUTOMATIC,
        "index": AUTO,
        "threads_per_row": AUTOMATIC,
        "block_threads": AUTOMATIC,
    }
    words = {"index": (*columns.CHOICES, PATTERN)}

    def __init__(
        self,
        csr: CsrPattern,
        backend: Backend,
        options: dict[str, Any],
        counts: RowCounts,
        slices: Slices,
        sought: Search | RowPatterns | None,
    ):
        self.backend = backend
        self.nrows, self.ncols, self.nnz = csr.nrows, csr.ncols, csr.nnz
        self.rowptr, self.source = csr.rowptr, csr.source
        self.slice_height, self.sigma_window = slices.height, slices.window
        self.row_perm, self.slice_offsets = slices.row_perm, slices.offsets
        self.nstored = slices.nstored
        self.longest, self.nonempty_rows = counts.longest, counts.nonempty_rows
        in_order = slices.window >= csr.nrows or not counts.nonempty_rows
        self.filled = counts.nonempty_rows if in_order else csr.nrows
        self.mean_width = self.nstored / max(1, ceil_div(self.filled, self.slice_height) * self.slice_height)
        self.block_threads = options["block_threads"] or DEFAULT_BLOCK_THREADS
        self.threads_per_row = options["threads_per_row"] or self._enough_threads_per_row()
        self.columns, self.val = self._store_columns(csr, options["index"], sought)

    @classmethod
    def build(cls, csr: CsrPattern, backend: Backend, options: dict[str, Any]) -> Pjds:
        """Sort, cut and pad. Raises OptionError for a value that is not offered, or a dictionary that is not there."""
        return cls.build_knowing(csr, backend, options, NOTHING)

    @classmethod
    def build_knowing(cls, csr: CsrPattern, backend: Backend, options: dict[str, Any], known: Known) -> Pjds:
        options = cls.with_measured(options, csr, backend)
        height = options["slice_height"] or backend.simd_width
        check_options(options, height)
        csr, counts = csr.counted(backend)
        window = options["sigma_window"]
        if window == AUTOMATIC and is_mostly_empty(csr.nrows, counts.nonempty_rows):
            window = ALL_ROWS
        if keeps_order(csr, counts, height, window, backend):  # the device looks for patterns meanwhile
            sought = seek_patterns(csr, None, options, known, backend)
            slices = cut_automatically(csr, height, window, backend)
        else:
            slices = cut_automatically(csr, height, window, backend)
            sought = seek_patterns(csr, slices.row_perm, options, known, backend)
        return cls(csr, backend, options, counts, slices, sought)

    @classmethod
    def tuning_key(cls, csr: CsrPattern) -> str:
        """How many rows, and their mean length rounded up to a power of two."""
        rows = "few" if csr.nrows <= 1 << 15 else "some" if csr.nrows <= 1 << 18 else "many"
        mean = ceil_div(csr.nnz, max(1, csr.nrows))
        return f"rows={rows},width={1 << max(0, mean - 1).bit_length()}"

    @classmethod
    def tuning_space(cls, csr: CsrPattern) -> list[dict[str, int | str]]:
        mean = ceil_div(csr.nnz, max(1, csr.nrows))
        return [
            {"slice_height": height, "threads_per_row": threads, "block_threads": block}
            for height, threads, block in product((16, 32, 64), THREADS_PER_ROW, (64, 128, 256))
            if threads <= mean and height * threads <= block
        ]

    def _store_columns(
        self, csr: CsrPattern, choice: str, sought: Search | RowPatterns | None
    ) -> tuple[StoredColumns | RowPatterns, Any]:
        """The columns as asked for, if nothing is in the fewest bytes; and the array of values, not filled."""
        index, values = (self.nstored, self.backend.index), (self.nstored, self.backend.scalar)
        otherwise = choice
        if not self.nrows or (choice == AUTO and (self.backend.name == "host" or self.nnz < FEW_ENTRIES)):
            otherwise = columns.FULL_ONLY  # a core is not faster for reading 16-bit columns
        if sought or otherwise != columns.FULL_ONLY:
            (val,) = self.backend.empty(values)
            patterns = found_patterns(sought, choice)
            if patterns and (choice == PATTERN or patterns.nbytes < 2 * self.nstored):
                return patterns, val
            (col,) = self.backend.empty(index)  # full columns may go
        else:
            col, val = self.backend.empty(index, values)
        self.backend.run(self._fill("pjds_fill_columns", csr.colidx, col, source=None))
        where = (self.slice_offsets, self.slice_height, self.backend)
        return StoredColumns.compress(col, *where, otherwise, self.ncols), val

    def mult(self, alpha: float, beta: float) -> list[Launch]:
        factors = (self.backend.by_value(alpha), self.backend.by_value(beta))
        return self._multiply(self.nrows, "pjds_spmv", self._how, Slot.X, *factors, Slot.Y if beta else None, Slot.Z)

    def add(self) -> list[Launch]:
        one = self.backend.by_value(1)
        return self._multiply(self.filled, "pjds_spmv", self._how, Slot.X, one, one, Slot.Z, Slot.Z)

    def fused(self, operation: Fused) -> list[Launch] | None:
        nrows = self.filled if is_added(operation) else self.nrows
        if not nrows and not leaves_a_sum(operation):
            return []
        how = (LARGE_BATCH, self.threads_per_row, self.block_threads)  # the bits are those of the other batch
        nblocks, _ = self._shape(nrows, *how[1:])
        fused, after = fused_argument(operation, nblocks, self.backend)
        return [self._product(nrows, "pjds_fused", how, Slot.X, fused), *after]

    def diagonal(self) -> list[Launch]:
        # is asked for once a set-up: the levels of a multigrid method share few kernels, which need loading
        threads_per_row = 1 if self.mean_width <= LONG_DIAGONAL_ROW else 4
        how = (SMALL_BATCH, threads_per_row, DEFAULT_BLOCK_THREADS)
        return self._multiply(self.nrows, "pjds_diagonal", how, Slot.Z)

    def refresh(self) -> list[Launch]:
        return self._fill("pjds_fill_values", Slot.VALUES, self.val, source=self.source)

    @property
    def _how(self) -> tuple[int, int, int]:
        """Entries that a thread of a product loads before it uses the first, threads a row, and threads a block."""
        batch = SMALL_BATCH if self.mean_width <= SMALL_BATCH * self.threads_per_row else LARGE_BATCH
        return batch, self.threads_per_row, self.block_threads

    def _multiply(self, nrows: int, kernel: str, how: tuple[int, int, int], *vectors: Any) -> list[Launch]:
        """The launch of a kernel that reads the first `nrows` rows of the sorted order; none without rows."""
        return [self._product(nrows, kernel, how, *vectors)] if nrows else []

    def _product(self, nrows: int, kernel: str, how: tuple[int, int, int], *vectors: Any) -> Launch:
        """The same, also without rows."""
        index_mode, members = self._matrix
        batch, *threads = how
        return self._launch(nrows, kernel, (index_mode, batch), *threads, Struct(nrows, *members), *vectors)

    @functools.cached_property
    def _matrix(self) -> tuple[int, tuple[Any, ...]]:
        """The index mode, and the members of the struct Pjds of the kernels after the number of rows."""
        if isinstance(self.columns, RowPatterns):
            index_mode, stored, patterns = INDEX_PATTERN, NO_COLUMNS, self.columns.members
        else:
            index_mode, stored, patterns = self.columns.mode, self.columns.members, NO_PATTERNS
        return index_mode, (self.slice_offsets, *stored, *patterns, self.val, self.row_perm)

    def _enough_threads_per_row(self) -> int:
        """More than one where rows are too few to fill the device, and long enough for four entries a thread."""
        threads = 1
        while (
            2 * threads * self.filled <= self.backend.resident_threads
            and self.mean_width >= 8 * threads
            and 2 * threads <= min(THREADS_PER_ROW[-1], MOST_BLOCK_THREADS // self.slice_height)
        ):
            threads *= 2
        return threads

    def _fill(self, kernel: str, entries: Any, stored: Any, source: Any) -> list[Launch]:
        """The launch that copies CSR `entries` into `stored`, padding the rest."""
        if not self.nstored:
            return []
        # on an H200, more threads thrash the first-level cache; from 16 entries a row on, blocks turn tiles
        threads_per_row = next((threads for most, threads in ((5, 1), (16, 2)) if self.mean_width < most), 4)
        block_threads = DEFAULT_BLOCK_THREADS if threads_per_row < 4 else 4 * self.slice_height
        rows = (self.filled, self.slice_offsets, self.rowptr, self.row_perm)
        arguments = (*rows, source, entries, stored)
        return [self._launch(self.filled, kernel, (), threads_per_row, block_threads, *arguments)]

    def _launch(
        self,
        nrows: int,
        kernel: str,
        template: tuple[int, ...],
        threads_per_row: int,
        block_threads: int,
        *arguments: Any,
    ) -> Launch:
        """A launch with one thread, or several, for each of the first rows of the sorted order."""
        nblocks, block = self._shape(nrows, threads_per_row, block_threads)
        function = self.backend.function("formats/pjds", kernel, (*template, *block))
        return Launch(function, (nblocks, 1, 1), block, arguments)

    def _shape(self, nrows: int, threads_per_row: int, block_threads: int) -> tuple[int, tuple[int, int, int]]:
        """Blocks of such a launch, at least one, and their threads."""
        slices_per_block = max(1, block_threads // (self.slice_height * threads_per_row))
        nblocks = max(1, ceil_div(nrows, self.slice_height * slices_per_block))
        return nblocks, (self.slice_height, threads_per_row, slices_per_block)

    def stats(self) -> Stats:
        index, scalar = self.backend.index.itemsize, self.backend.scalar.itemsize
        kept = sum(int(a.nbytes) for a in (self.rowptr, self.source) if a is not None)
        per_row = 8 / self.slice_height + (index if self.row_perm is not None else 0) + scalar
        moved = self.nstored * scalar + self.columns.bytes_per_mult + self.nrows * per_row + self.ncols * scalar
        return Stats(
            nnz=self.nnz,
            nstored=self.nstored,
            fill_ratio=1 - self.nnz / self.nstored if self.nstored else 0.0,
            bytes_held=self._matrix_bytes() + kept,
            bytes_per_mult=round(moved),
            nonempty_rows=self.nonempty_rows,
        )

    def _matrix_bytes(self) -> int:
        """Bytes of what a product reads, but for x."""
        row_perm = 0 if self.row_perm is None else int(self.row_perm.nbytes)
        return int(self.val.nbytes) + self.columns.nbytes + int(self.slice_offsets.nbytes) + row_perm

    def summary(self) -> str:
        return f"slice height {self.slice_height}, sigma window {self.sigma_window}, {self.columns.summary()}"

    def detail(self) -> str:
        index, scalar = self.backend.index.itemsize, self.backend.scalar.itemsize
        padding = 1 - self.nnz / self.nstored if self.nstored else 0.0
        csr = self.nnz * (index + scalar) + (self.nrows + 1) * index
        ellpack = self.nrows * self.longest * (index + scalar)
        ours, added = self._matrix_bytes(), f", the first {self.filled} rows to add" if self.filled < self.nrows else ""
        return "\n".join(
            (
                f"rows: {self.nrows}, longest {self.longest}, mean {self.nnz / max(1, self.nrows):.2f}",
                f"stored entries: {self.nstored} for {self.nnz} nonzeros, fill ratio {padding:.4f}",
                f"columns: {self.columns.summary()}, {self.columns.nbytes} bytes",
                f"memory: {ours} bytes, {ratio(ours, csr)} times the {csr} of CSR, "
                f"{ratio(ours, ellpack)} times the {ellpack} of ELLPACK",
                f"launch: {self.threads_per_row} threads a row, {self.block_threads} a block{added}",
            )
        )

    def reference(self, x: np.ndarray, y: np.ndarray | None = None) -> np.ndarray:
        to_host = self.backend.to_host
        offsets, col, val = to_host(self.slice_offsets), self.columns.decode(), to_host(self.val)
        perm = np.arange(self.nrows) if self.row_perm is None else to_host(self.row_perm)
        z = np.zeros(self.nrows, dtype=val.dtype)
        for position, row in enumerate(perm):
            s, lane = divmod(position, self.slice_height)
            entries = np.arange(offsets[s] + lane, offsets[s + 1], self.slice_height)
            column = col[position, : entries.size] if col.ndim == 2 else col[entries]
            z[row] = val[entries[column >= 0]] @ x[column[column >= 0]]
        return z if y is None else y + z


@compiled_ahead("formats/pjds")
def default_kernels() -> Iterator[list[Instance]]:
    """For slices as high as a warp: what stores a matrix, and products by the threads of a row, with all columns."""
    fill = [(WARP, threads, DEFAULT_BLOCK_THREADS // (WARP * threads)) for threads in (1, 2, 4)]
    yield list(product(("pjds_fill_columns", "pjds_fill_values"), fill))
    modes = (columns.FULL, columns.SHORT, columns.MIXED, INDEX_PATTERN)
    yield [("pjds_diagonal", (mode, SMALL_BATCH, WARP, *shape)) for mode, shape in product(modes, ((1, 4), (4, 1)))]
    for threads in THREADS_PER_ROW:
        if threads * WARP <= MOST_BLOCK_THREADS:
            block = (WARP, threads, max(1, DEFAULT_BLOCK_THREADS // (WARP * threads)))
            templates = [(mode, batch, *block) for mode, batch in product(modes, (SMALL_BATCH, LARGE_BATCH))]
            yield [("pjds_spmv", template) for template in templates]
            yield [("pjds_fused", (mode, LARGE_BATCH, *block)) for mode in modes]


def ratio(a: int, b: int) -> str:
    return f"{a / b:.4f}" if b else "infinitely many"


def check_options(options: dict[str, Any], height: int) -> None:
    """Raise OptionError for a value that is not offered; `height` is the slice height that will be used."""
    offered = {
        "slice_height": SLICE_HEIGHTS,
        "threads_per_row": THREADS_PER_ROW,
        "block_threads": BLOCK_THREADS,
    }
    for name, values in offered.items():
        if options[name] != AUTOMATIC and options[name] not in values:
            choices = ", ".join(map(str, values))
            raise OptionError(f"-mat_pjds_{name} {options[name]}: choose one of {choices}, or 0 for automatic")
    if options["sigma_window"] < ALL_ROWS:
        raise OptionError(
            f"-mat_pjds_sigma_window {options['sigma_window']}: "
            "choose a number of rows, 1 for no sorting, -1 for all rows, or 0 for automatic"
        )
    if options["threads_per_row"] * height > MOST_BLOCK_THREADS:
        raise OptionError(
            f"-mat_pjds_threads_per_row {options['threads_per_row']} needs {options['threads_per_row'] * height} "
            f"threads for a slice of {height} rows, and a block has at most {MOST_BLOCK_THREADS}: "
            f"choose at most {MOST_BLOCK_THREADS // height}, or a smaller -mat_pjds_slice_height"
        )


def seek_patterns(
    csr: CsrPattern, row_perm: Any, options: dict[str, Any], known: Known, backend: Backend
) -> Search | RowPatterns | None:
    """The row patterns, or what looks for them, where that may pay; OptionError if they are asked for in vain."""
    choice = options["index"]
    if choice not in (AUTO, PATTERN) or not csr.nrows:  # as of a rank that has none: there is nothing to do without
        return None
    csr, counts = csr.counted(backend)
    if choice == AUTO:
        sorted_at_need = row_perm is not None and options["sigma_window"] == AUTOMATIC
        seldom = sorted_at_need and csr.nrows <= MANY_ROWS and backend.name != "host"
        if csr.nnz < FEW_ENTRIES or seldom or not may_be_few(csr):
            return None
        if known.sought_patterns and (row_perm is None or not known.patterns):
            return known.patterns
    try:
        return Search.begin(csr, counts.longest, row_perm, backend)
    except NoRowPatternsError as e:
        refuse_to_do_without(choice, e)
        return None


def found_patterns(sought: Search | RowPatterns | None, choice: str) -> RowPatterns | None:
    """What was sought, if it is there; waits for the device. OptionError if it is asked for in vain."""
    if not isinstance(sought, Search):
        return sought
    try:
        return sought.found()
    except NoRowPatternsError as e:
        refuse_to_do_without(choice, e)
        return None


def refuse_to_do_without(choice: str, reason: NoRowPatternsError) -> None:
    if choice == PATTERN:
        raise OptionError(
            f"-mat_pjds_index {PATTERN} stores row patterns, but the matrix has {reason}: "
            f"choose {', '.join(columns.CHOICES)}"
        ) from reason


def is_mostly_empty(nrows: int, nonempty_rows: int) -> bool:
    """Whether what is added to a vector is launched over rows with entries alone."""
    return 0 < MOSTLY_EMPTY * nonempty_rows <= nrows


def is_acceptable(nstored: int, nnz: int, backend: Backend) -> bool:
    """Whether so many stored entries have little padding, or so little that it does not matter."""
    return nstored - nnz <= max(ACCEPTABLE_FILL_RATIO * nstored, backend.resident_threads // THREADS_PER_PADDING)


def keeps_order(csr: CsrPattern, counts: RowCounts, height: int, sigma: int, backend: Backend) -> bool:
    """Whether it is known without a look that rows will keep their order."""
    if sigma != AUTOMATIC:
        return sigma == 1
    return height == SLICE_HEIGHT and is_acceptable(counts.sliced_entries, csr.nnz, backend)


def cut_automatically(csr: CsrPattern, height: int, sigma: int, backend: Backend) -> Slices:
    """The slices for `sigma_window` = sigma; for 0, those of the smallest automatic window with acceptable padding."""

    def cut_within(rows: int) -> Slices:
        return cut(csr, max(1, csr.nrows if rows == ALL_ROWS else min(rows, csr.nrows)), height, backend)

    if sigma != AUTOMATIC:
        return cut_within(sigma)
    counted = csr.counted(backend)[1].sliced_entries if height == SLICE_HEIGHT else 0  # of rows in their order
    known = counted > 0 and csr.nrows > 1 and not is_acceptable(counted, csr.nnz, backend)
    best = None
    for candidate in AUTOMATIC_WINDOWS[known:]:
        slices = cut_within(candidate)
        if best is None or slices.nstored < best.nstored:
            best = slices
        if is_acceptable(slices.nstored, csr.nnz, backend) or slices.window >= csr.nrows:
            break
    assert best is not None
    return cut_within(1) if known and counted <= best.nstored else best
