"""Aggregates of several ranks: those of the greedy algorithm in the order of the hash, on any number of ranks."""

import numpy as np
import pytest
from answers import Answer, requested_place, settled_tokens
from emulation.backend import EmulatedBackend
from graphs import GRAPHS, Graph, graph, greedy_aggregates, path
from places import EVERY_PLACE, INDEX, SCALAR, make_backend
from several_ranks import aggregates_together, parts

from petsc_gpufmt import errors
from petsc_gpufmt.backends.backend import HostBackend
from petsc_gpufmt.backends.plan import AggregationStep, Slot
from petsc_gpufmt.coarsening.parallel_aggregates import RankGraph, plan_aggregates, symmetric_part
from petsc_gpufmt.patterns.csr import CsrPattern
from petsc_gpufmt.planning import abi, multigrid_abi, planner

FACTORS = 0x9E3779B97F4A7C15, 0x6A09E667F3BCC909, 0xBB67AE8584CAA73B


def hashes(nrows: int, index: np.dtype) -> list[int]:
    """Of the numbers of rows, by Python's whole numbers."""
    half, mask = 4 * index.itemsize, (1 << (8 * index.itemsize - 1)) - 1

    def hash_of(word: int) -> int:
        for factor in FACTORS:
            word = (word ^ word >> half) * factor & mask
        return word ^ word >> half

    return [hash_of(row + 1) for row in range(nrows)]


def hash_order(nrows: int, index: np.dtype = INDEX) -> np.ndarray:
    return np.argsort(hashes(nrows, index))[::-1]


def cuts(nrows: int) -> list[list[int]]:
    """Where the rows of ranks begin: on 1 to 4 ranks, some of them without rows, or with one."""
    half, third = nrows // 2, nrows // 3
    return [[0, nrows], [0, half, nrows], [0, third, 2 * third, nrows], [0, 0, half, half, nrows], [0, 1, 2, 2, nrows]]


@pytest.mark.parametrize("distance", [1, 2])
@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("place", ["host", "emulation"])
def test_aggregates_do_not_depend_on_the_number_of_ranks(request, place, name, distance):
    backend = make_backend(request, place)
    expected = greedy_aggregates(graph(name), hash_order(graph(name).nrows), distance)[0]
    several = cuts(graph(name).nrows)
    for begins in several if place == "host" or graph(name).nrows < 400 else several[2:3]:
        if np.any(np.diff(begins) < 0):
            continue
        for decisions in (1, 2, 4) if place == "host" else (2,):
            numbers, _ = aggregates_together(graph(name), begins, distance, backend, decisions)
            assert numbers.tolist() == expected.tolist() and numbers.dtype == INDEX


@pytest.mark.parametrize("distance", [1, 2])
def test_several_decisions_between_two_exchanges_save_rounds(distance):
    backend = HostBackend(SCALAR, INDEX)
    once, often = (
        aggregates_together(graph("7-point"), [0, 243, 486, 729], distance, backend, decisions)[1]
        for decisions in (1, 4)
    )
    assert 2 * often <= once


@pytest.mark.parametrize("place", EVERY_PLACE)
@pytest.mark.parametrize("index", [np.dtype(np.int32), np.dtype(np.int64)])
def test_all_rows_on_one_rank(request, place, index):
    if place == "host" and index != INDEX:
        pytest.skip("the host has PETSc's types alone")
    backend = make_backend(request, place, index=index)
    (part,) = parts(graph("geometric"), [0, 600], backend)
    plan = plan_aggregates(part.graph, 2, backend)
    left = 1
    while left:
        for step in (AggregationStep.LOOK, AggregationStep.DECIDE):
            backend.run(plan.steps[step])
        left, roots = backend.first(plan.counts, 2)
    backend.run(plan.steps[AggregationStep.LOOK])
    backend.run(plan.steps[AggregationStep.NUMBER], {Slot.ALPHA: np.int64(5)})
    for step in (AggregationStep.JOIN_NEXT, AggregationStep.JOIN_BEYOND):
        backend.run(plan.steps[step])
    expected = greedy_aggregates(graph("geometric"), hash_order(600, index), 2)[0]
    numbers = backend.to_host(plan.numbers)
    assert numbers.tolist() == np.where(expected >= 0, expected + 5, -1).tolist()
    assert roots == expected.max() + 1


@pytest.mark.parametrize("index", [np.dtype(np.int32), np.dtype(np.int64)])
def test_kernels_alone_compute_with_arrays_of_a_device(emulation_folder, index):
    device = EmulatedBackend(SCALAR, index, emulation_folder, device_like=True)
    for part in parts(graph("7-point"), [0, 300, 729], device):
        assert symmetric_part(part.graph, device.adopt(part.ghosts.astype(index)), device)[0]
        plan = plan_aggregates(part.graph, 1, device)
        words = device.to_host(plan.words)[: part.graph.nrows]
        assert words.tolist() == hashes(729, index)[part.graph.first :][: part.graph.nrows]


