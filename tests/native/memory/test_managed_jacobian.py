"""A result with managed arrays as a Jacobian by finite differences, whose coloring keeps the addresses of entries."""

import numpy as np
from petsc4py import PETSc
from test_managed import diagonally_dominant, managed_matrices, place  # noqa: F401


def test_a_jacobian_by_finite_differences_gets_ordinary_arrays(options):
    A = diagonally_dominant()[1]
    linear, before = A.convert("aij", PETSc.Mat()), managed_matrices()
    x, y = A.createVecs()
    snes = PETSc.SNES().create(PETSc.COMM_SELF)
    snes.setFunction(lambda snes, x, y: linear.mult(x, y), y)
    snes.setJacobian(None, A, A)
    options["snes_fd_color"] = True
    snes.setFromOptions()
    x.set(1.0)

    snes.solve(None, x)

    assert managed_matrices() == before - 1
    assert np.allclose(A.getValuesCSR()[2], linear.getValuesCSR()[2], atol=1e-5 * linear.norm())
    assert snes.getConvergedReason() > 0 and x.norm() < 1e-5
    snes.destroy()
