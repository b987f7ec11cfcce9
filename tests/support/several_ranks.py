"""Ranks that coarsen a graph together, in one process: what they send is copied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from graphs import Graph

from petsc_gpufmt.backends.plan import Slot, Step
from petsc_gpufmt.coarsening.parallel_aggregates import RankGraph, plan_aggregates
from petsc_gpufmt.patterns.csr import CsrPattern, validated_patterns


class Part(NamedTuple):
    """The rows of a rank."""

    graph: RankGraph
    ghosts: np.ndarray


def parts(graph: Graph, begins: Sequence[int], backend: Any) -> list[Part]:
    """The graph on ranks; rank r has the rows from begins[r] on, up to begins[r + 1]."""
    return [_part(graph, first, last, backend) for first, last in zip(begins[:-1], begins[1:], strict=True)]


def _part(graph: Graph, first: int, last: int, backend: Any) -> Part:
    columns = graph.colidx[graph.rowptr[first] : graph.rowptr[last]]
    rows = np.repeat(np.arange(last - first), np.diff(graph.rowptr[first : last + 1]))
    own = (columns >= first) & (columns < last)
    ghosts, places = np.unique(columns[~own], return_inverse=True)

    def pattern(rows: np.ndarray, columns: np.ndarray, ncols: int) -> CsrPattern:
        rowptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=last - first))])
        return CsrPattern(last - first, ncols, *(backend.adopt(a.astype(backend.index)) for a in (rowptr, columns)))

    both = pattern(rows[own], columns[own] - first, last - first), pattern(rows[~own], places, ghosts.size)
    return Part(RankGraph(*validated_patterns(both, backend), first), ghosts)


def aggregates_together(graph: Graph, begins: Sequence[int], distance: int, backend: Any) -> tuple[np.ndarray, int]:
    """The aggregate of each row, and how many rounds that took; arrays of the backend are those of NumPy."""
    ranks = parts(graph, begins, backend)
    plans = [plan_aggregates(part.graph, distance, backend) for part in ranks]

    def exchange(what: str) -> None:
        arrays = [getattr(plan, what) for plan in plans]
        known = np.concatenate([a[: part.graph.nrows] for a, part in zip(arrays, ranks, strict=True)])
        for array, part in zip(arrays, ranks, strict=True):
            array[part.graph.nrows :] = known[part.ghosts]

    def run(step: Step, before: Sequence[int] | None = None) -> None:
        for k, plan in enumerate(plans):
            backend.run(plan.steps[step], {Slot.ALPHA: np.int64(before[k])} if before is not None else None)

    def look() -> None:
        run(Step.LOOK)
        if distance == 2:
            exchange("nearest")

    undecided, rounds = [1], 0
    exchange("words")
    while any(undecided):
        look()
        run(Step.DECIDE)
        exchange("words")
        undecided, roots = zip(*(backend.first(plan.counts, 2) for plan in plans), strict=True)
        rounds += 1
    if distance == 2:
        look()
    run(Step.NUMBER, np.cumsum([0, *roots[:-1]]))
    exchange("numbers")
    run(Step.JOIN_NEXT)
    if distance == 2:
        exchange("numbers")
        run(Step.JOIN_BEYOND)
    return np.concatenate([plan.numbers[: part.graph.nrows] for plan, part in zip(plans, ranks, strict=True)]), rounds
