"""Type gpucg ends as cg for want of a definite matrix or preconditioner, or of numbers; and what it leaves to cg."""

from __future__ import annotations

import ctypes

import launch
import numpy as np
import pytest
from bounds import rounding
from petsc4py import PETSc
from solves import (
    NEWER,
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

Reason = PETSc.KSP.ConvergedReason
NOT_CONVERGED = 91  # PETSC_ERR_NOT_CONVERGED
BATCHES = (0, 1, 5, 100)
REAL = np.ctypeslib.as_ctypes_type(PETSc.RealType)
INTEGER = np.ctypeslib.as_ctypes_type(PETSc.IntType)


def with_signs(n, negative):
    """A diagonal that is negative in some rows."""
    values = 1 + np.arange(n, dtype=float)
    values[negative] *= -1
    return values


@pytest.mark.parametrize("check", BATCHES)
class TestEnds:
    def test_a_negative_definite_matrix_is_solved(self, check):
        A = diagonal_matrix(-np.arange(1.0, 40.0))
        found = compared("cg", A, right_hand_side(39), check, pc_type="none")
        assert found.reason == Reason.CONVERGED_RTOL and found.iterations > 9

    @pytest.mark.parametrize("wanted", [False, True])
    def test_an_indefinite_matrix(self, check, wanted):
        A = diagonal_matrix(with_signs(40, slice(37, 40)))
        found = compared("cg", A, np.ones(40), check, pc_type="none", ksp_converged_neg_curve=wanted)
        assert found.reason == (Reason.CONVERGED_NEG_CURVE if wanted else Reason.DIVERGED_INDEFINITE_MAT)

    def test_a_matrix_that_becomes_indefinite_later(self, check):
        A = diagonal_matrix(with_signs(60, slice(0, 1)))
        found = compared("cg", A, np.ones(60), check, pc_type="none", ksp_rtol=1e-12)
        assert found.reason == Reason.DIVERGED_INDEFINITE_MAT and found.iterations > 3

    def test_a_matrix_of_zeros(self, check):
        A = diagonal_matrix(np.zeros(9))
        assert compared("cg", A, np.ones(9), check, pc_type="none").reason == Reason.DIVERGED_INDEFINITE_MAT

    @pytest.mark.parametrize("pc_type", ["jacobi", "mat"])
    def test_an_indefinite_preconditioner(self, check, pc_type):
        A, P = diagonal_matrix(np.arange(1.0, 41.0)), diagonal_matrix(with_signs(40, slice(0, 1)))
        found = compared("cg", (A, P), np.ones(40), check, pc_type=pc_type, ksp_rtol=1e-12)
        assert found.reason == Reason.DIVERGED_INDEFINITE_PC and found.iterations > 1

    @pytest.mark.parametrize("norm", ["preconditioned", "unpreconditioned", "natural", "none"])
    @pytest.mark.parametrize("wrong", [np.nan, np.inf])
    def test_a_matrix_with_what_is_no_number(self, check, norm, wrong):
        A = diagonal_matrix(np.where(np.arange(30) == 7, wrong, 2.0))
        P = diagonal_matrix(np.full(30, 2.0))
        for pc_type in ("jacobi", "icc"):
            found = compared("cg", (A, P), np.ones(30), check, pc_type=pc_type, ksp_norm_type=norm)
            assert found.reason == Reason.DIVERGED_NANORINF and found.iterations == 1

    @pytest.mark.parametrize("norm", ["preconditioned", "natural", "unpreconditioned", "none"])
    def test_a_right_hand_side_or_preconditioner_with_what_is_no_number(self, check, norm):
        A, b = diagonal_matrix(np.full(30, 2.0)), np.where(np.arange(30) == 7, np.nan, 1.0)
        assert compared("cg", A, b, check, pc_type="none", ksp_norm_type=norm).reason == Reason.DIVERGED_NANORINF
        P = diagonal_matrix(b)
        assert (
            compared("cg", (A, P), np.ones(30), check, pc_type="mat", ksp_norm_type=norm).reason
            == Reason.DIVERGED_NANORINF
        )

    def test_a_preconditioner_that_was_not_made(self, check):
        A, P = diagonal_matrix(np.full(20, 2.0)), diagonal_matrix(np.where(np.arange(20) == 7, 0.0, 1.0))
        assert compared("cg", (A, P), np.ones(20), check, pc_type="lu").reason == Reason.DIVERGED_PCSETUP_FAILED

    def test_nothing_to_do(self, check, grid):
        assert compared("cg", grid, np.zeros(343), check, pc_type="jacobi").reason == Reason.CONVERGED_ATOL
        zero = compared("cg", grid, np.zeros(343), check, pc_type="jacobi", ksp_norm_type="none")
        assert (zero.reason, zero.iterations) == (Reason.CONVERGED_ATOL, 1)
        exact = diagonal_matrix(np.full(8, 2.0))  # the guess is b / 2
        assert compared("cg", exact, np.ones(8), check, pc_type="none", ksp_initial_guess_nonzero=True).iterations == 0

    def test_one_iteration_is_enough(self, check):
        for n in (1, 20):
            exact = compared("cg", diagonal_matrix(np.full(n, 4.0)), right_hand_side(n), check, pc_type="none")
            assert exact.iterations == 1
            forever = {"pc_type": "none", "ksp_rtol": 0, "ksp_atol": 0}
            assert compared("cg", diagonal_matrix(np.full(n, 4.0)), np.ones(n), check, **forever).iterations <= 2

    def test_no_rows(self, check):
        found = compared("cg", diagonal_matrix(np.zeros(0)), np.zeros(0), check, pc_type="jacobi")
        assert (found.reason, found.iterations) == (Reason.CONVERGED_ATOL, 0)


@pytest.mark.parametrize(
    ("values", "preconditioner", "message"),
    [
        (with_signs(40, slice(37, 40)), np.ones(40), "Diverged due to indefinite matrix, dpi"),
        (np.arange(1.0, 41.0), with_signs(40, slice(0, 1)), "Diverged due to indefinite preconditioner, beta"),
        pytest.param(
            *(np.full(40, np.nan), np.ones(40), "infinity or NaN"),
            marks=pytest.mark.skipif(launch.petsc_checks(), reason="PETSc looks at vectors itself"),
        ),
    ],
)
def test_who_wants_an_error_gets_the_one_of_cg(values, preconditioner, message):
    matrices = diagonal_matrix(values), diagonal_matrix(preconditioner)
    for ksp_type in ("cg", "gpucg"):
        with pytest.raises(PETSc.Error) as error:
            settings = {"pc_type": "jacobi", "ksp_error_if_not_converged": True, "ksp_rtol": 1e-12}
            solve(matrices, np.ones(40), ksp_type, **settings)
        assert error.value.ierr == NOT_CONVERGED and message in str(error.value)


def test_more_iterations_are_not_allowed_where_eigenvalues_are_wanted(grid):
    for ksp_type in ("cg", "gpucg"):

        def prepare(ksp):
            ksp.setComputeEigenvalues(True)
            ksp.setMonitor(lambda ksp, its, norm: ksp.setTolerances(max_it=40) if its == 3 else None)

        with pytest.raises(PETSc.Error, match="Can not change maxit AND calculate eigenvalues") as error:
            solve(grid, right_hand_side(343), ksp_type, prepare, pc_type="jacobi", ksp_max_it=20)
        assert error.value.ierr == 56  # PETSC_ERR_SUP


@pytest.mark.double
def test_reasons_are_said_as_cg_says_them(grid, capfd):
    """The lines of -info but for addresses and what PETSc says of options."""
    said = []
    for ksp_type in ("cg", "gpucg"):
        capfd.readouterr()
        with informing():
            solve(grid, right_hand_side(343), ksp_type, pc_type="jacobi")
            solve(diagonal_matrix(with_signs(40, slice(37, 40))), np.ones(40), ksp_type, pc_type="none")
            solve(grid, np.zeros(343), ksp_type, pc_type="jacobi", ksp_norm_type="none")
        lines = capfd.readouterr().out.splitlines()
        said.append([line.partition(": ")[2] for line in lines if "converge" in line or "diverg" in line])
    assert [line[:60] for line in said[0]] == [line[:60] for line in said[1]] and len(said[0]) >= 3


# ---- what is left to cg ----


def call(name, ksp, argument):
    assert getattr(native_library.load(), name)(ctypes.c_void_p(ksp.handle), argument) == 0


LEFT = {
    "it is that of a trust region": lambda ksp: call("KSPCGSetRadius", ksp, REAL(0.05)),
    "an objective is to be reached": lambda ksp: call("KSPCGSetObjectiveTarget", ksp, REAL(-0.3)),
    "-ksp_cg_single_reduction is set": lambda ksp: call("KSPCGUseSingleReduction", ksp, ctypes.c_bool(True)),
    "norms are not checked in all iterations": lambda ksp: call("KSPSetCheckNormIteration", ksp, INTEGER(4)),
}


@pytest.mark.parametrize("reason", LEFT)
def test_what_is_left_to_cg(grid, reason, tmp_path, capfd):
    results = []
    for ksp_type in ("gpucg", "cg"):
        ksp, (x, b) = make_solver(grid, ksp_type, pc_type="jacobi"), grid.createVecs()
        LEFT[reason](ksp)
        b.setArray(right_hand_side(343))
        capfd.readouterr()
        with informing():
            results.append(run(ksp, b, x))
        said, view = capfd.readouterr().out, view_of(ksp, tmp_path)
        for text in (said, view):
            assert (f"solved by PETSc's own method, because {reason}" in text) == (ksp_type == "gpucg")
    check_same(*results, tolerance=0)


@pytest.mark.skipif(not NEWER, reason="before 3.26 KSPCGUseSingleReduction() crashes after a set-up, with cg too")
def test_single_reductions_come_and_go(grid, tmp_path):
    """KSPCG takes another solve in their place, and its own again."""
    for settings in ({"ksp_cg_single_reduction": True}, {"ksp_cg_single_reduction": False}):
        ksp, (x, b) = make_solver(grid, "gpucg", pc_type="jacobi", **settings), grid.createVecs()
        for wanted in (settings["ksp_cg_single_reduction"], True, False, True):
            call("KSPCGUseSingleReduction", ksp, ctypes.c_bool(wanted))
            b.setArray(right_hand_side(343))
            run(ksp, b, x)
            assert ("-ksp_cg_single_reduction is set" in view_of(ksp, tmp_path)) == wanted


def test_a_transposed_solve_is_left_to_cg(grid, tmp_path):
    ksp, (x, b) = make_solver(grid, "gpucg", pc_type="jacobi"), grid.createVecs()
    b.setArray(right_hand_side(343))
    ksp.solveTranspose(b, x)
    assert "because it is with the transposed matrix" in view_of(ksp, tmp_path)
    expected = solve(grid, right_hand_side(343), "cg", pc_type="jacobi")
    assert np.allclose(x.array, expected.x, rtol=rounding(1e-8))
    run(ksp, b, x)
    assert "the preconditioner in the update" in view_of(ksp, tmp_path)


def test_vectors_of_another_kind_are_left_to_cg(grid, tmp_path):
    A = nest_of(grid)
    x, b = A.createVecs()
    b.set(1.0)
    assert x.getType() == "nest"
    results = []
    for ksp_type in ("gpucg", "cg"):
        ksp = make_solver(A, ksp_type, pc_type="none", ksp_max_it=9)
        x.set(0.0)
        results.append(run(ksp, b, x))
        assert ("because vectors are neither" in view_of(ksp, tmp_path)) == (ksp_type == "gpucg")
    check_same(*results, tolerance=0)
