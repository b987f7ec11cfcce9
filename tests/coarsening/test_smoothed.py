"""Smoothed prolongators: P0 + alpha D A P0 in the pattern of the general product."""

import ctypes
from dataclasses import replace

import numpy as np
import pytest
from agg import agg_order, laplacian, of_agg
from answers import Answer, failing, requested_place, settled_tokens
from bounds import rounding
from builders import CsrMatrix, one_huge_row, scalars, stencil, uniform
from emulation.backend import EmulatedBackend
from fake_driver import fake_driver
from graphs import graph, greedy_aggregates
from multigrid import in_blocks
from places import DEVICE_LIKE, EVERY_PLACE, INDEX, SCALAR, alpha_slots, make_backend
from stored_matrix import assert_same_bits

from petsc_gpufmt import errors
from petsc_gpufmt.backends.backend import CudaBackend, HostBackend
from petsc_gpufmt.backends.plan import Slot
from petsc_gpufmt.coarsening import smoothed as smoothing
from petsc_gpufmt.coarsening.prolongator import tentative
from petsc_gpufmt.coarsening.smoothed import LONGEST_ROW, TEAMS, smoothed
from petsc_gpufmt.patterns.csr import CsrPattern
from petsc_gpufmt.planning import abi, multigrid_abi, planner

ALPHA = -0.625


def some_aggregates(nnodes, everywhere=False):
    random = np.random.default_rng(132)
    numbers = random.permutation(nnodes) // 5
    return numbers if everywhere else np.where(random.random(nnodes) < 0.15, -1, numbers)


