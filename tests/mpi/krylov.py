"""Krylov solvers of ours give PETSc's results on any number of ranks, and what fails on one rank fails on all."""

from functools import partial

import numpy as np
from dense import COMM, distribute, on_host
from failing import OUT_OF_MEMORY, PYTHON, UNSUPPORTED, Events, method_failing, plan_failing
from krylov_solves import Solves, check_same, failing_solvers, make_solver, run
from launch import petsc_checks
from petsc4py import PETSc

from petsc_gpufmt.krylov.steps import Method

ROWS, LAST = 90, COMM.size - 1
RANDOM = np.random.default_rng(3)
SCALE = 1 + 4 * RANDOM.random(ROWS)
DENSE = (np.diag(np.full(ROWS, 2.3)) - np.eye(ROWS, k=1) - np.eye(ROWS, k=-1) - 0.1 * np.eye(ROWS, k=40)).round(3)
DENSE = np.outer(SCALE, SCALE) * (DENSE + DENSE.T) / 2
RIGHT = RANDOM.standard_normal(ROWS)
SOLVES = Solves(RIGHT)
compared = partial(SOLVES.compared, "cg")


def jacobi_norms(count):
    """Norms of preconditioned residuals of `count` iterations with Jacobi, by NumPy."""
    r, x = RIGHT.copy(), np.zeros(ROWS)
    z = r / DENSE.diagonal()
    p, norms = z.copy(), [np.linalg.norm(z)]
    for _ in range(count):
        w = DENSE @ p
        alpha = r @ z / (p @ w)
        before, x, r = r @ z, x + alpha * p, r - alpha * w
        z = r / DENSE.diagonal()
        p = z + r @ z / before * p
        norms.append(np.linalg.norm(z))
    return np.array(norms), x


def check_histories():
    SOLVES.check_histories("cg", DENSE, *jacobi_norms(25))


def check_preconditioners_and_norms():
    A = distribute(DENSE)
    for check, norm in ((0, "natural"), (10, "preconditioned"), (10, "unpreconditioned"), (10, "none")):
        for pc_type in ("none", "bjacobi"):
            compared(A, check, pc_type=pc_type, ksp_norm_type=norm, ksp_max_it=30)
    compared(A, 10, pc_type="gamg")


def check_ends():
    """What one rank alone has seen ends the solve on all, in the same iteration."""
    rows = np.arange(ROWS)
    for check in (0, 10):
        indefinite = distribute(np.diag(np.where(rows == ROWS - 1, -1.0, 1.0 + rows)))
        assert compared(indefinite, check, pc_type="none", ksp_rtol=1e-12).reason == -10  # DIVERGED_INDEFINITE_MAT
        unknown = distribute(np.diag(np.where(rows == 0, np.nan, 1.0)))
        assert compared((unknown, distribute(DENSE)), check, pc_type="jacobi").reason == -9  # DIVERGED_NANORINF
        singular = np.eye(ROWS)
        singular[:2, :2] = 1.0
        failed = compared((distribute(DENSE), distribute(singular)), check, pc_type="bjacobi", sub_pc_type="lu")
        assert failed.reason == -11  # DIVERGED_PC_FAILED
        assert compared(distribute(np.zeros((1, 1)) + 4), check, pc_type="jacobi").iterations == 1


def check_products_and_preconditioners_that_fail():
    own = distribute(np.eye(ROWS))
    for check in (0, 10):
        for when in (1, 2, 7):
            for guess in ({}, {"ksp_initial_guess_nonzero": True}):
                for ksp in failing_solvers("gpucg", own, when, guess, ksp_gpucg_check=check, ksp_rtol=1e-12):
                    SOLVES.fails(ksp, own, PYTHON)
                    SOLVES.succeeds(ksp, own)


def check_plans_that_fail():
    for failing in (lambda: method_failing(Method.CG), lambda: plan_failing(0 if COMM.rank == LAST else None)):
        A = distribute(DENSE)
        ksp = make_solver(A, "gpucg", COMM, pc_type="jacobi")
        with failing():
            SOLVES.fails(ksp, A, UNSUPPORTED)
        SOLVES.succeeds(ksp, A)


def check_a_diagonal_that_fails():
    A = distribute(DENSE)
    ksp = make_solver(A, "gpucg", COMM, pc_type="jacobi")
    ksp.setUp()
    with Events(["PCApply"], failing=0 if COMM.rank == LAST else None):
        SOLVES.fails(ksp, A, OUT_OF_MEMORY)
    SOLVES.succeeds(ksp, A)


def check_a_product_that_is_planned_anew_and_fails():
    """Some iterations after the first: the exchange of entries goes on, and sums tell the others."""
    A = distribute(DENSE)
    block = A.getDiagonalBlock()
    block.setOption(PETSc.Mat.Option.NEW_NONZERO_ALLOCATION_ERR, False)
    columns = iter(range(2, 9))

    def another_pattern(_, iteration, __):
        if iteration == 5 and COMM.rank == LAST:
            block.setValue(0, next(columns), 0.0)
            block.assemble()

    ksp = make_solver(A, "gpucg", COMM, pc_type="jacobi")
    ksp.setMonitor(another_pattern)
    SOLVES.succeeds(ksp, A)
    with plan_failing(0 if COMM.rank == LAST else None):
        SOLVES.fails(ksp, A, UNSUPPORTED)
    SOLVES.succeeds(ksp, A)


def check_who_watches_on_one_rank_alone():
    A = distribute(DENSE)
    expected = SOLVES.solved(A, "gpucg", pc_type="jacobi")
    ksp, seen = make_solver(A, "gpucg", COMM, pc_type="jacobi", ksp_gpucg_check=10), []
    x, b = SOLVES.vectors(A)
    if COMM.rank == LAST:
        ksp.setMonitor(lambda *_: seen.append(abs(x.array_r).max()))
    check_same(run(ksp, b, x), expected, tolerance=0)
    ksp.monitorCancel()  # where one rank alone has x in it, that rank alone waits in PetscFinalize()
    if COMM.rank == LAST:
        assert len(seen) == expected.iterations + 1 and len(set(seen)) > expected.iterations / 2


check_histories()
check_preconditioners_and_norms()
check_ends()
if on_host():
    check_products_and_preconditioners_that_fail()
check_plans_that_fail()
# on a device it comes from the stored matrix, whose plan has failed above; PETSc has ranks wait in it by its own checks
if on_host() and not petsc_checks():
    check_a_diagonal_that_fails()
check_a_product_that_is_planned_anew_and_fails()
check_who_watches_on_one_rank_alone()
