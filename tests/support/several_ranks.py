"""Ranks that coarsen a graph together, in one process: what they send each other is copied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from graphs import Graph

from petsc_gpufmt.backends.plan import AggregationStep, Slot
from petsc_gpufmt.coarsening.parallel_aggregates import RankGraph, plan_aggregates, symmetric_part
from petsc_gpufmt.coarsening.parallel_prolongator import (
    RankAggregates,
    elsewhere,
    parallel_tentative,
    tentative_rows,
)
from petsc_gpufmt.coarsening.parallel_smoothed import parallel_smoothed
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


def aggregates_together(
    graph: Graph, begins: Sequence[int], distance: int, backend: Any, decisions: int
) -> tuple[np.ndarray, int]:
    """The aggregate of each row, and how many rounds that took; arrays of the backend are those of NumPy.

    Ranks decide so often between two exchanges.
    """
    ranks = parts(graph, begins, backend)
    plans = [plan_aggregates(part.graph, distance, backend) for part in ranks]

    def exchange(what: str) -> None:
        arrays = [getattr(plan, what) for plan in plans]
        known = np.concatenate([a[: part.graph.nrows] for a, part in zip(arrays, ranks, strict=True)])
        for array, part in zip(arrays, ranks, strict=True):
            array[part.graph.nrows :] = known[part.ghosts]

    def run(step: AggregationStep, before: Sequence[int] | None = None) -> None:
        for k, plan in enumerate(plans):
            backend.run(plan.steps[step], {Slot.ALPHA: np.int64(before[k])} if before is not None else None)

    def look_together() -> None:
        if distance == 2:
            run(AggregationStep.LOOK)
            exchange("nearest")

    undecided, rounds = [1], 0
    exchange("words")
    look_together()
    while any(undecided):
        for _ in range(decisions):
            run(AggregationStep.LOOK)
            run(AggregationStep.DECIDE)
        exchange("words")
        if distance == 2:
            exchange("nearest")
        undecided, roots = zip(*(backend.first(plan.counts, 2) for plan in plans), strict=True)
        rounds += 1
    look_together()
    run(AggregationStep.NUMBER, np.cumsum([0, *roots[:-1]]))
    exchange("numbers")
    run(AggregationStep.JOIN_NEXT)
    if distance == 2:
        exchange("numbers")
        run(AggregationStep.JOIN_BEYOND)
    return np.concatenate([plan.numbers[: part.graph.nrows] for plan, part in zip(plans, ranks, strict=True)]), rounds


def prolongators_together(
    numbers: np.ndarray,
    begins: Sequence[int],
    owned: Sequence[int],
    block: int,
    vectors: np.ndarray | None,
    backend: Any,
) -> list[Any]:
    """The part of each rank of a tentative prolongator, with what C makes of it: ParallelTentative, and `ghosts`.

    Rank r has the nodes from begins[r] on, and the aggregates from owned[r] on.
    """
    index, nvectors = backend.index, 1 if vectors is None else vectors.shape[0]
    ranks = [
        RankAggregates(backend.adopt(numbers[first:last].astype(index)), owned[r], owned[r + 1] - owned[r])
        for r, (first, last) in enumerate(zip(begins[:-1], begins[1:], strict=True))
    ]
    found = [elsewhere(rank, backend) for rank in ranks]
    of_others = [
        (aggregate, first + node)
        for first, (nodes, aggregates) in zip(begins[:-1], found, strict=True)
        for node, aggregate in zip(nodes.tolist(), aggregates.tolist(), strict=True)
    ]
    made = []
    for r, rank in enumerate(ranks):
        arrived = sorted(pair for pair in of_others if owned[r] <= pair[0] < owned[r + 1])
        received = np.array([aggregate - owned[r] for aggregate, _ in arrived], dtype=index)
        ghosts = np.unique(found[r][1])
        near_null = None
        if vectors is not None:
            nodes = np.array([*range(begins[r], begins[r + 1]), *(node for _, node in arrived)], dtype=int)
            rows = (nodes[:, None] * block + np.arange(block)).ravel()
            near_null = backend.adopt(vectors[:, rows].astype(backend.scalar).ravel())
        part = parallel_tentative(rank, received, ghosts, block, near_null, nvectors, backend)
        made.append((part, ghosts, arrived))
    return made


def a_rank_alone(graph: Graph, distance: int, backend: Any) -> list[Any]:
    """What the first of two ranks makes of a graph in which ghosts are no roots; runs all kernels."""
    part = parts(graph, [0, min(graph.nrows // 2 + 1, graph.nrows), graph.nrows], backend)[0]
    symmetric = symmetric_part(part.graph, backend.adopt(part.ghosts.astype(backend.index)), backend)
    plan = plan_aggregates(part.graph, distance, backend)
    for array in (plan.words, plan.nearest, plan.numbers):
        backend.clear(array[part.graph.nrows :])
    left = 1
    while left:
        for step in (AggregationStep.LOOK, AggregationStep.DECIDE):
            backend.run(plan.steps[step])
        left, roots = backend.first(plan.counts, 2)
    for step in (AggregationStep.LOOK, AggregationStep.NUMBER, AggregationStep.JOIN_NEXT, AggregationStep.JOIN_BEYOND):
        backend.run(plan.steps[step], {Slot.ALPHA: np.int64(0)} if step is AggregationStep.NUMBER else None)
    rank = RankAggregates(plan.numbers[: part.graph.nrows], 1, max(roots - 1, 0))
    nodes, aggregates = elsewhere(rank, backend)
    made = parallel_tentative(rank, aggregates[:0], np.unique(aggregates), 1, None, 1, backend)
    patterns = (array for pattern in (made.own, made.others) for array in (pattern.rowptr, pattern.colidx))
    arrays = [rank.numbers, made.values, made.coarse, *patterns, *_smoothed_alone(part.graph, rank, made, backend)]
    return [np.array(symmetric, np.uint64), nodes, aggregates, *map(backend.to_host, arrays)]


def _smoothed_alone(graph: RankGraph, rank: RankAggregates, made: Any, backend: Any) -> list[Any]:
    """What it makes of its tentative prolongator, if all ghosts belong to the first aggregate, of another rank."""
    rows = tentative_rows(rank, made, graph.nghosts, 1, 1, backend)
    for array in (made.elsewhere, rows.numbers[graph.nrows :], rows.values[graph.nrows :]):
        backend.clear(array)
    backend.run(rows.fill)
    none, owned = np.zeros(0, backend.index), (rank.first, rank.count)
    end = parallel_smoothed(graph, 0, rows.numbers, rows.values, owned, none, 1, backend)
    if end is None:
        return [rows.numbers, rows.values]
    sizes = {Slot.A_VALUES: graph.own.nnz, Slot.B_VALUES: graph.nnz - graph.own.nnz, Slot.X: graph.nrows}
    slots = {slot: backend.adopt(np.cos(np.arange(n)).astype(backend.scalar)) for slot, n in sizes.items()}
    arrays = [rows.numbers, rows.values, end.ghosts]
    for pattern, numeric in zip((end.own, end.others), end.numeric, strict=True):
        (values,) = backend.empty((pattern.nnz, backend.scalar))
        backend.run(numeric, {**slots, Slot.ALPHA: backend.scalar.type(-0.7), Slot.RESULT: values})
        arrays += [pattern.rowptr, pattern.colidx, values]
    return arrays
