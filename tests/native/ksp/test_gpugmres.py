"""Types gpugmres and gpufgmres against PETSc's gmres and fgmres: the same iterations, norms, reasons and solutions."""

from __future__ import annotations

import ctypes
import itertools

import numpy as np
import pytest
from bounds import reachable, rounding, steps
from petsc4py import PETSc
from petsc_products import petsc_matrix, stencil_csr
from solves import (
    ENDS,
    MODIFIED,
    REFINEMENT,
    check_same,
    compared,
    diagonal_matrix,
    informing,
    make_solver,
    nest_of,
    right_hand_side,
    run,
    solve,
    view_of,
)

from petsc_gpufmt.backends import native_library

pytestmark = pytest.mark.slow

Reason = PETSc.KSP.ConvergedReason
OURS = {"gmres": "gpugmres", "fgmres": "gpufgmres"}
BATCHES = (1, 2, 7, 1000)
PRECONDITIONERS = {
    "none": {"pc_type": "none"},
    "jacobi": {"pc_type": "jacobi"},
    "ilu": {"pc_type": "ilu"},
    "gamg": {"pc_type": "gamg", "pc_gamg_coarse_eq_limit": 20},
}
SIDES = [("gmres", "left", "preconditioned"), ("gmres", "right", "unpreconditioned"), ("gmres", "left", "none")]
SIDES += [("gmres", "right", "none"), ("fgmres", "right", "unpreconditioned"), ("fgmres", "right", "none")]


@pytest.fixture(scope="module")
def flow():
    """A matrix of 343 rows that is not symmetric, with several diagonals."""
    matrix = stencil_csr(7)
    random = np.random.default_rng(5)
    matrix.values[:] *= 1 - 0.5 * random.random(matrix.colidx.size) * (matrix.colidx > matrix.rows)
    matrix.values[:] *= (1 + random.random(343))[matrix.rows]
    A = petsc_matrix(matrix)
    yield A
    A.destroy()


@pytest.fixture(params=OURS)
def theirs(request):
    return request.param


def dense(values):
    A = PETSc.Mat().createDense(np.shape(values), array=np.array(values, PETSc.ScalarType), comm=PETSc.COMM_SELF)
    A.assemble()
    return A


@pytest.mark.parametrize("restart", [30, 4])
@pytest.mark.parametrize("guess", [False, True])
@pytest.mark.parametrize(("theirs", "side", "norm"), SIDES)
@pytest.mark.parametrize("preconditioner", PRECONDITIONERS)
def test_a_solve_is_that_of_petsc(flow, preconditioner, theirs, side, norm, guess, restart):
    settings = {"ksp_norm_type": norm, "ksp_pc_side": side, "ksp_initial_guess_nonzero": guess}
    settings |= {"ksp_rtol": reachable(1e-9), "ksp_gmres_restart": restart, **PRECONDITIONERS[preconditioner]}
    if norm == "none":
        settings["ksp_max_it"] = 9
    found = compared(theirs, flow, right_hand_side(343), **settings)
    assert found.iterations > 5 and found.reason == (
        Reason.DIVERGED_MAX_IT if norm == "none" else Reason.CONVERGED_RTOL
    )


@pytest.mark.parametrize("name", ["aij", "dense", "aijpjds", "aijcsrvector"])
def test_any_matrix_will_do(flow, name, theirs):
    A = flow.duplicate(copy=True).convert(name)
    assert compared(theirs, A, right_hand_side(343), pc_type="jacobi").iterations > 5


@pytest.mark.parametrize("check", BATCHES)
@pytest.mark.parametrize("restart", [30, 5])
@pytest.mark.parametrize("norm", ["unpreconditioned", "none"])
def test_how_often_the_norm_is_looked_at_changes_nothing(flow, norm, restart, check, theirs):
    """The solution is that of the last iteration that counts, to the last bit."""
    settings = {"ksp_norm_type": norm, "ksp_max_it": 18, "ksp_gmres_restart": restart, "ksp_pc_side": "right"}
    settings["pc_type"] = "jacobi"
    found = compared(theirs, flow, right_hand_side(343), check, **settings)
    alone = solve(flow, right_hand_side(343), OURS[theirs], **settings)
    assert (found.x.tobytes(), found.history.tobytes()) == (alone.x.tobytes(), alone.history.tobytes())


