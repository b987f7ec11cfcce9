"""Aggregates: those of the greedy algorithm and of PETSc's GAMG, on the host and by the device kernels."""

import ctypes

import numpy as np
import pytest
from agg import agg_order, laplacian, of_agg
from answers import Answer, failing, requested_place, settled_tokens
from emulation.backend import EmulatedBackend
from fake_driver import fake_driver
from graphs import GRAPHS, Graph, graph, greedy_aggregates, path, some_order
from places import EVERY_PLACE, INDEX, SCALAR, make_backend
from stored_matrix import assert_same_bits

from petsc_gpufmt import errors
from petsc_gpufmt.backends.backend import CudaBackend, HostBackend
from petsc_gpufmt.coarsening import aggregates
from petsc_gpufmt.coarsening.aggregates import Aggregates, aggregate
from petsc_gpufmt.patterns.csr import CsrPattern
from petsc_gpufmt.planning import abi, multigrid_abi, planner

FEW_THREADS = 512  # of a device on which they take rows in turns


def aggregated(graph: Graph, order: np.ndarray, distance: int, backend) -> Aggregates:
    """Aggregates whose numbers are on the host."""
    rowptr, colidx, order = (backend.adopt(a.astype(backend.index)) for a in (*graph, order))
    csr = CsrPattern(graph.nrows, graph.nrows, rowptr, colidx).validated(backend)
    found = aggregate(csr, order, distance, backend)
    turns = None if found.turns is None else backend.to_host(found.turns)
    return Aggregates(found.count, backend.to_host(found.numbers), turns, found.rounds)


@pytest.mark.parametrize("distance", [1, 2])
@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("place", EVERY_PLACE)
def test_aggregates_are_those_of_the_greedy_algorithm(request, place, name, distance):
    backend = make_backend(request, place, resident_threads=FEW_THREADS)
    order = some_order(graph(name).nrows)
    found = aggregated(graph(name), order, distance, backend)
    expected, turns = greedy_aggregates(graph(name), order, distance)
    assert found.numbers.tolist() == expected.tolist() and found.numbers.dtype == backend.index
    assert found.count == max(expected, default=-1) + 1
    if distance == 1:
        assert found.turns is None
    else:
        assert np.array_equal(found.turns[expected >= 0], turns[expected >= 0])


@pytest.mark.parametrize(("scalar", "index"), [("float64", "int64"), ("float32", "int32")])
def test_kernels_alone_compute_with_arrays_of_a_device(emulation_folder, scalar, index):
    device = EmulatedBackend(np.dtype(scalar), np.dtype(index), emulation_folder, FEW_THREADS, device_like=True)
    for name in ("with lone rows", "geometric"):
        order = some_order(graph(name).nrows)
        found = aggregated(graph(name), order, 2, device)
        expected, turns = greedy_aggregates(graph(name), order, 2)
        assert found.numbers.tolist() == expected.tolist()
        assert np.array_equal(found.turns[expected >= 0], turns[expected >= 0])


@pytest.mark.parametrize("distance", [1, 2])
def test_host_and_device_take_the_same_rounds(emulation_folder, distance):
    order = some_order(graph("7-point").nrows)
    places = HostBackend(SCALAR, INDEX), EmulatedBackend(SCALAR, INDEX, emulation_folder, FEW_THREADS)
    on_host, on_device = (aggregated(graph("7-point"), order, distance, backend) for backend in places)
    assert on_host.rounds == on_device.rounds > aggregates.ROUNDS
    assert_same_bits(on_host.numbers, on_device.numbers)


@pytest.mark.parametrize("distance", [1, 2])
def test_rounds_go_on_as_long_as_rows_wait_for_each_other(distance):
    chain = path(900)
    found = aggregated(chain, np.arange(900), distance, HostBackend(SCALAR, INDEX))
    assert found.rounds > 250
    assert found.numbers.tolist() == greedy_aggregates(chain, np.arange(900), distance)[0].tolist()


@pytest.mark.parametrize("distance", [1, 2])
def test_patterns_that_are_not_symmetric_have_an_end(distance):
    random = np.random.default_rng(113)
    rowptr = np.arange(301) * 4
    found = aggregated(
        Graph(rowptr, random.integers(300, size=1200)), some_order(300), distance, HostBackend(SCALAR, INDEX)
    )
    assert 0 < found.count < 300 and set(found.numbers) <= set(range(-1, found.count))


