"""Tentative prolongators: a QR factorization for each aggregate, against LAPACK's and against PETSc's GAMG."""

import ctypes

import numpy as np
import pytest
from agg import agg_order, laplacian, of_agg
from answers import Answer, failing, requested_place, settled_tokens
from bounds import rounding
from fake_driver import fake_driver
from graphs import graph, greedy_aggregates
from places import DEVICE_LIKE, EVERY_PLACE, INDEX, SCALAR, make_backend

from petsc_gpufmt import errors
from petsc_gpufmt.backends.backend import CudaBackend, HostBackend
from petsc_gpufmt.backends.plan import Slot
from petsc_gpufmt.coarsening import prolongator
from petsc_gpufmt.coarsening.aggregates import TURN
from petsc_gpufmt.coarsening.prolongator import tentative
from petsc_gpufmt.planning import abi, multigrid_abi, planner

SIZES = [(1, 1), (1, 3), (2, 1), (2, 3), (3, 3), (3, 6), (6, 6)]  # rows of a node, vectors


def some_aggregates(nnodes=160, naggregates=14):
    """Of different sizes: one has a single node, one many; some nodes belong to none."""
    random = np.random.default_rng(120)
    numbers = np.concatenate([random.integers(-1, naggregates - 2, nnodes - 80), [naggregates - 2]])
    return np.concatenate([numbers, [naggregates - 1] * (nnodes - numbers.size)])


def some_vectors(nnodes, block, nvectors):
    """Column after column, zeros on the first nodes."""
    vectors = np.random.default_rng(121).standard_normal((nvectors, nnodes * block))
    vectors[:, : 5 * block] = 0
    return vectors


def some_turns(nnodes):
    return np.random.default_rng(123).integers(0, 3, nnodes)


def factored(aggregates, naggregates, block, vectors, turns):
    """Q and R of the rows of each aggregate, with LAPACK's signs, as PETSc's formProl0 puts them together."""
    nvectors = vectors.shape[0]
    P = np.zeros((aggregates.size * block, naggregates * nvectors))
    coarse = np.zeros((nvectors, naggregates * nvectors))
    for a in range(naggregates):
        nodes, columns = np.flatnonzero(aggregates == a), slice(a * nvectors, (a + 1) * nvectors)
        if turns is not None:
            nodes = nodes[np.argsort(turns[nodes], kind="stable")]
        rows = (nodes[:, None] * block + np.arange(block)).ravel()
        padded = np.zeros((max(rows.size, nvectors), nvectors))
        padded[: rows.size] = vectors[:, rows].T
        basis, R = np.linalg.qr(padded)
        P[rows, columns], coarse[:, columns] = basis[: rows.size], R.T
    return P, coarse


class Made:
    """A tentative prolongator: its values dense, NaN where it has no entry, and what else it has on the host."""

    def __init__(self, backend, aggregates, naggregates, block, vectors, nvectors=1, turns=None):
        near_null = None
        if vectors is not None:
            nvectors, near_null = vectors.shape[0], backend.adopt(vectors.astype(backend.real).ravel())
        aggregates = backend.adopt(aggregates.astype(backend.index))
        turns = None if turns is None else backend.adopt(turns.astype(TURN))
        made = tentative(aggregates, naggregates, block, near_null, nvectors, backend, turns)
        (values,) = backend.empty((made.pattern.nnz, backend.scalar))
        self.coarse = backend.to_host(made.coarse).reshape(nvectors, -1).copy()
        backend.run(made.numeric, {Slot.RESULT: values})
        self.values = backend.to_host(values)
        assert np.array_equal(backend.to_host(made.coarse).reshape(nvectors, -1), self.coarse, equal_nan=True)
        self.rowptr, self.colidx = backend.to_host(made.pattern.rowptr), backend.to_host(made.pattern.colidx)
        self.shape = made.pattern.nrows, made.pattern.ncols
        self.dense = dense(self.shape, self.rowptr, self.colidx, self.values)