class Case:
    """A matrix, aggregates of its nodes, and a tentative prolongator of random values."""

    def __init__(self, matrix, block=1, nvectors=1, everywhere=False, dtype=SCALAR):
        random = np.random.default_rng(133)
        self.matrix, self.block, self.nvectors = replace(matrix, values=scalars(matrix.values, dtype)), block, nvectors
        self.aggregates = some_aggregates(matrix.nrows // block, everywhere)
        self.naggregates = max(self.aggregates, default=-1) + 1
        self.columns = (self.aggregates[self.aggregates >= 0, None] * nvectors + np.arange(nvectors)).repeat(block, 0)
        self.tentative = random.standard_normal(self.columns.size)
        self.diagonal = scalars(random.standard_normal(matrix.nrows), dtype)
        rows = np.flatnonzero((self.aggregates >= 0).repeat(block))
        self.P0 = np.zeros((matrix.nrows, self.naggregates * nvectors))
        self.P0[rows[:, None], self.columns] = self.tentative.reshape(-1, nvectors)
        self.A = np.zeros((matrix.nrows, matrix.nrows), dtype)
        np.add.at(self.A, (matrix.rows, matrix.colidx), self.matrix.values)

    def smoothed(self, backend):
        matrix = self.matrix.pattern(np, backend.index)
        arrays = (backend.adopt(a.astype(backend.index)) for a in (matrix.rowptr, matrix.colidx, self.aggregates))
        rowptr, colidx, aggregates = arrays
        csr = CsrPattern(matrix.nrows, matrix.ncols, rowptr, colidx).validated(backend)
        return smoothed(csr, aggregates, self.naggregates, self.block, self.nvectors, backend)

    def slots(self, scalar):
        values = {Slot.A_VALUES: self.matrix.values, Slot.B_VALUES: self.tentative, Slot.X: self.diagonal}
        return {slot: value.astype(scalar) for slot, value in values.items()} | alpha_slots(ALPHA, scalar)

    def values(self, made, backend):
        (result,) = backend.empty((made.pattern.nnz, backend.scalar))
        slots = self.slots(backend.scalar).items()
        adopted = {slot: backend.adopt(value) if isinstance(value, np.ndarray) else value for slot, value in slots}
        backend.run(made.numeric, {**adopted, Slot.RESULT: result})
        return backend.to_host(result)

    def check(self, rowptr, colidx, values, eps):
        pattern = np.zeros_like(self.A, dtype=np.int64)
        pattern[self.matrix.rows, self.matrix.colidx] = 1
        of_tentative = np.zeros_like(self.P0, dtype=np.int64)
        of_tentative[(self.aggregates >= 0).repeat(self.block).nonzero()[0][:, None], self.columns] = 1
        rows, columns = np.nonzero(pattern @ of_tentative + of_tentative)
        assert np.repeat(np.arange(self.A.shape[0]), np.diff(rowptr)).tolist() == rows.tolist()
        assert colidx.tolist() == columns.tolist()
        exact = self.P0 + ALPHA * self.diagonal[:, None] * (self.A @ self.P0)
        sizes = np.abs(self.P0) + np.abs(ALPHA * self.diagonal[:, None]) * (np.abs(self.A) @ np.abs(self.P0))
        longest = np.diff(self.matrix.rowptr).max(initial=0)
        assert (np.abs(values - exact[rows, columns]) <= (longest + 4) * eps * sizes[rows, columns]).all()


CASES = {
    "stencil": lambda: Case(stencil(8, 7, 5)),
    "all nodes have aggregates": lambda: Case(stencil(8, 7, 5), everywhere=True),
    "vectors": lambda dtype=SCALAR: Case(stencil(5, 4, 5), nvectors=3, dtype=dtype),
    "blocks": lambda: Case(in_blocks(stencil(5, 4, 3), 3), block=3, nvectors=6),
    "blocks of one vector": lambda: Case(in_blocks(stencil(5, 4, 3), 2), block=2, everywhere=True),
    "long rows": lambda: Case(uniform(200, 200, 90, seed=134)),  # of more than 32 aggregates
    "rows without entries": lambda: Case(CsrMatrix(9, 9, np.zeros(10, int), np.zeros(0, int), np.zeros(0))),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("place", EVERY_PLACE)
def test_prolongators_are_those_of_the_general_product(request, place, name):
    backend, case = make_backend(request, place), CASES[name]()
    made = case.smoothed(backend)
    rowptr, colidx = backend.to_host(made.pattern.rowptr), backend.to_host(made.pattern.colidx)
    case.check(rowptr, colidx, case.values(made, backend), np.finfo(backend.scalar).eps)


@pytest.mark.parametrize("place", DEVICE_LIKE)
@pytest.mark.parametrize(("scalar", "index"), [("float64", "int64"), ("float32", "int32"), ("complex128", "int32")])
def test_kernels_alone_compute_with_arrays_of_a_device(request, place, scalar, index):
    device = make_backend(request, place, np.dtype(scalar), np.dtype(index))
    case = CASES["vectors"](device.scalar)
    made = case.smoothed(device)
    arrays = (device.to_host(a) for a in (made.pattern.rowptr, made.pattern.colidx))
    case.check(*arrays, case.values(made, device), np.finfo(scalar).eps)


def test_the_number_of_threads_changes_no_bits(emulation_folder, monkeypatch):
    case, device = CASES["stencil"](), EmulatedBackend(SCALAR, INDEX, emulation_folder)
    values = []
    for team in TEAMS:
        monkeypatch.setattr(smoothing, "TEAMS", (team,))
        values.append(case.values(case.smoothed(device), device))
    assert_same_bits(values[0], values[1])
    assert_same_bits(values[0], values[2])


@pytest.mark.parametrize("place", ["host", "emulation", "device_like"])
@pytest.mark.parametrize("n", [0, 1, 40])
def test_without_aggregates_there_are_no_entries(request, place, n):
    backend = make_backend(request, place)
    case = Case(uniform(n, n, min(n, 1), seed=135))
    case.aggregates, case.naggregates = np.full(n, -1), 0
    made = case.smoothed(backend)
    assert backend.to_host(made.pattern.rowptr).tolist() == [0] * (n + 1)
    assert made.pattern.ncols == made.pattern.nnz == 0 and made.numeric == []


@pytest.mark.parametrize("block", [1, 3])
@pytest.mark.parametrize("distance", [1, 2])
def test_prolongators_are_those_of_petsc(options, distance, block):
    """PETSc's factor is -1.4 over an estimate of an eigenvalue, and found from the values here."""
    A, start, end = (
        matrix.getValuesCSR()
        for B in (laplacian(graph("geometric"), block),)
        for matrix in (B, of_agg(B, distance, options), of_agg(B, distance, options, nsmooths=1))
    )
    backend, n = HostBackend(SCALAR, INDEX), graph("geometric").nrows
    aggregates, _ = greedy_aggregates(graph("geometric"), agg_order(n), distance)
    csr = CsrPattern(n * block, n * block, A[0].astype(INDEX), A[1].astype(INDEX)).validated(backend)
    made = smoothed(csr, aggregates.astype(INDEX), aggregates.max() + 1, block, block, backend)
    assert made.pattern.rowptr.tolist() == end[0].tolist() and made.pattern.colidx.tolist() == end[1].tolist()
    rows = np.repeat(np.arange(csr.nrows), np.diff(A[0]))
    slots = {Slot.A_VALUES: A[2], Slot.B_VALUES: start[2], Slot.X: 1 / A[2][rows == A[1]]}
    of_factor = np.empty((2, made.pattern.nnz), SCALAR)
    for alpha, values in zip((0, 1), of_factor, strict=True):
        backend.run(made.numeric, {**slots, **alpha_slots(alpha, SCALAR), Slot.RESULT: values})
    change = of_factor[1] - of_factor[0]
    alpha = change @ (end[2] - of_factor[0]) / (change @ change)
    assert -1.4 < alpha < -0.5
    assert np.allclose(of_factor[0] + alpha * change, end[2], rtol=0, atol=rounding(1e-12))


def square(matrix):
    n = max(matrix.nrows, matrix.ncols)
    rowptr = np.concatenate([matrix.rowptr, np.full(n - matrix.nrows, matrix.rowptr[-1])])
    return CsrMatrix(n, n, rowptr, matrix.colidx, matrix.values)


def test_rows_that_are_too_long_are_left_to_the_general_product():
    matrix = square(one_huge_row())
    assert np.diff(matrix.rowptr).max() > LONGEST_ROW
    csr = matrix.pattern(np, INDEX).validated(HostBackend(SCALAR, INDEX))
    assert smoothed(csr, np.zeros(csr.nrows, INDEX), 1, 1, 1, HostBackend(SCALAR, INDEX)) is None


@pytest.mark.parametrize(
    ("nnodes", "block", "nvectors", "text"),
    [
        (7, 1, 1, "a 8 x 8 matrix is to smooth 1 columns for each aggregate of 7 nodes of 1 rows"),
        (8, 0, 1, "of 8 nodes of 0 rows"),
        (4, 2, 0, "is to smooth 0 columns"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(nnodes, block, nvectors, text):
    csr = uniform(8, 8, 3, seed=136).pattern(np, INDEX)
    with pytest.raises(errors.PatternError, match=text):
        smoothed(csr, np.zeros(nnodes, INDEX), 1, block, nvectors, HostBackend(SCALAR, INDEX))


def test_more_entries_than_an_index_counts_are_refused(monkeypatch):
    backend, csr = HostBackend(SCALAR, INDEX), uniform(8, 8, 3, seed=136).pattern(np, INDEX)
    monkeypatch.setattr(backend, "largest_index", 7)
    with pytest.raises(errors.IndexOverflowError, match="a prolongator has 8 entries, a PetscInt of .* counts 7"):
        smoothed(csr, np.zeros(8, INDEX), 1, 1, 1, backend)


class AnsweredSmoothed(Answer):
    """A smoothed prolongator."""

    def __init__(self, case, backend="host", aggregates=None, **fields):
        matrix = case.matrix
        self.rowptr, self.colidx, self.numbers = (
            a.astype(INDEX) for a in (matrix.rowptr, matrix.colidx, case.aggregates)
        )
        request = multigrid_abi.SmoothedRequestStruct(
            place=requested_place(backend),
            matrix=abi.OperandStruct(
                matrix.nrows, matrix.ncols, self.colidx.size, self.rowptr.ctypes.data, self.colidx.ctypes.data
            ),
            naggregates=case.naggregates,
            aggregates=self.numbers.ctypes.data if aggregates is None else aggregates.ptr,
            block=case.block,
            nvectors=case.nvectors,
        )
        super().__init__(abi.Ask.SMOOTHED, request, multigrid_abi.SmoothedAnswerStruct(), fields)

    @staticmethod
    def array(address, size):
        return np.frombuffer((ctypes.c_char * (size * INDEX.itemsize)).from_address(address), INDEX)


def test_an_answer_has_the_pattern_and_the_plan_of_the_values():
    case, before = CASES["blocks"](), settled_tokens()
    with AnsweredSmoothed(case) as a:
        answer = a.answer
        assert a.error == (0, "") and answer.applies and planner.owned_tokens() == before + 1
        assert answer.summary.decode() == f"smoothed without a general product, {answer.nnz} entries"
        assert (answer.nrows, answer.ncols) == case.P0.shape
        a.rowptr[:], a.colidx[:] = -1, -1
        values = np.full(answer.nnz, np.nan, SCALAR)
        a.launch(answer.numeric, {**case.slots(SCALAR), Slot.RESULT: values})
        pattern = a.array(answer.rowptr, answer.nrows + 1), a.array(answer.colidx, answer.nnz)
        case.check(*pattern, values, np.finfo(SCALAR).eps)
    assert planner.owned_tokens() == before


def test_an_answer_says_that_rows_are_too_long():
    with AnsweredSmoothed(Case(square(one_huge_row()))) as a:
        assert a.error == (0, "") and not a.answer.applies and not a.answer.numeric.nlaunches


def test_aggregates_on_a_device_are_read_where_they_are(emulation_folder):
    case = CASES["stencil"]()
    with fake_driver(emulation_folder):
        aggregates = CudaBackend(SCALAR, INDEX, device=0).adopt(case.aggregates.astype(INDEX))
        with AnsweredSmoothed(case, "cuda", aggregates) as a:
            assert a.error == (0, "") and a.answer.applies and a.answer.numeric.nlaunches == 1


def test_a_request_that_cannot_be_served_is_answered_by_code_and_one_line():
    with AnsweredSmoothed(CASES["stencil"](), block=3) as a:
        assert a.token == 0 and a.error[0] == errors.PatternError.petsc_code
        what = "prolongator of 56 aggregates, smoothed by a 280 x 280 matrix with"
        assert a.error[1].startswith(what) and "280 x 280 matrix is to smooth 1 columns" in a.error[1]


def test_a_matrix_that_is_no_pattern_is_refused():
    case = Case(uniform(8, 8, 3, seed=136))
    case.matrix = CsrMatrix(8, 8, case.matrix.rowptr, case.matrix.colidx + 1, case.matrix.values)
    with AnsweredSmoothed(case) as a:
        assert a.error[0] == errors.PatternError.petsc_code and ", 8], the matrix has 8 columns" in a.error[1]


def test_a_plan_that_runs_out_of_memory_once_is_tried_again(monkeypatch):
    calls = failing(monkeypatch, smoothing, "smoothed", MemoryError("first try"))
    with AnsweredSmoothed(CASES["stencil"]()) as a:
        assert a.error == (0, "") and len(calls) == 2


def test_the_tentative_prolongator_has_the_entries_that_are_smoothed():
    """The entries of P0 are found by the numbers of nodes, not by its row pointer."""
    backend, case = HostBackend(SCALAR, INDEX), CASES["blocks"]()
    vectors = np.random.default_rng(137).standard_normal(case.nvectors * case.matrix.nrows)
    made = tentative(case.aggregates.astype(INDEX), case.naggregates, 3, vectors, 6, backend)
    assert made.pattern.colidx.tolist() == case.columns.ravel().tolist()
