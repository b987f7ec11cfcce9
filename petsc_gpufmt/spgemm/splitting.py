"""Which rows of A are merged at once and which in pieces (Gremse et al. 2015, section 2.3), binned by length."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.plan import WARP, ceil_div, power_of_two
from petsc_gpufmt.patterns.csr import CsrPattern

WIDTHS = (2, 4, 8, 16, 32)
# Of the threads that a device runs at once: a launch with fewer leaves most of the device idle.
SMALL_LAUNCH = 1 / 4


@dataclass(frozen=True)
class LeftRows:
    """Rows of a left factor that sub-warps of `width` threads merge: row i has the entries begin[i] to end[i].

    Attributes
    ----------
    begin, end : (count,) index; no row has more than `width` entries
    columns : column of each entry, or None where that is its number
    rows : (count,) index, the rows of C that they make; None for all rows of C in order, or rows of an intermediate
    places : (count,) positions of `rows` in Splitting.rows, None for rows that are merged at once
    """

    width: int
    begin: Any
    end: Any
    columns: Any = None
    rows: Any = None
    places: Any = None

    @property
    def count(self) -> int:
        return int(self.begin.size)

    def part(self, chosen: Any, width: int) -> LeftRows:
        """The rows at `chosen`, an index array."""
        rows = chosen.astype(self.begin.dtype) if self.rows is None else self.rows[chosen]
        places = None if self.places is None else self.places[chosen]
        return LeftRows(width, self.begin[chosen], self.end[chosen], self.columns, rows, places)


class Level(NamedTuple):
    """One splitting A = A' G: `pieces` are the rows of G, `last` the rows of A' that need no further one."""

    pieces: LeftRows
    last: list[LeftRows]


class Splitting(NamedTuple):
    """Rows of A with more entries than are merged at once.

    Attributes
    ----------
    rows : (n,) index, rows of C, those that need most levels first
    levels : list of Level; the pieces of level 1 are entries of A, those of level l + 1 rows of the intermediate l
    """

    rows: Any
    levels: list[Level]


def bins(whole: LeftRows, longest: int, backend: Backend, mean: float = 0.0) -> list[LeftRows]:
    """`whole`, whose longest row has `longest` entries, in parts, each of the smallest width that suffices.

    Rows too few to be worth a launch are in the part of the next width. One part keeps the order of rows. There is one
    where a row has `mean` entries, if that is known, and these keep more than half the threads busy.
    """
    xp = backend.xp
    if not whole.count:
        return []
    widest = power_of_two(longest, WIDTHS[0], WARP)
    widths = [width for width in WIDTHS if width <= widest]
    worth_a_launch = backend.resident_threads * SMALL_LAUNCH
    if len(widths) == 1 or whole.count * widest <= worth_a_launch or 2 * mean > widest:
        return [replace(whole, width=widest)]
    bin_of = xp.searchsorted(xp.asarray(np.array(widths)), whole.end - whole.begin).astype(np.int8)
    counts = backend.to_host(xp.bincount(bin_of, minlength=len(widths))).tolist()  # waits for the device
    sizes: dict[int, int] = {}
    few = 0
    for width, count in zip(widths, counts, strict=True):
        few += count
        if few and (few * width > worth_a_launch or width == widest):
            sizes[width], few = few, 0
    if len(sizes) == 1:
        return [replace(whole, width=next(iter(sizes)))]
    order = xp.argsort(bin_of, kind="stable")
    ends = np.cumsum(list(sizes.values())).tolist()
    return [whole.part(order[end - size : end], width) for (width, size), end in zip(sizes.items(), ends, strict=True)]


def split(A: CsrPattern, rows: Any, longest: int, limit: int, width: int, backend: Backend) -> Splitting:
    """`rows` of A, of more than `limit` and at most `longest` entries, in pieces of `width` entries, and these again.

    A row is done at the level that leaves it `limit` pieces or fewer. `rows` is an index array.
    """
    xp = backend.xp
    left = A.rowptr[rows + 1] - A.rowptr[rows]
    depth = xp.zeros(rows.size, dtype=np.int8)
    while longest > limit:
        depth += left > limit
        left = xp.where(left > limit, ceil_div(left, width), left)
        longest = ceil_div(longest, width)
    at_depth = backend.to_host(xp.bincount(depth)).tolist()
    rows = rows[xp.argsort(-depth, kind="stable")]
    begin, end = A.rowptr[rows], A.rowptr[rows + 1]
    levels: list[Level] = []
    for level in range(1, len(at_depth)):
        here = sum(at_depth[level:])  # rows that come to this level: the first of all
        deeper = here - at_depth[level]
        pieces, bounds = _pieces(begin[:here], end[:here], width, backend)
        begin, end = bounds[:-1], bounds[1:]
        last = LeftRows(0, begin[deeper:], end[deeper:], None, rows[deeper:here], xp.arange(deeper, here))
        levels.append(Level(replace(pieces, columns=None if levels else A.colidx), bins(last, limit, backend)))
    return Splitting(rows, levels)


def _pieces(begin: Any, end: Any, width: int, backend: Backend) -> tuple[LeftRows, Any]:
    """Pieces of `width` entries of the rows begin[i] to end[i], and at which piece each row begins: (rows + 1,)."""
    xp, index = backend.xp, backend.index
    bounds = offsets(ceil_div(end - begin, width), backend)
    piece = xp.arange(int(bounds[-1]), dtype=index)
    row = xp.searchsorted(bounds[1:], piece, side="right")
    first = begin[row] + (piece - bounds[row]) * index.type(width)
    last = xp.minimum(end[row] - first, width) + first  # first + width may not fit the index type
    return LeftRows(width, first.astype(index), last.astype(index)), bounds


def offsets(lengths: Any, backend: Backend) -> Any:
    """(n + 1,) index: where rows of `lengths` begin, and their sum, which must fit the index type."""
    starts = backend.xp.zeros(lengths.size + 1, dtype=backend.index)
    if lengths.size:
        starts[1:] = backend.xp.cumsum(lengths, dtype=backend.index)
    return starts