def dense(shape, rowptr, colidx, values):
    entries = np.full(shape, np.nan, values.dtype)
    entries[np.repeat(np.arange(shape[0]), np.diff(rowptr)), colidx] = values
    return entries


def check(made, aggregates, naggregates, block, vectors, eps, turns=None):
    P, coarse = factored(aggregates, naggregates, block, vectors, turns)
    nvectors = vectors.shape[0]
    assert made.shape == P.shape
    column = np.arange(made.shape[1]) // nvectors
    has_entry = np.repeat(aggregates, block)[:, None] == column
    assert np.array_equal(~np.isnan(made.dense), has_entry)
    assert np.allclose(np.where(has_entry, made.dense, 0), P, rtol=0, atol=100 * eps)
    assert np.allclose(made.coarse, coarse, rtol=0, atol=10 * eps * np.linalg.norm(vectors))


@pytest.mark.parametrize(("block", "nvectors"), SIZES)
@pytest.mark.parametrize("place", EVERY_PLACE)
def test_columns_are_those_of_lapack(request, place, block, nvectors):
    backend, aggregates = make_backend(request, place), some_aggregates()
    vectors = some_vectors(aggregates.size, block, nvectors)
    check(Made(backend, aggregates, 14, block, vectors), aggregates, 14, block, vectors, np.finfo(backend.scalar).eps)


@pytest.mark.parametrize(("block", "nvectors"), [(1, 1), (3, 6)])
@pytest.mark.parametrize("place", [*EVERY_PLACE, "device_like"])
def test_signs_are_those_of_rows_in_turns(request, place, block, nvectors):
    backend, aggregates = make_backend(request, place), some_aggregates()
    vectors, turns = some_vectors(aggregates.size, block, nvectors), some_turns(aggregates.size)
    made = Made(backend, aggregates, 14, block, vectors, turns=turns)
    check(made, aggregates, 14, block, vectors, np.finfo(backend.scalar).eps, turns)


@pytest.mark.parametrize("place", DEVICE_LIKE)
@pytest.mark.parametrize(("scalar", "index"), [("float64", "int64"), ("float32", "int32"), ("complex64", "int64")])
@pytest.mark.parametrize(("block", "nvectors"), [(1, 1), (3, 6)])
def test_kernels_alone_compute_with_arrays_of_a_device(request, place, scalar, index, block, nvectors):
    device = make_backend(request, place, np.dtype(scalar), np.dtype(index))
    aggregates = some_aggregates()
    vectors = some_vectors(aggregates.size, block, nvectors)
    check(Made(device, aggregates, 14, block, vectors), aggregates, 14, block, vectors, np.finfo(scalar).eps)


@pytest.mark.parametrize("place", [*EVERY_PLACE, "device_like"])
def test_the_constant_vector_needs_no_factorization(request, place):
    backend, aggregates = make_backend(request, place), some_aggregates()
    made = Made(backend, aggregates, 14, 1, None)
    check(made, aggregates, 14, 1, np.ones((1, aggregates.size)), np.finfo(backend.scalar).eps)
    sizes = np.bincount(aggregates[aggregates >= 0])
    assert made.coarse[0].tolist() == np.where(sizes == 1, 1, -np.sqrt(sizes.astype(backend.real))).tolist()


@pytest.mark.parametrize("place", EVERY_PLACE)
def test_vectors_of_zeros_have_columns_of_length_one(request, place):
    made = Made(make_backend(request, place), np.zeros(4, dtype=int), 1, 1, np.zeros((2, 4)))
    assert made.dense.tolist() == np.eye(4, 2).tolist() and not made.coarse.any()


