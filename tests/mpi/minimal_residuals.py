"""GMRES of ours gives PETSc's results on any number of ranks, and what fails on one rank fails on all."""

import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from dense import COMM, TYPE, distribute, layouts, on_host, own_rows
from failing import UNSUPPORTED, error_of
from petsc4py import PETSc

from petsc_gpufmt.errors import UnsupportedError
from petsc_gpufmt.krylov.steps import Method
from petsc_gpufmt.planning import krylov_requests

sys.path.append(str(Path(__file__).parents[1] / "support"))

from solves import check_same, make_solver, run  # noqa: E402

ROWS, LAST = 90, COMM.size - 1
PYTHON = 101  # PETSC_ERR_PYTHON
RANDOM = np.random.default_rng(3)
DENSE = (
    np.diag(np.full(ROWS, 2.5)) - 1.3 * np.eye(ROWS, k=1) - 0.7 * np.eye(ROWS, k=-1) - 0.1 * np.eye(ROWS, k=40)
).round(3)
DENSE *= 1 + RANDOM.random((ROWS, 1))
RIGHT = RANDOM.standard_normal(ROWS)
OURS = {"gmres": "gpugmres", "fgmres": "gpufgmres"}


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


def vectors(A):
    x, b = A.createVecs()
    first, last = b.getOwnershipRange()
    b.setArray(RIGHT[first:last])
    return x, b


def solved(A, ksp_type, **settings):
    ksp = make_solver(A, ksp_type, COMM, **settings)
    x, b = vectors(A[0] if isinstance(A, tuple) else A)
    return run(ksp, b, x)


def compared(A, theirs, check, **settings):
    ours = solved(A, OURS[theirs], **{f"ksp_{OURS[theirs]}_check": check}, **settings)
    check_same(ours, solved(A, theirs, **settings))
    assert len(set(COMM.tompi4py().allgather((ours.reason, ours.history.tobytes())))) == 1
    return ours


def check_histories(theirs):
    norms, x = least_residuals(20)
    settings = {"pc_type": "jacobi", "ksp_pc_side": "right", "ksp_max_it": 20, "ksp_rtol": 1e-14}
    for layout, local in layouts(ROWS).items():
        A = distribute(DENSE, TYPE, local, local)
        first, last = own_rows(local)
        for check in (0, 10):
            found = compared(A, theirs, check, **settings)
            assert found.history.size == 21 and np.allclose(found.history, norms, rtol=0, atol=1e-8 * norms[0]), layout
            assert np.allclose(found.x, x[first:last], rtol=0, atol=1e-8 * abs(x).max()), layout


def check_preconditioners_and_restarts(theirs):
    A = distribute(DENSE)
    for check in (0, 10):
        for side in ("left", "right") if theirs == "gmres" else ("right",):
            for pc_type in ("none", "bjacobi"):
                for norm in ("preconditioned" if side == "left" else "unpreconditioned", "none"):
                    settings = {"pc_type": pc_type, "ksp_pc_side": side, "ksp_norm_type": norm, "ksp_max_it": 30}
                    compared(A, theirs, check, ksp_gmres_restart=8, **settings)


def check_ends(theirs):
    """What one rank alone has seen ends the solve on all, in the same iteration."""
    rows = np.arange(ROWS)
    for check in (0, 10):
        unknown = distribute(np.diag(np.where(rows == 0, np.nan, 1.0)))
        assert compared((unknown, distribute(DENSE)), theirs, check, pc_type="jacobi").reason == -9  # DIVERGED_NANORINF
        singular = np.eye(ROWS)
        singular[:2, :2] = 1.0
        failed = compared((distribute(DENSE), distribute(singular)), theirs, check, pc_type="bjacobi", sub_pc_type="lu")
        assert failed.reason == -11  # DIVERGED_PC_FAILED
        assert compared(distribute(np.zeros((1, 1)) + 4), theirs, check, pc_type="jacobi").iterations == 1


class OneFails:
    """A diagonal matrix, or a preconditioner, whose application fails on the last rank, the time that is named."""

    def __init__(self, when):
        self.calls, self.when = 0, when

    def mult(self, _, x, y):
        self.calls += 1
        if self.calls == self.when and COMM.rank == LAST:
            raise RuntimeError("on purpose")
        y.pointwiseMult(x, self.diagonal)

    apply = mult

    def of(self, vector):
        self.diagonal = vector.duplicate()
        self.diagonal.setArray(1.0 + np.arange(*vector.getOwnershipRange()))
        return self


def fails(ksp, A, code):
    """A solve fails on all ranks with this code."""
    x, b = vectors(A)
    found = error_of(ksp.solve, b, x)
    assert found == code, f"error {found} on rank {COMM.rank}"


def succeeds(ksp, A):
    x, b = vectors(A)
    assert run(ksp, b, x).reason > 0


def check_products_and_preconditioners_that_fail(theirs):
    own, sides = distribute(np.eye(ROWS)), ("left", "right") if theirs == "gmres" else ("right",)
    own.mult(*own.createVecs())  # is planned, which Python does not do behind an exception
    for side in sides:
        for when in (1, 2, 7, 12):
            settings = {"ksp_gmres_restart": 9, "ksp_pc_side": side, "ksp_initial_guess_nonzero": when == 2}
            context = OneFails(when).of(own.createVecs()[0])
            shell = PETSc.Mat().createPython(own.getSizes(), context, comm=COMM)
            ksp = make_solver(shell, OURS[theirs], COMM, pc_type="none", **settings)
            fails(ksp, shell, PYTHON)
            succeeds(ksp, shell)
            ksp = make_solver(own, OURS[theirs], COMM, pc_type="python", ksp_rtol=1e-12, **settings)
            ksp.getPC().setPythonContext(OneFails(when).of(own.createVecs()[0]))
            fails(ksp, own, PYTHON)
            succeeds(ksp, own)


@contextmanager
def steps_failing():
    """The plan of the method fails on the last rank."""

    def fail(*_):
        raise UnsupportedError("on purpose")

    original = krylov_requests.METHODS[Method.GMRES]
    if COMM.rank == LAST:
        krylov_requests.METHODS[Method.GMRES] = fail
    try:
        yield
    finally:
        krylov_requests.METHODS[Method.GMRES] = original


def check_plans_that_fail(theirs):
    A = distribute(DENSE)
    ksp = make_solver(A, OURS[theirs], COMM, pc_type="jacobi")
    with steps_failing():
        fails(ksp, A, UNSUPPORTED)
    succeeds(ksp, A)


for name in OURS:
    check_histories(name)
    check_preconditioners_and_restarts(name)
    check_ends(name)
    if on_host():
        check_products_and_preconditioners_that_fail(name)
    check_plans_that_fail(name)
