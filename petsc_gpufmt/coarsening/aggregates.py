"""Aggregates of the rows of a graph, as PETSc's GAMG of type agg makes them on one rank, found by parallel rounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.kernel_modules import Instance, compiled_ahead
from petsc_gpufmt.backends.plan import Launch, Struct, launch_1d
from petsc_gpufmt.errors import PatternError, UnsupportedError
from petsc_gpufmt.patterns.csr import CsrPattern
from petsc_gpufmt.patterns.scan import COUNT, SCAN_THREADS, tiles

BLOCK_THREADS = 256
SHORT_TEAM, LONG_TEAM = 4, 16  # threads that read a row together
SHORT_MEAN, SHORT_LONGEST = 12, 256  # entries of rows for which a short team is enough
NUMBERS_A_THREAD = 4  # of the prefix sum
ROUNDS = 4  # after so many it is asked whether rows are left; even, as lists of rows change places in each
# Fields of `Control` in kernels/coarsening/aggregates.cu, without the ticket, which the tiles follow
FOUND = ("rounds", "naggregates", "outside", "missing")
DISTANCES = (1, 2)
TURN = np.dtype(np.uint8)


@dataclass(frozen=True)
class Aggregates:
    """Aggregates of rows.

    Attributes
    ----------
    count : how many there are
    numbers : (nrows,) array of the backend's index type
        The aggregate of each row, in the order of their roots; -1: none.
    turns : (nrows,) array of TURN, or None
        agg has the rows of an aggregate in the order of these numbers, and of rows; None: of rows.
    rounds : after which all rows were decided on
    """

    count: int
    numbers: Any
    turns: Any
    rounds: int


def aggregate(graph: CsrPattern, order: Any, distance: int, backend: Backend) -> Aggregates:
    """Aggregates of a square pattern, which is taken as symmetric, with all entries of the diagonal.

    The roots are those of the greedy algorithm that visits the rows in the given order, and makes a root of each that
    has no root within `distance`, and neighbours. Each other row goes to the first root among its
    neighbours; if it has none there, to the first within the distance. Waits for the device.

    Parameters
    ----------
    graph : CsrPattern
    order : (nrows,) array of the backend's index type, all rows in some order
    distance : 1 or 2, that of neighbours of neighbours; the square of the graph is not formed

    Raises UnsupportedError for another distance, PatternError if the pattern is not square or `order` not one of rows.
    """
    nrows, index = graph.nrows, backend.index
    if distance not in DISTANCES:
        raise UnsupportedError(f"roots at a distance of more than {distance}: there are aggregates for 1 and 2")
    if graph.ncols != nrows or order.size != nrows:
        raise PatternError(f"aggregates of a {nrows} x {graph.ncols} pattern in an order of {order.size} rows")
    # these stay, and so share no memory with what goes
    numbers, *all_turns = backend.empty((nrows, index), *[(nrows, TURN)] * (distance == 2))
    turns = all_turns[0] if all_turns else None
    if not nrows:
        return Aggregates(0, numbers, turns, 0)
    words, control, nearest = backend.empty(
        (nrows, index), (len(FOUND) + 1 + tiles(nrows, NUMBERS_A_THREAD), COUNT), (nrows, index), zeros=2
    )
    rounds = _Rounds(graph, distance, words, nearest, control, backend)
    backend.run([_launch("aggregates_order", nrows, (), (index.type(nrows), order, words, control), backend)])
    undecided = nrows
    while undecided:
        undecided = rounds.run(undecided)  # waits for the device
    assign = (rounds.graph, distance, order, words, nearest, numbers, turns)
    number = backend.function("coarsening/aggregates", "aggregates_number", (NUMBERS_A_THREAD,))
    threads = tiles(nrows, NUMBERS_A_THREAD) * SCAN_THREADS
    backend.run(
        [
            rounds.last_look(),
            launch_1d(number, threads, SCAN_THREADS, (np.int64(nrows), words, numbers, control)),
            _launch("aggregates_assign", backend.in_turns(nrows), (rounds.team,), assign, backend),
        ]
    )
    found = dict(zip(FOUND, backend.first(control, len(FOUND)), strict=True))  # waits for the device
    if found["outside"] or found["missing"]:
        raise PatternError(f"the order in which {nrows} rows are visited must have each of them once")
    return Aggregates(found["naggregates"], numbers, turns, found["rounds"])


class _Rounds:
    """Rounds that decide on rows.

    A round reads lists of rows, and writes those of the next, which are in the other places. How many rows a list has
    is on the device: four words for each of two kinds of lists, which rounds use in turns.
    """

    def __init__(self, graph: CsrPattern, distance: int, words: Any, nearest: Any, control: Any, backend: Backend):
        index, nrows = backend.index, graph.nrows
        short = graph.nnz <= SHORT_MEAN * nrows and (graph.longest or 0) <= SHORT_LONGEST
        self.team = SHORT_TEAM if short else LONG_TEAM
        self.graph = Struct(index.type(nrows), graph.rowptr, graph.colidx)
        self.nrows, self.distance, self.backend = nrows, distance, backend
        self.words, self.nearest, self.control = words, nearest, control
        self.done = 0
        lists = 4 if distance == 2 else 2
        self.counts, *places = backend.empty((2 * ROUNDS, COUNT), *[(nrows, index)] * lists, zeros=1)
        # rows on which it is not decided; those that have such neighbours, and no root among them
        self.undecided, self.active = places[:2], places[2:]

    def run(self, undecided: int) -> int:
        """Do some rounds, after which so many rows are undecided; before them it was `undecided`."""
        launches: list[Launch] = []
        for _ in range(ROUNDS):
            launches += self._round(undecided)
            self.done += 1
        self.backend.run(launches)
        return self.backend.first(self.counts, 1)[0]  # waits for the device

    def last_look(self) -> Launch:
        """Notes what the last decisions have changed."""
        listed = self.distance == 2 and self.done >= 2
        return self._look(self._visit(self.active, ROUNDS, listed=listed, keep=False), self.nrows)

    def _round(self, undecided: int) -> list[Launch]:
        first = self.done == 0
        undecided_rows = self._visit(self.undecided, 0, listed=not first, keep=True)
        if self.distance == 1:
            looked_at = self._visit(self.undecided, 0, listed=not first, keep=False)
        else:  # before the first decisions nothing can be left out
            looked_at = self._visit(self.active, ROUNDS, listed=self.done >= 2, keep=not first)
        decide = (self.graph, undecided_rows, self.distance, self.nearest, self.words, self.control)
        threads = self.backend.in_turns(undecided)
        return [
            self._look(looked_at, self.nrows if self.distance == 2 else undecided),
            _launch("aggregates_decide", threads, (self.team,), decide, self.backend),
        ]

    def _look(self, visit: Struct, nrows: int) -> Launch:
        arguments = (self.graph, visit, self.words, self.nearest)
        return _launch("aggregates_nearest", self.backend.in_turns(nrows), (self.team,), arguments, self.backend)

    def _visit(self, places: list[Any], first_count: int, *, listed: bool, keep: bool) -> Struct:
        """`Visit` of kernels/coarsening/aggregates.cu: to the rows of a list or to all, and what is kept of them."""
        now, after, cleared = (self._count(first_count, self.done + k) for k in range(3))
        rows, kept = (places[(self.done + k) % 2] if wanted else None for k, wanted in ((0, listed), (1, keep)))
        return Struct(rows, now, kept, after, cleared)

    def _count(self, first: int, number: int) -> Any:
        return self.counts[first + number % ROUNDS : first + number % ROUNDS + 1]


def _launch(kernel: str, nthreads: int, template: tuple[int, ...], arguments: tuple, backend: Backend) -> Launch:
    function = backend.function("coarsening/aggregates", kernel, (BLOCK_THREADS, *template))
    return launch_1d(function, nthreads, BLOCK_THREADS, arguments)


@compiled_ahead("coarsening/aggregates")
def default_kernels() -> Iterator[list[Instance]]:
    """All kernels of the file."""
    by_teams = [
        (f"aggregates_{what}", (BLOCK_THREADS, team))
        for what in ("nearest", "decide", "assign")
        for team in (SHORT_TEAM, LONG_TEAM)
    ]
    yield [("aggregates_order", (BLOCK_THREADS,)), ("aggregates_number", (NUMBERS_A_THREAD,)), *by_teams]
