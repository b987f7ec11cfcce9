"""Patterns of sums of matrices on the backend: how the products of parallel matrices put together what several make."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.kernel_modules import Instance, compiled_ahead
from petsc_gpufmt.backends.plan import ceil_div
from petsc_gpufmt.backends.program import Program, Step
from petsc_gpufmt.errors import IndexOverflowError
from petsc_gpufmt.patterns.csr import CsrPattern
from petsc_gpufmt.patterns.scan import COUNT, SCAN_THREADS, tiles
from petsc_gpufmt.patterns.segments import PIECE
from petsc_gpufmt.patterns.transpose import Transposition

STEM = "patterns/union"
BLOCK_THREADS = 256
TEAM = 8  # threads that copy a row
NUMBERS_A_THREAD = 4  # of prefix sums
MOST_SUMMANDS = 3


def _of_each(names: str) -> list[str]:
    """The names of members, once for each summand."""
    return [f"{name}_{summand}" for summand in "abc"[:MOST_SUMMANDS] for name in names.split()]


def _struct(names: list[str]) -> str:
    return f"{{{' '.join(names)}}}"


TARGETS = ["nrows", "end", "share", *_of_each("nrows first last outside given")]
SUM = [
    *"nrows ncols low high count begins shares".split(),
    *_of_each("rowptr colidx places first_row first_entry"),
    "positions",
]
COUNTS = [["lengths0", "more0"], ["lengths1", "more1"]]
PARTS = [[f"{name}{k}" for name in ("rowptr", "more", "colidx", "begins", "index")] for k in (0, 1)]

COLUMNS = "ncols first last shift others places"
PLACES = Program(COLUMNS, Step(STEM, "union_places", (BLOCK_THREADS,), BLOCK_THREADS, COLUMNS))
SHARES = Program(
    " ".join([*TARGETS, "rowptr", "colidx"]),
    Step(STEM, "union_targets", (BLOCK_THREADS,), BLOCK_THREADS, f"{_struct(TARGETS)} rowptr colidx"),
)
COUNT_ROWS = Program(
    " ".join([*SUM, *COUNTS[0], *COUNTS[1], "control"]),
    Step(STEM, "union_count", (BLOCK_THREADS,), BLOCK_THREADS, " ".join(map(_struct, (SUM, *COUNTS)))),
    Step(
        STEM,
        "union_row_pointers",
        (NUMBERS_A_THREAD,),
        SCAN_THREADS,
        f"nrows {_struct(COUNTS[0])} {_struct(COUNTS[1])} control",
    ),
)
FILL_ROWS = Program(
    " ".join([*SUM, *PARTS[0], *PARTS[1], "nnz", "occurs", "ghosts", "control"]),
    Step(STEM, "union_fill", (BLOCK_THREADS, TEAM), BLOCK_THREADS, " ".join([*map(_struct, (SUM, *PARTS)), "occurs"])),
    Step(STEM, "union_number_columns", (NUMBERS_A_THREAD,), SCAN_THREADS, "ncols occurs ghosts control"),
    Step(STEM, "union_renumber", (BLOCK_THREADS,), BLOCK_THREADS, "nnz occurs colidx1"),
)


class Shifted(NamedTuple):
    """Columns `first` to `last` - 1, whose places among those of a sum are their numbers and `shift`."""

    first: int = 0
    last: int = 0
    shift: int = 0


NONE_SHIFTED = Shifted()


class RowRange(NamedTuple):
    """Rows `first` to `last` - 1 belong to rows 0, 1, ... of a sum and others to none; `outside`: the others do."""

    first: int
    last: int
    outside: bool = False


class Summand(NamedTuple):
    """A matrix whose rows and columns lie somewhere in a sum.

    Attributes
    ----------
    pattern : CsrPattern
        The columns of each row ascend.
    places : (ncols - those of `shifted`,) array of the backend's index type
        The places of the other columns among those of the sum; those of all columns ascend.
    targets : (nrows,) array of the backend's index type, or None
        The row of the sum to which each row belongs, -1: to none; None: as `rows` says.
    shifted : Shifted
    rows : RowRange, or None
        None: each row belongs to the row of its number.
    """

    pattern: CsrPattern
    places: Any
    targets: Any = None
    shifted: Shifted = NONE_SHIFTED
    rows: RowRange | None = None

    def in_its_place(self, nrows: int) -> bool:
        """Whether each of `nrows` rows of the sum has the row of its number."""
        whole = self.rows is None or self.rows == (0, self.pattern.nrows, False)
        return self.targets is None and whole and self.pattern.nrows == nrows


class Part(NamedTuple):
    """Some columns of a sum, and the entries of the summands that make each entry, counted through, in their order.

    Attributes
    ----------
    rowptr : (nrows + 1,) array of the backend's index type
    colidx : (nnz,) array, ascending in each row
    begins : (nnz + 1,) array, or None
        Entry t is made of index[begins[t]:begins[t + 1]]; None: of index[t] alone, for all of them.
    index : (nterms,) array
    """

    rowptr: Any
    colidx: Any
    begins: Any
    index: Any


def merge(
    shape: tuple[int, int], inner: tuple[int, int], summands: Sequence[Summand], backend: Backend
) -> tuple[list[Part], Any]:
    """The sum of one to three matrices: its columns in the range `inner`, numbered from there, and all others.

    Those others that occur are numbered in their order; the second result has the place of each. Rows come together in
    the order of summands and rows. Waits for the device twice, and once more if many rows have targets that are listed.
    IndexOverflowError if the index type does not count the terms of a part.
    """
    index, (nrows, ncols) = backend.index, shape
    if not nrows or not sum(s.pattern.nnz for s in summands):
        return [_nothing(nrows, backend) for _ in range(2)], backend.empty((0, index))[0]
    whole = _sum(shape, inner, summands, backend)
    rowptrs = backend.empty((nrows + 1, index), (nrows + 1, index))  # these stay
    row_control, column_control, occurs, *more = backend.empty(
        (2 * 4 + 4 * tiles(nrows, NUMBERS_A_THREAD), COUNT),
        (2 + tiles(ncols, NUMBERS_A_THREAD), COUNT),
        (ncols, index),
        *[(nrows + 1, index)] * 2,
        zeros=3,
    )
    blocks = ceil_div(nrows, BLOCK_THREADS), 4 * tiles(nrows, NUMBERS_A_THREAD)
    counts = [array for arrays in zip(rowptrs, more, strict=True) for array in arrays]
    backend.carry_out(COUNT_ROWS, blocks, (*whole, *counts, row_control))
    parts = _empty_parts(rowptrs, backend.first(row_control, 4), backend)  # waits for the device
    outputs: list[Any] = []
    for part, before in zip(parts, more, strict=True):
        outputs += (part.rowptr, None if part.begins is None else before, part.colidx, part.begins, part.index)
    outer = parts[1].colidx.size
    (ghosts,) = backend.empty((min(ncols, outer), index))
    number = (tiles(ncols, NUMBERS_A_THREAD), ceil_div(outer, BLOCK_THREADS)) if outer else (0, 0)
    blocks_of_fill = ceil_div(nrows * TEAM, BLOCK_THREADS), *number
    backend.carry_out(FILL_ROWS, blocks_of_fill, (*whole, *outputs, outer, occurs, ghosts, column_control))
    return parts, ghosts[: backend.first(column_control, 1)[0]] if outer else ghosts  # waits for the device


def _nothing(nrows: int, backend: Backend) -> Part:
    """A part without entries."""
    rowptr, none = backend.empty((nrows + 1, backend.index), (0, backend.index), zeros=1)
    return Part(rowptr, none, None, none)


def _sum(shape: tuple[int, int], inner: tuple[int, int], summands: Sequence[Summand], backend: Backend) -> list[Any]:
    """SUM, with room for a position in each row of a summand."""
    nrows = shape[0]
    absent = MOST_SUMMANDS - len(summands)
    begins = shares = None
    npositions = nrows * len(summands)
    if not all(s.in_its_place(nrows) for s in summands):
        begins, shares = _shares(nrows, summands, backend)
        npositions = shares.size
    members: list[Any] = []
    first_row = first_entry = 0
    for s in summands:
        places = _places(s, backend)
        members += (s.pattern.rowptr, s.pattern.colidx, places, first_row, first_entry)
        first_row, first_entry = first_row + s.pattern.nrows, first_entry + s.pattern.nnz
    members += (None, None, None, first_row, first_entry) * absent
    return [*shape, *inner, len(summands), begins, shares, *members, *backend.empty((npositions, backend.index))]


def _places(summand: Summand, backend: Backend) -> Any:
    """(ncols,) the place of each column."""
    first, last, shift = summand.shifted
    if first == last:
        return summand.places
    ncols = summand.pattern.ncols
    (places,) = backend.empty((ncols, backend.index))
    given = (ncols, first, last, shift, summand.places, places)
    backend.carry_out(PLACES, (ceil_div(ncols, BLOCK_THREADS),), given)
    return places


def _shares(nrows: int, summands: Sequence[Summand], backend: Backend) -> tuple[Any, Any]:
    """Which rows of the summands, counted through, make each row of the sum: where they begin, and their numbers.

    They are the transpose of a matrix with one entry a row. Those of none are in columns behind, none of which is long.
    """
    nshares = sum(s.pattern.nrows for s in summands)
    rowptr, colidx = backend.empty((nshares + 1, backend.index), (nshares, backend.index))
    members: list[Any] = []
    for s in summands:
        first, last, outside = s.rows or RowRange(0, s.pattern.nrows)
        members += (s.pattern.nrows, first, last, int(outside), s.targets)
    members += (0, 0, 0, 0, None) * (MOST_SUMMANDS - len(summands))
    given = (nrows, nshares, PIECE, *members, rowptr, colidx)
    backend.carry_out(SHARES, (ceil_div(nshares + 1, BLOCK_THREADS),), given)
    by_row = Transposition(CsrPattern(nshares, nrows + nshares // PIECE + 1, rowptr, colidx), backend)
    by_row.fill()
    if sum(1 if s.targets is None else s.pattern.nrows for s in summands) > PIECE:  # rows of the sum may be long
        by_row.finish()  # waits for the device
    return by_row.pattern.rowptr, by_row.pattern.colidx


def _empty_parts(rowptrs: Sequence[Any], totals: Sequence[int], backend: Backend) -> list[Part]:
    """Parts with room for their entries and terms, of which `totals` has those of each and how many have more."""
    index = backend.index
    if max(totals[0] + totals[1], totals[2] + totals[3]) > backend.largest_index:
        raise IndexOverflowError(
            f"a sum of matrices has {totals[0] + totals[1]} and {totals[2] + totals[3]} terms, a PetscInt of "
            f"{8 * index.itemsize} bits counts {backend.largest_index}: use more ranks, or a PETSc configured with "
            "--with-64-bit-indices"
        )
    columns = backend.empty((totals[0], index), (totals[2], index))  # they go earlier than the rest
    parts = []
    for rowptr, colidx, more in zip(rowptrs, columns, totals[1::2], strict=True):
        begins, terms = backend.empty((colidx.size + 1 if more else 0, index), (colidx.size + more, index))
        parts.append(Part(rowptr, colidx, begins if more else None, terms))
    return parts


@compiled_ahead(STEM)
def default_kernels() -> Iterator[list[Instance]]:
    """All kernels of the file."""
    by_threads = [(f"union_{what}", (BLOCK_THREADS,)) for what in ("count", "places", "renumber", "targets")]
    sums = [(f"union_{what}", (NUMBERS_A_THREAD,)) for what in ("row_pointers", "number_columns")]
    yield [*by_threads, *sums, ("union_fill", (BLOCK_THREADS, TEAM))]
