"""GMRES of ours gives PETSc's results on any number of ranks, and what fails on one rank fails on all."""

import numpy as np
from dense import COMM, distribute, on_host
from failing import PYTHON, UNSUPPORTED, method_failing
from krylov_solves import Solves, failing_solvers, make_solver

from petsc_gpufmt.krylov.steps import Method

ROWS = 90
RANDOM = np.random.default_rng(3)
DENSE = (
    np.diag(np.full(ROWS, 2.5)) - 1.3 * np.eye(ROWS, k=1) - 0.7 * np.eye(ROWS, k=-1) - 0.1 * np.eye(ROWS, k=40)
).round(3)
DENSE *= 1 + RANDOM.random((ROWS, 1))
RIGHT = RANDOM.standard_normal(ROWS)
SOLVES = Solves(RIGHT)


def least_residuals(count):
    """Norms of the least residuals in spaces of 0 to `count` dimensions with Jacobi from the right, by NumPy."""
    space, norms = np.zeros((ROWS, 0)), [np.linalg.norm(RIGHT)]
    matrix = DENSE / DENSE.diagonal()
    for _ in range(count):
        newest = RIGHT if not space.size else matrix @ space[:, -1]
        space = np.linalg.qr(np.column_stack([space, newest]))[0]
        weights = np.linalg.lstsq(matrix @ space, RIGHT, rcond=None)[0]
        norms.append(np.linalg.norm(RIGHT - matrix @ space @ weights))
    return np.array(norms), space @ weights / DENSE.diagonal()


def check_histories(theirs):
    SOLVES.check_histories(theirs, DENSE, *least_residuals(20), ksp_pc_side="right")


def check_preconditioners_and_restarts(theirs):
    A = distribute(DENSE)
    for check in (0, 10):
        for side in ("left", "right") if theirs == "gmres" else ("right",):
            for pc_type in ("none", "bjacobi"):
                for norm in ("preconditioned" if side == "left" else "unpreconditioned", "none"):
                    settings = {"pc_type": pc_type, "ksp_pc_side": side, "ksp_norm_type": norm, "ksp_max_it": 30}
                    SOLVES.compared(theirs, A, check, ksp_gmres_restart=8, **settings)


def check_ends(theirs):
    """What one rank alone has seen ends the solve on all, in the same iteration."""
    rows = np.arange(ROWS)
    for check in (0, 10):
        unknown = distribute(np.diag(np.where(rows == 0, np.nan, 1.0)))
        found = SOLVES.compared(theirs, (unknown, distribute(DENSE)), check, pc_type="jacobi")
        assert found.reason == -9  # DIVERGED_NANORINF
        singular = np.eye(ROWS)
        singular[:2, :2] = 1.0
        matrices = distribute(DENSE), distribute(singular)
        failed = SOLVES.compared(theirs, matrices, check, pc_type="bjacobi", sub_pc_type="lu")
        assert failed.reason == -11  # DIVERGED_PC_FAILED
        assert SOLVES.compared(theirs, distribute(np.zeros((1, 1)) + 4), check, pc_type="jacobi").iterations == 1


def check_products_and_preconditioners_that_fail(theirs):
    own, sides = distribute(np.eye(ROWS)), ("left", "right") if theirs == "gmres" else ("right",)
    own.mult(*own.createVecs())  # is planned, which Python does not do behind an exception
    for side in sides:
        for when in (1, 2, 7, 12):
            settings = {"ksp_gmres_restart": 9, "ksp_pc_side": side, "ksp_initial_guess_nonzero": when == 2}
            for ksp in failing_solvers(f"gpu{theirs}", own, when, ksp_rtol=1e-12, **settings):
                SOLVES.fails(ksp, own, PYTHON)
                SOLVES.succeeds(ksp, own)


def check_plans_that_fail(theirs):
    A = distribute(DENSE)
    ksp = make_solver(A, f"gpu{theirs}", COMM, pc_type="jacobi")
    with method_failing(Method.GMRES):
        SOLVES.fails(ksp, A, UNSUPPORTED)
    SOLVES.succeeds(ksp, A)


for name in ("gmres", "fgmres"):
    check_histories(name)
    check_preconditioners_and_restarts(name)
    check_ends(name)
    if on_host():
        check_products_and_preconditioners_that_fail(name)
    check_plans_that_fail(name)