def test_hashes_differ_and_are_as_good_as_random():
    numbers = np.array(hashes(1 << 17, np.dtype(np.int32)))
    assert np.unique(numbers).size == numbers.size and numbers.min() > 0 and numbers.max() < 1 << 31
    for distance in (1, 47, 1024):  # neighbours on grids
        smaller = np.mean(numbers[:-distance] < numbers[distance:])
        assert abs(smaller - 0.5) < 0.005


@pytest.mark.parametrize("place", ["host", "emulation"])
def test_symmetric_patterns_are_found_to_be(request, place):
    backend = make_backend(request, place)
    for name in ("7-point", "with lone rows", "no rows"):
        for begins in cuts(graph(name).nrows)[:3]:
            found = [
                symmetric_part(p.graph, p.ghosts.astype(INDEX), backend) for p in parts(graph(name), begins, backend)
            ]
            assert all(symmetric for symmetric, _ in found)
            assert sum(number for _, number in found) % (1 << 64) == 0


def without(graph: Graph, row: int, column: int) -> Graph:
    rows = graph.rows
    rows[row] = rows[row][rows[row] != column]
    return Graph(np.concatenate([[0], np.cumsum([r.size for r in rows])]), np.concatenate(rows))


@pytest.mark.parametrize("place", ["host", "emulation"])
@pytest.mark.parametrize(("row", "column"), [(4, 5), (7, 7), (14, 15), (15, 14)])
def test_an_entry_that_lacks_its_counterpart_is_found(request, place, row, column):
    backend = make_backend(request, place)
    ranks = parts(without(graph("path"), row, column), [0, 15, 300], backend)
    found = [symmetric_part(p.graph, p.ghosts.astype(INDEX), backend) for p in ranks]
    assert not all(symmetric for symmetric, _ in found) or sum(number for _, number in found) % (1 << 64)


def test_bad_patterns_are_refused():
    backend = HostBackend(SCALAR, INDEX)
    rowptr, colidx = np.array([0, 1, 2], INDEX), np.array([0, 1], INDEX)
    own, wide = CsrPattern(2, 2, rowptr, colidx), CsrPattern(2, 3, rowptr, colidx)
    with pytest.raises(errors.UnsupportedError, match="a distance of more than 3: there are aggregates for 1 and 2"):
        plan_aggregates(RankGraph(own, None, 0), 3, backend)
    with pytest.raises(errors.PatternError, match="aggregates of a 2 x 3 pattern of the columns"):
        plan_aggregates(RankGraph(wide, None, 0), 1, backend)
    others = CsrPattern(1, 1, rowptr[:2], colidx[:1])
    with pytest.raises(errors.PatternError, match="a 2 x 2 pattern beside 1 x 1 of the columns of other ranks"):
        symmetric_part(RankGraph(own, others, 0), colidx[:1], backend)


class AnsweredStep(Answer):
    """Aggregates of the first rows of a graph, which has no other rows than ghosts."""

    def __init__(self, own, others, **fields):
        self.arrays = [a.astype(INDEX) for a in (*own, *others, np.arange(9))]
        operands = [
            abi.OperandStruct(rowptr.size - 1, ncols, colidx.size, rowptr.ctypes.data, colidx.ctypes.data)
            for rowptr, colidx, ncols in ((*self.arrays[:2], own.nrows), (*self.arrays[2:4], 2))
        ]
        request = multigrid_abi.ParallelAggregatesRequestStruct(
            place=requested_place("host"),
            own=operands[0],
            others=operands[1],
            ghosts=self.arrays[4].ctypes.data,
            distance=1,
        )
        super().__init__(abi.Ask.PARALLEL_AGGREGATES, request, multigrid_abi.ParallelAggregatesAnswerStruct(), fields)


def test_an_answer_has_the_steps():
    before = settled_tokens()
    with AnsweredStep(path(5), Graph(np.zeros(6), np.zeros(0)), symmetric=1) as a:
        assert a.error == (0, "") and planner.owned_tokens() == before + 1
        assert a.answer.applies and a.answer.words and a.answer.nearest and a.answer.numbers and a.answer.counts
        assert [step.nlaunches for step in a.answer.steps] == [1] * len(AggregationStep)
    with AnsweredStep(without(path(5), 2, 3), Graph(np.zeros(6), np.zeros(0))) as a:
        assert a.error == (0, "") and not a.answer.applies
    with AnsweredStep(path(5), Graph(np.array([0, 0, 0, 0, 0, 1]), np.zeros(1))) as a:
        assert a.answer.applies and a.answer.asymmetry
    assert planner.owned_tokens() == before


def test_a_request_that_cannot_be_served_is_answered_by_code_and_one_line():
    with AnsweredStep(path(5), Graph(np.array([0, 0, 0, 0, 0, 1]), np.array([7]))) as a:
        assert a.error[0] == errors.PatternError.petsc_code
        assert a.error[1].startswith(
            "aggregates of several ranks at distance 1, of a graph of which this one has 5 x 7"
        )
        assert "column indices lie in [7, 7]" in a.error[1]
