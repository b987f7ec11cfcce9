"""The pattern of a matrix from coordinates in any order, and the sums of values that are given in the same order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.kernel_modules import Instance, compiled_ahead
from petsc_gpufmt.backends.plan import Launch, ceil_div, launch_1d
from petsc_gpufmt.errors import IndexOverflowError, PatternError
from petsc_gpufmt.patterns.csr import CsrPattern
from petsc_gpufmt.patterns.entry_sum import known_entry_sum
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

ROW_COUNTS, ENTRY_COUNTS = 4, 3  # fields of RowControl and EntryControl in kernels/patterns/coo.cu


@dataclass(frozen=True)
class Assembly:
    """A pattern from coordinates, and which of the entries that were given make each of its own.

    Attributes
    ----------
    pattern : CsrPattern, the columns of each row ascending, each once
    begins : (nnz + 1,) array of the backend's index type, or None
        Entry t is the sum of the given entries index[begins[t]:begins[t + 1]]; None: index[t] alone, for all of them.
    index : (nterms,) array, or None
        None: entry t is the given entry t.
    nentries : how many entries were given, those that are left out among them
    nterms : how many make an entry
    """

    pattern: CsrPattern
    begins: Any
    index: Any
    nentries: int
    nterms: int

    def plan_sum(self, backend: Backend, ngiven: int | None = None) -> list[Launch]:
        """Launches for RESULT, (nnz,) values of the pattern, from A_VALUES, (nentries,) values in the given order.

        Values of one place are added in the given order, and last those of slot Y unless it is null. `ngiven`: those of
        the first so many entries are in A_VALUES, the others in B_VALUES.
        """
        ngiven = self.nentries if ngiven is None else ngiven
        return known_entry_sum(self.begins, self.index, (ngiven, self.nentries - ngiven, 0), backend)

    def summary(self) -> str:
        """In words: how many entries there are, were given, left out and repeated."""
        given = f"{self.nentries} given" + (", in order" if self.index is None else "")
        left_out, repeated = self.nentries - self.nterms, self.nterms - self.pattern.nnz
        return f"{self.pattern.nnz} entries of {given}, {left_out} left out, {repeated} repeated"


def assemble(shape: tuple[int, int], rows: Any, cols: Any, backend: Backend) -> Assembly:
    """The pattern of a matrix that has an entry at each pair of coordinates.

    Waits twice for the device, which takes at most 20 bytes an entry besides the row pointer, 40 with indices of 64
    bits, the result included, and `rows` and `cols` only if they come from the host.

    Parameters
    ----------
    shape : (nrows, ncols)
    rows, cols : (nentries,) arrays of the backend's index type, on the host or on the backend
        An entry with a negative row or column is left out.

    Raises PatternError for an entry outside of the matrix, IndexOverflowError if the index type does not count the
    entries.
    """
    index, integer, nentries, (nrows, ncols) = backend.index, backend.index.type, int(rows.size), shape
    if nentries > backend.largest_index:
        raise IndexOverflowError(
            f"{nentries} entries are given, a PetscInt of {8 * index.itemsize} bits counts {backend.largest_index}: "
            "use more ranks, or a PETSc configured with --with-64-bit-indices"
        )
    (rowptr,) = backend.empty((nrows + 1, index))
    backend.clear(rowptr)
    if not nentries:
        return _nothing(shape, rowptr, 0, backend)
    rows, cols = backend.adopt(rows), backend.adopt(cols)
    row_tiles = tiles(nrows + 1, NUMBERS_A_THREAD)
    slots, control = backend.empty((nentries, index), (ROW_COUNTS + row_tiles, COUNT))
    backend.clear(control)
    count = (*map(integer, (nentries, nrows, ncols)), rows, cols, rowptr, slots, control)
    row_pointer = backend.function("patterns/coo", "coo_row_pointer", (NUMBERS_A_THREAD, PIECE))
    sums = (np.int64(nrows + 1), rowptr, control)
    backend.run(
        [
            _over_entries("coo_count", nentries, count, backend),
            launch_1d(row_pointer, row_tiles * SCAN_THREADS, SCAN_THREADS, sums),
        ]
    )
    outside, nterms, longest = backend.first(control, 3)  # waits for the device
    if outside:
        raise PatternError(_outside(shape, rows, cols, nentries - outside, backend))
    if not nterms:
        return _nothing(shape, rowptr, nentries, backend)
    (entries,) = backend.empty((2 * nterms, index))
    scatter = (integer(nentries), rows, cols, rowptr, slots, entries)
    backend.run([_over_entries("coo_scatter", nentries, scatter, backend)])
    del rows, cols, slots, control, count, sums, scatter  # their memory is taken again
    entries = _in_order(rowptr, entries, nterms, longest, backend)
    return _without_repeats(shape, rowptr, entries, (nentries, nterms), backend)


def _nothing(shape: tuple[int, int], rowptr: Any, nentries: int, backend: Backend) -> Assembly:
    """Of no entries, or of such as are all left out."""
    colidx, order = backend.empty((0, backend.index), (0, backend.index))
    return Assembly(CsrPattern(*shape, rowptr, colidx), None, order, nentries, 0)


def _outside(shape: tuple[int, int], rows: Any, cols: Any, k: int, backend: Backend) -> str:
    """What is wrong with entry k. Waits for the device."""
    (row,), (column,) = (backend.first(a[k : k + 1], 1) for a in (rows, cols))
    return f"entry {k} of the coordinates is in row {row} and column {column}, the matrix is {shape[0]} x {shape[1]}"


def _in_order(rowptr: Any, entries: Any, nterms: int, longest: int, backend: Backend) -> Any:
    """The entries of each row in order, in the array that is given or in another one."""
    integer, nrows, width, merged = backend.index.type, rowptr.size - 1, PIECE, None
    function = backend.function("patterns/coo", "coo_sort", (SORT_THREADS, ENTRIES_A_THREAD, PIECE))
    arguments = (integer(nterms), integer(nrows), rowptr, entries)
    backend.run([launch_1d(function, windows(nterms) * SORT_THREADS, SORT_THREADS, arguments)])
    if longest > PIECE:
        (merged,) = backend.empty((2 * nterms, backend.index))
    while width < longest:
        pieces = (integer(nterms), integer(nrows), rowptr, np.int64(width), entries, merged)
        backend.run([_over_entries("coo_merge", nterms, pieces, backend)])
        entries, merged, width = merged, entries, 2 * width
    return entries


def _without_repeats(
    shape: tuple[int, int], rowptr: Any, entries: Any, sizes: tuple[int, int], backend: Backend
) -> Assembly:
    """The pattern whose entries in order are given, of `sizes` (nentries, nterms), and its row pointer with repeats."""
    index, integer, (nrows, _), (nentries, nterms) = backend.index, backend.index.type, shape, sizes
    entry_tiles = tiles(nterms, NUMBERS_A_THREAD)
    (control,) = backend.empty((ENTRY_COUNTS + entry_tiles, COUNT))
    backend.clear(control)
    marked = (integer(nterms), integer(nrows), rowptr, entries, control)
    backend.run([_over_entries("coo_mark_repeats", nterms, marked, backend)])
    repeats, disordered = backend.first(control, 2)  # waits for the device
    nnz = nterms - repeats
    in_order = not (disordered or repeats or nterms < nentries)
    (colidx,) = backend.empty((nnz, index))  # may go before the others
    begins, order = backend.empty((nnz + 1 if repeats else 0, index), (0 if in_order else nterms, index))
    assembly = Assembly(
        CsrPattern(*shape, rowptr, colidx), begins if repeats else None, None if in_order else order, nentries, nterms
    )
    fill = backend.function("patterns/coo", "coo_fill", (NUMBERS_A_THREAD,))
    outputs = (np.int64(nterms), entries, colidx, assembly.begins, assembly.index, control)
    launches = [launch_1d(fill, entry_tiles * SCAN_THREADS, SCAN_THREADS, outputs)]
    if repeats:
        drop = backend.function("patterns/coo", "coo_drop_repeats", (BLOCK_THREADS,))
        row_pointer = (np.int64(nrows), integer(nnz), begins, rowptr)
        launches.append(launch_1d(drop, nrows + 1, BLOCK_THREADS, row_pointer))
    backend.run(launches)
    return assembly


def _over_entries(kernel: str, nentries: int, arguments: tuple, backend: Backend) -> Launch:
    function = backend.function("patterns/coo", kernel, (BLOCK_THREADS,))
    return launch_1d(function, ceil_div(nentries, BATCH), BLOCK_THREADS, arguments)


@compiled_ahead("patterns/coo")
def default_kernels() -> Iterator[list[Instance]]:
    """All kernels of the file."""
    by_threads = [(f"coo_{what}", (BLOCK_THREADS,)) for what in ("count", "scatter", "merge", "mark_repeats")]
    more = [("coo_row_pointer", (NUMBERS_A_THREAD, PIECE)), ("coo_fill", (NUMBERS_A_THREAD,))]
    sort = ("coo_sort", (SORT_THREADS, ENTRIES_A_THREAD, PIECE))
    yield [*by_threads, *more, sort, ("coo_drop_repeats", (BLOCK_THREADS,))]
