"""Solves by Krylov methods on all ranks: of ours beside PETSc's, and such that fail on purpose."""

import numpy as np
from dense import COMM, TYPE, distribute, layouts, own_rows, rounding, scalars
from failing import FailingDiagonal, error_of
from petsc4py import PETSc
from solves import check_same, make_solver, run


def failing_solvers(ksp_type, own, when, of_matrix=None, **settings):
    """Two solvers: the matrix, or else the preconditioner, fails on the last rank the time that is named.

    They solve with a diagonal of the sizes of `own`. The first one has the options `of_matrix` too.
    """
    shell = PETSc.Mat().createPython(own.getSizes(), FailingDiagonal(own, when), comm=COMM)
    matrix = make_solver(shell, ksp_type, COMM, pc_type="none", **settings, **(of_matrix or {}))
    preconditioner = make_solver(own, ksp_type, COMM, pc_type="python", **settings)
    preconditioner.getPC().setPythonContext(FailingDiagonal(own, when))
    return matrix, preconditioner


class Solves:
    """Solves with one right-hand side, of which all ranks have all, and a guess of one number, if it is wanted."""

    def __init__(self, right, guess=0.0):
        self.right, self.guess = right, guess

    def vectors(self, A):
        """A guess and the right-hand side; A may be the matrix and that of the preconditioner."""
        x, b = (A[0] if isinstance(A, tuple) else A).createVecs()
        x.set(self.guess)
        b.setArray(scalars(self.right[slice(*b.getOwnershipRange())]))
        return x, b

    def run(self, ksp, A):
        x, b = self.vectors(A)
        return run(ksp, b, x)

    def solved(self, A, ksp_type, **settings):
        return self.run(make_solver(A, ksp_type, COMM, **settings), A)

    def compared(self, theirs, A, check, **settings):
        """Our type after a comparison with PETSc's, and of all ranks; option _check is `check`."""
        ours = self.solved(A, f"gpu{theirs}", **{f"ksp_gpu{theirs}_check": check}, **settings)
        check_same(ours, self.solved(A, theirs, **settings))
        assert len(set(COMM.tompi4py().allgather((ours.reason, ours.history.tobytes())))) == 1
        return ours

    def check_histories(self, theirs, dense, norms, x, **settings):
        """With Jacobi, over all layouts: the norms of residuals, and the solution."""
        for layout, local in layouts(x.size).items():
            A = distribute(dense, TYPE, local, local)
            own = slice(*own_rows(local))
            for check in (0, 10):
                most = {"ksp_max_it": norms.size - 1, "ksp_rtol": 1e-14}
                found = self.compared(theirs, A, check, pc_type="jacobi", **most, **settings)
                assert found.history.size == norms.size, (layout, settings)
                assert np.allclose(found.history, norms, rtol=0, atol=rounding(1e-8) * norms[0]), (layout, settings)
                assert np.allclose(found.x, x[own], rtol=0, atol=rounding(1e-8) * abs(x).max()), (layout, settings)

    def fails(self, ksp, A, code):
        """A solve fails on all ranks with this code."""
        x, b = self.vectors(A)
        found = error_of(ksp.solve, b, x)
        assert found == code, f"error {found} on rank {COMM.rank}"

    def succeeds(self, ksp, A):
        assert self.run(ksp, A).reason > 0
