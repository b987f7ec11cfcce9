"""Set-ups of PCGAMG on a device: what comes to the host."""

from __future__ import annotations

import numpy as np
import pytest
from copies import copied_bytes
from multigrid import solver
from petsc4py import PETSc
from petsc_products import petsc_matrix, stencil_csr

pytestmark = pytest.mark.gpu

SCALARS = 1 << 15  # bytes of norms and the like


def downloaded(function):
    before = copied_bytes("gtoc")
    function()
    return copied_bytes("gtoc") - before


@pytest.fixture
def ksp(options):
    options["pc_gamg_coarse_eq_limit"] = 20
    made = solver(petsc_matrix(stencil_csr(24), "pjds"))
    yield made
    made.destroy()


def rows(ksp):
    """Of all levels, from the coarsest on."""
    pc = ksp.getPC()
    return np.array([pc.getMGSmoother(k).getOperators()[0].getSize()[0] for k in range(pc.getMGLevels())])


def test_a_set_up_downloads_row_pointers_and_near_null_spaces_alone(ksp):
    found, index = downloaded(ksp.setUp), np.dtype(PETSc.IntType).itemsize
    sizes = rows(ksp)
    assert sizes.size >= 3
    coarse = sizes[:-1].sum()  # their row pointers, those of prolongators from them, and the near-null space
    wanted = (2 * coarse - sizes[0] + sizes[-1]) * index + coarse * np.dtype(PETSc.ScalarType).itemsize
    assert found <= wanted + SCALARS


def test_a_newton_step_downloads_numbers_alone(ksp):
    A = ksp.getOperators()[0]
    x, b = A.createVecs()
    b.set(1.0)
    ksp.solve(b, x)
    for _ in range(2):
        A.shift(0.25)
        assert downloaded(ksp.setUp) <= SCALARS
        ksp.solve(b, x)
        assert ksp.getConvergedReason() > 0


def test_vectors_of_smoothers_stay_on_the_device_in_the_first_solve(ksp):
    """Jacobi makes its diagonal when it is first applied. The coarsest level is solved on the host."""
    ksp.setUp()
    A = ksp.getOperators()[0]
    x, b = A.createVecs()
    b.set(1.0)
    assert downloaded(lambda: ksp.solve(b, x)) <= SCALARS
