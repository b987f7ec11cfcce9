"""Graphs of matrices: those of PETSc, and what agg filters out of them, on the host and by the device kernels."""

import ctypes

import numpy as np
import pytest
from answers import Answer, failing, requested_place, settled_tokens
from builders import CsrMatrix, from_entries, random_values, scalars
from fake_driver import fake_driver
from graphs import Graph, geometric, graph, star, with_lone_rows
from multigrid import in_blocks, one_sided
from places import DEVICE_LIKE, EVERY_PLACE, INDEX, SCALAR, make_backend

from petsc_gpufmt import errors
from petsc_gpufmt.backends.backend import CudaBackend, HostBackend
from petsc_gpufmt.coarsening import strength
from petsc_gpufmt.coarsening.strength import StrengthGraph, strength_graph
from petsc_gpufmt.patterns.csr import CsrPattern
from petsc_gpufmt.planning import abi, multigrid_abi, planner


def weighted(pattern: Graph, seed: int) -> CsrMatrix:
    """With values of many sizes, and a diagonal that is as large as others of its row."""
    n, random = pattern.nrows, np.random.default_rng(seed)
    matrix = CsrMatrix(n, n, pattern.rowptr, pattern.colidx, random_values(random, pattern.colidx.size))
    diagonal = matrix.rows == matrix.colidx
    matrix.values[diagonal] = 10.0 ** random.uniform(-1, 2, diagonal.sum())
    return matrix


def anisotropic(n: int = 13) -> CsrMatrix:
    """5 points in a plane, 100 times stronger in one direction; all values of a direction are the same."""
    i, j = np.divmod(np.arange(n * n), n)
    near = np.abs(i[:, None] - i) + np.abs(j[:, None] - j) <= 1
    rows, columns = np.nonzero(near)
    matrix = from_entries(n * n, n * n, rows, columns, seed=0)
    matrix.values[:] = np.where(rows == columns, 2.02, np.where(i[rows] == i[columns], -1.0, -0.01))
    return matrix


def without_a_diagonal_entry() -> CsrMatrix:
    given = weighted(graph("7-point"), 141)
    kept = (given.rows != given.colidx) | (given.rows != 77)
    return from_entries(given.nrows, given.ncols, given.rows[kept], given.colidx[kept], seed=142)


def shifted_blocks() -> CsrMatrix:
    """Columns 0 and 3 where agg takes 0 and 1 or 2 and 3 for a block, but dense by its rule."""
    return CsrMatrix(4, 4, np.array([0, 2, 4, 6, 8]), np.array([0, 3, 0, 3, 2, 3, 2, 3]), np.arange(1.0, 9.0))


def disordered(*columns: int) -> CsrMatrix:
    """A row of such columns, and 3 rows of their diagonals."""
    n = len(columns)
    return CsrMatrix(4, 4, np.array([0, n, n + 1, n + 2, n + 3]), np.array([*columns, 1, 2, 3]), np.ones(n + 3))


def with_zeros(matrix: CsrMatrix, places: np.ndarray) -> CsrMatrix:
    matrix.values[places] = 0.0
    return matrix


# Matrix and rows of a node
CASES = {
    "7-point": lambda: (weighted(graph("7-point"), 143), 1),
    "anisotropic": lambda: (anisotropic(), 1),
    "lone rows": lambda: (weighted(with_lone_rows(graph("7-point"), 144), 145), 1),
    "long row": lambda: (weighted(star(90), 146), 1),
    "one-sided": lambda: (one_sided(), 1),
    "a diagonal of 0": lambda: (with_zeros(weighted(star(20), 147), np.array([0])), 1),
    "no diagonal": lambda: (without_a_diagonal_entry(), 1),
    "dense blocks": lambda: (in_blocks(weighted(geometric(60, 0.3, 148), 149), 3, share=1), 3),
    "blocks of 7": lambda: (in_blocks(weighted(star(9), 150), 7, share=1), 7),
    "one-sided blocks": lambda: (in_blocks(one_sided(120), 2, share=1), 2),
    "ragged blocks": lambda: (in_blocks(weighted(geometric(60, 0.3, 151), 152), 3, share=0.6), 3),
    "ragged blocks of lone rows": lambda: (in_blocks(weighted(graph("lone rows"), 153), 2, share=0.7), 2),
    "one row": lambda: (weighted(graph("one row"), 154), 1),
    "no rows": lambda: (weighted(graph("no rows"), 155), 1),
}
# threshold, symmetrize, keep_diagonal
SETTINGS = [(-1.0, True, False), (0.0, True, False), (0.07, True, False), (0.07, False, False), (0.4, True, True)]


