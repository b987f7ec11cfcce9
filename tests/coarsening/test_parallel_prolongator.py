"""Tentative prolongators of aggregates that lie on several ranks, against those of one rank."""

import numpy as np
import pytest
import scipy.sparse
from answers import Answer, failing, requested_place
from bounds import rounding
from emulation.backend import EmulatedBackend
from graphs import graph
from places import INDEX, SCALAR, make_backend
from several_ranks import a_rank_alone, prolongators_together

from petsc_gpufmt import errors
from petsc_gpufmt.backends.backend import HostBackend
from petsc_gpufmt.backends.plan import Slot
from petsc_gpufmt.coarsening import parallel_prolongator
from petsc_gpufmt.coarsening.parallel_prolongator import RankAggregates, elsewhere, parallel_tentative
from petsc_gpufmt.coarsening.prolongator import tentative
from petsc_gpufmt.planning import abi, multigrid_abi

SIZES = [(1, 0), (1, 1), (1, 3), (2, 2), (3, 6)]  # rows of a node, vectors; 0: the constant one
NNODES, NAGGREGATES = 160, 14
CUTS = [([0, 160], [0, 14]), ([0, 70, 160], [0, 5, 14]), ([0, 0, 50, 51, 160], [0, 0, 6, 6, 14])]


def some_numbers():
    numbers = np.random.default_rng(130).integers(-1, NAGGREGATES, NNODES)
    numbers[:30] = np.where(numbers[:30] > 2, -1, numbers[:30])  # a rank with few of them
    return numbers


def of_one_rank(numbers, block, vectors, backend):
    near_null = None if vectors is None else backend.adopt(vectors.astype(backend.scalar).ravel())
    nvectors = 1 if vectors is None else vectors.shape[0]
    made = tentative(backend.adopt(numbers.astype(backend.index)), NAGGREGATES, block, near_null, nvectors, backend)
    (values,) = backend.empty((made.pattern.nnz, backend.scalar))
    backend.run(made.numeric, {Slot.RESULT: values})
    pattern = made.pattern
    return matrix(pattern, backend.to_host(values), backend), backend.to_host(made.coarse).reshape(nvectors, -1)


def matrix(pattern, values, backend):
    rowptr, colidx = backend.to_host(pattern.rowptr), backend.to_host(pattern.colidx)
    return scipy.sparse.csr_matrix((values, colidx, rowptr), shape=(pattern.nrows, pattern.ncols))


