"""Type gpucg against PETSc's cg: the same iterations, norms, reasons and solutions."""

from __future__ import annotations

import numpy as np
import pytest
from bounds import rounding
from petsc4py import PETSc
from petsc_products import petsc_matrix, stencil_csr
from solves import ENDS, check_same, compared, diagonal_matrix, make_solver, right_hand_side, run, solve, view_of

from petsc_gpufmt.choice.registry import FORMATS

Reason = PETSc.KSP.ConvergedReason
NORMS = ("preconditioned", "unpreconditioned", "natural", "none")
BATCHES = (1, 2, 7, 1000)
PRECONDITIONERS = {
    "none": {"pc_type": "none"},
    "jacobi": {"pc_type": "jacobi"},
    "row sums": {"pc_type": "jacobi", "pc_jacobi_type": "rowl1"},
    "icc": {"pc_type": "icc"},
    "gamg": {"pc_type": "gamg", "pc_gamg_coarse_eq_limit": 20},
}


def both(A, b, **settings):
    """gpucg and cg."""
    return [solve(A, b, ksp_type, **settings) for ksp_type in ("gpucg", "cg")]


@pytest.mark.double
@pytest.mark.parametrize("guess", [False, True])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("preconditioner", PRECONDITIONERS)
def test_a_solve_is_that_of_cg(grid, preconditioner, norm, guess):
    settings = {"ksp_norm_type": norm, "ksp_initial_guess_nonzero": guess, "ksp_rtol": 1e-9}
    if norm == "none":
        settings["ksp_max_it"] = 9
    ours, theirs = both(grid, right_hand_side(343), **settings, **PRECONDITIONERS[preconditioner])
    check_same(ours, theirs)
    assert ours.iterations > 5 and ours.reason == (Reason.DIVERGED_MAX_IT if norm == "none" else Reason.CONVERGED_RTOL)


@pytest.mark.parametrize("name", ["aij", "dense", *FORMATS])
def test_any_matrix_will_do(name):
    matrix = stencil_csr(5)
    A = petsc_matrix(matrix, "aij" + name if name in FORMATS else "aij")
    if name == "dense":
        A.convert("dense")
    check_same(*both(A, right_hand_side(125), pc_type="jacobi"))


@pytest.mark.parametrize("check", BATCHES)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("preconditioner", ["jacobi", "icc"])
def test_how_often_the_norm_is_looked_at_changes_nothing(grid, preconditioner, norm, check):
    """The solution is that of the last iteration that counts, to the last bit."""
    settings = {"ksp_norm_type": norm, "ksp_max_it": 20, **PRECONDITIONERS[preconditioner]}
    b = right_hand_side(343)
    ours = compared("cg", grid, b, check, **settings)
    alone = solve(grid, b, "gpucg", ksp_gpucg_check=1, **settings)
    assert ours.x.tobytes() == alone.x.tobytes()
    assert ours.history.tobytes() == alone.history.tobytes()


@pytest.mark.parametrize("check", BATCHES)
@pytest.mark.parametrize(
    "settings",
    [
        *ENDS,
        {"ksp_min_it": 25, "ksp_rtol": 1e-3},
        {"ksp_initial_guess_nonzero": True, "ksp_converged_use_min_initial_residual_norm": True},
    ],
    ids=lambda settings: " ".join(settings),
)
def test_ends_are_those_of_cg(grid, settings, check):
    compared("cg", grid, right_hand_side(343), check, **{"pc_type": "jacobi", **settings})


def long_spectrum():
    """A matrix for which CG takes hundreds of iterations."""
    return diagonal_matrix(np.geomspace(1, 3000, 1500))


@pytest.mark.double
@pytest.mark.parametrize("check", [0, 100, 1000])
def test_records_of_long_solves_come_round(check):
    A, settings = long_spectrum(), {"pc_type": "none", "ksp_rtol": 1e-9}
    b = right_hand_side(1500)
    theirs = solve(A, b, "cg", **settings)
    assert theirs.iterations > 256 + 100
    check_same(solve(A, b, "gpucg", ksp_gpucg_check=check, **settings), theirs)


@pytest.mark.parametrize("check", BATCHES)
def test_estimates_of_eigenvalues_are_those_of_cg(grid, check):
    found = []
    for ksp_type in ("gpucg", "cg"):
        ksp = make_solver(
            grid, ksp_type, pc_type="jacobi", **({"ksp_gpucg_check": check} if ksp_type == "gpucg" else {})
        )
        ksp.setComputeEigenvalues(True)
        ksp.setComputeSingularValues(True)
        x, b = grid.createVecs()
        b.setArray(right_hand_side(343))
        ksp.solve(b, x)
        found.append([*ksp.computeExtremeSingularValues(), *np.sort(ksp.computeEigenvalues().real)])
    ours, theirs = map(np.array, found)
    assert ours.size > 12 and np.allclose(ours, theirs, rtol=rounding(1e-8))


def test_what_is_printed_of_a_solver(grid, tmp_path):
    ksp, (x, b) = make_solver(grid, "gpucg", pc_type="jacobi"), grid.createVecs()
    assert "petsc_gpufmt" not in view_of(ksp, tmp_path)
    run(ksp, b, x)
    assert ", the preconditioner in the update\n" in view_of(ksp, tmp_path)
    ksp.getPC().setType("icc")
    run(ksp, b, x)
    assert "  type: gpucg\n" in view_of(ksp, tmp_path)
    assert ", with PCApply\n" in view_of(ksp, tmp_path)
