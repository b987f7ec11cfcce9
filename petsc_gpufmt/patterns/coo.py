"""The pattern of a matrix from coordinates in any order, and the sums of values that are given in the same order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

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

OUTSIDE_COUNTS, ROW_COUNTS, ENTRY_COUNTS = 2, 4, 3  # fields of the ...Control in kernels/patterns/coo.cu


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

    def plan_sum(self, backend: Backend, sizes: tuple[int, int] | None = None) -> list[Launch]:
        """Launches for RESULT, (nnz,) values of the pattern, from A_VALUES, (nentries,) values in the given order.

        Values of one place are added in the given order, and last those of slot Y unless it is null. `sizes`: the
        first so many values are in A_VALUES, and so many others in B_VALUES.
        """
        return known_entry_sum(self.begins, self.index, (*(sizes or (self.nentries, 0)), 0), backend)

    def summary(self) -> str:
        """In words: how many entries there are, were given, left out and repeated."""
        given = f"{self.nentries} given" + (", in order" if self.index is None else "")
        left_out, repeated = self.nentries - self.nterms, self.nterms - self.pattern.nnz
        return f"{self.pattern.nnz} entries of {given}, {left_out} left out, {repeated} repeated"


class Block(NamedTuple):
    """Rows and columns of a matrix that are a matrix of their own, as the diagonal block of a rank."""

    first_row: int
    nrows: int
    first_col: int
    ncols: int


def outside(block: Block, rows: Any, cols: Any, backend: Backend) -> np.ndarray:
    """The entries that are not left out and do not lie in a block: a (3, n) array on the host, in the order given.

    It has their rows, their columns, and their numbers among all. Waits for the device, twice if there are any.

    Parameters
    ----------
    rows, cols : (nentries,) arrays of the backend
        An entry with a negative row or column is left out.
    """
    nentries = int(rows.size)
    found = np.empty((3, 0), backend.index)
    if not nentries:
        return found
    ntiles = tiles(nentries, NUMBERS_A_THREAD)
    function = backend.function("patterns/coo", "coo_outside", (NUMBERS_A_THREAD,))
    (control,) = backend.empty((OUTSIDE_COUNTS + ntiles, COUNT))
    entries = (np.int64(nentries), *map(backend.index.type, block), rows, cols)

    def run(*lists: Any) -> None:
        backend.clear(control)
        backend.run([launch_1d(function, ntiles * SCAN_THREADS, SCAN_THREADS, (*entries, *lists, control))])

    run(None, None, None)
    (count,) = backend.first(control, 1)  # waits for the device
    if count:
        (lists,) = backend.empty((3 * count, backend.index))
        run(*(lists[k * count : (k + 1) * count] for k in range(3)))
        found = backend.to_host(lists).reshape(3, count)  # waits for the device
    return found


def assemble(
    shape: tuple[int, int],
    rows: Any,
    cols: Any,
    backend: Backend,
    *,
    block: Block | None = None,
    more: tuple[Any, Any] | None = None,
    numbers: Any = None,
) -> Assembly:
    """The pattern of a matrix that has an entry at each pair of coordinates.

    Waits twice for the device, which takes at most 20 bytes an entry besides the row pointer, 40 with indices of 64
    bits, the result included, and coordinates only if they come from the host.

    Parameters
    ----------
    shape : (nrows, ncols)
    rows, cols : (nentries,) arrays of the backend's index type, on the host or on the backend
        An entry with a negative row or column is left out.
    block : which rows and columns of a larger one the matrix has, as many as `shape` says, or None
        Then entries elsewhere are left out, too.
    more : (rows, columns) of entries that follow these, or None
    numbers : ascending integers, on the host or on the backend, or None
        Of the values of all these entries among those that are given; None: 0, 1, 2, ...

    Raises PatternError for an entry outside of the matrix, IndexOverflowError if the index type does not count the
    entries.
    """
    index, (nrows, ncols) = backend.index, shape
    given = [(rows, cols)] if more is None else [(rows, cols), more]
    nentries = sum(int(r.size) for r, _ in given)
    if nentries > backend.largest_index:
        raise IndexOverflowError(
            f"{nentries} entries are given, a PetscInt of {8 * index.itemsize} bits counts {backend.largest_index}: "
            "use more ranks, or a PETSc configured with --with-64-bit-indices"
        )
    (rowptr,) = backend.empty((nrows + 1, index))
    backend.clear(rowptr)
    if not nentries:
        return _nothing(shape, rowptr, 0, backend)
    parts = _Parts(given, block or Block(0, nrows, 0, ncols), numbers, backend)
    row_tiles = tiles(nrows + 1, NUMBERS_A_THREAD)
    slots, control = backend.empty((nentries, index), (ROW_COUNTS + row_tiles, COUNT))
    backend.clear(control)
    row_pointer = backend.function("patterns/coo", "coo_row_pointer", (NUMBERS_A_THREAD, PIECE))
    sums = (np.int64(nrows + 1), rowptr, control)
    counted = parts.count(rowptr, slots, control, strict=block is None)
    backend.run([*counted, launch_1d(row_pointer, row_tiles * SCAN_THREADS, SCAN_THREADS, sums)])
    beyond, nterms, longest = backend.first(control, 3)  # waits for the device
    if beyond:
        raise PatternError(_beyond(shape, *parts.arrays[0], nentries - beyond, backend))
    if not nterms:
        return _nothing(shape, rowptr, nentries, backend)
    (entries,) = backend.empty((2 * nterms, index))
    backend.run(parts.scatter(rowptr, slots, entries))
    del rows, cols, more, given, parts, slots, control, counted, sums  # their memory is taken again
    entries = _in_order(rowptr, entries, nterms, longest, backend)
    return _without_repeats(shape, rowptr, entries, (nentries, nterms), numbers is not None, backend)


class _Parts:
    """Coordinates in several pairs of arrays, and their numbers, brought to the backend; and the block they make."""

    def __init__(self, given: list[tuple[Any, Any]], block: Block, numbers: Any, backend: Backend):
        self.arrays = [(backend.adopt(r), backend.adopt(c)) for r, c in given]
        self.firsts = np.cumsum([0, *(r.size for r, _ in given)]).tolist()
        self.numbers = None if numbers is None else backend.adopt(numbers)
        self.block, self.backend = block, backend

    def count(self, counts: Any, slots: Any, control: Any, *, strict: bool) -> list[Launch]:
        """Launches that count entries by row; `strict`: one outside of the block is wrong."""
        integer, launches = self.backend.index.type, []
        for first, n, r, c in self._each():
            place = (*map(integer, (n, *self.block)), int(not strict))
            arguments = (*place, r, c, counts, slots[first : first + n], control)
            launches.append(_over_entries("coo_count", n, arguments, self.backend))
        return launches

    def scatter(self, rowptr: Any, slots: Any, entries: Any) -> list[Launch]:
        """Launches that bring entries to their rows."""
        integer, launches = self.backend.index.type, []
        for first, n, r, c in self._each():
            numbers = None if self.numbers is None else self.numbers[first : first + n]
            place = (integer(n), integer(first), numbers, *map(integer, (self.block.first_row, self.block.first_col)))
            arguments = (*place, r, c, rowptr, slots[first : first + n], entries)
            launches.append(_over_entries("coo_scatter", n, arguments, self.backend))
        return launches

    def _each(self) -> Iterator[tuple[int, int, Any, Any]]:
        """First number, size, rows and columns of the parts that have entries."""
        for first, (r, c) in zip(self.firsts, self.arrays, strict=False):
            if r.size:
                yield first, int(r.size), r, c


def _nothing(shape: tuple[int, int], rowptr: Any, nentries: int, backend: Backend) -> Assembly:
    """Of no entries, or of such as are all left out."""
    colidx, order = backend.empty((0, backend.index), (0, backend.index))
    return Assembly(CsrPattern(*shape, rowptr, colidx), None, order, nentries, 0)


def _beyond(shape: tuple[int, int], rows: Any, cols: Any, k: int, backend: Backend) -> str:
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
    shape: tuple[int, int], rowptr: Any, entries: Any, sizes: tuple[int, int], named: bool, backend: Backend
) -> Assembly:
    """The pattern whose entries in order are given, of `sizes` (nentries, nterms), and its row pointer with repeats.

    `named`: their numbers are not their places among those that were given.
    """
    index, integer, (nrows, _), (nentries, nterms) = backend.index, backend.index.type, shape, sizes
    entry_tiles = tiles(nterms, NUMBERS_A_THREAD)
    (control,) = backend.empty((ENTRY_COUNTS + entry_tiles, COUNT))
    backend.clear(control)
    marked = (integer(nterms), integer(nrows), rowptr, entries, control)
    backend.run([_over_entries("coo_mark_repeats", nterms, marked, backend)])
    repeats, disordered = backend.first(control, 2)  # waits for the device
    nnz = nterms - repeats
    in_order = not (named or disordered or repeats or nterms < nentries)
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
    more = [
        ("coo_row_pointer", (NUMBERS_A_THREAD, PIECE)),
        *((f"coo_{k}", (NUMBERS_A_THREAD,)) for k in ("outside", "fill")),
    ]
    sort = ("coo_sort", (SORT_THREADS, ENTRIES_A_THREAD, PIECE))
    yield [*by_threads, *more, sort, ("coo_drop_repeats", (BLOCK_THREADS,))]