@pytest.mark.parametrize("block", [1, 3])
@pytest.mark.parametrize("distance", [1, 2])
@pytest.mark.parametrize("name", ["7-point", "27-point", "geometric", "with lone rows", "path"])
def test_aggregates_are_those_of_petsc(options, name, distance, block):
    P = of_agg(laplacian(graph(name), block), distance, options)
    rowptr, colidx, _ = P.getValuesCSR()
    nodes = np.full(graph(name).nrows, -1)
    member = np.diff(rowptr[::block]) > 0
    nodes[member] = colidx[rowptr[:-1:block][member]] // block
    found = aggregated(graph(name), agg_order(graph(name).nrows), distance, HostBackend(SCALAR, INDEX))
    assert found.numbers.tolist() == nodes.tolist() and found.count * block == P.getSize()[1]


@pytest.mark.parametrize("place", ["host", "emulation"])
@pytest.mark.parametrize("order", [[0, 1, 2, 3, 5], [-1, 0, 1, 2, 3], [0, 1, 1, 3, 4]])
def test_an_order_without_some_row_is_refused(request, place, order):
    with pytest.raises(errors.PatternError, match="the order in which 5 rows are visited must have each of them once"):
        aggregated(path(5), np.array(order), 2, make_backend(request, place))


def test_bad_sizes_are_refused():
    backend = HostBackend(SCALAR, INDEX)
    with pytest.raises(errors.UnsupportedError, match="a distance of more than 3: there are aggregates for 1 and 2"):
        aggregated(path(5), np.arange(5), 3, backend)
    with pytest.raises(errors.PatternError, match="aggregates of a 5 x 5 pattern in an order of 4 rows"):
        aggregated(path(5), np.arange(4), 1, backend)
    wide = CsrPattern(2, 3, np.array([0, 1, 2], INDEX), np.array([0, 2], INDEX))
    with pytest.raises(errors.PatternError, match="aggregates of a 2 x 3 pattern"):
        aggregate(wide, np.arange(2, dtype=INDEX), 1, backend)


class AnsweredAggregates(Answer):
    """Aggregates of a graph."""

    def __init__(self, graph, order, distance, backend="host", **fields):
        self.rowptr, self.colidx, self.order = (a.astype(INDEX) for a in (*graph, order))
        operand = abi.OperandStruct(
            graph.nrows, graph.nrows, self.colidx.size, self.rowptr.ctypes.data, self.colidx.ctypes.data
        )
        request = multigrid_abi.AggregatesRequestStruct(
            place=requested_place(backend),
            graph=operand,
            longest=np.diff(self.rowptr).max(initial=0),
            order=self.order.ctypes.data,
            distance=distance,
        )
        super().__init__(abi.Ask.AGGREGATES, request, multigrid_abi.AggregatesAnswerStruct(), fields)

    def array(self, address, dtype):
        size = self.request.graph.nrows * dtype.itemsize
        return np.frombuffer((ctypes.c_char * size).from_address(address), dtype)


def test_an_answer_has_the_aggregates():
    order, before = some_order(600), settled_tokens()
    with AnsweredAggregates(graph("geometric"), order, 2) as a:
        assert a.error == (0, "") and planner.owned_tokens() == before + 1
        a.rowptr[:], a.colidx[:], a.order[:] = -1, -1, -1
        expected, turns = greedy_aggregates(graph("geometric"), order, 2)
        assert a.array(a.answer.aggregates, INDEX).tolist() == expected.tolist()
        assert a.array(a.answer.turns, aggregates.TURN).tolist() == turns.tolist()
        assert a.answer.naggregates == expected.max() + 1
        words = f"{a.answer.naggregates} aggregates of 600 rows at distance 2, in {a.answer.rounds} rounds"
        assert a.answer.summary.decode() == words and a.answer.rounds > 1
    assert planner.owned_tokens() == before


def test_a_request_that_cannot_be_served_is_answered_by_code_and_one_line():
    with AnsweredAggregates(path(5), np.array([0, 1, 2, 3, 9]), 1) as a:
        assert a.token == 0 and a.error[0] == errors.PatternError.petsc_code
        assert a.error[1].startswith("aggregates at distance 1 of a 5 x 5 graph with 13 entries on host: the order")


def test_a_plan_that_runs_out_of_memory_once_is_tried_again(monkeypatch):
    calls = failing(monkeypatch, aggregates, "aggregate", MemoryError("first try"))
    with AnsweredAggregates(path(5), np.arange(5), 1) as a:
        assert a.error == (0, "") and len(calls) == 2 and not a.answer.turns


def test_aggregates_keep_their_own_memory_alone(emulation_folder):
    with fake_driver(emulation_folder) as driver:
        device = CudaBackend(SCALAR, INDEX, device=0)
        csr = CsrPattern(900, 900, *(device.adopt(a.astype(INDEX)) for a in path(900))).validated(device)
        order = device.adopt(some_order(900).astype(INDEX))
        device.memory.trim()  # what no array uses is given back
        before = driver.used
        found = aggregate(csr, order, 2, device)
        device.memory.trim()
        assert found.numbers.size == 900 and driver.used - before < 2 * 900 * INDEX.itemsize
