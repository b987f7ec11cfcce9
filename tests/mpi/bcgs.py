"""Type gpubcgs gives the results of PETSc's bcgs on any number of ranks, and what fails on one rank fails on all."""

from functools import partial

import numpy as np
from dense import COMM, distribute, on_host
from failing import PYTHON
from krylov_solves import Solves, check_same, failing_solvers, make_solver, run
from petsc4py import PETSc

ROWS = 90
RANDOM = np.random.default_rng(5)
SCALE = 1 + 4 * RANDOM.random(ROWS)
DENSE = np.diag(np.full(ROWS, 3.0)) - 1.4 * np.eye(ROWS, k=1) - 0.6 * np.eye(ROWS, k=-1) - 0.3 * np.eye(ROWS, k=40)
DENSE = SCALE[:, None] * DENSE
RIGHT = RANDOM.standard_normal(ROWS)
SOLVES = Solves(RIGHT, guess=0.5)
compared = partial(SOLVES.compared, "bcgs")
SIDES = ("left", "right")


def jacobi_norms(count, side):
    """Norms of residuals of `count` iterations with Jacobi, and the solution, by NumPy."""
    d = 1 / DENSE.diagonal()
    product = d[:, None] * DENSE if side == "left" else DENSE * d
    r = d * RIGHT if side == "left" else RIGHT.copy()
    x, p, v, rp, rho, alpha, omega, norms = np.zeros(ROWS), 0 * r, 0 * r, r, 1.0, 1.0, 1.0, [np.linalg.norm(r)]
    for _ in range(count):
        before, rho = rho, r @ rp
        p = r + rho / before * (alpha / omega) * (p - omega * v)
        v = product @ p
        alpha = rho / (v @ rp)
        s = r - alpha * v
        t = product @ s
        omega = t @ s / (t @ t)
        x, r = x + alpha * p + omega * s, s - omega * t
        norms.append(np.linalg.norm(r))
    return np.array(norms), x if side == "left" else d * x


def check_histories():
    for side in SIDES:
        SOLVES.check_histories("bcgs", DENSE, *jacobi_norms(12, side), ksp_pc_side=side)


def check_preconditioners():
    A = distribute(DENSE)
    for check in (0, 10):
        for side in SIDES:
            for pc_type in ("none", "bjacobi", "gamg"):
                settings = {"pc_type": pc_type, "ksp_pc_side": side, "ksp_initial_guess_nonzero": True}
                assert compared(A, check, **settings).reason == 2  # CONVERGED_RTOL
                compared(A, check, ksp_norm_type="none", ksp_max_it=5, **settings)


def check_ends():
    """What one rank alone has seen ends the solve on all, in the same iteration."""
    of_last = partial(Solves(np.eye(ROWS)[-1], guess=0.5).compared, "bcgs")
    for check in (0, 10):
        skew = np.eye(ROWS)
        skew[-2:, -2:] = [[0, 1], [-1, 0]]
        assert of_last(distribute(skew), check, pc_type="none").reason == -5  # DIVERGED_BREAKDOWN
        singular = np.eye(ROWS)
        singular[0, 0] = singular[0, -1] = 0
        singular[-2:, -2:] = [[0, 1], [0, 1]]
        assert of_last(distribute(singular), check, pc_type="none").reason == -5
        half_way = of_last(distribute(2 * np.eye(ROWS)), check, pc_type="none")
        assert (half_way.reason, half_way.iterations) == (2, 1)
        unknown = distribute(np.diag(np.where(np.arange(ROWS) == 0, np.nan, 1.0)))
        assert compared((unknown, distribute(DENSE)), check, pc_type="jacobi").reason == -9  # DIVERGED_NANORINF
        assert compared(distribute(np.zeros((1, 1)) + 4), check, pc_type="jacobi").iterations == 1


def check_recorded_iterations():
    """With exchanges of entries and sums over ranks by kernels; two solves, the second from the graph of the first."""
    database = PETSc.Options()
    database["mat_halo_mode"] = "peer"
    A = distribute(DENSE)
    for side in SIDES:
        for pc_type in ("none", "jacobi"):
            settings = {"pc_type": pc_type, "ksp_pc_side": side, "ksp_rtol": 1e-9}
            theirs = SOLVES.solved(A, "bcgs", **settings)
            ksp = make_solver(A, "gpubcgs", COMM, ksp_gpubcgs_check=16, ksp_gpubcgs_graph=True, **settings)
            x, b = SOLVES.vectors(A)
            for _ in range(2):
                check_same(run(ksp, b, x), theirs)
    database.delValue("mat_halo_mode")


def check_failures():
    """With a guess only where the matrix fails: PETSc's test of convergence would apply the preconditioner as well."""
    own = distribute(np.eye(ROWS))
    for side in SIDES:
        for check in (0, 10):
            for when in (1, 2, 3, 6):
                settings = {"ksp_gpubcgs_check": check, "ksp_pc_side": side, "ksp_rtol": 1e-12}
                for ksp in failing_solvers("gpubcgs", own, when, {"ksp_initial_guess_nonzero": True}, **settings):
                    SOLVES.fails(ksp, own, PYTHON)
                    SOLVES.succeeds(ksp, own)


check_histories()
check_preconditioners()
check_ends()
check_recorded_iterations()
if on_host():
    check_failures()
