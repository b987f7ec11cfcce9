"""Applications of multigrid are those of aij; what it is applied to belongs to its owner, also after one that fails."""

import gc

import numpy as np
import pytest
from petsc4py import PETSc
from petsc_products import petsc_matrix, stencil_csr

N = 6


class Failing:
    """A preconditioner."""

    def fail(self, *_):
        raise ZeroDivisionError

    apply = applyTranspose = matApply = matApplyTranspose = fail  # noqa: N815  as petsc4py asks for them


def gamg(A):
    pc = PETSc.PC().create(PETSc.COMM_SELF)
    pc.setOperators(A)
    pc.setType("gamg")
    return pc


def two_grids(A):
    pc = PETSc.PC().create(PETSc.COMM_SELF)
    pc.setOperators(A)
    pc.setType("mg")
    pc.setMGLevels(2)
    n = A.size[0]
    P = PETSc.Mat().createAIJ((n, n // 2), nnz=1, comm=PETSc.COMM_SELF)
    for row in range(n):
        P.setValue(row, row // 2, 1.0)
    P.assemble()
    pc.setMGInterpolation(1, P)
    coarse, fine = pc.getMGCoarseSolve(), pc.getMGSmoother(1)
    coarse.setOperators(A.ptap(P))
    fine.setOperators(A)
    for ksp in (coarse, fine):
        ksp.getPC().setType("jacobi")
    return pc


def richardson(pc, b, x):
    ksp = PETSc.KSP().create(PETSc.COMM_SELF)
    ksp.setOperators(*pc.getOperators())
    ksp.setPC(pc)
    ksp.setType("richardson")
    ksp.setFromOptions()
    ksp.solve(b, x)


APPLICATIONS = {"richardson": richardson} | {
    name: getattr(PETSc.PC, name)
    for name in ("apply", "applyTranspose", "matApply", "matApplyTranspose")
    if hasattr(PETSc.PC, name)  # the last not in every PETSc, and an error of every PCMG
}


def operands(A, name):
    if name.startswith("mat"):
        return [PETSc.Mat().createDense((A.size[0], 2), array=np.ones((A.size[0], 2), PETSc.ScalarType)) for _ in "bx"]
    b, x = A.createVecs()
    b.set(1.0)
    return b, x


@pytest.mark.parametrize("name", ["richardson", "apply", "applyTranspose", "matApply"])
@pytest.mark.parametrize("make", [gamg, two_grids])
def test_an_application_is_that_of_aij(options, make, name):
    options["pc_gamg_coarse_eq_limit"] = 20
    options["ksp_max_it"] = 3
    found = []
    for mat_type in ("pjds", "aij"):
        A = petsc_matrix(stencil_csr(N), mat_type)
        pc, (b, x) = make(A), operands(A, name)
        count = b.getRefCount()
        APPLICATIONS[name](pc, b, x)
        pc.destroy()
        gc.collect()
        assert b.getRefCount() == count
        found.append(x.getDenseArray().copy() if name.startswith("mat") else x.array)
    tolerance = np.finfo(PETSc.ScalarType).eps ** 0.5
    np.testing.assert_allclose(found[0], found[1], rtol=tolerance, atol=tolerance * np.abs(found[1]).max())


@pytest.mark.parametrize("name", APPLICATIONS)
@pytest.mark.parametrize("make", [gamg, two_grids])
def test_a_right_hand_side_outlives_a_failed_application(options, make, name):
    options["pc_gamg_coarse_eq_limit"] = 20
    A = petsc_matrix(stencil_csr(N), "pjds")
    pc = make(A)
    pc.setUp()
    coarse = pc.getMGCoarseSolve()
    coarse.setType("preonly")
    coarse.getPC().setType("python")
    coarse.getPC().setPythonContext(Failing())
    b, x = operands(A, name)
    count = b.getRefCount()
    with pytest.raises(PETSc.Error):
        APPLICATIONS[name](pc, b, x)
    assert b.getRefCount() > count  # until the PC goes
    pc.destroy()
    coarse.destroy()
    gc.collect()
    assert b.getRefCount() == count
    assert b.norm() > 0
