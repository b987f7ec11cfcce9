"""Type gpubcgs gives the results of PETSc's bcgs on any number of ranks, and what fails on one rank fails on all."""

import sys
from pathlib import Path

import numpy as np
from dense import COMM, TYPE, distribute, layouts, on_host, own_rows
from failing import FailingDiagonal, error_of
from petsc4py import PETSc

sys.path.append(str(Path(__file__).parents[1] / "support"))

from solves import check_same, make_solver, run  # noqa: E402

ROWS = 90
RANDOM = np.random.default_rng(5)
SCALE = 1 + 4 * RANDOM.random(ROWS)
DENSE = np.diag(np.full(ROWS, 3.0)) - 1.4 * np.eye(ROWS, k=1) - 0.6 * np.eye(ROWS, k=-1) - 0.3 * np.eye(ROWS, k=40)
DENSE = SCALE[:, None] * DENSE
RIGHT = RANDOM.standard_normal(ROWS)
SIDES = ("left", "right")
PYTHON = 101  # PETSC_ERR_PYTHON


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


def vectors(A, b=RIGHT):
    """A guess and a right-hand side."""
    x, rhs = (A[0] if isinstance(A, tuple) else A).createVecs()
    x.set(0.5)
    rhs.setArray(b[slice(*rhs.getOwnershipRange())])
    return x, rhs


def solved(A, ksp_type, b=RIGHT, **settings):
    ksp = make_solver(A, ksp_type, COMM, **settings)
    x, rhs = vectors(A, b)
    return run(ksp, rhs, x)


def compared(A, check, b=RIGHT, **settings):
    ours = solved(A, "gpubcgs", b, ksp_gpubcgs_check=check, **settings)
    check_same(ours, solved(A, "bcgs", b, **settings))
    assert len(set(COMM.tompi4py().allgather((ours.reason, ours.history.tobytes())))) == 1
    return ours


def check_histories():
    for side in SIDES:
        norms, x = jacobi_norms(12, side)
        for layout, local in layouts(ROWS).items():
            A = distribute(DENSE, TYPE, local, local)
            own = slice(*own_rows(local))
            for check in (0, 10):
                found = compared(A, check, pc_type="jacobi", ksp_max_it=12, ksp_rtol=1e-14, ksp_pc_side=side)
                assert np.allclose(found.history, norms, rtol=0, atol=1e-8 * norms[0]), (side, layout)
                assert np.allclose(found.x, x[own], rtol=0, atol=1e-8 * abs(x).max()), (side, layout)


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
    last = np.eye(ROWS)[-1]
    for check in (0, 10):
        skew = np.eye(ROWS)
        skew[-2:, -2:] = [[0, 1], [-1, 0]]
        assert compared(distribute(skew), check, last, pc_type="none").reason == -5  # DIVERGED_BREAKDOWN
        singular = np.eye(ROWS)
        singular[0, 0] = singular[0, -1] = 0
        singular[-2:, -2:] = [[0, 1], [0, 1]]
        assert compared(distribute(singular), check, last, pc_type="none").reason == -5
        half_way = compared(distribute(2 * np.eye(ROWS)), check, last, pc_type="none")
        assert (half_way.reason, half_way.iterations) == (2, 1)
        unknown = distribute(np.diag(np.where(np.arange(ROWS) == 0, np.nan, 1.0)))
        assert compared((unknown, distribute(DENSE)), check, pc_type="jacobi").reason == -9  # DIVERGED_NANORINF
        assert compared(distribute(np.zeros((1, 1)) + 4), check, np.ones(1), pc_type="jacobi").iterations == 1


def check_recorded_iterations():
    """With exchanges of entries and sums over ranks by kernels; two solves, the second from the graph of the first."""
    database = PETSc.Options()
    database["mat_halo_mode"] = "peer"
    A = distribute(DENSE)
    for side in SIDES:
        for pc_type in ("none", "jacobi"):
            settings = {"pc_type": pc_type, "ksp_pc_side": side, "ksp_rtol": 1e-9}
            theirs = solved(A, "bcgs", **settings)
            ksp = make_solver(A, "gpubcgs", COMM, ksp_gpubcgs_check=16, ksp_gpubcgs_graph=True, **settings)
            x, b = vectors(A)
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
                shell = PETSc.Mat().createPython(own.getSizes(), FailingDiagonal(own, when), comm=COMM)
                matrix = make_solver(shell, "gpubcgs", COMM, pc_type="none", ksp_initial_guess_nonzero=True, **settings)
                preconditioner = make_solver(own, "gpubcgs", COMM, pc_type="python", **settings)
                preconditioner.getPC().setPythonContext(FailingDiagonal(own, when))
                for ksp in (matrix, preconditioner):
                    x, b = vectors(own)
                    found = error_of(ksp.solve, b, x)
                    assert found == PYTHON, f"error {found} on rank {COMM.rank}, {side}, {check}, {when}"
                    x, b = vectors(own)
                    assert run(ksp, b, x).reason > 0


check_histories()
check_preconditioners()
check_ends()
check_recorded_iterations()
if on_host():
    check_failures()
