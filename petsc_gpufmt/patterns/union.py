"""Patterns of sums of matrices on the backend: how the products of parallel matrices put together what several make."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.kernel_modules import Instance, compiled_ahead
from petsc_gpufmt.backends.plan import Struct, launch_1d
from petsc_gpufmt.patterns.csr import CsrPattern
from petsc_gpufmt.patterns.transpose import transposed

BLOCK_THREADS = 256
TEAM = 8  # threads that copy a row
MOST_SUMMANDS = 3


@dataclass(frozen=True)
class Summand:
    """A matrix whose rows and columns lie somewhere in a sum.

    Attributes
    ----------
    pattern : CsrPattern
        The columns of each row ascend.
    places : (ncols,) ascending array of the backend's index type
        The place of each column among those of the sum.
    targets : (nrows,) array of the backend's index type, or None
        The row of the sum to which each row belongs, -1: to none; None: to the row of its number.
    """

    pattern: CsrPattern
    places: Any
    targets: Any = None


@dataclass(frozen=True)
class Part:
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
    the order of summands and rows. Waits for the device.
    """
    xp, index = backend.xp, backend.index
    nrows, ncols = shape
    if not nrows or not sum(s.pattern.nnz for s in summands):
        none = xp.zeros(0, dtype=index)
        return [Part(xp.zeros(nrows + 1, dtype=index), none, None, none) for _ in range(2)], none
    whole = _sum(shape, inner, summands, backend)
    counts = [Struct(xp.empty(nrows + 1, dtype=index), xp.empty(nrows + 1, dtype=index)) for _ in range(2)]
    several, occurs = xp.zeros(2, dtype=index), xp.zeros(ncols, dtype=index)
    _run("union_count", nrows, (), (whole, *counts, several), backend)
    more = [
        xp.cumsum(beyond, dtype=index) if any_more else None
        for (_, beyond), any_more in zip(counts, several.tolist(), strict=True)
    ]
    parts = [
        _empty_part(xp.cumsum(lengths, dtype=index), before, backend)
        for (lengths, _), before in zip(counts, more, strict=True)
    ]
    outputs = [
        Struct(part.rowptr, before, part.colidx, part.begins, part.index)
        for part, before in zip(parts, more, strict=True)
    ]
    _run("union_fill", nrows, (TEAM,), (whole, *outputs, occurs), backend)
    if parts[1].colidx.size:
        numbers = xp.cumsum(occurs, dtype=index) - 1
        parts[1].colidx[:] = numbers[parts[1].colidx]
    return parts, xp.flatnonzero(occurs).astype(index)


def _sum(shape: tuple[int, int], inner: tuple[int, int], summands: Sequence[Summand], backend: Backend) -> Struct:
    """`Sum` of kernels/patterns/union.cu, with room for a position in each row of a summand."""
    xp, integer, nrows = backend.xp, backend.index.type, shape[0]
    absent = MOST_SUMMANDS - len(summands)
    begins = shares = None
    npositions = nrows * len(summands)
    if any(s.targets is not None or s.pattern.nrows < nrows for s in summands):
        begins, shares = _shares(nrows, summands, backend)
        npositions = shares.size
    members: list[Any] = []
    first_row = first_entry = 0
    for s in summands:
        members += (s.pattern.rowptr, s.pattern.colidx, s.places, integer(first_row), integer(first_entry))
        first_row, first_entry = first_row + s.pattern.nrows, first_entry + s.pattern.nnz
    members += (None, None, None, integer(first_row), integer(first_entry)) * absent
    sizes = map(integer, (*shape, *inner, len(summands)))
    return Struct(*sizes, begins, shares, *members, xp.empty(npositions, dtype=backend.index))


def _shares(nrows: int, summands: Sequence[Summand], backend: Backend) -> tuple[Any, Any]:
    """Which rows of the summands, counted through, make each row of the sum: where they begin, and their numbers."""
    xp = backend.xp
    targets = xp.concatenate(
        [xp.arange(s.pattern.nrows, dtype=backend.index) if s.targets is None else s.targets for s in summands]
    )
    rowptr = xp.zeros(targets.size + 1, dtype=backend.index)
    rowptr[1:] = xp.cumsum(targets >= 0, dtype=backend.index)
    by_row = transposed(CsrPattern(int(targets.size), nrows, rowptr, targets[targets >= 0]), backend)
    return by_row.rowptr, by_row.colidx


def _empty_part(rowptr: Any, more: Any, backend: Backend) -> Part:
    """A part with room for its entries and terms."""
    nnz = int(rowptr[-1])
    sizes = nnz, 0 if more is None else nnz + 1, nnz + (0 if more is None else int(more[-1]))
    colidx, begins, index = (backend.xp.empty(size, dtype=backend.index) for size in sizes)
    return Part(rowptr, colidx, None if more is None else begins, index)


def _run(kernel: str, nrows: int, team: tuple[int, ...], arguments: tuple, backend: Backend) -> None:
    """A launch with a thread a row, or a team of threads."""
    function = backend.function("patterns/union", kernel, (BLOCK_THREADS, *team))
    backend.run([launch_1d(function, nrows * sum(team or (1,)), BLOCK_THREADS, arguments)])


@compiled_ahead("patterns/union")
def default_kernels() -> Iterator[list[Instance]]:
    """All kernels of the file."""
    yield [("union_count", (BLOCK_THREADS,)), ("union_fill", (BLOCK_THREADS, TEAM))]
