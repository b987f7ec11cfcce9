"""What the set-up of multigrid asks the planner for. What only it needs is imported then: most programs have none."""

from __future__ import annotations

from typing import Any

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.plan import address
from petsc_gpufmt.patterns.csr import CsrPattern, validated_patterns
from petsc_gpufmt.planning import abi, multigrid_abi
from petsc_gpufmt.planning.abi import Ask
from petsc_gpufmt.planning.given import host_view, indices, on_backend, pattern_of
from petsc_gpufmt.planning.held_patterns import HeldPattern
from petsc_gpufmt.planning.kinds import Kind, Leases, fill_matrix, sizes_of


def _share_of(request: Any, entries: str) -> str:
    """The rows that this rank has of what lies on several, in its own columns and in others, in words."""
    own, others = request.own, request.others
    return f"of which this one has {own.nrows} x {own.ncols + others.ncols} rows with {own.nnz + others.nnz} {entries},"


def _what_tentative(request: Any) -> str:
    sizes = f"{request.nvectors} columns for each of {request.naggregates} aggregates"
    return f"tentative prolongator of {sizes} of {request.nnodes} nodes with {request.block} rows"


def _what_smoothed(request: Any) -> str:
    return f"prolongator of {request.naggregates} aggregates, smoothed by {sizes_of(request.matrix, 'matrix')}"


def _what_parallel_smoothed(request: Any) -> str:
    return f"prolongator of several ranks, smoothed by a matrix {_share_of(request, 'nonzeros')}"


def _what_start_vector(request: Any) -> str:
    return f"start vector of {request.nrows} rows"


def _what_graph(request: Any) -> str:
    return f"graph of {sizes_of(request.matrix, 'matrix')}"


def _what_aggregates(request: Any) -> str:
    o = request.graph
    return f"aggregates at distance {request.distance} of a {o.nrows} x {o.ncols} graph with {o.nnz} entries"


def _what_parallel_aggregates(request: Any) -> str:
    return f"aggregates of several ranks at distance {request.distance}, of a graph {_share_of(request, 'entries')}"


def _what_elsewhere(request: Any) -> str:
    return f"nodes, of {request.nnodes}, whose aggregates belong to other ranks"


def _what_parallel_tentative(request: Any) -> str:
    own, columns = request.own, f"{request.nvectors} columns for each of {request.own.naggregates} aggregates"
    nodes = f"{own.nnodes} nodes, and {request.nreceived} of other ranks, with {request.block} rows"
    return f"tentative prolongator of several ranks, of {columns} of {nodes}"


def _fill_graph(request: Any, answer: Any, backend: Backend) -> Leases:
    from petsc_gpufmt.coarsening.strength import strength_graph

    matrix = pattern_of(request.matrix, backend).validated(backend)
    values = on_backend(request.values, matrix.nnz, backend.scalar, backend) if request.threshold >= 0 else None
    made = strength_graph(
        matrix,
        values,
        backend,
        block=request.block,
        symmetrize=bool(request.symmetrize),
        threshold=request.threshold,
        keep_diagonal=bool(request.keep_diagonal),
        symmetric=bool(request.symmetric),
    )
    held = HeldPattern(matrix)
    answer.held = held.number
    answer.applies, answer.summary = made.pattern is not None, made.summary.encode()[:255]
    if made.pattern is None:
        return [(answer.outcome, [held])]
    pattern = made.pattern
    answer.is_matrix, answer.longest = pattern is matrix, pattern.longest
    graph, rowptr, colidx = answer.graph, pattern.rowptr, pattern.colidx
    graph.nrows, graph.ncols, graph.nnz = pattern.nrows, pattern.ncols, pattern.nnz
    graph.rowptr, graph.colidx = address(rowptr), address(colidx)
    return [(answer.outcome, [held, rowptr, colidx])]


def _fill_aggregates(request: Any, answer: Any, backend: Backend) -> Leases:
    from petsc_gpufmt.coarsening.aggregates import aggregate
    from petsc_gpufmt.coarsening.shuffle import shuffled

    o = request.graph
    rowptr = on_backend(o.rowptr, o.nrows + 1, backend.index, backend)
    graph = CsrPattern(
        o.nrows, o.ncols, rowptr, on_backend(o.colidx, o.nnz, backend.index, backend), longest=request.longest
    )
    if request.order:
        order = indices(request.order, graph.nrows, backend, keep=False)
    else:
        order = shuffled(graph.nrows, backend)
    found = aggregate(graph, order, request.distance, backend)
    answer.naggregates, answer.aggregates, answer.rounds = found.count, address(found.numbers), found.rounds
    words = f"{found.count} aggregates of {graph.nrows} rows at distance {request.distance}, in {found.rounds} rounds"
    answer.summary = words.encode()
    answer.turns = None if found.turns is None else address(found.turns)
    return [(answer.outcome, [found.numbers, found.turns])]


