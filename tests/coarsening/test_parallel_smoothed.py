"""Smoothed prolongators of several ranks: together they have the rows of that of one, bit by bit."""

import ctypes

import numpy as np
import pytest
import scipy.sparse
from answers import Answer, failing, requested_place, settled_tokens
from builders import CsrMatrix, stencil, uniform
from graphs import Graph
from places import EVERY_PLACE, INDEX, SCALAR, alpha_slots, make_backend
from several_ranks import parts

from petsc_gpufmt import errors
from petsc_gpufmt.backends.backend import HostBackend
from petsc_gpufmt.backends.plan import Slot
from petsc_gpufmt.coarsening import parallel_smoothed as smoothing
from petsc_gpufmt.coarsening.parallel_prolongator import ParallelTentative, RankAggregates, tentative_rows
from petsc_gpufmt.coarsening.parallel_smoothed import parallel_smoothed
from petsc_gpufmt.coarsening.smoothed import smoothed
from petsc_gpufmt.patterns.csr import CsrPattern
from petsc_gpufmt.planning import abi, multigrid_abi

NAGGREGATES = 23
OWNED = ([0, 23], [0, 9, 23], [0, 0, 7, 7, 23])  # aggregates of ranks begin there


class Whole:
    """A matrix, and a tentative prolongator of random values: rows of an aggregate may be anywhere."""

    def __init__(self, matrix, nvectors):
        random = np.random.default_rng(140)
        self.matrix, self.nvectors = matrix, nvectors
        self.numbers = random.integers(-1, NAGGREGATES, matrix.nrows)
        self.tentative = random.standard_normal((matrix.nrows, nvectors))
        self.tentative[self.numbers < 0] = 0.0
        self.diagonal = random.standard_normal(matrix.nrows)

    @property
    def size(self):
        return self.matrix.nrows

    def begins(self, owned):
        """Ranks without aggregates may have rows, and the other way round."""
        third, inner = self.size // 3, len(owned) - 2
        return [0, *[third, third, third + 1][:inner], self.size]

    def values(self, numeric, pattern, slots, backend):
        """The values of a part of the prolongator, as a matrix."""
        (result,) = backend.empty((pattern.nnz, backend.scalar))
        slots = {slot: backend.adopt(array.astype(backend.scalar)) for slot, array in slots.items()}
        backend.run(numeric, {**slots, **alpha_slots(-0.625, backend.scalar), Slot.RESULT: result})
        arrays = (backend.to_host(a) for a in (result, pattern.colidx, pattern.rowptr))
        return scipy.sparse.csr_matrix(tuple(arrays), shape=(pattern.nrows, pattern.ncols))

    def alone(self, backend):
        pattern = self.matrix.pattern_on(backend).validated(backend)
        aggregates = backend.adopt(self.numbers.astype(backend.index))
        made = smoothed(pattern, aggregates, NAGGREGATES, 1, self.nvectors, backend)
        slots = {Slot.A_VALUES: self.matrix.values, Slot.B_VALUES: self.tentative[self.numbers >= 0].ravel()}
        return self.values(made.numeric, made.pattern, {**slots, Slot.X: self.diagonal}, backend)

    def rank(self, begins, owned, r, backend):
        """The arguments of `parallel_smoothed`, and the values of both blocks of the matrix."""
        graph, ghosts = parts(Graph(self.matrix.rowptr, self.matrix.colidx), begins, backend)[r]
        own, entries = slice(begins[r], begins[r + 1]), slice(*self.matrix.rowptr[[begins[r], begins[r + 1]]])
        columns, values = self.matrix.colidx[entries], self.matrix.values[entries]
        inside = (columns >= begins[r]) & (columns < begins[r + 1])
        rows = np.concatenate([np.arange(*own.indices(self.size)), ghosts]).astype(int)
        arrays = (self.numbers[rows].astype(backend.index), self.tentative[rows].ravel().astype(backend.scalar))
        mine = (owned[r], owned[r + 1] - owned[r])
        numbers = self.numbers[own]
        others = np.unique(numbers[(numbers >= 0) & ((numbers < mine[0]) | (numbers >= owned[r + 1]))])
        nlow = int((ghosts < begins[r]).sum())
        given = (graph, nlow, *map(backend.adopt, arrays), mine, others.astype(backend.index), self.nvectors)
        slots = {Slot.A_VALUES: values[inside], Slot.B_VALUES: values[~inside], Slot.X: self.diagonal[own]}
        return given, slots

    def together(self, owned, backend):
        begins, rows = self.begins(owned), []
        for r in range(len(owned) - 1):
            given, slots = self.rank(begins, owned, r, backend)
            made = parallel_smoothed(*given, backend)
            here, there = (
                self.values(numeric, pattern, slots, backend).tocoo()
                for numeric, pattern in zip(made.numeric, (made.own, made.others), strict=True)
            )
            assert (np.diff(made.ghosts) > 0).all()
            rows.append(self.joined(here, there, owned[r], made.ghosts))
        return scipy.sparse.vstack(rows).tocsr()

    def joined(self, here, there, first, ghosts):
        n = self.nvectors
        columns = np.concatenate([here.col + first * n, ghosts[there.col // n] * n + there.col % n])
        rows, values = np.concatenate([here.row, there.row]), np.concatenate([here.data, there.data])
        order = np.lexsort((columns, rows))
        rowptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=here.shape[0]))])
        return scipy.sparse.csr_matrix((values[order], columns[order], rowptr), shape=(here.shape[0], NAGGREGATES * n))


