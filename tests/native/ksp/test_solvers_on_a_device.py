"""Whole solves on a device: each type of solver, with matrices of several types, against PETSc's method on the host."""

from __future__ import annotations

import functools
import sys
from typing import Any, NamedTuple

import launch
import numpy as np
import pytest
from bounds import rounding
from builders import CsrMatrix
from copies import copied_bytes
from petsc4py import PETSc
from petsc_products import petsc_matrix, stencil_csr
from solves import Solve, diagonal_matrix, informing, make_solver, right_hand_side, run, solve, view_of

from petsc_gpufmt.backends import driver

pytestmark = [pytest.mark.gpu, pytest.mark.double]  # residuals fall further than single precision reaches

Reason = PETSc.KSP.ConvergedReason
TYPES = ("pjds", "bsr", "csradaptive", "gpufmt", "ellpackr", "aijcusparse")
RECORDED = TYPES[:-1]
POINTS, UNKNOWNS = 8, 3
ROWS = UNKNOWNS * POINTS**3  # several blocks of a launch
RTOL = 1e-9
PLACE = "on the device"


class Solver(NamedTuple):
    """A type of ours with its options, PETSc's type for the same, and how many iterations more it may take."""

    ours: str
    theirs: str
    settings: dict[str, Any]
    more: float = 0.01

    @property
    def name(self) -> str:
        """Type and options."""
        return " ".join([self.ours, *(f"{name.split('_')[-1]} {value}" for name, value in self.settings.items())])

    @property
    def common(self) -> dict[str, Any]:
        """Options of both types."""
        if self.theirs == "chebyshev":
            bounds = {"ksp_chebyshev_eigenvalues": "0.1,8.0"}
            return {"ksp_norm_type": "none", "ksp_max_it": 5, **bounds}
        return {"ksp_rtol": RTOL, **({"ksp_gmres_restart": 12} if "gmres" in self.theirs else {})}


def recording(ours: str, theirs: str) -> list[Solver]:
    """A type that can record iterations: eight are a launch, so with a look after 20 there are some of each kind."""
    chosen = [(0, check) for check in (0, 1, 7)] + [(1, check) for check in (0, 1, 7, 20)]
    return [Solver(ours, theirs, {f"ksp_{ours}_graph": graph, f"ksp_{ours}_check": n}) for graph, n in chosen]


CG, BCGS = recording("gpucg", "cg"), recording("gpubcgs", "bcgs")
MIXED = [
    Solver("mixedcg", "cg", {"ksp_mixedcg_outer": outer, "ksp_mixedcg_graph": graph}, more)
    for outer, more in (("replacement", 0.25), ("refinement", 0.9), ("flexible", 0.9))
    for graph in (0, 1)
]
GMRES = [
    Solver(f"gpu{name}", name, {f"ksp_gpu{name}_check": check}) for name in ("gmres", "fgmres") for check in (0, 1, 7)
]
CHEBYSHEV = [Solver("gpuchebyshev", "chebyshev", {"ksp_gpuchebyshev_fused": fused}) for fused in (0, 1)]
SOLVERS = [*CG, *BCGS, *MIXED, *GMRES, *CHEBYSHEV]
AS_THEY_ARE = [Solver(s.ours, s.theirs, {}, s.more) for s in (CG[0], BCGS[0], MIXED[0], GMRES[0], GMRES[3])]


def each(solvers: list[Solver]) -> Any:
    return pytest.mark.parametrize("solver", solvers, ids=[solver.name for solver in solvers])


@functools.cache
def coupled(symmetric: bool, seed: int = 0) -> CsrMatrix:
    """Three unknowns on each of 8^3 points, coupled with each other; diagonals have several magnitudes."""
    grid, random = stencil_csr(POINTS), np.random.default_rng(seed)
    values = grid.values * (1 if symmetric else 1 + 0.4 * np.sign(grid.colidx - grid.rows))
    coupling = np.array([[2.0, 0.4, 0.3], [0.4, 1.5, -0.2], [0.3, -0.2, 1.0]])
    i, j = (k.ravel() for k in np.indices(coupling.shape))
    rows, columns = (np.add.outer(UNKNOWNS * k, add).ravel() for k, add in ((grid.rows, i), (grid.colidx, j)))
    scale = 1 + random.random(ROWS)
    entries = np.outer(values, coupling.ravel()).ravel() * scale[rows] * (scale[columns] if symmetric else 1)
    order = np.lexsort((columns, rows))
    rowptr = np.concatenate([[0], np.cumsum(np.bincount(rows))])
    return CsrMatrix(ROWS, ROWS, rowptr, columns[order], entries[order], UNKNOWNS)


