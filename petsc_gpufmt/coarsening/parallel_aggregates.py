"""Aggregates of a graph whose rows lie on several ranks: the same ones on any number of ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.kernel_modules import Instance, compiled_ahead
from petsc_gpufmt.backends.plan import AggregationStep, Launch, Slot, Struct, launch_1d
from petsc_gpufmt.coarsening.aggregates import (
    BLOCK_THREADS,
    DISTANCES,
    LONG_TEAM,
    NUMBERS_A_THREAD,
    SHORT_LONGEST,
    SHORT_MEAN,
    SHORT_TEAM,
)
from petsc_gpufmt.errors import PatternError, UnsupportedError
from petsc_gpufmt.patterns.csr import CsrPattern
from petsc_gpufmt.patterns.scan import COUNT, SCAN_THREADS, tiles
from petsc_gpufmt.patterns.symmetry import is_symmetric

COUNTED = ("undecided", "roots")  # of `Control` in kernels/coarsening/parallel_aggregates.cu, without the ticket


class RankGraph(NamedTuple):
    """The rows of a square pattern that lie on a rank.

    Attributes
    ----------
    own : CsrPattern of the columns that are rows of this rank, square
    others : CsrPattern of the other columns, or None if the rank has all rows
        Column k is that of ghost k.
    first : number of the first row
    """

    own: CsrPattern
    others: CsrPattern | None
    first: int

    @property
    def nrows(self) -> int:
        return self.own.nrows

    @property
    def nghosts(self) -> int:
        return self.others.ncols if self.others else 0

    @property
    def nnz(self) -> int:
        return self.own.nnz + (self.others.nnz if self.others else 0)

    @property
    def longest(self) -> int:
        """Entries of the longest row, or more."""
        return (self.own.longest or 0) + ((self.others.longest or 0) if self.others else 0)


class ParallelAggregates(NamedTuple):
    """Arrays for the rows of a rank, then its ghosts, and what is done with them.

    First, ranks that have `words` of their rows send them to those where these are ghosts; at distance 2 LOOK and an
    exchange of `nearest` follow. A round is LOOK and DECIDE, as often as wanted, and an exchange of `words`, at
    distance 2 of `nearest` too. Rounds go on until no rank has undecided rows. A ghost that was decided meanwhile only
    makes rows wait: the roots do not depend on how often ranks exchange. At distance 2 LOOK and an exchange of
    `nearest` follow. NUMBER takes what other ranks before this one have of roots as ALPHA, an int64. An exchange of
    `numbers` follows, and JOIN_NEXT; at distance 2 another one, and JOIN_BEYOND.

    Attributes
    ----------
    words, nearest : (nrows + nghosts,) arrays of as many bytes as an index
        Words of the rows of this rank are there.
    numbers : (nrows + nghosts,) array of the backend's index type
        At the end the aggregate of each row of this rank, counted through all ranks; -1: none.
    counts : array of COUNT, whose first are those of COUNTED: rows, and roots, of this rank after each round
    steps : launches of each step
    """

    words: Any
    nearest: Any
    numbers: Any
    counts: Any
    steps: dict[AggregationStep, list[Launch]]


def plan_aggregates(graph: RankGraph, distance: int, backend: Backend) -> ParallelAggregates:
    """Plans for aggregates of a symmetric pattern with all entries of the diagonal.

    The roots are those of the greedy algorithm that visits rows in the order of a hash of their numbers, and makes a
    root of each that has no root within `distance`, and neighbours. Each other row goes to the first root
    among its neighbours; if it has none there, to the first within the distance. An aggregate has the number of its
    root among all roots.

    Parameters
    ----------
    graph : RankGraph whose longest rows are known
    distance : 1 or 2, that of neighbours of neighbours; the square of the graph is not formed

    Raises UnsupportedError for another distance, PatternError if the patterns do not fit.
    """
    if distance not in DISTANCES:
        raise UnsupportedError(f"roots at a distance of more than {distance}: there are aggregates for 1 and 2")
    _check(graph)
    index, nrows = backend.index, graph.nrows
    size, ntiles = nrows + graph.nghosts, tiles(nrows, NUMBERS_A_THREAD)
    counts, words, nearest, numbers = backend.empty(
        (len(COUNTED) + 1 + ntiles, COUNT), (size, index), (size, index), (size, index), zeros=1
    )
    if not nrows:
        return ParallelAggregates(words, nearest, numbers, counts, {step: [] for step in AggregationStep})
    struct, team = _struct(graph, backend), _team(graph)
    backend.run([_launch("words", nrows, (), (struct, np.int64(graph.first), words, nearest), backend)])

    def launch(kernel: str, *arguments: Any) -> list[Launch]:
        return [_launch(kernel, nrows * team, (team,), (struct, *arguments), backend)]

    number = backend.function("coarsening/parallel_aggregates", "parallel_number", (NUMBERS_A_THREAD,))
    arguments = (np.int64(nrows), Slot.ALPHA, words, numbers, counts)
    steps = {
        AggregationStep.LOOK: launch("look", distance, words, nearest, counts),
        AggregationStep.DECIDE: launch("decide", distance, nearest, words, counts),
        AggregationStep.NUMBER: [launch_1d(number, ntiles * SCAN_THREADS, SCAN_THREADS, arguments)],
        AggregationStep.JOIN_NEXT: launch("join", words, numbers),
        AggregationStep.JOIN_BEYOND: launch("join", nearest, numbers),
    }
    return ParallelAggregates(words, nearest, numbers, counts, steps)


def symmetric_part(graph: RankGraph, ghosts: Any, backend: Backend) -> tuple[bool, int]:
    """Whether the columns of this rank have a symmetric pattern with all entries of the diagonal, and a number for all.

    The numbers of all ranks have a sum of 0, modulo 2^64, if the other columns are symmetric, and hardly otherwise.
    Waits for the device.

    Parameters
    ----------
    graph : RankGraph; columns ascend in each row
    ghosts : (nghosts,) array of the backend's index type, their numbers as rows

    Raises PatternError if the patterns do not fit.
    """
    _check(graph)
    if not is_symmetric(graph.own, backend):  # waits for the device
        return False, 0
    if not graph.others or not graph.others.nnz:
        return True, 0
    (found,) = backend.empty((1, COUNT), zeros=1)
    arguments = (_struct(graph, backend), np.int64(graph.first), ghosts, found)
    backend.run([_launch("asymmetry", graph.nrows, (), arguments, backend)])
    return True, backend.first(found, 1)[0]  # waits for the device


def _check(graph: RankGraph) -> None:
    own, others = graph.own, graph.others
    if own.nrows != own.ncols or (others is not None and others.nrows != own.nrows):
        beside = f" beside {others.nrows} x {others.ncols}" if others else ""
        raise PatternError(f"aggregates of a {own.nrows} x {own.ncols} pattern{beside} of the columns of other ranks")


def _struct(graph: RankGraph, backend: Backend) -> Struct:
    """`Graph` of kernels/coarsening/parallel_aggregates.cu."""
    others = graph.others if graph.others and graph.others.nnz else None
    arrays = (others.rowptr, others.colidx) if others else (None, None)
    return Struct(backend.index.type(graph.nrows), graph.own.rowptr, graph.own.colidx, *arrays)


def _team(graph: RankGraph) -> int:
    """Threads that share a row."""
    short = graph.nnz <= SHORT_MEAN * graph.nrows and graph.longest <= SHORT_LONGEST
    return SHORT_TEAM if short else LONG_TEAM


def _launch(what: str, nthreads: int, template: tuple[int, ...], arguments: tuple, backend: Backend) -> Launch:
    function = backend.function("coarsening/parallel_aggregates", f"parallel_{what}", (BLOCK_THREADS, *template))
    return launch_1d(function, nthreads, BLOCK_THREADS, arguments)


@compiled_ahead("coarsening/parallel_aggregates")
def default_kernels() -> Iterator[list[Instance]]:
    """All kernels of the file."""
    by_teams = [
        (f"parallel_{what}", (BLOCK_THREADS, team))
        for what in ("look", "decide", "join")
        for team in (SHORT_TEAM, LONG_TEAM)
    ]
    alone = [(f"parallel_{what}", (BLOCK_THREADS,)) for what in ("words", "asymmetry")]
    yield [*alone, ("parallel_number", (NUMBERS_A_THREAD,)), *by_teams]