@pytest.mark.parametrize("check", [0, 7])
@pytest.mark.parametrize(
    "settings",
    [
        *ENDS,
        {"ksp_min_it": 35, "ksp_rtol": 1e-3},
        {"ksp_max_it": 5, "ksp_gmres_restart": 5},
        {"ksp_gmres_restart": 1},
        {"ksp_gmres_restart": 50, "ksp_rtol": reachable(1e-10)},
        {"ksp_gmres_preallocate": True},
        {"ksp_initial_guess_nonzero": True, "ksp_converged_use_min_initial_residual_norm": True},
        {"ksp_gmres_haptol": 1e9},
        {"ksp_gmres_restart": 300, "ksp_max_it": 80, "ksp_rtol": 1e-11},
    ],
    ids=lambda settings: " ".join(settings),
)
def test_ends_are_those_of_petsc(flow, settings, check, theirs):
    compared(theirs, flow, right_hand_side(343), check, **{"pc_type": "jacobi", **settings})


def test_a_symmetric_preconditioner(grid):
    settings = {"pc_type": "icc", "ksp_pc_side": "symmetric"}
    assert compared("gmres", grid, right_hand_side(343), **settings).iterations > 5


def test_residuals_that_rounding_has_left_are_a_breakdown(flow):
    """The norm after a restart is not that of the recurrence, by a tolerance of zero."""
    settings = {"ksp_gmres_breakdown_tolerance": 0, "ksp_gmres_restart": 4, "pc_type": "jacobi"}
    found = [solve(flow, right_hand_side(343), name, **settings) for name in ("gpugmres", "gmres")]
    assert {solved.reason for solved in found} == {Reason.DIVERGED_BREAKDOWN}
    assert all(solved.iterations % 4 == 0 for solved in found)


@pytest.mark.parametrize("norm", ["unpreconditioned", "none"])
def test_a_breakdown_is_an_error_if_that_is_wanted(flow, norm, theirs):
    """With code and message of PETSc's own: the norm after a restart, no new vector, and one that is small."""
    small = np.diag([1.0, 2.0, 3.0])
    small[2, 0] = 1e-3
    wanted = {"ksp_error_if_not_converged": True, "pc_type": "none", "ksp_pc_side": "right", "ksp_norm_type": norm}
    cases = [
        (flow, right_hand_side(343), {"ksp_gmres_breakdown_tolerance": 0, "ksp_gmres_restart": 4}),
        (dense(np.zeros((3, 3))), np.eye(3)[1], {"ksp_max_it": 2}),
        (dense([[0, 1, 0], [0, 0, 0], [0, 0, 1]]), np.eye(3)[1], {"ksp_max_it": 3}),
        (dense(small), 0.5 * np.eye(3)[0], {"ksp_gmres_haptol": 0.1, "ksp_rtol": 1e-12, "ksp_max_it": 3}),
    ]
    tests = (lambda ksp: None, lambda ksp: ksp.setConvergenceTest(lambda *_: False))  # the second is never content
    for (A, b, settings), prepare in itertools.product(cases, tests):
        ends = []
        for name in (OURS[theirs], theirs):
            try:
                ends.append((solve(A, b, name, prepare, **wanted, **settings).reason, ""))
            except PETSc.Error as error:
                ends.append((error.ierr, str(error).splitlines()[-1].partition("]")[2].split("Residual norm")[0]))
        assert ends[0] == ends[1]


