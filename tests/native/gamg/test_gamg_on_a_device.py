"""Set-ups of PCGAMG on a device: what comes to the host, and what is sent."""

from __future__ import annotations

import numpy as np
import pytest
from copies import copied_bytes
from multigrid import solver
from petsc4py import PETSc
from petsc_products import coupled_csr, petsc_matrix, stencil_csr

import petsc_gpufmt
from petsc_gpufmt.planning import requests
from petsc_gpufmt.planning.abi import Ask

pytestmark = pytest.mark.gpu

SCALARS = 1 << 15  # bytes of norms and the like
BY_OUR_JACOBI = pytest.mark.real  # PETSc's, which complex scalars are left to, brings diagonals to the host


def downloaded(function):
    return copied("gtoc", function)


def copied(direction, function):
    before = copied_bytes(direction)
    function()
    return copied_bytes(direction) - before


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


@BY_OUR_JACOBI
def test_a_set_up_downloads_row_pointers_and_near_null_spaces_alone(ksp):
    found, index = downloaded(ksp.setUp), np.dtype(PETSc.IntType).itemsize
    sizes = rows(ksp)
    assert sizes.size >= 3
    coarse = sizes[:-1].sum()  # their row pointers, those of prolongators from them, and the near-null space
    wanted = (2 * coarse - sizes[0] + sizes[-1]) * index + coarse * np.dtype(PETSc.ScalarType).itemsize
    assert found <= wanted + SCALARS


@BY_OUR_JACOBI
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


@BY_OUR_JACOBI
def test_vectors_of_smoothers_stay_on_the_device_in_the_first_solve(ksp):
    """Jacobi makes its diagonal when it is first applied. The coarsest level is solved on the host."""
    ksp.setUp()
    A = ksp.getOperators()[0]
    x, b = A.createVecs()
    b.set(1.0)
    assert downloaded(lambda: ksp.solve(b, x)) <= SCALARS


def solution(A):
    """Of a system, and the solver."""
    ksp = solver(A)
    ksp.setUp()
    x, b = A.createVecs()
    b.set(1.0)
    ksp.solve(b, x)
    assert ksp.getConvergedReason() > 0
    return x.getArray().copy(), ksp


def test_values_of_the_host_are_sent_once_while_aggregates_are_found():
    cupy = pytest.importorskip("cupy")
    csr = coupled_csr(28, 6)  # enough for pinned memory and its threads
    A, B = petsc_matrix(csr, "pjds"), PETSc.Mat().create(PETSc.COMM_SELF)
    for matrix in (A, B):
        matrix.setBlockSize(csr.block)
    B.setSizes((csr.nrows, csr.ncols))
    B.setType("pjds")
    petsc_gpufmt.set_preallocation_coo(B, csr.rows.astype(PETSc.IntType), csr.colidx.astype(PETSc.IntType))
    petsc_gpufmt.set_values_coo(B, cupy.asarray(csr.values.astype(PETSc.ScalarType)))
    values = csr.values.size * np.dtype(PETSc.ScalarType).itemsize
    near_null_space = csr.block * csr.nrows * np.dtype(PETSc.ScalarType).itemsize
    pattern = (csr.values.size + csr.nrows + 1) * np.dtype(PETSc.IntType).itemsize
    found = []
    sent = copied("ctog", lambda: found.extend(solution(A)))
    assert values <= sent <= 1.1 * (values + pattern + near_null_space)
    expected, of_b = solution(B)  # whose values were on the device before
    assert np.array_equal(found[0], expected)
    assert found[1].getIterationNumber() == of_b.getIterationNumber()


@pytest.mark.parametrize("goes", [True, False])
def test_a_set_up_fails_while_values_are_under_way(goes, monkeypatch):
    """The matrix goes at once, or is as it was."""

    def fail(*arguments):
        raise ValueError

    csr = coupled_csr(28, 6)
    A = petsc_matrix(csr, "pjds")
    A.setBlockSize(csr.block)
    ksp = solver(A)
    with monkeypatch.context() as patch:
        patch.setitem(requests.KINDS, Ask.AGGREGATES, requests.KINDS[Ask.AGGREGATES]._replace(fill=fail))
        with pytest.raises(PETSc.Error):
            ksp.setUp()
    ksp.destroy()
    if not goes:
        x = A.createVecRight()
        x.setRandom()
        expected = petsc_matrix(csr, "aij") * x
        assert (A * x - expected).norm() <= 100 * np.finfo(PETSc.ScalarType).eps * expected.norm()
        solution(A)
    A.destroy()