def made(matrix: CsrMatrix, mat_type: str) -> Any:
    A = petsc_matrix(matrix, mat_type)
    A.setBlockSize(matrix.block)
    return A


def given(solver: Solver, seed: int = 0) -> CsrMatrix:
    return coupled(solver.theirs in ("cg", "chebyshev"), seed)


@functools.cache
def on_the_host(theirs: str, seed: int, pc_type: str, guess: bool = False) -> Solve:
    """By PETSc's method with aij."""
    solver = Solver("", theirs, {})
    settings = {**solver.common, "pc_type": pc_type, "ksp_initial_guess_nonzero": guess}
    return solve(made(given(solver, seed), "aij"), right_hand_side(ROWS), theirs, **settings)


def check_close(ours: Solve, theirs: Solve, more: float = 0.01) -> None:
    """The same end after about as many iterations, and the same solution."""
    assert ours.reason == theirs.reason
    assert -2 <= ours.iterations - theirs.iterations <= max(2, more * theirs.iterations)
    assert np.abs(ours.x - theirs.x).max() <= 1e-6 * np.abs(theirs.x).max()


def check_norms(found: np.ndarray, expected: np.ndarray) -> None:
    """The first ones: what rounding changes grows from iteration to iteration."""
    n = min(10, found.size, expected.size)
    assert n and np.allclose(found[:n], expected[:n], rtol=1e-6, atol=0)


class OnTheDevice:
    """A solver with vectors on the device."""

    def __init__(self, A: Any, solver: Solver, **settings: Any):
        self.ksp = make_solver(A, solver.ours, **solver.common, **solver.settings, **settings)
        self.x, self.b = A.createVecs()
        self.b.setArray(right_hand_side(self.b.size))

    def solve(self) -> Solve:
        """From the guess b / 2 on, if there is one."""
        self.x.setArray(right_hand_side(self.b.size) / 2)
        return run(self.ksp, self.b, self.x)


@pytest.mark.parametrize("pc_type", ["none", "jacobi"])
@pytest.mark.parametrize("mat_type", TYPES)
@each(SOLVERS)
def test_a_solve_is_that_of_petsc_on_the_host(solver, mat_type, pc_type, tmp_path):
    device = OnTheDevice(made(given(solver), mat_type), solver, pc_type=pc_type)
    found, theirs = device.solve(), on_the_host(solver.theirs, 0, pc_type)
    view = view_of(device.ksp, tmp_path)
    assert PLACE in view or (solver in MIXED and mat_type not in RECORDED)
    assert theirs.reason == (Reason.CONVERGED_ITS if solver in CHEBYSHEV else Reason.CONVERGED_RTOL)
    check_close(found, theirs, solver.more)
    if solver in CHEBYSHEV:
        assert np.abs(found.x - theirs.x).max() <= 1e-11 * np.abs(theirs.x).max()
    elif solver in MIXED:
        check_norms(found.history[:1], theirs.history)
    else:
        check_norms(found.history, theirs.history)
    again = device.solve()
    if mat_type in RECORDED:  # cuSPARSE may add up in another order
        assert again.x.tobytes() == found.x.tobytes() and again.history.tobytes() == found.history.tobytes()


@each([*AS_THEY_ARE, *CHEBYSHEV])
@pytest.mark.parametrize("mat_type", TYPES)
def test_other_values_other_matrices_and_guesses(mat_type, solver):
    """What was recorded for a matrix is used again, or made anew."""
    A, B = made(given(solver), mat_type), made(given(solver, 2), "csrscalar")
    device = OnTheDevice(A, solver, pc_type="jacobi")
    check_close(device.solve(), on_the_host(solver.theirs, 0, "jacobi"), solver.more)
    for seed in (1, 0):
        matrix = given(solver, seed)
        A.setValuesCSR(matrix.rowptr.astype(PETSc.IntType), matrix.colidx.astype(PETSc.IntType), matrix.values)
        A.assemble()
        for _ in range(2):
            check_close(device.solve(), on_the_host(solver.theirs, seed, "jacobi"), solver.more)
    for operator, seed in ((B, 2), (A, 0)):
        device.ksp.setOperators(operator)
        check_close(device.solve(), on_the_host(solver.theirs, seed, "jacobi"), solver.more)
    device.x, device.b = device.x.duplicate(), device.b.copy()
    check_close(device.solve(), on_the_host(solver.theirs, 0, "jacobi"), solver.more)
    device.ksp.getPC().setType("none")
    check_close(device.solve(), on_the_host(solver.theirs, 0, "none"), solver.more)
    device.ksp.setInitialGuessNonzero(True)
    check_close(device.solve(), on_the_host(solver.theirs, 0, "none", guess=True), solver.more)