def _fill_parallel_aggregates(request: Any, answer: Any, backend: Backend) -> Leases:
    from petsc_gpufmt.coarsening.parallel_aggregates import RankGraph, plan_aggregates, symmetric_part

    given = [request.own, *([request.others] if request.others.rowptr else [])]
    own, *others = validated_patterns([pattern_of(o, backend) for o in given], backend)
    graph = RankGraph(own, others[0] if others else None, request.first)
    answer.applies = True
    if not request.symmetric:
        ghosts = indices(request.ghosts, graph.nghosts, backend, keep=False)
        answer.applies, answer.asymmetry = symmetric_part(graph, ghosts, backend)
    if not answer.applies:
        return [(answer.outcome, [])]
    planned = plan_aggregates(graph, request.distance, backend)
    kept: list[Any] = [planned.words, planned.nearest, planned.numbers, planned.counts]
    for k, pattern in enumerate((own, *others)):
        kept.append(held := HeldPattern(pattern))
        answer.held[k] = held.number
    for step, launches in planned.steps.items():
        kept += abi.export_plan(launches, answer.steps[step])
    answer.words, answer.nearest, answer.numbers, answer.counts = map(address, kept[:4])
    return [(answer.outcome, kept)]


def _fill_tentative(request: Any, answer: Any, backend: Backend) -> Leases:
    from petsc_gpufmt.coarsening.prolongator import tentative

    near_null = None
    if request.near_null:
        size = request.nvectors * request.nnodes * request.block
        near_null = backend.adopt(host_view(request.near_null, size, backend.real), keep=True)
    aggregates = on_backend(request.aggregates, request.nnodes, backend.index, backend)
    turns = on_backend(request.turns, request.nnodes, np.dtype(np.uint8), backend) if request.turns else None
    made = tentative(aggregates, request.naggregates, request.block, near_null, request.nvectors, backend, turns)
    kept = [made.coarse, *fill_matrix(answer, made.pattern, made.numeric)]
    answer.coarse_near_null = address(made.coarse)
    words = f"{request.nvectors} columns for each of {request.naggregates} aggregates, {answer.nnz} entries"
    answer.summary = words.encode()
    return [(answer.outcome, kept)]


def _fill_elsewhere(request: Any, answer: Any, backend: Backend) -> Leases:
    from petsc_gpufmt.coarsening.parallel_prolongator import elsewhere

    nodes, aggregates = elsewhere(_rank_aggregates(request, backend), backend)
    answer.count, answer.nodes, answer.aggregates = nodes.size, address(nodes), address(aggregates)
    return [(answer.outcome, [nodes, aggregates])]


def _fill_parallel_tentative(request: Any, answer: Any, backend: Backend) -> Leases:
    from petsc_gpufmt.coarsening.parallel_prolongator import parallel_tentative, tentative_rows

    received = host_view(request.received, request.nreceived, backend.index)
    ghosts = host_view(request.ghosts, request.nghosts, backend.index).copy()
    near_null, block, nvectors = None, request.block, request.nvectors
    if request.near_null:
        size = nvectors * (request.own.nnodes + request.nreceived) * block
        near_null = backend.adopt(host_view(request.near_null, size, backend.real))
    own = _rank_aggregates(request.own, backend)
    made = parallel_tentative(own, received, ghosts, block, near_null, nvectors, backend)
    kept = [ghosts, made.values, made.elsewhere, made.coarse, *_fill_blocks(answer, (made.own, made.others))]
    answer.nghosts, answer.ghosts = ghosts.size, address(ghosts)
    answer.values, answer.elsewhere, answer.coarse_near_null = map(address, kept[1:4])
    if request.nlooked_at >= 0:
        rows = tentative_rows(own, made, request.nlooked_at, block, nvectors, backend)
        answer.numbers, answer.tentative = address(rows.numbers), address(rows.values)
        kept += [rows.numbers, rows.values, *abi.export_plan(rows.fill, answer.rows)]
    return [(answer.outcome, kept)]


def _fill_blocks(answer: Any, patterns: tuple[CsrPattern, CsrPattern]) -> list[Any]:
    """Both blocks of a prolongator; returns what must live as long as the answer is used."""
    kept = []
    for pattern, struct in zip(patterns, answer.blocks, strict=True):
        kept.append(held := HeldPattern(pattern))
        struct.ncols, struct.nnz, struct.held = pattern.ncols, pattern.nnz, held.number
        struct.rowptr, struct.colidx = address(pattern.rowptr), address(pattern.colidx)
    return kept


