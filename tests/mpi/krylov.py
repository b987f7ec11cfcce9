"""Krylov solvers of ours give PETSc's results on any number of ranks, and what fails on one rank fails on all."""

import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from dense import COMM, TYPE, distribute, layouts, on_host, own_rows
from failing import OUT_OF_MEMORY, UNSUPPORTED, Events, FailingDiagonal, error_of, plan_failing
from petsc4py import PETSc

from petsc_gpufmt.errors import UnsupportedError
from petsc_gpufmt.krylov.steps import Method
from petsc_gpufmt.planning import krylov_requests

sys.path.append(str(Path(__file__).parents[1] / "support"))

from solves import check_same, make_solver, run  # noqa: E402

ROWS, LAST = 90, COMM.size - 1
PYTHON = 101  # PETSC_ERR_PYTHON
RANDOM = np.random.default_rng(3)
SCALE = 1 + 4 * RANDOM.random(ROWS)
DENSE = (np.diag(np.full(ROWS, 2.3)) - np.eye(ROWS, k=1) - np.eye(ROWS, k=-1) - 0.1 * np.eye(ROWS, k=40)).round(3)
DENSE = np.outer(SCALE, SCALE) * (DENSE + DENSE.T) / 2
RIGHT = RANDOM.standard_normal(ROWS)


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


def vectors(A, values=RIGHT):
    x, b = A.createVecs()
    first, last = b.getOwnershipRange()
    b.setArray(values[first:last])
    return x, b


def solved(A, ksp_type, **settings):
    ksp = make_solver(A, ksp_type, COMM, **settings)
    x, b = vectors(A[0] if isinstance(A, tuple) else A)
    return run(ksp, b, x)


def compared(A, check, **settings):
    ours = solved(A, "gpucg", ksp_gpucg_check=check, **settings)
    check_same(ours, solved(A, "cg", **settings))
    assert len(set(COMM.tompi4py().allgather((ours.reason, ours.history.tobytes())))) == 1
    return ours


def check_histories():
    norms, x = jacobi_norms(25)
    for layout, local in layouts(ROWS).items():
        A = distribute(DENSE, TYPE, local, local)
        first, last = own_rows(local)
        for check in (0, 10):
            found = compared(A, check, pc_type="jacobi", ksp_max_it=25, ksp_rtol=1e-14)
            assert found.history.size == 26 and np.allclose(found.history, norms, rtol=0, atol=1e-8 * norms[0]), layout
            assert np.allclose(found.x, x[first:last], rtol=0, atol=1e-8 * abs(x).max()), layout


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


def fails(ksp, A, code):
    """A solve fails on all ranks with this code."""
    x, b = vectors(A)
    found = error_of(ksp.solve, b, x)
    assert found == code, f"error {found} on rank {COMM.rank}"


def succeeds(ksp, A):
    x, b = vectors(A)
    assert run(ksp, b, x).reason > 0


def check_products_and_preconditioners_that_fail():
    own = distribute(np.eye(ROWS))
    for check in (0, 10):
        for when in (1, 2, 7):
            for settings in ({}, {"ksp_initial_guess_nonzero": True}):
                context = FailingDiagonal(own, when)
                shell = PETSc.Mat().createPython(own.getSizes(), context, comm=COMM)
                ksp = make_solver(shell, "gpucg", COMM, pc_type="none", ksp_gpucg_check=check, **settings)
                fails(ksp, shell, PYTHON)
                succeeds(ksp, shell)
            ksp = make_solver(own, "gpucg", COMM, pc_type="python", ksp_gpucg_check=check, ksp_rtol=1e-12)
            ksp.getPC().setPythonContext(FailingDiagonal(own, when))
            fails(ksp, own, PYTHON)
            succeeds(ksp, own)


@contextmanager
def steps_failing():
    """The plan of the method fails on the last rank."""

    def fail(*_):
        raise UnsupportedError("on purpose")

    original = krylov_requests.METHODS[Method.CG]
    if COMM.rank == LAST:
        krylov_requests.METHODS[Method.CG] = fail
    try:
        yield
    finally:
        krylov_requests.METHODS[Method.CG] = original


def check_plans_that_fail():
    for failing in (steps_failing, lambda: plan_failing(0 if COMM.rank == LAST else None)):
        A = distribute(DENSE)
        ksp = make_solver(A, "gpucg", COMM, pc_type="jacobi")
        with failing():
            fails(ksp, A, UNSUPPORTED)
        succeeds(ksp, A)


def check_a_diagonal_that_fails():
    A = distribute(DENSE)
    ksp = make_solver(A, "gpucg", COMM, pc_type="jacobi")
    ksp.setUp()
    with Events(["PCApply"], failing=0 if COMM.rank == LAST else None):
        fails(ksp, A, OUT_OF_MEMORY)
    succeeds(ksp, A)


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
    succeeds(ksp, A)
    with plan_failing(0 if COMM.rank == LAST else None):
        fails(ksp, A, UNSUPPORTED)
    succeeds(ksp, A)


def check_who_watches_on_one_rank_alone():
    A = distribute(DENSE)
    expected = solved(A, "gpucg", pc_type="jacobi")
    ksp, seen = make_solver(A, "gpucg", COMM, pc_type="jacobi", ksp_gpucg_check=10), []
    x, b = vectors(A)
    if COMM.rank == LAST:
        ksp.setMonitor(lambda *_: seen.append(abs(x.array_r).max()))
    check_same(run(ksp, b, x), expected, tolerance=0)
    if COMM.rank == LAST:
        assert len(seen) == expected.iterations + 1 and len(set(seen)) > expected.iterations / 2


check_histories()
check_preconditioners_and_norms()
check_ends()
if on_host():
    check_products_and_preconditioners_that_fail()
check_plans_that_fail()
check_a_diagonal_that_fails()
check_a_product_that_is_planned_anew_and_fails()
check_who_watches_on_one_rank_alone()
