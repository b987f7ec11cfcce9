"""Type gpubcgs against PETSc's bcgs: the same iterations, norms, reasons and solutions."""

from __future__ import annotations

import launch
import numpy as np
import pytest
from bounds import reachable, rounding
from builders import from_entries
from petsc4py import PETSc
from petsc_products import petsc_matrix, stencil_csr
from solves import ENDS, check_same, compared, informing, make_solver, right_hand_side, run, solve, view_of

from petsc_gpufmt.choice.registry import FORMATS

pytestmark = pytest.mark.slow

Reason = PETSc.KSP.ConvergedReason
SIDES = ("left", "right")
BATCHES = (1, 2, 7, 1000)
PRECONDITIONERS = {
    "none": {"pc_type": "none"},
    "jacobi": {"pc_type": "jacobi"},
    "row sums": {"pc_type": "jacobi", "pc_jacobi_type": "rowl1"},
    "ilu": {"pc_type": "ilu"},
    "gamg": {"pc_type": "gamg", "pc_gamg_coarse_eq_limit": 20},
}
SHORT = ("none", "jacobi", "ilu")


def convection(n=7, seed=8):
    """A matrix of n^3 rows that is not symmetric, with diagonals of several magnitudes.

    Solves with this seed do not come near a breakdown, where norms jump and rounding grows with them.
    """
    matrix = stencil_csr(n)
    matrix.values[:] *= 1 + 0.6 * np.sign(matrix.colidx - matrix.rows)
    matrix.values[:] *= (1 + 9 * np.random.default_rng(seed).random(n**3))[matrix.rows]
    return matrix


def dense(rows):
    """A small matrix from its rows, with all entries stored."""
    values = np.array(rows, dtype=float)
    n = len(values)
    matrix = from_entries(n, n, np.repeat(np.arange(n), n), np.tile(np.arange(n), n), seed=0)
    matrix.values[:] = values.ravel()
    return petsc_matrix(matrix)


def both(A, b, **settings):
    """gpubcgs and bcgs."""
    return [solve(A, b, ksp_type, **settings) for ksp_type in ("gpubcgs", "bcgs")]


@pytest.fixture(scope="module")
def grid():
    A = petsc_matrix(convection())
    yield A
    A.destroy()


@pytest.mark.parametrize("guess", [False, True])
@pytest.mark.parametrize("norm", [None, "none"])
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("preconditioner", PRECONDITIONERS)
def test_a_solve_is_that_of_bcgs(grid, preconditioner, side, norm, guess):
    settings = {"ksp_pc_side": side, "ksp_initial_guess_nonzero": guess, "ksp_rtol": reachable(1e-9)}
    if norm:
        settings |= {"ksp_norm_type": norm, "ksp_max_it": 4}
    ours, theirs = both(grid, right_hand_side(343), **settings, **PRECONDITIONERS[preconditioner])
    check_same(ours, theirs)
    assert ours.iterations > 3 and ours.reason == (Reason.DIVERGED_MAX_IT if norm else Reason.CONVERGED_RTOL)


@pytest.mark.parametrize("name", ["aij", "dense", *FORMATS])
def test_any_matrix_will_do(name):
    A = petsc_matrix(convection(5), "aij" + name if name in FORMATS else "aij")
    if name == "dense":
        A.convert("dense")
    check_same(*both(A, right_hand_side(125), pc_type="jacobi"))


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("check", BATCHES)
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("preconditioner", SHORT)
def test_how_iterations_are_queued_changes_nothing(grid, preconditioner, side, check, graph):
    """The solution is that of the last iteration that counts, to the last bit."""
    settings = {"ksp_pc_side": side, "ksp_initial_guess_nonzero": True, **PRECONDITIONERS[preconditioner]}
    b = right_hand_side(343)
    ours = solve(grid, b, "gpubcgs", ksp_gpubcgs_check=check, ksp_gpubcgs_graph=graph, **settings)
    alone = solve(grid, b, "gpubcgs", **settings)
    assert ours.iterations > 2
    assert ours.x.tobytes() == alone.x.tobytes()
    assert ours.history.tobytes() == alone.history.tobytes()


@pytest.mark.parametrize("check", BATCHES)
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(
    "settings",
    [
        *ENDS,
        {"ksp_min_it": 12, "ksp_rtol": 1e-2},
        {"ksp_atol": 1e9},
    ],
    ids=lambda settings: " ".join(settings),
)
def test_ends_are_those_of_bcgs(grid, settings, side, check):
    settings = {"pc_type": "jacobi", "ksp_pc_side": side, **settings}
    compared("bcgs", grid, right_hand_side(343), check, **settings)