@pytest.mark.parametrize("mat_type", TYPES)
@each(CHEBYSHEV)
def test_inverses_of_blocks_are_copied_once_a_set_up(solver, mat_type, tmp_path):
    """Those of new values, unless the preconditioner is to stay, and of new values again once it is not."""
    settings = {**solver.common, "pc_type": "pbjacobi"}
    A, B = made(given(solver), mat_type), made(given(solver), "aij")
    device, host = OnTheDevice(A, solver, pc_type="pbjacobi"), make_solver(B, solver.theirs, **settings)
    x, b = B.createVecs()
    b.setArray(right_hand_side(ROWS))
    last = np.zeros(ROWS)
    for seed, stays in ((0, False), (1, False), (2, True), (2, False), (0, False)):
        for ksp, operator in ((device.ksp, A), (host, B)):
            matrix = given(solver, seed)
            operator.setValuesCSR(
                matrix.rowptr.astype(PETSc.IntType), matrix.colidx.astype(PETSc.IntType), matrix.values
            )
            operator.assemble()
            ksp.getPC().setReusePreconditioner(stays)
        found, expected = device.solve(), run(host, b, x)
        assert found.reason == expected.reason
        assert np.abs(found.x - expected.x).max() <= 1e-11 * np.abs(expected.x).max()
        assert np.abs(found.x - last).max() > 1e-6 * np.abs(expected.x).max()
        last, before = found.x, copied_bytes("ctog")
        device.x.set(0.0)
        device.ksp.solve(device.b, device.x)
        assert copied_bytes("ctog") - before < ROWS * np.dtype(PETSc.ScalarType).itemsize
    assert "each step a product and one pass over vectors on the device" in view_of(device.ksp, tmp_path)


@pytest.mark.parametrize("pc_type", ["none", "jacobi"])
@pytest.mark.parametrize("mat_type", RECORDED)
@each([CG[0], CG[6], BCGS[0], BCGS[6]])
def test_iterations_are_recorded(solver, mat_type, pc_type):
    """Those that are launched from a graph log no products: of 20, four do."""
    PETSc.Log.begin()
    device, products = OnTheDevice(made(given(solver), mat_type), solver, pc_type=pc_type), PETSc.Log.Event("MatMult")
    device.solve()
    before = products.getPerfInfo()["count"]
    iterations = device.solve().iterations
    recorded = solver.settings[f"ksp_{solver.ours}_graph"]
    assert iterations > 20
    assert (products.getPerfInfo()["count"] - before < iterations) == recorded


@pytest.mark.parametrize("pc_type", ["none", "jacobi"])
@pytest.mark.parametrize("mat_type", RECORDED)
@pytest.mark.parametrize(("batches", "loop"), [MIXED[k : k + 2] for k in (0, 2, 4)])
def test_inner_iterations_are_one_launch(batches, loop, mat_type, pc_type, capfd):
    """They leave what batches leave, with new values too."""
    if not hasattr(driver.libraries()[0], "cuGraphConditionalHandleCreate"):
        pytest.skip("a driver of CUDA 12.2 or older")
    A = made(given(loop), mat_type)
    both = [OnTheDevice(A, solver, pc_type=pc_type) for solver in (batches, loop)]
    for shift in (0.0, 0.5):
        A.shift(shift)
        capfd.readouterr()
        with informing():
            expected, found = (device.solve() for device in both)
        assert capfd.readouterr().out.count("inner iterations are one launch of a loop") == 1
        assert (found.reason, found.iterations) == (expected.reason, expected.iterations)
        assert found.history.tobytes() == expected.history.tobytes() and found.x.tobytes() == expected.x.tobytes()