def made(matrix, block, threshold, symmetrize, keep, backend, symmetric=False) -> StrengthGraph:
    """The graph, with its pattern on the host."""
    csr = matrix.pattern_on(backend).validated(backend)
    values = backend.adopt(scalars(matrix.values, backend.scalar))
    settings = {"symmetrize": symmetrize, "threshold": threshold, "keep_diagonal": keep, "symmetric": symmetric}
    found = strength_graph(csr, values if threshold >= 0 else None, backend, block=block, **settings)
    if found.pattern is None:
        return found
    p, lengths = found.pattern, np.diff(backend.to_host(found.pattern.rowptr))
    assert p.longest == lengths.max(initial=0) and p.nrows == p.ncols == matrix.nrows // block
    on_host = CsrPattern(p.nrows, p.ncols, backend.to_host(p.rowptr), backend.to_host(p.colidx))
    return StrengthGraph(on_host, found.summary)


def expected_entries(matrix, block, threshold, symmetrize, keep, scalar):
    """As agg makes it: rows and columns of the entries; None if agg's graph is no symmetric one with all diagonals."""
    n, values = matrix.nrows // block, scalars(matrix.values, scalar)
    sizes = np.abs(values.real if block > 1 else values)
    weights, there = np.zeros((n, n), sizes.dtype), np.zeros((n, n), bool)
    places = matrix.rows // block, matrix.colidx // block
    np.add.at(weights, places, sizes)  # one after another, as agg adds them
    there[places] = True
    if symmetrize:
        weights, there = weights + weights.T, there | there.T
    if threshold >= 0:
        with np.errstate(divide="ignore"):
            scales = np.sqrt(np.where(weights.diagonal() == 0, 0, 1 / weights.diagonal())).astype(sizes.dtype)
        strong = weights * scales[:, None] * scales > sizes.dtype.type(threshold)
        there &= strong | np.eye(n, dtype=bool) if keep else strong
    if (there != there.T).any() or not there.diagonal().all():
        return None
    return [a.tolist() for a in np.nonzero(there)]


@pytest.mark.parametrize(("threshold", "symmetrize", "keep"), SETTINGS)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("place", EVERY_PLACE)
def test_graphs_have_the_entries_that_agg_leaves(request, place, name, threshold, symmetrize, keep):
    backend, (matrix, block) = make_backend(request, place), CASES[name]()
    found = made(matrix, block, threshold, symmetrize, keep, backend)
    expected = expected_entries(matrix, block, threshold, symmetrize, keep, backend.scalar)
    if expected is None:
        assert found.pattern is None and found.summary == "its pattern is not symmetric with a complete diagonal"
    else:
        rows = np.repeat(np.arange(found.pattern.nrows), np.diff(found.pattern.rowptr))
        assert [rows.tolist(), found.pattern.colidx.tolist()] == expected


@pytest.mark.parametrize("place", DEVICE_LIKE)
@pytest.mark.parametrize(("scalar", "index"), [("float64", "int64"), ("float32", "int32"), ("complex128", "int32")])
def test_kernels_alone_compute_with_arrays_of_a_device(request, place, scalar, index):
    device = make_backend(request, place, np.dtype(scalar), np.dtype(index))
    for name in ("ragged blocks", "dense blocks", "one-sided"):
        matrix, block = CASES[name]()
        found = made(matrix, block, 0.1, True, False, device)
        assert found.pattern.rowptr.dtype == device.index
        rows = np.repeat(np.arange(found.pattern.nrows), np.diff(found.pattern.rowptr))
        expected = expected_entries(matrix, block, 0.1, True, False, device.scalar)
        assert [rows.tolist(), found.pattern.colidx.tolist()] == expected


@pytest.mark.parametrize("known", [False, True])
def test_a_graph_that_needs_no_change_is_the_matrix(known):
    backend = HostBackend(SCALAR, INDEX)
    csr = weighted(graph("7-point"), 156).pattern_on(backend).validated(backend)
    found = strength_graph(csr, None, backend, symmetrize=True, symmetric=known)
    assert found.pattern is csr and found.summary == "the matrix"


@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "threshold", "summary"),
    [
        ("one-sided", -1.0, "the matrix, made symmetric"),
        ("7-point", 0.5, "the matrix, 66.6 % of its entries above 0.5"),
        ("dense blocks", -1.0, "blocks of 3 rows"),
        ("one-sided blocks", 0.0, "blocks of 2 rows, made symmetric, 100 % of its entries above 0"),
    ],
)
def test_summaries_tell_how_a_graph_was_made(name, threshold, summary):
    assert made(*CASES[name](), threshold, True, False, HostBackend(SCALAR, INDEX)).summary == summary


@pytest.mark.parametrize("place", ["host", "emulation"])
@pytest.mark.parametrize(
    ("matrix", "block", "reason"),
    [
        (shifted_blocks(), 2, "it takes entries of several blocks of 2 for one"),
        (disordered(0, 2, 1), 1, "the columns of its rows do not ascend"),
        (disordered(0, 2, 2), 2, "the columns of its rows do not ascend"),
    ],
)
def test_graphs_that_are_left_to_agg(request, place, matrix, block, reason):
    backend = make_backend(request, place)
    assert made(matrix, block, 0.1, True, False, backend) == StrengthGraph(None, reason)