@pytest.mark.parametrize("check", [0, 5])
class TestEnds:
    @pytest.mark.parametrize("norm", ["unpreconditioned", "none"])
    def test_the_space_has_the_solution(self, norm, check, theirs):
        """Vectors of norm 1 and small whole numbers: nothing is rounded, and a new vector is one of zeros."""
        shift = dense(np.roll(np.eye(4), 1, axis=0))
        settings = {"pc_type": "none", "ksp_norm_type": norm, "ksp_pc_side": "right", "ksp_rtol": 1e-9}
        found = compared(theirs, shift, np.eye(4)[0], check, **settings, ksp_max_it=12, ksp_gmres_restart=8)
        assert found.iterations >= 4 and np.isfinite(found.x).all()

    @pytest.mark.parametrize("norm", ["unpreconditioned", "none"])
    def test_a_small_new_vector_is_a_breakdown(self, norm, check, theirs):
        """Below the tolerance, and far from a solution; KSPFGMRES cannot be told another tolerance."""
        values = np.diag([1.0, 2.0, 3.0])
        values[2, 0] = 1e-3
        settings = {"pc_type": "none", "ksp_pc_side": "right", "ksp_rtol": 1e-12, "ksp_max_it": 3}
        settings |= {"ksp_norm_type": norm, "ksp_gmres_haptol": 0.1}
        found = compared(theirs, dense(values), 0.5 * np.eye(3)[0], check, **settings)
        assert found.iterations == 1 if theirs == "gmres" else found.iterations > 1

    def test_a_singular_matrix(self, check, theirs):
        """KSPFGMRES takes some of them for breakdowns with the solution."""
        for values in (np.zeros((3, 3)), [[0, 1, 0], [0, 0, 0], [0, 0, 1]]):
            found = compared(theirs, dense(values), np.eye(3)[1], check, pc_type="none", ksp_pc_side="right")
            assert found.iterations < 4 and (found.reason < 0 or theirs == "fgmres")

    @pytest.mark.parametrize("wrong", [np.nan, np.inf])
    def test_what_is_no_number(self, wrong, check, theirs):
        good, bad = np.ones(9), np.where(np.arange(9) == 7, wrong, 1.0)
        two = dense(np.diag(1.0 + np.arange(9)))
        for A, b in ((dense(np.diag(bad)), good), (two, bad)):
            found = compared(theirs, A, b, check, pc_type="none", ksp_pc_side="right")
            assert found.reason == Reason.DIVERGED_NANORINF

    def test_a_preconditioner_that_was_not_made(self, check, theirs):
        P = diagonal_matrix(np.where(np.arange(20) == 7, 0.0, 1.0))
        found = compared(theirs, (dense(2 * np.eye(20)), P), np.ones(20), check, pc_type="lu")
        assert found.reason == Reason.DIVERGED_PCSETUP_FAILED

    def test_nothing_to_do(self, flow, check, theirs):
        found = compared(theirs, flow, np.zeros(343), check, pc_type="jacobi")
        assert (found.reason, found.iterations) == (Reason.CONVERGED_ATOL, 0)
        exact = dense(2 * np.eye(8))  # the guess is b / 2
        found = compared(theirs, exact, np.ones(8), check, pc_type="none", ksp_initial_guess_nonzero=True)
        assert found.iterations == 0
        assert compared(theirs, dense([[4.0]]), np.ones(1), check, pc_type="none").iterations == 1
        assert compared(theirs, dense(np.zeros((0, 0))), np.zeros(0), check, pc_type="jacobi").iterations == 0


def test_a_null_space_is_removed(theirs):
    A = petsc_matrix(stencil_csr(5))
    ones, sums = A.createVecs()
    ones.set(1.0)
    A.mult(ones, sums)
    A.setDiagonal(A.getDiagonal() - sums)
    A.setNullSpace(PETSc.NullSpace().create(constant=True, comm=PETSc.COMM_SELF))
    b = right_hand_side(125)
    assert compared(theirs, A, b - b.mean(), pc_type="jacobi").iterations > 5


def test_a_transposed_solve(flow):
    found = []
    for ksp_type in ("gpugmres", "gmres"):
        ksp, (x, b) = make_solver(flow, ksp_type, pc_type="jacobi"), flow.createVecs()
        b.setArray(right_hand_side(343))
        ksp.solveTranspose(b, x)
        found.append((ksp.getIterationNumber(), x.array.copy()))
    assert found[0][0] == found[1][0] > 5 and np.allclose(found[0][1], found[1][1], rtol=rounding(1e-8))


def watched(theirs_or_ours, A, b, prepare, **settings):
    """A solve, and the solutions that a monitor has built in each iteration."""
    solutions = []

    def monitor(ksp, iteration, norm):
        solutions.append((iteration, norm, ksp.buildSolution().array.copy()))

    def both(ksp):
        ksp.setMonitor(monitor)
        prepare(ksp)

    return solve(A, b, theirs_or_ours, both, **settings), solutions