CASES = {
    "stencil": lambda: Whole(stencil(8, 7, 5), 1),
    "vectors": lambda: Whole(stencil(5, 4, 5), 3),
    "long rows": lambda: Whole(uniform(90, 90, 40, seed=141), 2),
    "one rank's rows": lambda: Whole(CsrMatrix(9, 9, np.arange(10), np.arange(9), np.ones(9)), 1),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("place", [*EVERY_PLACE, "device_like"])
def test_ranks_make_together_what_one_makes_alone(request, place, name):
    backend, case = make_backend(request, place), CASES[name]()
    expected = case.alone(backend)
    for owned in OWNED:
        found = case.together(owned, backend)
        for array in ("indptr", "indices", "data"):
            assert np.array_equal(getattr(found, array), getattr(expected, array)), (owned, array)


@pytest.mark.double
@pytest.mark.real
@pytest.mark.parametrize(("scalar", "index"), [("float64", "int64"), ("float32", "int32")])
def test_kernels_are_right_with_all_types(request, scalar, index):
    case = CASES["vectors"]()
    backend = make_backend(request, "emulation", np.dtype(scalar), np.dtype(index))
    found, expected = case.together(OWNED[1], backend), case.alone(make_backend(request, "host"))
    assert found.dtype == scalar and found.indices.tolist() == expected.indices.tolist()
    assert np.allclose(found.data, expected.data, rtol=0, atol=1e4 * np.finfo(scalar).eps)


@pytest.mark.parametrize("block", [1, 3])
@pytest.mark.parametrize("place", ["host", "device_like"])
def test_rows_of_the_tentative_prolongator_lie_one_by_one(request, place, block):
    """Rows of aggregates of this rank, of others, and of none."""
    backend = make_backend(request, place)
    numbers, nvectors = np.array([5, 9, -1, 6, 2]), 2
    counts = {name: np.repeat(chosen, block) * nvectors for name, chosen in _which(numbers).items()}
    arrays = []
    for name, first in (("own", 100), ("others", 200)):
        rowptr = np.concatenate([[0], np.cumsum(counts[name])])
        colidx = np.zeros(rowptr[-1])
        pattern = CsrPattern(
            numbers.size * block, 9, *(backend.adopt(a.astype(backend.index)) for a in (rowptr, colidx))
        )
        arrays += [pattern, backend.adopt((first + np.arange(rowptr[-1])).astype(backend.scalar))]
    own, values, others, of_others = arrays
    rank = RankAggregates(backend.adopt(numbers.astype(backend.index)), 5, 2)
    made = ParallelTentative(own, others, values, of_others, None)
    rows = tentative_rows(rank, made, 4, block, nvectors, backend)
    backend.run(rows.fill)
    nrows = numbers.size * block
    assert backend.to_host(rows.numbers)[:nrows].tolist() == np.repeat(numbers, block).tolist()
    expected = np.zeros((nrows, nvectors))
    for name, first in (("own", 100), ("others", 200)):
        expected[counts[name] > 0] = first + np.arange(counts[name].sum()).reshape(-1, nvectors)
    assert backend.to_host(rows.values)[: nrows * nvectors].tolist() == expected.ravel().tolist()
    assert (rows.numbers.size, rows.values.size) == (nrows + 4, (nrows + 4) * nvectors)


def _which(numbers):
    own = (numbers >= 5) & (numbers < 7)
    return {"own": own, "others": ~own & (numbers >= 0)}


def test_rows_that_are_too_long_are_left_to_the_general_product(monkeypatch):
    backend, case = HostBackend(SCALAR, INDEX), CASES["stencil"]()
    given, _ = case.rank([0, 70, 280], OWNED[1], 0, backend)
    for longest, applies in ((given[0].longest, True), (given[0].longest - 1, False)):
        monkeypatch.setattr(smoothing, "LONGEST_ROW", longest)
        assert (parallel_smoothed(*given, backend) is not None) == applies


def test_more_entries_than_an_index_counts_are_refused(monkeypatch):
    backend, case = HostBackend(SCALAR, INDEX), CASES["stencil"]()
    given, _ = case.rank([0, 70, 280], OWNED[1], 0, backend)
    monkeypatch.setattr(backend, "largest_index", 7)
    with pytest.raises(errors.IndexOverflowError, match="a prolongator has .* entries, a PetscInt of .* counts 7"):
        parallel_smoothed(*given, backend)


def test_sizes_that_do_not_fit_are_refused():
    backend, case = HostBackend(SCALAR, INDEX), CASES["stencil"]()
    graph, nlow, numbers, *others = case.rank([0, 70, 280], OWNED[1], 0, backend)[0]
    words = "70 rows with 70 columns of a rank and .* of others are to smooth 1 columns for each aggregate of 69 rows"
    with pytest.raises(errors.PatternError, match=words):
        parallel_smoothed(graph, nlow, numbers[:69], *others, backend)


class AnsweredSmoothed(Answer):
    """The part of a smoothed prolongator that a rank has."""

    def __init__(self, case, owned, r, **fields):
        (graph, nlow, *arrays, mine, ghosts, nvectors), self.slots = case.rank(
            case.begins(owned), owned, r, HostBackend(SCALAR, INDEX)
        )
        self.slots = {slot: array.astype(SCALAR) for slot, array in self.slots.items()}
        self.given = [graph, ghosts, *arrays]  # what the request has the addresses of
        numbers, tentative = arrays
        own, others = (
            abi.OperandStruct(p.nrows, p.ncols, p.nnz, p.rowptr.ctypes.data, p.colidx.ctypes.data)
            for p in (graph.own, graph.others)
        )
        request = multigrid_abi.ParallelSmoothedRequestStruct(
            place=requested_place(),
            own=own,
            others=others,
            nlow=nlow,
            first=mine[0],
            naggregates=mine[1],
            nghosts=ghosts.size,
            ghosts=ghosts.ctypes.data,
            numbers=numbers.ctypes.data,
            tentative=tentative.ctypes.data,
            nvectors=nvectors,
        )
        super().__init__(abi.Ask.PARALLEL_SMOOTHED, request, multigrid_abi.ParallelSmoothedAnswerStruct(), fields)

    @staticmethod
    def array(address, size):
        return np.frombuffer((ctypes.c_char * (size * INDEX.itemsize)).from_address(address), INDEX)


def test_an_answer_has_the_patterns_and_the_plans_of_the_values():
    case, owned, r, before = CASES["vectors"](), OWNED[2], 3, settled_tokens()
    first = case.begins(owned)[r]
    with AnsweredSmoothed(case, owned, r) as a:
        answer, blocks = a.answer, []
        assert a.error == (0, "") and answer.applies and settled_tokens() == before + 1
        nnz = sum(block.nnz for block in answer.blocks)
        assert answer.summary.decode() == f"smoothed without a general product, {nnz} entries"
        for block, plan in zip(answer.blocks, answer.numeric, strict=True):
            values = np.full(block.nnz, np.nan, SCALAR)
            a.launch(plan, {**a.slots, **alpha_slots(-0.625, SCALAR), Slot.RESULT: values})
            pattern = a.array(block.colidx, block.nnz), a.array(block.rowptr, case.size - first + 1)
            blocks.append(scipy.sparse.csr_matrix((values, *pattern), shape=(case.size - first, block.ncols)).tocoo())
            assert block.held > 0
        found = case.joined(*blocks, owned[r], a.array(answer.ghosts, answer.nghosts))
    expected = case.alone(HostBackend(SCALAR, INDEX))[first:]
    assert found.indices.tolist() == expected.indices.tolist() and found.data.tolist() == expected.data.tolist()
    assert settled_tokens() == before


def test_an_answer_says_that_rows_are_too_long(monkeypatch):
    monkeypatch.setattr(smoothing, "LONGEST_ROW", 2)
    with AnsweredSmoothed(CASES["stencil"](), OWNED[1], 0) as a:
        assert a.error == (0, "") and not a.answer.applies and not a.answer.numeric[0].nlaunches


def test_a_request_that_cannot_be_served_is_answered_by_code_and_one_line():
    with AnsweredSmoothed(CASES["stencil"](), OWNED[0], 0, nvectors=0) as a:
        assert a.token == 0 and a.error[0] == errors.PatternError.petsc_code
        assert a.error[1].startswith(
            "prolongator of several ranks, smoothed by a matrix of which this one has 280 x 280 rows"
        )


def test_a_plan_that_runs_out_of_memory_once_is_tried_again(monkeypatch):
    calls = failing(monkeypatch, smoothing, "parallel_smoothed", MemoryError("first try"))
    with AnsweredSmoothed(CASES["stencil"](), OWNED[1], 1) as a:
        assert a.error == (0, "") and len(calls) == 2