def of_several(numbers, begins, owned, block, vectors, backend):
    """The prolongator of all ranks, when values of nodes that were received are sent back; and all coarse vectors."""
    nvectors = 1 if vectors is None else vectors.shape[0]
    made, sent_back, coarse = prolongators_together(numbers, begins, owned, block, vectors, backend), {}, []
    for part, _, arrived in made:
        tail = backend.to_host(part.values)[part.own.nnz :].reshape(len(arrived), block * nvectors)
        sent_back.update({node: values for (_, node), values in zip(arrived, tail, strict=True)})
        coarse.append(backend.to_host(part.coarse).reshape(nvectors, -1))
    rows = []
    for (part, ghosts, _), first, column in zip(made, begins, owned, strict=False):
        own = matrix(part.own, backend.to_host(part.values)[: part.own.nnz], backend).tocoo()
        nodes = np.unique(
            np.repeat(np.arange(part.others.nrows), np.diff(backend.to_host(part.others.rowptr))) // block
        )
        values = [sent_back[first + node] for node in nodes.tolist()]
        others = matrix(part.others, np.concatenate([*values, np.zeros(0)]), backend).tocoo()
        columns = (ghosts[others.col // nvectors] * nvectors + others.col % nvectors, own.col + column * nvectors)
        entries = (
            np.concatenate([others.data, own.data]),
            (np.concatenate([others.row, own.row]), np.concatenate(columns)),
        )
        rows.append(scipy.sparse.csr_matrix(entries, shape=(own.shape[0], NAGGREGATES * nvectors)))
    return scipy.sparse.vstack(rows).tocsr(), np.concatenate(coarse, axis=1)


@pytest.mark.real
@pytest.mark.parametrize(("block", "nvectors"), SIZES)
@pytest.mark.parametrize("place", ["host", "emulation"])
def test_ranks_make_together_what_one_makes_alone(request, place, block, nvectors):
    backend, numbers = make_backend(request, place), some_numbers()
    vectors = np.random.default_rng(131).standard_normal((nvectors, NNODES * block)) if nvectors else None
    expected, R = of_one_rank(numbers, block, vectors, backend)
    for begins, owned in CUTS:
        found, coarse = of_several(numbers, begins, owned, block, vectors, backend)
        assert found.nnz == expected.nnz
        if vectors is None:
            assert (found != expected).nnz == 0 and coarse.tolist() == R.tolist()
        else:  # signs depend on the order of rows
            assert np.abs((found @ found.T - expected @ expected.T).toarray()).max() < rounding(1e-10)
            assert np.abs(found @ coarse.T - expected @ R.T).max() < rounding(1e-10)


@pytest.mark.parametrize("index", [np.dtype(np.int32), np.dtype(np.int64)])
def test_kernels_alone_compute_with_arrays_of_a_device(emulation_folder, index):
    device = EmulatedBackend(SCALAR, index, emulation_folder, device_like=True)
    on_host = a_rank_alone(graph("7-point"), 2, HostBackend(SCALAR, INDEX))
    same = [a.tolist() == b.tolist() for a, b in zip(on_host, a_rank_alone(graph("7-point"), 2, device), strict=True)]
    assert all(same) == (index == INDEX)  # the hash is one of as many bits


def test_a_rank_without_nodes():
    backend, none = HostBackend(SCALAR, INDEX), np.zeros(0, INDEX)
    nodes, aggregates = elsewhere(RankAggregates(none, 3, 0), backend)
    assert nodes.size == aggregates.size == 0
    made = parallel_tentative(RankAggregates(none, 3, 0), none, none, 2, np.zeros(0, SCALAR), 3, backend)
    assert made.own.nnz == made.others.nnz == made.values.size == made.coarse.size == 0
    assert made.own.rowptr.tolist() == made.others.rowptr.tolist() == [0]


def test_aggregates_that_are_not_there_are_refused():
    backend, none = HostBackend(SCALAR, INDEX), np.zeros(0, INDEX)
    rank = RankAggregates(np.array([0, 1], INDEX), 0, 2)
    with pytest.raises(errors.PatternError, match="not among the 2 that there are"):
        parallel_tentative(rank, np.array([2], INDEX), none, 1, None, 1, backend)


def test_requests_that_cannot_be_served_are_answered_by_code_and_one_line():
    numbers, received = np.array([0, 1], INDEX), np.array([2], INDEX)
    own = multigrid_abi.ElsewhereRequestStruct(requested_place("host"), 2, numbers.ctypes.data, 0, 2)
    request = multigrid_abi.ParallelTentativeRequestStruct(
        place=requested_place("host"), own=own, nreceived=1, received=received.ctypes.data, block=1, nvectors=1
    )
    with Answer(abi.Ask.PARALLEL_TENTATIVE, request, multigrid_abi.ParallelTentativeAnswerStruct(), {}) as a:
        words = (
            "tentative prolongator of several ranks, of 1 columns for each of 2 aggregates of 2 nodes, and 1 of other"
        )
        assert a.error[0] == errors.PatternError.petsc_code and a.error[1].startswith(words)
    with Answer(abi.Ask.ELSEWHERE, own, multigrid_abi.ElsewhereAnswerStruct(), {"first": 1}) as a:
        assert a.error == (0, "") and a.answer.count == 1


def test_a_plan_that_runs_out_of_memory_once_is_tried_again(monkeypatch):
    numbers = np.array([4, 9], INDEX)
    request = multigrid_abi.ElsewhereRequestStruct(requested_place("host"), 2, numbers.ctypes.data, 4, 1)
    calls = failing(monkeypatch, parallel_prolongator, "elsewhere", MemoryError("first try"))
    with Answer(abi.Ask.ELSEWHERE, request, multigrid_abi.ElsewhereAnswerStruct(), {}) as a:
        assert a.error == (0, "") and len(calls) == 2 and a.answer.count == 1
