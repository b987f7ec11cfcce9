"""What multigrid is applied to belongs to its owner, also after an application that fails."""

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

    apply = applyTranspose = matApply = fail  # noqa: N815  as petsc4py asks for them


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


APPLICATIONS = {
    "apply": PETSc.PC.apply,
    "applyTranspose": PETSc.PC.applyTranspose,
    "matApply": PETSc.PC.matApply,
    "richardson": richardson,
}


def operands(A, name):
    if name == "matApply":
        return [PETSc.Mat().createDense((A.size[0], 2), array=np.ones((A.size[0], 2), PETSc.ScalarType)) for _ in "bx"]
    b, x = A.createVecs()
    b.set(1.0)
    return b, x


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