def _rank_aggregates(request: Any, backend: Backend) -> Any:
    from petsc_gpufmt.coarsening.parallel_prolongator import RankAggregates

    numbers = on_backend(request.aggregates, request.nnodes, backend.index, backend)
    return RankAggregates(numbers, request.first, request.naggregates)


def _fill_smoothed(request: Any, answer: Any, backend: Backend) -> Leases:
    from petsc_gpufmt.coarsening.smoothed import smoothed

    block, nvectors = request.block, request.nvectors
    matrix = pattern_of(request.matrix, backend).validated(backend)
    aggregates = on_backend(request.aggregates, matrix.nrows // max(block, 1), backend.index, backend)
    made = smoothed(matrix, aggregates, request.naggregates, block, nvectors, backend)
    answer.applies = made is not None
    if made is None:
        return [(answer.outcome, [])]
    kept = fill_matrix(answer, made.pattern, made.numeric)
    answer.summary = f"smoothed without a general product, {answer.nnz} entries".encode()
    return [(answer.outcome, kept)]


def _fill_parallel_smoothed(request: Any, answer: Any, backend: Backend) -> Leases:
    from petsc_gpufmt.coarsening.parallel_aggregates import RankGraph
    from petsc_gpufmt.coarsening.parallel_smoothed import parallel_smoothed

    own, others = validated_patterns([pattern_of(o, backend) for o in (request.own, request.others)], backend)
    nvectors, nrows = request.nvectors, own.nrows + others.ncols
    numbers = on_backend(request.numbers, nrows, backend.index, backend)
    tentative = on_backend(request.tentative, nrows * nvectors, backend.scalar, backend)
    ghosts = host_view(request.ghosts, request.nghosts, backend.index)
    owned = request.first, request.naggregates
    matrix = RankGraph(own, others, 0)
    made = parallel_smoothed(matrix, request.nlow, numbers, tentative, owned, ghosts, nvectors, backend)
    answer.applies = made is not None
    if made is None:
        return [(answer.outcome, [])]
    kept = [made.ghosts, *_fill_blocks(answer, (made.own, made.others))]
    for launches, plan in zip(made.numeric, answer.numeric, strict=True):
        kept += abi.export_plan(launches, plan)
    answer.nghosts, answer.ghosts = made.ghosts.size, address(made.ghosts)
    answer.summary = f"smoothed without a general product, {made.own.nnz + made.others.nnz} entries".encode()
    return [(answer.outcome, kept)]


def _fill_start_vector(request: Any, answer: Any, backend: Backend) -> Leases:
    from petsc_gpufmt.coarsening.start_vector import start_vector

    return [(answer.outcome, abi.export_plan(start_vector(request.nrows, request.first, backend), answer.fill))]


MULTIGRID_KINDS = {
    Ask.GRAPH: Kind(multigrid_abi.GraphRequestStruct, multigrid_abi.GraphAnswerStruct, _what_graph, _fill_graph),
    Ask.AGGREGATES: Kind(
        multigrid_abi.AggregatesRequestStruct, multigrid_abi.AggregatesAnswerStruct, _what_aggregates, _fill_aggregates
    ),
    Ask.PARALLEL_AGGREGATES: Kind(
        multigrid_abi.ParallelAggregatesRequestStruct,
        multigrid_abi.ParallelAggregatesAnswerStruct,
        _what_parallel_aggregates,
        _fill_parallel_aggregates,
    ),
    Ask.ELSEWHERE: Kind(
        multigrid_abi.ElsewhereRequestStruct, multigrid_abi.ElsewhereAnswerStruct, _what_elsewhere, _fill_elsewhere
    ),
    Ask.PARALLEL_TENTATIVE: Kind(
        multigrid_abi.ParallelTentativeRequestStruct,
        multigrid_abi.ParallelTentativeAnswerStruct,
        _what_parallel_tentative,
        _fill_parallel_tentative,
    ),
    Ask.TENTATIVE: Kind(
        multigrid_abi.TentativeRequestStruct, multigrid_abi.TentativeAnswerStruct, _what_tentative, _fill_tentative
    ),
    Ask.SMOOTHED: Kind(
        multigrid_abi.SmoothedRequestStruct, multigrid_abi.SmoothedAnswerStruct, _what_smoothed, _fill_smoothed
    ),
    Ask.PARALLEL_SMOOTHED: Kind(
        multigrid_abi.ParallelSmoothedRequestStruct,
        multigrid_abi.ParallelSmoothedAnswerStruct,
        _what_parallel_smoothed,
        _fill_parallel_smoothed,
    ),
    Ask.START_VECTOR: Kind(
        multigrid_abi.StartVectorRequestStruct,
        multigrid_abi.StartVectorAnswerStruct,
        _what_start_vector,
        _fill_start_vector,
    ),
}