BREAKDOWNS = {
    "the shadow residual sees nothing": ([[0, 1], [-1, 0]], Reason.DIVERGED_BREAKDOWN, 0),
    "singular": ([[1, 0], [1, 0]], Reason.DIVERGED_BREAKDOWN, 0),
    "half-way is the end": ([[2, 0], [0, 2]], Reason.CONVERGED_RTOL, 1),
    "a zero rho": ([[1, 0, 1], [1, 2, 0], [0, 1, 3]], Reason.DIVERGED_BREAKDOWN, 2),
    "a zero omega": ([[1, 0, 0], [1, 0, 1], [0, -1, 0]], Reason.DIVERGED_NANORINF, 1),
    "no numbers": ([[np.nan, 0], [0, 1]], Reason.DIVERGED_NANORINF, 0),
}


@pytest.mark.parametrize("check", [1, 5])
@pytest.mark.parametrize("name", BREAKDOWNS)
def test_breakdowns_are_those_of_bcgs(name, check):
    rows, reason, iterations = BREAKDOWNS[name]
    A, b = dense(rows), np.eye(len(rows))[0]
    settings = {"pc_type": "none", "ksp_rtol": 1e-14}
    with np.errstate(invalid="ignore"):
        ours = compared("bcgs", A, b, check, **settings)
    assert (ours.reason, ours.iterations) == (reason, iterations)


@pytest.mark.parametrize("name", [name for name, (_, reason, _) in BREAKDOWNS.items() if reason < 0])
def test_a_breakdown_is_an_error_if_that_is_wanted(name):
    rows = BREAKDOWNS[name][0]
    for ksp_type in ("gpubcgs", "bcgs"):
        with pytest.raises(PETSc.Error) as caught:
            solve(dense(rows), np.eye(len(rows))[0], ksp_type, pc_type="none", ksp_error_if_not_converged=True)
        # PETSC_ERR_NOT_CONVERGED; with debugging PETSC_ERR_FP, by a look at vectors
        assert caught.value.ierr in ((91, 72) if launch.petsc_checks() else (91,))


def test_breakdowns_are_told_as_by_bcgs(capfd):
    told = []
    for ksp_type in ("gpubcgs", "bcgs"):
        with informing():
            for name in ("the shadow residual sees nothing", "singular", "a zero rho"):
                rows = BREAKDOWNS[name][0]
                solve(dense(rows), np.eye(len(rows))[0], ksp_type, pc_type="none", ksp_rtol=1e-14)
        lines = capfd.readouterr().out.splitlines()
        told.append([line.partition("): ")[2] for line in lines if "reakdown" in line or "Failed due" in line])
    assert len(told[0]) == 3
    assert told[0] == told[1]


def test_a_preconditioner_that_fails_is_found_by_the_norm():
    found = both(dense([[0, 1], [0, 1]]), np.ones(2), pc_type="ilu")
    check_same(*found)
    assert found[0].reason == Reason.DIVERGED_PCSETUP_FAILED


@pytest.mark.parametrize("preconditioner", SHORT)
@pytest.mark.parametrize("side", SIDES)
def test_monitors_and_tests_of_programs_see_each_iteration(grid, side, preconditioner):
    """The solution that they build is that of the iteration; where the test ends is the end."""
    found = []
    for ksp_type in ("gpubcgs", "bcgs"):
        seen = []

        def prepare(ksp, seen=seen):
            def look(ksp, iteration, norm):
                v = grid.createVecLeft()
                seen.append([iteration, norm, *ksp.buildSolution(v).array])

            ksp.setMonitor(look)
            ksp.setConvergenceTest(lambda ksp, iteration, norm: 7 if iteration == 5 else 0)

        settings = {"ksp_pc_side": side, "ksp_initial_guess_nonzero": True, **PRECONDITIONERS[preconditioner]}
        found.append((solve(grid, right_hand_side(343), ksp_type, prepare, **settings), seen))
    (ours, our_views), (theirs, their_views) = found
    check_same(ours, theirs)
    assert (ours.iterations, len(our_views)) == (5, 6)
    assert np.allclose(our_views, their_views, rtol=rounding(1e-8), atol=rounding(1e-10))


