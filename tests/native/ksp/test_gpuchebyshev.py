"""Type gpuchebyshev against PETSc's chebyshev: the same iterates, norms, reasons and bounds of eigenvalues."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from answers import settled_tokens
from petsc4py import PETSc
from petsc_products import petsc_matrix, stencil_csr
from solves import Solve, check_same, informing, make_solver, right_hand_side, run, solve, view_of

from petsc_gpufmt.choice.registry import FORMATS
from petsc_gpufmt.planning import requests
from petsc_gpufmt.planning.abi import Ask

pytestmark = pytest.mark.slow

Reason = PETSc.KSP.ConvergedReason
N = 5**3
SMOOTHER = {"ksp_norm_type": "none", "ksp_max_it": 2, "pc_type": "jacobi"}
OURS = "petsc_gpufmt: each step a product and one pass over vectors on the host\n"
FUSED = "petsc_gpufmt: steps in the product on the host\n"
LEFT = "solved by PETSc's own method, because "
TIGHT = 1e-13  # they differ in the order of a few sums
DIAGONALS = {
    "none": {"pc_type": "none"},
    "jacobi": {},
    "of row sums": {"pc_jacobi_type": "rowl1"},
    "of largest entries": {"pc_jacobi_type": "rowmax", "pc_jacobi_abs": True},
}
BOUNDS = {
    "given": {"ksp_chebyshev_eigenvalues": "0.2,2.5"},
    "estimated": {},
    "transformed": {"ksp_chebyshev_esteig": "0.1,0.2,0.3,0.9"},
    "of the right-hand side": {"ksp_chebyshev_esteig_noisy": False},
    "by CG": {"esteig_ksp_type": "cg", "ksp_chebyshev_esteig_steps": 4},
}
LEFT_CASES = {
    "norms are wanted (-ksp_norm_type none)": {"ksp_norm_type": "preconditioned", "ksp_max_it": 300},
    "the polynomial is not of the first kind": {"ksp_chebyshev_kind": "fourth"},
    "no iterations are wanted": {"ksp_max_it": 0},
    "the preconditioner is no multiplication by a diagonal or by point blocks": {"pc_type": "sor"},
}


def diffusion(seed=0):
    """Symmetric and positive definite, with diagonals of several magnitudes."""
    matrix = stencil_csr(5)
    scale = 1 + 9 * np.random.default_rng(seed).random(N)
    matrix.values[:] *= scale[matrix.rows] * scale[matrix.colidx]
    return matrix


def both(A, **settings):
    """By gpuchebyshev and by chebyshev."""
    return [solve(A, right_hand_side(N), kind, **settings) for kind in ("gpuchebyshev", "chebyshev")]


@pytest.fixture(scope="module")
def grid():
    A = petsc_matrix(diffusion())
    yield A
    A.destroy()


@pytest.fixture
def smoother():
    """A KSP, with vectors for the right-hand side and the solution; all plans are given back."""
    before = settled_tokens()
    A = petsc_matrix(diffusion())
    ksp, (x, b) = make_solver(A, "gpuchebyshev", **SMOOTHER), A.createVecs()
    b.setArray(right_hand_side(N))
    yield ksp, b, x
    ksp.destroy()
    A.destroy()
    assert settled_tokens() == before


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("guess", [False, True])
@pytest.mark.parametrize("iterations", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("diagonal", DIAGONALS)
def test_an_iterate_is_that_of_petsc(grid, diagonal, iterations, guess, fused):
    more = {"ksp_max_it": iterations, "ksp_initial_guess_nonzero": guess, **DIAGONALS[diagonal]}
    more["ksp_gpuchebyshev_fused"] = fused
    ours, theirs = both(grid, **{**SMOOTHER, **more})
    check_same(ours, theirs, TIGHT)
    assert (ours.reason, ours.iterations) == (Reason.CONVERGED_ITS, iterations)


@pytest.mark.parametrize("bounds", BOUNDS)
def test_bounds_of_eigenvalues_are_those_of_petsc(grid, bounds, tmp_path):
    ours, theirs = both(grid, **SMOOTHER, **BOUNDS[bounds])
    check_same(ours, theirs, TIGHT)
    other = solve(grid, right_hand_side(N), "gpuchebyshev", **SMOOTHER, ksp_chebyshev_eigenvalues="0.1,1.9")
    assert np.abs(other.x - ours.x).max() > 1e-3 * np.abs(ours.x).max()


@pytest.mark.parametrize("name", ["aij", "dense", *FORMATS])
def test_any_matrix_will_do(name, tmp_path):
    A = petsc_matrix(diffusion(), "aij" + name if name in FORMATS else "aij")
    if name == "dense":
        A.convert("dense")
    check_same(*both(A, **SMOOTHER), TIGHT)
    ours, theirs = both(A, **SMOOTHER, ksp_gpuchebyshev_fused=True)
    check_same(ours, theirs, TIGHT)
    ksp, (x, b) = make_solver(A, "gpuchebyshev", **SMOOTHER, ksp_gpuchebyshev_fused=True), A.createVecs()
    ksp.solve(b, x)
    text = view_of(ksp, tmp_path)
    assert FUSED in text if name == "pjds" else FUSED in text or OURS in text


@pytest.mark.parametrize("reason", LEFT_CASES)
@pytest.mark.parametrize("guess", [False, True])
def test_what_is_left_to_petsc_says_why(grid, reason, guess, tmp_path):
    """The guess is zero for PETSc, whatever is in the vector."""
    settings = {**SMOOTHER, "ksp_initial_guess_nonzero": guess, **LEFT_CASES[reason]}
    ours, theirs = both(grid, **settings)
    assert (ours.reason, ours.iterations) == (theirs.reason, theirs.iterations)
    assert ours.x.tobytes() == theirs.x.tobytes() and ours.history.tobytes() == theirs.history.tobytes()
    ksp, (x, b) = make_solver(grid, "gpuchebyshev", **settings), grid.createVecs()
    ksp.solve(b, x)
    assert f"  petsc_gpufmt: {LEFT}{reason}\n" in view_of(ksp, tmp_path)


def test_a_transposed_solve_is_left_to_petsc(smoother, capfd):
    ksp, b, x = smoother
    with informing():
        ksp.solveTranspose(b, x)
    assert LEFT + "it is with the transposed matrix" in capfd.readouterr().out
    found = x.array.copy()
    ksp.setType("chebyshev")
    ksp.solveTranspose(b, x)
    assert np.allclose(found, x.array, rtol=TIGHT)


def test_a_null_space_is_left_to_petsc(tmp_path):
    A = petsc_matrix(diffusion())
    A.setNullSpace(PETSc.NullSpace().create(constant=True, comm=PETSc.COMM_SELF))
    ours, theirs = both(A, **SMOOTHER)
    assert ours.x.tobytes() == theirs.x.tobytes()


def test_a_view_says_how_it_was_solved(smoother, tmp_path):
    ksp, b, x = smoother
    assert "petsc_gpufmt" not in view_of(ksp, tmp_path)
    ksp.solve(b, x)
    text = view_of(ksp, tmp_path)
    assert "  type: gpuchebyshev\n" in text and "Chebyshev polynomial of first kind" in text and OURS in text


def test_the_diagonal_is_that_of_the_matrix_as_it_is(options, tmp_path):
    """New values, another kind of diagonal, another preconditioner: each is in force in the next solve."""
    solvers = {}
    for kind in ("gpuchebyshev", "chebyshev"):
        A = petsc_matrix(diffusion())
        ksp, (x, b) = make_solver(A, kind, **SMOOTHER, ksp_chebyshev_eigenvalues="0.2,2.5"), A.createVecs()
        b.setArray(right_hand_side(N))
        solvers[kind] = (A, ksp, b, x)

    def new_values(A, pc):
        A.shift(30.0)

    def row_sums(A, pc):
        pc.reset()
        pc.setOperators(A)
        options["pc_jacobi_type"] = "rowl1"
        pc.setOptionsPrefix(None)
        pc.setFromOptions()

    def none(A, pc):
        pc.setType("none")

    def jacobi(A, pc):
        pc.setType("jacobi")

    last = None
    for change in (lambda A, pc: None, new_values, row_sums, none, jacobi):
        found = []
        for A, ksp, b, x in solvers.values():
            change(A, ksp.getPC())
            found.append(run(ksp, b, x))
        check_same(*found, TIGHT)
        assert last is None or np.abs(found[0].x - last).max() > 1e-6
        last = found[0].x
    assert OURS in view_of(solvers["gpuchebyshev"][1], tmp_path)
    for solver in solvers.values():
        for thing in solver:
            thing.destroy()


@pytest.mark.parametrize(("name", "fused"), [("pjds", 1), ("csrvector", 1), ("aij", 0)])
def test_the_planner_is_asked_once(monkeypatch, name, fused):
    """For the plan of the type, and for a step within the product, whether there is one or not."""
    asked = Counter()
    for ask, kind in list(requests.KINDS.items()):

        def counted(*arguments, ask=ask, fill=kind.fill):
            asked[ask] += 1
            return fill(*arguments)

        monkeypatch.setitem(requests.KINDS, ask, kind._replace(fill=counted))
    A = petsc_matrix(diffusion(), name if name == "aij" else "aij" + name)
    settings = {**SMOOTHER, "ksp_chebyshev_eigenvalues": "0.2,2.5", "ksp_gpuchebyshev_fused": True}
    ksp, (x, b) = make_solver(A, "gpuchebyshev", **settings), A.createVecs()
    for _ in range(3):
        ksp.solve(b, x)
        A.shift(1.0)
    assert (asked[Ask.KRYLOV], asked[Ask.FUSED]) == (1, fused)
    ksp.destroy()
    A.destroy()


def test_a_steady_solve_applies_no_preconditioner(smoother):
    """It would be a pass over vectors more."""
    ksp, b, x = smoother
    ksp.solve(b, x)
    event, stage = PETSc.Log.Event("PCApply"), PETSc.Log.Stage("steady")
    PETSc.Log.begin()
    stage.push()  # after a set-up that has failed, PETSc counts no more of these in the stage of then
    before = event.getPerfInfo()["count"]
    for _ in range(3):
        ksp.solve(b, x)
    assert event.getPerfInfo()["count"] == before
    ksp.setType("chebyshev")
    ksp.solve(b, x)
    assert event.getPerfInfo()["count"] > before
    stage.pop()


def test_types_come_and_go(smoother):
    ksp, b, x = smoother
    first = run(ksp, b, x)
    for kind in ("chebyshev", "gpuchebyshev", "gpucg", "chebyshev", "gpuchebyshev"):
        ksp.setType(kind)
        found = run(ksp, b, x)
        if kind != "gpucg":
            check_same(found, first, TIGHT)


def test_another_size_may_follow(smoother):
    ksp, b, x = smoother
    ksp.solve(b, x)
    ksp.reset()
    A = petsc_matrix(stencil_csr(4))
    ksp.setOperators(A)
    x, b = A.createVecs()
    b.set(1.0)
    found = run(ksp, b, x)
    ksp.setType("chebyshev")
    check_same(found, run(ksp, b, x), TIGHT)
    A.destroy()


@pytest.mark.parametrize("solution", [np.nan, np.inf])
def test_a_zero_guess_is_not_read(smoother, solution):
    ksp, b, x = smoother
    x.set(solution)
    assert np.isfinite(run(ksp, b, x).x).all()


def test_what_is_no_number_goes_on(smoother):
    """As with PETSc's: nobody looks, and multigrid finds it later."""
    ksp, b, x = smoother
    ksp.solve(b, x)
    b.setValue(0, np.nan)
    b.assemble()
    found = run(ksp, b, x)
    assert found.reason == Reason.CONVERGED_ITS and np.isnan(found.x).any()


def test_norms_and_monitors_are_those_of_petsc(grid):
    seen = []

    def prepare(ksp):
        ksp.setMonitor(lambda ksp, i, norm: seen.append((i, norm)))

    settings = {"pc_type": "jacobi", "ksp_max_it": 20, "ksp_chebyshev_eigenvalues": "0.2,2.0"}
    ours, theirs = (
        solve(grid, right_hand_side(N), kind, prepare, **settings) for kind in ("gpuchebyshev", "chebyshev")
    )
    assert isinstance(ours, Solve) and ours.history.size > 5
    assert ours.history.tobytes() == theirs.history.tobytes()
    assert seen[: len(seen) // 2] == seen[len(seen) // 2 :]