def test_entries_that_the_index_type_does_not_count_twice_are_left_to_agg():
    backend = HostBackend(SCALAR, INDEX)
    backend.largest_index = 3000
    found = made(one_sided(), 1, -1.0, True, False, backend)
    assert found.pattern is None and found.summary.startswith("a PetscInt does not count twice its")


@pytest.mark.parametrize(("shape", "block"), [((6, 5), 1), ((5, 5), 2), ((4, 4), 0)])
def test_bad_sizes_are_refused(shape, block):
    backend = HostBackend(SCALAR, INDEX)
    csr = CsrPattern(*shape, np.zeros(shape[0] + 1, INDEX), np.zeros(0, INDEX), longest=0)
    with pytest.raises(
        errors.PatternError, match=f"the graph of a {shape[0]} x {shape[1]} matrix with blocks of {block} rows"
    ):
        strength_graph(csr, None, backend, block=block)


class AnsweredGraph(Answer):
    """The graph of a matrix."""

    def __init__(self, matrix, backend="host", **fields):
        self.rowptr, self.colidx = matrix.rowptr.astype(INDEX), matrix.colidx.astype(INDEX)
        self.values = matrix.values.astype(SCALAR)
        operand = abi.OperandStruct(
            matrix.nrows, matrix.ncols, matrix.colidx.size, self.rowptr.ctypes.data, self.colidx.ctypes.data
        )
        request = multigrid_abi.GraphRequestStruct(
            place=requested_place(backend), matrix=operand, values=self.values.ctypes.data, threshold=-1.0, block=1
        )
        super().__init__(abi.Ask.GRAPH, request, multigrid_abi.GraphAnswerStruct(), fields)

    def array(self, address, size):
        return np.frombuffer((ctypes.c_char * (size * INDEX.itemsize)).from_address(address), INDEX).tolist()


def test_an_answer_has_the_graph():
    (matrix, block), before = CASES["ragged blocks"](), settled_tokens()
    with AnsweredGraph(matrix, block=block, symmetrize=1, threshold=0.07) as a:
        assert a.error == (0, "") and planner.owned_tokens() == before + 1
        a.rowptr[:], a.colidx[:], a.values[:] = -1, -1, -1
        rows, columns = expected_entries(matrix, block, 0.07, True, False, SCALAR)
        graph = a.answer.graph
        assert (graph.nrows, graph.ncols, graph.nnz) == (60, 60, len(columns)) and not a.answer.is_matrix
        assert a.array(graph.colidx, graph.nnz) == columns
        rowptr = a.array(graph.rowptr, 61)
        assert rowptr == np.searchsorted(rows, np.arange(61)).tolist() and a.answer.longest == max(np.diff(rowptr))
        assert a.answer.applies and a.answer.summary.startswith(b"blocks of 3 rows, ")
    assert planner.owned_tokens() == before


def test_an_answer_may_have_the_pattern_of_the_matrix():
    with AnsweredGraph(weighted(graph("7-point"), 157), symmetrize=1, symmetric=1) as a:
        assert a.answer.applies and a.answer.is_matrix and a.answer.summary == b"the matrix"
        assert a.array(a.answer.graph.colidx, a.colidx.size) == a.colidx.tolist() and a.answer.longest == 7


def test_an_answer_may_have_no_graph():
    with AnsweredGraph(one_sided()) as a:
        assert a.error == (0, "") and not a.answer.applies
        assert a.answer.summary == b"its pattern is not symmetric with a complete diagonal"


def test_a_matrix_that_is_no_pattern_is_refused():
    with AnsweredGraph(CsrMatrix(2, 2, np.array([0, 1, 2]), np.array([0, 7]), np.ones(2))) as a:
        assert a.error[0] == errors.PatternError.petsc_code and "column indices lie in [0, 7]" in a.error[1]


def test_a_request_that_cannot_be_served_is_answered_by_code_and_one_line():
    with AnsweredGraph(CASES["dense blocks"]()[0], block=7) as a:
        assert a.token == 0 and a.error[0] == errors.PatternError.petsc_code
        assert a.error[1].startswith("graph of a 180 x 180 matrix with") and "with blocks of 7 rows" in a.error[1]


def test_a_plan_that_runs_out_of_memory_once_is_tried_again(monkeypatch):
    calls = failing(monkeypatch, strength, "strength_graph", MemoryError("first try"))
    with AnsweredGraph(one_sided(), symmetrize=1) as a:
        assert a.error == (0, "") and a.answer.applies and len(calls) == 2


def test_graphs_keep_their_own_memory_alone(emulation_folder):
    with fake_driver(emulation_folder) as driver:
        device = CudaBackend(SCALAR, INDEX, device=0)
        matrix, block = CASES["ragged blocks"]()
        csr, values = matrix.pattern_on(device).validated(device), device.adopt(matrix.values.astype(SCALAR))
        device.memory.trim()  # what no array uses is given back
        before = driver.used
        found = strength_graph(csr, values, device, block=block, symmetrize=True, threshold=0.07)
        device.memory.trim()
        kept = found.pattern.rowptr.nbytes + found.pattern.colidx.nbytes
        assert 0 < kept <= driver.used - before < kept + 2048
