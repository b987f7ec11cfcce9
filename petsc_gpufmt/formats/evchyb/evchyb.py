"""EVC-HYB: ELLPACK for short rows, vectorised CSR for long ones.

Dahai Guo, William Gropp, Luke N. Olson, *A hybrid format for better performance of sparse matrix-vector multiplication
on a GPU*, 2016, section 2.

Rows are sorted by length. Those of at most ``split_length`` entries are cut into slices of a
warp's width, each padded to its longest row and stored column by column (the ELL part); the others, and the few short
rows that do not fill a slice, are padded to whole warps and stored one after another (the vCSR part). One launch
multiplies both, with more threads for longer rows in each part.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.kernel_modules import Instance, compiled_ahead
from petsc_gpufmt.backends.plan import WARP, Launch, Slot, Struct, ceil_div
from petsc_gpufmt.errors import OptionError
from petsc_gpufmt.formats.common.base import Format, Stats
from petsc_gpufmt.formats.common.columns import CHOICES, FULL, FULL_ONLY, MIXED, SHORT, SHORT_WHERE_IT_FITS
from petsc_gpufmt.formats.evchyb.layout import (
    AUTOMATIC,
    RowCounts,
    RowOrder,
    Split,
    choose_split,
    cut_slices,
    is_small,
    split_lengths,
)
from petsc_gpufmt.formats.evchyb.order import ALL_ROWS, order_rows
from petsc_gpufmt.formats.evchyb.parameters import LARGE_BATCH, SCATTERED_BLOCK_THREADS, SMALL_BATCH, Parameters
from petsc_gpufmt.formats.evchyb.tasks import ENTRIES_PER_THREAD, deal, most_warps
from petsc_gpufmt.option_value import AUTO
from petsc_gpufmt.patterns.csr import CsrPattern

BLOCK_THREADS = (128, 256, 512, 1024)
BATCHES = (SMALL_BATCH, LARGE_BATCH)
SEGMENT_LENGTHS = (256, 512, 1024, 2048, 4096, 8192, 16384)
SEGMENT_LENGTH = 4096
"""Automatic: two batches of loads for each thread of a large block, as much as one multiprocessor should wait for."""

LONGEST_SPLIT, MOST_ENTRIES_PER_THREAD = 1 << 16, 1 << 10
FILL_THREADS = 128


class EvcHyb(Format):
    """One matrix in EVC-HYB.

    Attributes
    ----------
    height : rows of a slice of the ELL part; rows of the vCSR part are padded to a multiple of it
    slices : Slices, of both parts
    ell_rows : (nell * height,) index or None; rows of the ELL part by slice and lane; None if row i is at i
    columns : StoredColumns of the (nstored,) stored entries
    val : (nstored,) scalar; 0 for padding
    teams : Teams, the warps that share each slice
    tasks : (2 teams.nblocks * teams.warps,) int64; what each warp does
    partials : (nsegments,) scalar; sums of the segments of split rows, during a product; empty if no row may be split
    tickets : (nsegments,) int32; how many are there, 0 between products; empty likewise
    rowptr, source : of the CSR pattern, kept for `refresh`
    split_length, sigma_window : longest row of the ELL part; rows among which sorting may have moved one of its rows
    batch : entries that a thread loads before it uses the first
    nnz_ell, nstored_ell, nonempty_rows : int
    """

    name = "evchyb"
    default_options = {
        "split_length": AUTOMATIC,
        "sigma_window": AUTOMATIC,
        "index": AUTO,
        "block_threads": AUTOMATIC,
        "batch": AUTOMATIC,
        "entries_per_thread": AUTOMATIC,
        "segment_length": AUTOMATIC,
    }
    words = {"index": CHOICES}

    def __init__(
        self,
        csr: CsrPattern,
        backend: Backend,
        options: dict[str, Any],
        counts: RowCounts,
        split: Split,
        order: RowOrder,
    ):
        self.backend = backend
        self.nrows, self.ncols, self.nnz = csr.nrows, csr.ncols, csr.nnz
        self.rowptr, self.source = csr.rowptr, csr.source
        self.height, self.split_length = backend.simd_width, split.length
        segment_groups = segment_groups_of(options, self.height)
        self.slices = cut_slices(csr, counts, split, order, self.height, segment_groups, backend)
        self.sigma_window = order.sigma_window
        self.ell_rows = order.ell_rows if self.slices.moved else None
        self.nstored_ell, self.nstored = self.slices.nstored_ell, self.slices.nstored
        self.nnz_ell, self.nonempty_rows = self.slices.nnz_ell, counts.nonempty_rows
        small = backend.name == "host" or is_small(csr, backend)
        columns, values = (self.nstored, backend.index), (self.nstored, backend.scalar)
        if small and options["index"] in (AUTO, FULL_ONLY):
            col, self.val = backend.empty(columns, values)
        else:  # full columns may go
            (col,), (self.val,) = backend.empty(columns), backend.empty(values)
        backend.run(self._fill("evchyb_fill_columns", csr.colidx, col, source=None))
        width = self.nstored / self.height / max(1, self.slices.nslices)
        parameters = Parameters.of(options, col, self.nstored_ell, width, small, self.height, backend)
        self.batch = parameters.batch
        self.columns = parameters.compress(col, self.slices.offsets, width, self.height, backend)
        self.teams = deal(
            self.slices,
            self.height,
            parameters.block_threads // self.height,
            parameters.entries_per_thread,
            backend.resident_threads,
        )
        self.tasks = self.teams.tasks(self.slices, self.height, segment_groups, backend)
        nsplit = self.slices.nsegments if counts.longest > segment_groups * self.height else 0
        self.partials, self.tickets = backend.empty((nsplit, backend.scalar), (nsplit, np.dtype(np.int32)))
        if nsplit:
            backend.clear(self.partials)
            backend.clear(self.tickets)

    @classmethod
    def build(cls, csr: CsrPattern, backend: Backend, options: dict[str, Any]) -> EvcHyb:
        """Sort, split, cut and pad. Raises OptionError for options that are not offered."""
        options = cls.with_measured(options, csr, backend)
        check_options(options)
        height, splits = backend.simd_width, split_lengths(csr, options["split_length"], backend)
        counts = RowCounts.of(csr, splits, height, segment_groups_of(options, height), backend)
        split = choose_split(csr, splits, counts, backend)
        order = order_rows(csr, counts, split, options["sigma_window"], height, backend)
        return cls(csr, backend, options, counts, split, order)

    @classmethod
    def tuning_key(cls, csr: CsrPattern) -> str:
        """How many entries, and their mean number in a row rounded up to a power of two."""
        entries = next((name for name, most in (("few", 1 << 18), ("some", 1 << 21)) if csr.nnz <= most), "many")
        mean = ceil_div(csr.nnz, max(1, csr.nrows))
        return f"entries={entries},row_length={1 << min(10, max(0, mean - 1).bit_length())}"

    @classmethod
    def tuning_space(cls, csr: CsrPattern) -> list[dict[str, int | str]]:
        return [
            {"block_threads": threads, "batch": batch, "entries_per_thread": entries, "index": index}
            for threads, batch, entries, index in product(
                BLOCK_THREADS, BATCHES, ENTRIES_PER_THREAD, (FULL_ONLY, SHORT_WHERE_IT_FITS)
            )
        ]

    def mult(self, alpha: float, beta: float) -> list[Launch]:
        factors = (self.backend.by_value(alpha), self.backend.by_value(beta))
        return self._product("evchyb_spmv", self.batch, Slot.X, *factors, Slot.Y if beta else None, Slot.Z)

    def mult_with_constant(self, *operands: str) -> list[Launch]:
        """z = A x with 1 in place of the entries of "x", of "A" or of both: to time a product without reading them.

        Section 3.3 of the paper: without x its columns are not read either, and z has sums of rows of A; without A it
        has sums of entries of x; without both the entries of each row, padding too.
        """
        kernels = {("x",): "evchyb_without_x", ("A",): "evchyb_without_values", ("A", "x"): "evchyb_without_both"}
        return self._product(kernels[tuple(sorted(operands))], self.batch, Slot.X, Slot.Z)

    def diagonal(self) -> list[Launch]:
        return self._product("evchyb_diagonal", SMALL_BATCH, Slot.Z)  # the bits are those of the other batch

    def refresh(self) -> list[Launch]:
        return self._fill("evchyb_fill_values", Slot.VALUES, self.val, source=self.source)

    def _product(self, kernel: str, batch: int, *vectors: Any) -> list[Launch]:
        """The launch that multiplies both parts; none for a matrix without rows."""
        if not self.teams.nblocks:
            return []
        warps = self.teams.warps
        function = self.backend.function("formats/evchyb", kernel, (warps, batch, self.columns.mode))
        tasks = (self.teams.nlong_blocks, self.tasks)
        matrix = Struct(*tasks, *self._rows, *self.columns.members, self.val, self.partials, self.tickets)
        return [Launch(function, (self.teams.nblocks, 1, 1), (self.height, warps, 1), (matrix, *vectors))]

    def _fill(self, kernel: str, entries: Any, stored: Any, source: Any) -> list[Launch]:
        """The launch that copies CSR `entries` into `stored`, padding the rest."""
        if not self.nstored:
            return []
        nslices = self.slices.nslices
        warps_per_slice = 2 if self.nstored < 16 * self.height * nslices else 4  # more thrash the first-level cache
        block = (self.height, warps_per_slice, FILL_THREADS // (self.height * warps_per_slice))
        function = self.backend.function("formats/evchyb", kernel, ())
        arguments = (nslices, self.slices.offsets, self._rows, self.rowptr, source, entries, stored)
        return [Launch(function, (ceil_div(nslices, block[2]), 1, 1), block, arguments)]

    @property
    def _rows(self) -> Struct:
        """SliceRows of the kernels."""
        return Struct(self.slices.nell, self.ell_rows, self.slices.segment_row, self.slices.segments)

    def stats(self) -> Stats:
        scalar = self.backend.scalar.itemsize
        per_product = [self.tasks, self.ell_rows, self.slices.segment_row]
        held = [
            self.slices.offsets,
            self.slices.segments,
            self.val,
            self.partials,
            self.tickets,
            self.rowptr,
            self.source,
        ]
        rows = sum(int(a.nbytes) for a in per_product if a is not None)
        return Stats(
            nnz=self.nnz,
            nstored=self.nstored,
            fill_ratio=1 - self.nnz / self.nstored if self.nstored else 0.0,
            bytes_held=self.columns.nbytes + rows + sum(int(a.nbytes) for a in held if a is not None),
            bytes_per_mult=self.columns.bytes_per_mult
            + self.nstored * scalar
            + rows
            + (self.nrows + self.ncols) * scalar,
            nonempty_rows=self.nonempty_rows,
        )

    def summary(self) -> str:
        sizes = [c.team for c in (*self.teams.long_classes, *self.teams.ell_classes)] or [1]
        warps = f"{min(sizes)} to {max(sizes)}" if min(sizes) < max(sizes) else str(max(sizes))
        threads = ""
        if self.backend.resident_threads:
            threads = f"{self.teams.warps * self.height} threads a block, batches of {self.batch}, "
        return (
            f"split length {self.split_length}, sigma window {self.sigma_window}, "
            f"{warps} {'warp' if max(sizes) == 1 else 'warps'} a slice, {threads}{self.columns.summary()}"
        )

    def detail(self) -> str:
        """As in table 3 of the paper: where the sorted rows are split, and what each part stores, padding included."""
        nell = self.slices.nell * self.height
        long_rows, stored_long = self.nrows - nell, self.nstored - self.nstored_ell
        nnz_long = self.nnz - self.nnz_ell

        def percent(part: int, whole: int) -> str:
            return f"{100 * part / whole if whole else 0:.2f} %"

        lines = [
            f"split at row {nell} of {self.nrows}, {self.nnz} nonzeros, "
            f"{percent(self.nstored - self.nnz, self.nnz)} added",
            f"ELL part: {nell} rows, {self.nstored_ell} stored, {percent(self.nstored_ell, self.nstored)} of all, "
            f"{percent(self.nstored_ell - self.nnz_ell, self.nnz_ell)} added",
            f"vCSR part: {long_rows} rows, {stored_long} stored, {percent(stored_long, self.nstored)} of all, "
            f"{percent(stored_long - nnz_long, nnz_long)} added",
        ]
        if self.backend.resident_threads:  # the host has no threads to share out
            for part, classes in (("vCSR part", self.teams.long_classes), ("ELL part", self.teams.ell_classes)):
                lines += [f"{part}: {c.count} slices with {c.team * self.height} threads each" for c in classes]
        return "\n".join(lines)

    def reference(self, x: np.ndarray, y: np.ndarray | None = None) -> np.ndarray:
        to_host, height, nell = self.backend.to_host, self.height, self.slices.nell
        offsets, val, col = to_host(self.slices.offsets), to_host(self.val), self.columns.decode()
        ell_rows = np.arange(nell * height) if self.ell_rows is None else to_host(self.ell_rows)
        segment_row = to_host(self.slices.segment_row)
        z = np.zeros(self.nrows, dtype=val.dtype)
        for s in range(self.slices.nslices):
            entries = np.arange(offsets[s], offsets[s + 1])
            rows = (
                np.full(entries.size, segment_row[s - nell]) if s >= nell else ell_rows[s * height + entries % height]
            )
            used = col[entries] >= 0
            np.add.at(z, rows[used], val[entries[used]] * x[col[entries[used]]])
        return z if y is None else y + z


def segment_groups_of(options: dict[str, Any], height: int) -> int:
    """Groups of a segment, at most."""
    return int((options["segment_length"] or SEGMENT_LENGTH) // height)


def check_options(options: dict[str, Any]) -> None:
    """Raise OptionError for a value that is not offered."""
    offered = {
        "block_threads": BLOCK_THREADS,
        "batch": BATCHES,
        "segment_length": SEGMENT_LENGTHS,
    }
    for name, values in offered.items():
        if options[name] not in (AUTOMATIC, *values):
            choices = ", ".join(map(str, values))
            raise OptionError(f"-mat_evchyb_{name} {options[name]}: choose one of {choices}, or 0 for automatic")
    for name, most in (("split_length", LONGEST_SPLIT), ("entries_per_thread", MOST_ENTRIES_PER_THREAD)):
        if not 0 <= options[name] <= most:
            raise OptionError(f"-mat_evchyb_{name} {options[name]}: choose 1 to {most}, or 0 for automatic")
    if options["sigma_window"] < ALL_ROWS:
        raise OptionError(
            f"-mat_evchyb_sigma_window {options['sigma_window']}: "
            "choose a number of rows, 1 for no sorting, -1 for all rows, or 0 for automatic"
        )


@compiled_ahead("formats/evchyb")
def default_kernels() -> Iterator[list[Instance]]:
    """What stores a matrix, and products by the warps of a block, with all columns."""
    yield [("evchyb_fill_columns", ()), ("evchyb_fill_values", ())]
    for warps in sorted({most_warps(entries) for entries in ENTRIES_PER_THREAD} | {SCATTERED_BLOCK_THREADS // WARP}):
        products = product(("evchyb_spmv",), BATCHES, (FULL, SHORT, MIXED))
        diagonals = product(("evchyb_diagonal",), (SMALL_BATCH,), (FULL, SHORT, MIXED))
        yield [(kernel, (warps, batch, mode)) for kernel, batch, mode in (*products, *diagonals)]
