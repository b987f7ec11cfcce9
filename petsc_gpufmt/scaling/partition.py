"""What each rank has of a matrix in contiguous rows, as PETSc deals them: entries of both parts, and its halo."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from petsc_gpufmt.bench.matrices import stencil_steps

# Of a stencil so many ranks are looked at, the first and the last among them, and those beside the first host's end.
LOOKED_AT = 8


@dataclass(frozen=True)
class Layout:
    """Contiguous ranges of `size` rows, columns or grid points over `ranks`: PETSc's, the first ones longer by one."""

    size: int
    ranks: int

    def start(self, rank: Any) -> Any:
        """Where the range of a rank, or of each rank of an array, begins; that of `ranks` is the size."""
        base, longer = divmod(self.size, self.ranks)
        return rank * base + np.minimum(rank, longer)

    def owner(self, numbers: np.ndarray) -> np.ndarray:
        """The ranks that own `numbers`, each below the size."""
        base, longer = divmod(self.size, self.ranks)
        in_longer = longer * (base + 1)
        return np.where(numbers < in_longer, numbers // (base + 1), longer + (numbers - in_longer) // max(1, base))


@dataclass(frozen=True)
class Parts:
    """What ranks have, in arrays with one integer for each rank that was looked at.

    Attributes
    ----------
    rows : of the rank
    local_entries, nonlocal_entries : in columns of the rank itself, and in those of others
    nonlocal_rows : rows with nonlocal entries
    halo, far_halo : entries of x that it receives, or sends if these are more, and those of ranks of other hosts
    neighbours, far_neighbours : ranks from which it receives, or to which it sends if these are more
    """

    rows: np.ndarray
    local_entries: np.ndarray
    nonlocal_entries: np.ndarray
    nonlocal_rows: np.ndarray
    halo: np.ndarray
    far_halo: np.ndarray
    neighbours: np.ndarray
    far_neighbours: np.ndarray


class PatternRows:
    """The rows of a CSR pattern: `rowptr` (nrows + 1,), `colidx` (nnz,), integers; `shape` rows and columns."""

    def __init__(self, rowptr: np.ndarray, colidx: np.ndarray, shape: tuple[int, int]):
        self.rowptr, self.colidx, self.shape = rowptr.astype(np.int64), colidx, shape
        self.nrows, self.nnz = shape[0], int(colidx.size)
        self._filled = np.flatnonzero(np.diff(self.rowptr))
        starts = self.rowptr[self._filled]
        self._least, self._most = (
            extreme.reduceat(colidx, starts) if starts.size else starts for extreme in (np.minimum, np.maximum)
        )

    def parts(self, ranks: int, gpus_per_host: int) -> Parts:
        """The parts of all ranks."""
        rows, columns = (Layout(size, ranks) for size in self.shape)
        starts, own = rows.start(np.arange(ranks + 1)), columns.start(np.arange(ranks + 1))
        rank = rows.owner(self._filled)
        beyond = np.flatnonzero((self._least < own[rank]) | (self._most >= own[rank + 1]))
        row, rank = self._filled[beyond], rank[beyond]
        lengths = self.rowptr[row + 1] - self.rowptr[row]
        ends = np.cumsum(lengths)
        column = self.colidx[np.arange(lengths.sum()) + np.repeat(self.rowptr[row + 1] - ends, lengths)]
        rank_of_entry = np.repeat(rank, lengths)
        outside = (column < own[rank_of_entry]) | (column >= own[rank_of_entry + 1])
        nonlocal_entries = np.bincount(rank_of_entry[outside], minlength=ranks)
        ghosts = np.unique(rank_of_entry[outside] * self.shape[1] + column[outside])
        reader, owner = ghosts // self.shape[1], columns.owner(ghosts % self.shape[1])
        far = reader // gpus_per_host != owner // gpus_per_host
        halo, neighbours = _exchanged(reader, owner, ranks)
        far_halo, far_neighbours = _exchanged(reader[far], owner[far], ranks)
        return Parts(
            np.diff(starts),
            np.diff(self.rowptr[starts]) - nonlocal_entries,
            nonlocal_entries,
            np.bincount(rank, minlength=ranks),
            halo,
            far_halo,
            neighbours,
            far_neighbours,
        )


def _exchanged(reader: np.ndarray, owner: np.ndarray, ranks: int) -> tuple[np.ndarray, np.ndarray]:
    """(entries, neighbours) of each rank, in the direction that has more."""
    pairs = np.unique(reader * ranks + owner)
    both = ((reader, owner), (pairs // ranks, pairs % ranks))
    entries, neighbours = (np.maximum(*(np.bincount(numbers, minlength=ranks) for numbers in sides)) for sides in both)
    return entries, neighbours


class StencilRows:
    """The rows of a stencil on `planes` planes of points^2 grid points, of dense blocks if asked; no matrix is made."""

    def __init__(self, stencil: str, planes: int, points: int, block_size: int = 1):
        self.planes, self.points, self.block_size = planes, points, block_size
        self.steps = stencil_steps(stencil)
        self.nrows = planes * points**2 * block_size
        self.nnz = block_size**2 * sum(self._count(step, planes * points**2) for step in self.steps)
        inside = {step: (np.arange(points) + step >= 0) & (np.arange(points) + step < points) for step in (-1, 0, 1)}
        # of a point of three planes: whether its neighbour in y and x exists
        self._exists = {
            (dy, dx): np.tile(np.outer(inside[dy], inside[dx]).ravel(), 3)
            for dy, dx in {(dy, dx) for _, dy, dx in self.steps}
        }

    def parts(self, ranks: int, gpus_per_host: int, looked_at: int = LOOKED_AT) -> Parts:
        """The parts of `looked_at` ranks and two more. A rank sends as much as it receives, but for a few points."""
        layout = Layout(self.planes * self.points**2, ranks)
        edges = [gpus_per_host - 1, gpus_per_host] if ranks > gpus_per_host else []
        chosen = np.unique([*np.linspace(0, ranks - 1, min(ranks, looked_at)).astype(np.int64), *edges])
        found = np.array([self._part(int(rank), layout, gpus_per_host) for rank in chosen], dtype=np.int64)
        size = self.block_size
        return Parts(*(found * [size, size**2, size**2, size, size, size, 1, 1]).T)

    def _part(self, rank: int, layout: Layout, gpus_per_host: int) -> Sequence[int]:
        """The members of Parts for one rank, of points."""
        n = self.points
        a, b = int(layout.start(rank)), int(layout.start(rank + 1))
        reach = n**2 + n + 1
        low, high = max(0, a - reach), min(layout.size, b + reach)
        ghosts, rows = np.zeros(high - low - (b - a), dtype=bool), np.zeros(b - a, dtype=bool)
        entries = nonlocal_entries = 0
        for step in self.steps:
            entries += self._count(step, b) - self._count(step, a)
            dz, dy, dx = step
            offset = (dz * n + dy) * n + dx
            # rows whose neighbour in this direction lies below, or above, what the rank owns
            begin, end = (a, min(b, a - offset)) if offset < 0 else (max(a, b - offset), b)
            begin, end = max(begin, -offset), min(end, layout.size - offset)
            if begin >= end or not offset:
                continue
            first = begin % n**2
            exist = self._exists[dy, dx][first : first + end - begin]
            nonlocal_entries += int(np.count_nonzero(exist))
            place = begin + offset - low - (0 if offset < 0 else b - a)
            ghosts[place : place + end - begin] |= exist
            rows[begin - a : end - a] |= exist
        columns = np.flatnonzero(ghosts) + low
        columns[columns >= a] += b - a
        owners = layout.owner(columns)
        far = owners // gpus_per_host != rank // gpus_per_host
        return (
            *(b - a, entries - nonlocal_entries, nonlocal_entries, int(np.count_nonzero(rows))),
            *(columns.size, int(np.count_nonzero(far)), np.unique(owners).size, np.unique(owners[far]).size),
        )

    def _count(self, step: tuple[int, ...], end: int) -> int:
        """Of the points before `end`, those that have a neighbour in this direction."""
        n = self.points
        z, y, x = end // n**2, end // n % n, end % n
        in_z, in_y, in_x = (_Neighbours(*pair) for pair in zip(step, (self.planes, n, n), strict=True))
        in_line = in_y.before(y) * in_x.before(n) + in_y.of(y) * in_x.before(x)
        return in_z.before(z) * in_y.before(n) * in_x.before(n) + in_z.of(z) * in_line


@dataclass(frozen=True)
class _Neighbours:
    """Which of `size` points in a line have a neighbour one `step` on."""

    step: int
    size: int

    def before(self, end: int) -> int:
        """How many of the first `end` points."""
        first, last = max(0, -self.step), self.size - max(0, self.step)
        return max(0, min(end, last) - first)

    def of(self, point: int) -> int:
        """1 if this point has one, else 0."""
        return self.before(point + 1) - self.before(point)