WITHOUT_LOOPS = """
import sys, petsc4py
petsc4py.init(["program", *sys.argv[1:]])
from petsc4py import PETSc
from petsc_gpufmt.backends import loop
from petsc_gpufmt.errors import UnsupportedError

def none_here(_):
    raise UnsupportedError("no compiler for them")

loop.loop_condition = none_here
A = PETSc.Mat().createAIJ((200, 200), nnz=1, comm=PETSc.COMM_SELF)
A.setType("aijpjds")
for row in range(200):
    A.setValue(row, row, row + 1.0)
A.assemble()
ksp = PETSc.KSP().create(PETSc.COMM_SELF)
ksp.setOperators(A)
ksp.setFromOptions()
x, b = A.createVecs()
b.set(1.0)
for _ in range(2):
    ksp.solve(b, x)
"""


def test_without_loops_there_are_batches():
    """A process that cannot have loops tries once, and says why."""
    options = ("-ksp_type", "mixedcg", "-ksp_mixedcg_graph", "-pc_type", "none", "-ksp_error_if_not_converged", "-info")
    finished = launch.run([sys.executable, "-c", WITHOUT_LOOPS, *options])
    assert finished.status == 0, str(finished)
    assert finished.output.count("no loop that ends by itself: no compiler for them") == 1, str(finished)
    assert finished.output.count("launched in batches, because graphs have no loops here") == 2, str(finished)


@pytest.mark.parametrize("mat_type", ["pjds", "aijcusparse"])
@each(AS_THEY_ARE)
def test_vectors_stay_on_the_device(solver, mat_type):
    A = petsc_matrix(stencil_csr(40), mat_type)
    device = OnTheDevice(A, solver, pc_type="jacobi")
    device.solve()
    device.x.set(0.0)
    before = [copied_bytes(direction) for direction in ("ctog", "gtoc")]
    device.ksp.solve(device.b, device.x)
    assert device.ksp.getIterationNumber() > 40
    for direction, bytes_before in zip(("ctog", "gtoc"), before, strict=True):
        assert copied_bytes(direction) - bytes_before < 40**3 * np.dtype(PETSc.ScalarType).itemsize


@each([solver for solver in AS_THEY_ARE if solver not in MIXED])
def test_new_values_bring_no_vector_to_the_host(solver):
    """Nor do those of the first solve: the diagonal comes from the stored matrix, and zeros are looked for there."""
    A = petsc_matrix(stencil_csr(40), "pjds")
    device, vector = OnTheDevice(A, solver, pc_type="jacobi"), 40**3 * np.dtype(PETSc.ScalarType).itemsize
    device.x.set(0.0)
    for _ in range(2):
        before = copied_bytes("gtoc")
        device.ksp.solve(device.b, device.x)
        assert device.ksp.getIterationNumber() > 40
        assert copied_bytes("gtoc") - before < vector
        A.shift(0.01)
        device.x.set(0.0)


# ---- ends ----


def compared(values: np.ndarray, solver: Solver) -> Solve:
    """With a diagonal of these values, after a comparison of reasons with PETSc's method on the host."""
    A, b, settings = diagonal_matrix(values), np.ones(values.size), {"pc_type": "none", "ksp_rtol": 1e-12}
    found = solve(A, b, solver.ours, **solver.settings, **settings)
    theirs = solve(A.convert("aij", PETSc.Mat()), b, solver.theirs, **settings)
    inner_happens_to_solve = solver in MIXED and np.allclose(found.x * values, b, rtol=0, atol=rounding(1e-9))
    assert found.reason == (Reason.CONVERGED_RTOL if inner_happens_to_solve else theirs.reason)
    assert np.isfinite(found.x).all()
    return found


@each([*CG, *MIXED])
def test_indefinite_matrices(solver):
    late = 1 + np.arange(60.0)
    late[0] *= -1
    for values in (np.array([1.0, -1.0, 1.0, -1.0]), np.zeros(9), late):
        found = compared(values, solver)
        assert found.reason == Reason.DIVERGED_INDEFINITE_MAT or solver in MIXED
    assert found.iterations > 3
    assert compared(-late[1:], solver).reason == Reason.CONVERGED_RTOL


