"""Near-null spaces of matrices that come from a mesh, as PCGAMG's type agg takes them."""

import numpy as np
import pytest
from multigrid import check_same, levels, solver
from petsc4py import PETSc

from petsc_gpufmt.planning import requests
from petsc_gpufmt.planning.abi import Ask

SIZES = (9, 8, 7)


def poisson(mat_type):
    """The matrix of a DMDA with a stencil of 7 points."""
    da = PETSc.DMDA().create(dim=3, dof=1, sizes=SIZES, stencil_width=1, comm=PETSc.COMM_SELF)
    da.setMatType(mat_type)
    A = da.createMat()
    rows = np.arange(np.prod(SIZES), dtype=PETSc.IntType)
    points = np.array(np.unravel_index(rows, SIZES[::-1]))
    for axis in range(3):
        for step in (-1, 1):
            there = points[axis] + step
            inside = (there >= 0) & (there < SIZES[::-1][axis])
            neighbours = rows + step * int(np.prod(SIZES[::-1][axis + 1 :]))
            for row, column in zip(rows[inside], neighbours[inside], strict=True):
                A.setValue(row, column, -1.0)
    for row in rows:
        A.setValue(row, row, 6.0)
    A.assemble()
    return A


@pytest.fixture
def given(monkeypatch):
    """Whether each tentative prolongator was given a near-null space by the host."""
    found, kind = [], requests.KINDS[Ask.TENTATIVE]

    def fill(request, *others):
        found.append(bool(request.near_null))
        return kind.fill(request, *others)

    monkeypatch.setitem(requests.KINDS, Ask.TENTATIVE, kind._replace(fill=fill))
    return found


@pytest.mark.double
@pytest.mark.parametrize("name", [None, "nearnullspace", "nullspace"])
def test_what_the_first_field_has_is_taken(options, given, name):
    """A DMDA has a field without any: the constant vector is known to the planner, and not made on the host."""
    options["pc_gamg_coarse_eq_limit"] = 5
    found = []
    for mat_type in ("pjds", "aij"):
        A = poisson(mat_type)
        if name:
            vector = A.createVecRight()
            vector.setArray(np.linspace(1, 2, vector.getLocalSize(), dtype=PETSc.ScalarType))
            vector.normalize()
            space = PETSc.NullSpace().create(vectors=[vector], comm=PETSc.COMM_SELF)
            field = PETSc.Vec().createSeq(1)  # any object
            field.compose(name, space)
            mesh = PETSc.DMShell().create(comm=PETSc.COMM_SELF)
            mesh.addField(field)
            A.setDM(mesh)
        ksp = solver(A)
        ksp.setUp()
        found.append(levels(ksp))
        ksp.destroy()
    check_same(found[0], found[1], tolerance=1e-7)
    assert given[0] is bool(name) and all(given[1:]) and len(given) >= 2


def test_set_ups_that_begin_anew_know_the_constant_vector_too(options, given):
    options["pc_gamg_coarse_eq_limit"] = 5
    options["pc_gamg_reuse_interpolation"] = False
    options["pc_gamg_eigenvalues"] = "0.1,2.0"  # those of a few rows are not the same in all digits
    found = []
    for mat_type in ("pjds", "aij"):
        A = poisson(mat_type)
        ksp = solver(A)
        for _ in range(2):
            A.shift(0.5)
            ksp.setOperators(A)
            ksp.setUp()
        found.append(levels(ksp))
        ksp.getPC().setCoordinates(np.zeros((A.getSize()[0], 1), PETSc.RealType))
        A.shift(0.5)
        ksp.setOperators(A)
        ksp.setUp()
        found.append(levels(ksp))
        ksp.destroy()
    check_same(found[0], found[2])
    check_same(found[1], found[3])
    third = len(given) // 3
    assert third >= 2 and given == [False, *[True] * (third - 1)] * 2 + [True] * third


def test_vectors_of_the_finest_level_are_those_of_its_matrix(options):
    """Those of a mesh have memory on the host beside that on the device."""
    options["pc_gamg_coarse_eq_limit"] = 5
    solutions = []
    for mat_type in ("pjds", "aij"):
        A = poisson(mat_type)
        ksp = solver(A)
        ksp.setDM(A.getDM())
        if hasattr(PETSc.KSP, "DMActive"):
            ksp.setDMActive(PETSc.KSP.DMActive.ALL, False)
        else:  # before 3.25
            ksp.setDMActive(False)
        ksp.setUp()
        pc = ksp.getPC()
        finest = pc.getMGSmoother(pc.getMGLevels() - 1)
        work = finest.getWorkVecs(1)
        assert bool(work[0].getDM()) is (mat_type == "aij")
        x, b = A.createVecs()
        b.set(1.0)
        for _ in range(2):
            ksp.solve(b, x)
        solutions.append(x.getArray().copy())
        ksp.destroy()
    assert np.allclose(*solutions, rtol=1e-4)