@pytest.mark.parametrize("side", ["left", "right"])
def test_monitors_see_the_solution_of_each_iteration(flow, side, theirs):
    if (theirs, side) == ("fgmres", "left"):
        side = "right"
    settings = {"pc_type": "ilu", "ksp_gmres_restart": 5, "ksp_pc_side": side, "ksp_rtol": 1e-9}
    (ours, seen), (expected, theirs_seen) = (
        watched(name, flow, right_hand_side(343), lambda ksp: None, **settings) for name in (OURS[theirs], theirs)
    )
    check_same(ours, expected)
    assert [s[0] for s in seen] == [s[0] for s in theirs_seen] and len(seen) > 8
    for (_, norm, x), (_, expected_norm, expected_x) in zip(seen, theirs_seen, strict=True):
        assert abs(norm - expected_norm) <= rounding(1e-8) * expected.history[0]
        assert np.abs(x - expected_x).max() <= rounding(1e-8) * np.abs(expected.x).max()


def test_who_decides_by_himself_and_who_allows_more(flow, theirs):
    """A test that ends after 7 iterations, and a monitor that lets a solve of 3 go on to 11."""
    prepared = (
        lambda ksp: ksp.setConvergenceTest(lambda _, iteration, norm: iteration >= 7),
        lambda ksp: ksp.setTolerances(max_it=3),
    )

    def allow(ksp, iteration, _):
        if iteration == 2:
            ksp.setTolerances(max_it=11)

    for prepare, monitor, iterations in ((prepared[0], None, 7), (prepared[1], allow, 11)):
        found = []
        for name in (OURS[theirs], theirs):

            def both(ksp, prepare=prepare, monitor=monitor):
                prepare(ksp)
                if monitor:
                    ksp.setMonitor(monitor)

            settings = {f"ksp_{OURS[theirs]}_check": 20} if name in OURS.values() else {}
            found.append(solve(flow, right_hand_side(343), name, both, pc_type="jacobi", **settings))
        check_same(*found)
        assert found[0].iterations == iterations


@pytest.mark.parametrize("max_it", [12, 34])
def test_estimates_of_eigenvalues_and_singular_values(flow, max_it, theirs):
    found, restart, max_it = [], steps(20), steps(max_it)
    for name in (OURS[theirs], theirs):
        settings = {"pc_type": "jacobi", "ksp_gmres_restart": restart, "ksp_max_it": max_it, "ksp_rtol": 1e-13}
        ksp, (x, b) = make_solver(flow, name, **settings), flow.createVecs()
        ksp.setComputeEigenvalues(True)
        ksp.setComputeSingularValues(True)
        b.setArray(right_hand_side(343))
        run(ksp, b, x)
        found.append((np.sort_complex(ksp.computeEigenvalues()), ksp.computeExtremeSingularValues()))
    assert found[0][0].size == found[1][0].size == (max_it - 1) % restart + 1
    assert np.allclose(found[0][0], found[1][0], rtol=rounding(1e-6))
    assert np.allclose(found[0][1], found[1][1], rtol=rounding(1e-8))


def test_singular_values_are_to_be_wanted_before_set_up(flow):
    ksp, (x, b) = make_solver(flow, "gpugmres", pc_type="jacobi"), flow.createVecs()
    ksp.setUp()
    ksp.setComputeSingularValues(True)
    with pytest.raises(PETSc.Error, match="Must call KSPSetComputeSingularValues"):
        ksp.solve(b, x)


def test_a_solver_lives_on(flow, theirs, tmp_path):
    """Other values, restarts, sizes and types between solves."""
    pair = [make_solver(flow, name, pc_type="jacobi") for name in (OURS[theirs], theirs)]
    other = flow.duplicate(copy=True)
    other.shift(20.0)
    small = dense(np.diag(1.0 + np.arange(7)) + 0.3 * np.eye(7, k=1))

    def check(A):
        x, b = A.createVecs()
        b.setArray(right_hand_side(b.size))
        found = []
        for ksp in pair:
            x.set(0.0)
            found.append(run(ksp, b, x))
        check_same(*found)
        assert "  petsc_gpufmt: Hessenberg matrix on the host\n" in view_of(pair[0], tmp_path)
        return found[0]

    first = check(flow)
    for ksp in pair:
        ksp.setGMRESRestart(3)
    assert check(flow).iterations != first.iterations
    for ksp in pair:
        ksp.setGMRESRestart(40)
        ksp.setOperators(other)
    assert check(other).iterations < first.iterations
    for ksp in pair:
        ksp.reset()
        ksp.setOperators(small)
    assert check(small).iterations <= 7
    pair[0].setType("cg")
    pair[0].setType(OURS[theirs])
    pair[1].setType("cg")
    pair[1].setType(theirs)
    check(small)