@each([*CG, *BCGS])
def test_as_many_iterations_as_there_may_be(solver):
    """Others are queued behind the last one, and change nothing."""
    A, B = made(given(solver), "pjds"), petsc_matrix(given(solver), "aij")
    for most in (1, 8, 13, 24):
        settings = {"pc_type": "jacobi", "ksp_max_it": most}
        found = OnTheDevice(A, solver, **settings).solve()
        theirs = solve(B, right_hand_side(ROWS), solver.theirs, **solver.common, **settings)
        assert (found.reason, found.iterations) == (Reason.DIVERGED_MAX_IT, most)
        assert np.abs(found.x - theirs.x).max() <= 1e-6 * np.abs(theirs.x).max()


@pytest.mark.parametrize("mat_type", TYPES)
@each([CG[0], CG[3], CG[6], BCGS[0], BCGS[3], *MIXED, GMRES[0], GMRES[3]])
def test_a_matrix_with_what_is_no_number(solver, mat_type):
    """The next solve, with numbers, is not harmed."""
    matrix = given(solver)
    A, row = made(matrix, mat_type), ROWS // 2
    device = OnTheDevice(A, solver, pc_type="jacobi")
    device.solve()
    (column,) = matrix.colidx[matrix.rowptr[row] : matrix.rowptr[row] + 1]
    value = A.getValue(row, column)
    assert column != row
    A.setValue(row, column, np.nan)
    A.assemble()
    found = device.solve()
    assert (found.reason, found.iterations) == (Reason.DIVERGED_NANORINF, 1) or solver not in CG
    assert found.reason == Reason.DIVERGED_NANORINF
    A.setValue(row, column, value)
    A.assemble()
    check_close(device.solve(), on_the_host(solver.theirs, 0, "jacobi"), solver.more)


@each([CG[0], CG[3], BCGS[3], *MIXED, *GMRES])
def test_a_right_hand_side_of_zeros(solver):
    device = OnTheDevice(made(given(solver), "pjds"), solver, pc_type="jacobi")
    device.solve()
    device.b.set(0.0)
    found = device.solve()
    assert (found.reason, found.iterations) == (Reason.CONVERGED_ATOL, 0) and not found.x.any()


# ---- who watches ----


def seen_in(ksp: Any, b: Any, x: Any) -> tuple[Solve, list[int], np.ndarray, list[np.ndarray]]:
    """A solve, and what a monitor saw: iterations, norms and solutions."""
    iterations, norms, solutions = [], [], []

    def monitor(ksp, iteration, norm):
        iterations.append(iteration)
        norms.append(norm)
        solutions.append(ksp.buildSolution().array.copy())

    ksp.setMonitor(monitor)
    return run(ksp, b, x), iterations, np.array(norms), solutions


@pytest.mark.parametrize("pc_type", ["none", "jacobi"])
@each(AS_THEY_ARE)
def test_monitors_see_each_iteration(solver, pc_type):
    device = OnTheDevice(made(given(solver), "pjds"), solver, pc_type=pc_type)
    alone = device.solve()
    found, iterations, norms, solutions = seen_in(device.ksp, device.b, device.x)
    assert found.history.tobytes() == norms.tobytes() and solutions[-1].tobytes() == found.x.tobytes()
    check_close(found, alone, solver.more)
    if solver.ours == "mixedcg":
        assert iterations[0] == 0 and iterations[-1] == found.iterations and 3 <= len(iterations) < found.iterations
        return
    assert iterations == list(range(found.iterations + 1))
    A = petsc_matrix(given(solver), "aij")
    ksp, (x, b) = make_solver(A, solver.theirs, **solver.common, pc_type=pc_type), A.createVecs()
    b.setArray(right_hand_side(ROWS))
    _, _, expected_norms, expected = seen_in(ksp, b, x)
    check_norms(norms, expected_norms)
    for ours, theirs in list(zip(solutions, expected, strict=False))[1:10]:
        assert np.abs(ours - theirs).max() <= 1e-6 * np.abs(theirs).max()


@each(AS_THEY_ARE)
def test_tests_of_convergence_end_a_solve_where_they_say(solver):
    device = OnTheDevice(made(given(solver), "pjds"), solver, pc_type="jacobi")

    def test(_, iteration, norm):
        return Reason.CONVERGED_HAPPY_BREAKDOWN if iteration >= 9 else Reason.ITERATING

    device.ksp.setConvergenceTest(test)
    found = device.solve()
    assert found.reason == Reason.CONVERGED_HAPPY_BREAKDOWN
    assert found.iterations == 9 or (solver.ours == "mixedcg" and found.iterations > 9)