def test_a_null_space_is_removed(tmp_path):
    """Each row of the matrix adds up to 0."""
    matrix = stencil_csr(5)
    sums = np.bincount(matrix.rows, matrix.values)
    matrix.values[matrix.rows == matrix.colidx] -= sums
    A, b = petsc_matrix(matrix), right_hand_side(125)
    A.setNullSpace(PETSc.NullSpace().create(constant=True))
    b -= b.mean()
    for side in SIDES:
        check_same(*both(A, b, pc_type="jacobi", ksp_pc_side=side, ksp_rtol=1e-8), tolerance=1e-6)
    ksp, (x, rhs) = make_solver(A, "gpubcgs", pc_type="jacobi"), A.createVecs()
    rhs.setArray(b)
    run(ksp, rhs, x)
    assert ", with PCApply\n" in view_of(ksp, tmp_path)


def test_a_guess_is_not_that_of_an_earlier_solve(grid):
    ksp = make_solver(grid, "gpubcgs", pc_type="jacobi", ksp_pc_side="right", ksp_rtol=1e-9)
    x, b = grid.createVecs()
    b.setArray(right_hand_side(343))
    straight = run(ksp, b, x)
    ksp.setInitialGuessNonzero(True)
    x.set(3.0)
    run(ksp, b, x)
    ksp.setInitialGuessNonzero(False)
    assert run(ksp, b, x).x.tobytes() == straight.x.tobytes()


@pytest.mark.parametrize(
    ("settings", "transposed", "why"),
    [
        ({"ksp_check_norm_iteration": 2}, False, "norms are not checked in all iterations (-ksp_check_norm_iteration)"),
        ({}, True, "it is with the transposed matrix"),
    ],
    ids=["norms", "transposed"],
)
def test_what_is_left_to_bcgs(grid, tmp_path, capfd, settings, transposed, why):
    found = []
    for ksp_type in ("gpubcgs", "bcgs"):
        ksp, (x, b) = make_solver(grid, ksp_type, pc_type="jacobi", **settings), grid.createVecs()
        b.setArray(right_hand_side(343))
        with informing():
            (ksp.solveTranspose if transposed else ksp.solve)(b, x)
        found.append((ksp.getIterationNumber(), ksp.getConvergedReason(), x.array.tobytes()))
        line = f"solved by PETSc's own method, because {why}\n"
        assert (line in capfd.readouterr().out) == (line in view_of(ksp, tmp_path)) == (ksp_type == "gpubcgs")
    assert found[0] == found[1]


def test_what_is_printed_of_a_solver(grid, tmp_path):
    ksp, (x, b) = make_solver(grid, "gpubcgs", pc_type="jacobi"), grid.createVecs()
    run(ksp, b, x)
    view = view_of(ksp, tmp_path)
    assert "  type: gpubcgs\n" in view
    assert ", the preconditioner in the kernels\n" in view


def test_sides_and_preconditioners_may_change_between_solves(grid):
    """A graph that was recorded for the one is not launched for the other."""
    ksp = make_solver(grid, "gpubcgs", ksp_gpubcgs_check=16, ksp_gpubcgs_graph=True, ksp_rtol=reachable(1e-9))
    x, b = grid.createVecs()
    b.setArray(right_hand_side(343))
    for side in (*SIDES, "left"):
        for name in ("none", "jacobi", "ilu", "jacobi"):
            ksp.getPC().setType(name)
            ksp.setNormType(1 + SIDES.index(side))  # KSP_NORM_PRECONDITIONED, KSP_NORM_UNPRECONDITIONED
            ksp.setPCSide(SIDES.index(side))
            theirs = solve(grid, b.array, "bcgs", pc_type=name, ksp_pc_side=side, ksp_rtol=reachable(1e-9))
            check_same(run(ksp, b, x), theirs)


def test_two_solvers_do_not_disturb_each_other(grid):
    """One solves within the monitor of the other."""
    b = right_hand_side(343)
    inner, alone = [], solve(grid, b, "gpubcgs", pc_type="jacobi")

    def prepare(ksp):
        ksp.setMonitor(lambda *_: inner.append(solve(grid, b, "gpubcgs", pc_type="jacobi")))

    outer = solve(grid, b, "gpubcgs", prepare, pc_type="jacobi")
    assert {found.x.tobytes() for found in (outer, *inner)} == {alone.x.tobytes()}