@pytest.mark.parametrize("nvectors", [None, 2])
@pytest.mark.parametrize("nnodes", [0, 1, 300])
@pytest.mark.parametrize("place", ["host", "emulation", "device_like"])
def test_nodes_without_aggregates_have_empty_rows(request, place, nnodes, nvectors):
    block = nvectors or 1
    vectors = None if nvectors is None else np.ones((nvectors, nnodes * block))
    made = Made(make_backend(request, place), np.full(nnodes, -1), 0, block, vectors)
    assert made.rowptr.tolist() == [0] * (nnodes * block + 1)
    assert made.shape == (nnodes * block, 0) and not made.colidx.size and not made.coarse.size


@pytest.mark.parametrize("block", [1, 3])
@pytest.mark.parametrize("distance", [1, 2])
@pytest.mark.parametrize("name", ["7-point", "geometric", "with lone rows"])
def test_prolongators_are_those_of_petsc(options, name, distance, block):
    A, nodes = laplacian(graph(name), block), graph(name).nrows
    vectors = None
    if block > 1:
        points = np.random.default_rng(122).random((nodes, 3))
        vectors = rigid_body_modes(points)
        A.setNearNullSpace(petsc_null_space(vectors))
    P = of_agg(A, distance, options)
    aggregates, turns = greedy_aggregates(graph(name), agg_order(nodes), distance)
    turns = turns if distance == 2 else None
    made = Made(HostBackend(SCALAR, INDEX), aggregates, aggregates.max() + 1, block, vectors, turns=turns)
    rowptr, colidx, values = P.getValuesCSR()
    assert made.rowptr.tolist() == rowptr.tolist() and made.colidx.tolist() == colidx.tolist()
    assert np.allclose(made.values, values, rtol=0, atol=rounding(1e-10))


def rigid_body_modes(points):
    """Of elasticity in space, column after column: three translations, three rotations."""
    x, y, z = points.T
    zero, one = np.zeros_like(x), np.ones_like(x)
    modes = [
        *((one, zero, zero), (zero, one, zero), (zero, zero, one)),
        *((zero, -z, y), (z, zero, -x), (-y, x, zero)),
    ]
    return np.array([np.stack(mode, axis=1).ravel() for mode in modes])


def petsc_null_space(vectors):
    from petsc4py import PETSc

    orthonormal = np.linalg.qr(vectors.T)[0].T  # PETSc asks for that
    vectors[:] = orthonormal
    return PETSc.NullSpace().create(vectors=[PETSc.Vec().createWithArray(v.astype(SCALAR)) for v in orthonormal])


def test_bad_sizes_are_refused():
    backend, aggregates = HostBackend(SCALAR, INDEX), np.array([0, 1, -1], INDEX)
    for block, nvectors in ((0, 1), (1, 0), (-1, 3)):
        with pytest.raises(errors.UnsupportedError, match=f"{nvectors} columns for nodes of {block} rows from vectors"):
            tentative(aggregates, 2, block, np.ones(9), nvectors, backend)
    with pytest.raises(errors.UnsupportedError, match="3 columns for nodes of 3 rows from no vectors: sizes are at"):
        tentative(aggregates, 2, 3, None, 3, backend)


@pytest.mark.parametrize("place", ["host", "emulation"])
@pytest.mark.parametrize("number", [2, -2])
def test_aggregates_that_are_not_there_are_refused(request, place, number):
    aggregates = np.array([0, 1, number], INDEX)
    with pytest.raises(errors.PatternError, match="aggregates that are not among the 2 that there are"):
        tentative(aggregates, 2, 1, None, 1, make_backend(request, place))


def test_more_entries_than_an_index_counts_are_refused(monkeypatch):
    backend = HostBackend(SCALAR, INDEX)
    monkeypatch.setattr(backend, "largest_index", 53)
    with pytest.raises(errors.IndexOverflowError, match="a prolongator has 54 entries, a PetscInt of .* counts 53"):
        tentative(np.zeros(3, INDEX), 1, 3, np.ones(54), 6, backend)