# ---- what is left to PETSc ----


def want_ritz_pairs(ksp):
    assert native_library.load().KSPSetComputeRitz(ctypes.c_void_p(ksp.handle), ctypes.c_bool(True)) == 0


ORTHOGONALIZATION = "orthogonalization is not classical Gram-Schmidt without refinement"
LEFT = {
    "modified": (ORTHOGONALIZATION, MODIFIED),
    "refined": (ORTHOGONALIZATION, {REFINEMENT: "refine_always"}),
    "refined if needed": (ORTHOGONALIZATION, {REFINEMENT: "refine_ifneeded"}),
    "watched": ("vectors of the basis are monitored", {"ksp_gmres_krylov_monitor": True}),
    "Ritz": ("Ritz pairs are wanted", {}),
}


@pytest.mark.parametrize("what", LEFT)
def test_what_is_left_to_petsc(flow, what, theirs, tmp_path, capfd):
    reason, settings = LEFT[what]
    PETSc.Options()["nox"] = True
    found = []
    for name in (OURS[theirs], theirs):
        ksp, (x, b) = make_solver(flow, name, pc_type="jacobi", ksp_gmres_restart=8, **settings), flow.createVecs()
        if what == "Ritz":
            want_ritz_pairs(ksp)
        b.setArray(right_hand_side(343))
        capfd.readouterr()
        with informing():
            found.append(run(ksp, b, x))
        said, view = capfd.readouterr().out, view_of(ksp, tmp_path)
        for text in (said, view):
            assert (f"solved by PETSc's own method, because {reason}" in text) == (name == OURS[theirs])
    PETSc.Options().delValue("nox")
    check_same(*found, tolerance=0)


def test_vectors_of_another_kind_are_left_to_petsc(flow, theirs, tmp_path):
    A = nest_of(flow)
    x, b = A.createVecs()
    b.set(1.0)
    ksp = make_solver(A, OURS[theirs], pc_type="none", ksp_max_it=9)
    assert run(ksp, b, x).iterations == 9
    assert "because vectors are neither" in view_of(ksp, tmp_path)


# ---- gpufgmres alone ----


def test_a_preconditioner_that_is_a_solver(flow):
    settings = {"pc_type": "ksp", "ksp_ksp_type": "gmres", "ksp_ksp_max_it": 4, "ksp_pc_type": "jacobi"}
    found = [solve(flow, right_hand_side(343), name, **settings) for name in ("gpufgmres", "fgmres")]
    check_same(*found, tolerance=1e-7)  # inner solves amplify rounding
    assert 1 < found[0].iterations < 30


@pytest.mark.parametrize("check", [0, 10])
def test_a_preconditioner_that_is_modified_is_told_the_norms(flow, check):
    """By a function of the program, which is called before each iteration."""
    library, told = native_library.load(), []
    scalar, integer = (np.ctypeslib.as_ctypes_type(t) for t in (PETSc.RealType, PETSc.IntType))
    prototype = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, integer, integer, scalar, ctypes.c_void_p)
    modify = prototype(lambda _, total, local, norm, __: told.append((total, local, norm)) or 0)

    def prepare(ksp):
        assert library.KSPFlexibleSetModifyPC(ctypes.c_void_p(ksp.handle), modify, None, None) == 0

    found, calls = [], []
    for name in ("gpufgmres", "fgmres"):
        told.clear()
        settings = {"ksp_gpufgmres_check": check} if name == "gpufgmres" else {}
        settings |= {"pc_type": "jacobi", "ksp_gmres_restart": 6}
        found.append(solve(flow, right_hand_side(343), name, prepare, **settings))
        calls.append(np.array(told))
    check_same(*found)
    assert calls[0].shape == calls[1].shape == (found[0].iterations, 3)
    assert np.allclose(calls[0], calls[1], rtol=rounding(1e-7))
