"""The pattern of a transpose: entries are counted by column, brought to their columns, and put in order there."""

from __future__ import annotations

from collections.abc import Iterator

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.kernel_modules import Instance, compiled_ahead
from petsc_gpufmt.backends.plan import ceil_div, launch_1d
from petsc_gpufmt.backends.program import Program, Step
from petsc_gpufmt.patterns.csr import CsrPattern
from petsc_gpufmt.patterns.scan import COUNT, SCAN_THREADS, tiles
from petsc_gpufmt.patterns.segments import (
    BATCH,
    BLOCK_THREADS,
    ENTRIES_A_THREAD,
    NUMBERS_A_THREAD,
    PIECE,
    SORT_THREADS,
    windows,
)

TICKET_AND_LONGEST = 2  # fields of `Control` in kernels/patterns/transpose.cu
STEM = "patterns/transpose"
# `colidx` has the slots of entries until these are in their columns
COUNT_ENTRIES = Program(
    "nnz from_colidx counts rowptr control colidx",
    Step(STEM, "transpose_count", (BLOCK_THREADS,), BLOCK_THREADS, "nnz from_colidx rowptr colidx"),
    Step(STEM, "transpose_row_pointer", (NUMBERS_A_THREAD,), SCAN_THREADS, "counts rowptr control"),
)
BRING_ENTRIES = Program(
    "nnz nrows ncols from_rowptr from_colidx rowptr entries from_source colidx source",
    Step(
        STEM,
        "transpose_scatter",
        (BLOCK_THREADS,),
        BLOCK_THREADS,
        "nnz nrows from_rowptr from_colidx rowptr colidx entries",
    ),
    Step(
        STEM,
        "transpose_sort",
        (SORT_THREADS, ENTRIES_A_THREAD, PIECE),
        SORT_THREADS,
        "nnz ncols rowptr entries from_source colidx source",
    ),
)


class Transposition:
    """The pattern of a transpose in the making, its ``source`` pointing back into the values of `csr`.

    Its rows are counted at first, and their entries brought there by `fill`. These have the order of the rows of `csr`
    that they came from, and within these that of `csr`; but of a long row only when it is finished.

    Attributes
    ----------
    pattern : CsrPattern of the transpose; its longest row is known when it is finished
    values : (nnz,) scalar, room for the values of the transpose, if that is asked for
    longest : (1,) uint64, the length of the longest row, as `finish` takes it; None if there are no entries to order
    """

    def __init__(self, csr: CsrPattern, backend: Backend, *, with_values: bool = False):
        index, nnz, ncols = backend.index, csr.nnz, csr.ncols
        ntiles = _tiles(ncols)
        rowptr, control, colidx, source, self.values = backend.empty(
            (ncols + 1, index),
            (TICKET_AND_LONGEST + ntiles, COUNT),
            (nnz, index),
            (nnz, index),
            (nnz if with_values else 0, backend.scalar),
            zeros=2,
        )
        self.backend, self.longest, self.entries, self._to_bring = backend, None, None, None
        blocks = (csr.col_block, csr.row_block)
        self.pattern = CsrPattern(ncols, csr.nrows, rowptr, colidx, source, *blocks, longest=None if nnz else 0)
        if not nnz:
            return
        (self.entries,) = backend.empty((2 * nnz, index))
        self.longest = control[1:2]
        self.outputs = (csr.source, colidx, source)
        over_entries = ceil_div(nnz, BATCH * BLOCK_THREADS)
        given = (nnz, csr.colidx, ncols + 1, rowptr, control, colidx)
        backend.carry_out(COUNT_ENTRIES, (over_entries, ntiles), given)
        self._to_bring = (nnz, csr.nrows, ncols, csr.rowptr, csr.colidx, rowptr, self.entries, *self.outputs)

    def fill(self) -> None:
        """Bring the entries to their rows, once; queued."""
        if self._to_bring is None:
            return
        nnz = self.pattern.nnz
        blocks = ceil_div(nnz, BATCH * BLOCK_THREADS), windows(nnz)
        self.backend.carry_out(BRING_ENTRIES, blocks, self._to_bring)
        self._to_bring = None

    def finish(self, longest: int | None = None) -> CsrPattern:
        """Fill the rows, and put long ones in order: `longest` is what the device has written there.

        Waits for the device if that is not given.
        """
        if self.longest is None:
            return self.pattern
        self.fill()
        if longest is None:
            longest = self.backend.first(self.longest, 1)[0]  # waits for the device
        if self.backend.name != "host":  # a core brings entries to their columns in order
            self._merge_pieces(longest)
        self.longest, self.entries = None, None
        rows = self.pattern
        blocks = rows.row_block, rows.col_block
        self.pattern = CsrPattern(rows.nrows, rows.ncols, rows.rowptr, rows.colidx, rows.source, *blocks, longest)
        return self.pattern

    def _merge_pieces(self, longest: int) -> None:
        backend, rows, entries = self.backend, self.pattern, self.entries
        width, merged = PIECE, None
        if longest > 2 * PIECE:
            (merged,) = backend.empty((2 * rows.nnz, backend.index))
        while width < longest:
            function = backend.function(STEM, "transpose_merge", (BLOCK_THREADS,))
            arguments = (rows.nnz, rows.nrows, rows.rowptr, width, entries, merged, *self.outputs)
            backend.run([launch_1d(function, ceil_div(rows.nnz, BATCH), BLOCK_THREADS, arguments)])
            entries, merged, width = merged, entries, 2 * width

    @property
    def bytes_held(self) -> int:
        """Bytes besides those of the pattern."""
        return 0 if self.entries is None else self.entries.nbytes


def transposed(csr: CsrPattern, backend: Backend) -> CsrPattern:
    """Pattern of the transpose, finished.

    Waits once for the device, which takes at most `bytes_to_transpose`.
    """
    return Transposition(csr, backend).finish()  # waits for the device


def counted_transpose(csr: CsrPattern, backend: Backend) -> CsrPattern:
    """As `transposed`, with the counts of the rows known: one wait for both."""
    transposition = Transposition(csr, backend)
    transposition.fill()
    pattern, counts = transposition.pattern.counted(backend)  # waits for the device
    transposition.finish(counts.longest)
    return pattern


def bytes_to_transpose(csr: CsrPattern, backend: Backend) -> int:
    """Bytes that `transposed` takes, its result included: two arrays of entries besides, if a column is long."""
    words = 6 * csr.nnz + csr.ncols + 1
    return words * backend.index.itemsize + (TICKET_AND_LONGEST + _tiles(csr.ncols)) * COUNT.itemsize


def _tiles(ncols: int) -> int:
    """Blocks of the prefix sum over columns, and the end of the last."""
    return tiles(ncols + 1, NUMBERS_A_THREAD)


@compiled_ahead(STEM)
def default_kernels() -> Iterator[list[Instance]]:
    """All kernels of the file."""
    over_entries = [(f"transpose_{what}", (BLOCK_THREADS,)) for what in ("count", "scatter", "merge")]
    sort = ("transpose_sort", (SORT_THREADS, ENTRIES_A_THREAD, PIECE))
    yield [*over_entries, ("transpose_row_pointer", (NUMBERS_A_THREAD,)), sort]