class AnsweredTentative(Answer):
    """A tentative prolongator."""

    def __init__(self, aggregates, naggregates, block=1, vectors=None, backend="host", turns=None, **fields):
        self.aggregates, self.turns = aggregates, turns
        request = multigrid_abi.TentativeRequestStruct(
            place=requested_place(backend), nnodes=aggregates.size, naggregates=naggregates, block=block, nvectors=1
        )
        request.aggregates = aggregates.ptr if hasattr(aggregates, "ptr") else aggregates.ctypes.data
        if turns is not None:
            request.turns = turns.ctypes.data
        if vectors is not None:
            self.vectors = vectors.astype(SCALAR)
            request.nvectors, request.near_null = vectors.shape[0], self.vectors.ctypes.data
        super().__init__(abi.Ask.TENTATIVE, request, multigrid_abi.TentativeAnswerStruct(), fields)

    @staticmethod
    def array(address, size, dtype):
        return np.frombuffer((ctypes.c_char * (size * dtype.itemsize)).from_address(address), dtype)

    def check(self, aggregates, vectors, turns):
        answer, request = self.answer, self.request
        values = np.full(answer.nnz, np.nan, SCALAR)
        coarse = self.array(answer.coarse_near_null, request.nvectors * answer.ncols, SCALAR)
        self.coarse = coarse.reshape(request.nvectors, -1).copy()
        self.launch(answer.numeric, {Slot.RESULT: values})
        self.shape = answer.nrows, answer.ncols
        rowptr = self.array(answer.rowptr, answer.nrows + 1, INDEX)
        self.dense = dense(self.shape, rowptr, self.array(answer.colidx, answer.nnz, INDEX), values)
        check(self, aggregates, request.naggregates, request.block, vectors, np.finfo(SCALAR).eps, turns)


@pytest.mark.real
@pytest.mark.parametrize(("block", "nvectors"), [(1, None), (3, 6)])
def test_an_answer_has_the_pattern_and_the_plan_of_the_values(block, nvectors):
    aggregates, before = some_aggregates(), settled_tokens()
    vectors = some_vectors(aggregates.size, block, nvectors) if nvectors else None
    turns = some_turns(aggregates.size).astype(TURN) if nvectors else None
    with AnsweredTentative(aggregates.astype(INDEX), 14, block, vectors, turns=turns) as a:
        assert a.error == (0, "") and planner.owned_tokens() == before + 1
        words = f"{nvectors or 1} columns for each of 14 aggregates, {a.answer.nnz} entries"
        assert a.answer.summary.decode() == words
        if nvectors:
            a.vectors[:] = np.nan
        a.check(aggregates, np.ones((1, aggregates.size)) if vectors is None else vectors, turns)
    assert planner.owned_tokens() == before


def test_aggregates_on_a_device_are_read_where_they_are(emulation_folder):
    aggregates = some_aggregates()
    with fake_driver(emulation_folder):
        device = CudaBackend(SCALAR, INDEX, device=0)
        with AnsweredTentative(device.adopt(aggregates.astype(INDEX)), 14, backend="cuda") as a:
            assert a.error == (0, "")
            assert (a.answer.nrows, a.answer.ncols, a.answer.nnz) == (160, 14, (aggregates >= 0).sum())
            assert a.answer.numeric.nlaunches == 1


def test_a_request_that_cannot_be_served_is_answered_by_code_and_one_line():
    with AnsweredTentative(np.zeros(4, INDEX), 1, block=2) as a:
        assert a.token == 0 and a.error[0] == errors.UnsupportedError.petsc_code
        sizes = "1 columns for each of 1 aggregates of 4 nodes with 2 rows"
        assert a.error[1].startswith(f"tentative prolongator of {sizes} on host: a prolongator of 1 columns")


def test_a_plan_that_runs_out_of_memory_once_is_tried_again(monkeypatch):
    calls = failing(monkeypatch, prolongator, "tentative", MemoryError("first try"))
    with AnsweredTentative(np.zeros(4, INDEX), 1) as a:
        assert a.error == (0, "") and len(calls) == 2
