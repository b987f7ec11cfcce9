"""Interpolations between grids whose matrices are of ours: their type, their products, and solvers that use them."""

from __future__ import annotations

import sys

import launch
import numpy as np
import pytest

PROGRAM = """
import sys, petsc4py
petsc4py.init(sys.argv)
from petsc4py import PETSc
import numpy as np
import petsc_gpufmt
found = []
for mat_type in ("aij", PETSc.Options().getString("grid_mat_type")):
    for dof in (1, 3):
        fine = PETSc.DMDA().create([9, 7], dof=dof, stencil_width=1, setup=False)
        fine.setMatType(mat_type)
        fine.setFromOptions()
        fine.setUp()
        coarse = fine.coarsen()
        P, scale = coarse.createInterpolation(fine)
        x, y, r = coarse.createGlobalVec(), fine.createGlobalVec(), coarse.createGlobalVec()
        x.setArray(np.cos(np.arange(*x.getOwnershipRange())).astype(PETSc.ScalarType))
        P.mult(x, y)
        P.multTranspose(y, r)
        PETSc.Sys.Print("found", mat_type, dof, P.getType(), "bound" if P.boundToCPU() else "free")
        found.append([y.norm(), y.sum(), r.norm(), r.sum(), scale.norm()])
assert np.allclose(found[:2], found[2:], rtol=1e-12), found
"""
MAIJ = {1: "seqmaij", 2: "mpimaij"}


def interpolations(mat_type, ranks, *options):
    command = [sys.executable, "-c", PROGRAM, "-grid_mat_type", mat_type, *options]
    finished = launch.run(command, ranks=ranks)
    assert finished.status == 0, str(finished)
    return [line.split()[1:] for line in finished.output.splitlines() if line.startswith("found ")]


def types_of_interpolations(*arguments):
    return [found[:3] for found in interpolations(*arguments)]


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.mpi)])
@pytest.mark.parametrize("mat_type", ["pjds", "aijbsr"])
def test_interpolations_get_the_type_of_the_grid_if_asked_for(mat_type, ranks):
    own = f"{'seq' if ranks == 1 else 'mpi'}aij{mat_type.removeprefix('aij')}"
    _, _, *ours = types_of_interpolations(mat_type, ranks, "-gpufmt_interpolation", "1")
    assert ours == [[mat_type, "1", own], [mat_type, "3", own]]


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.mpi)])
def test_on_the_host_interpolations_are_those_of_petsc(ranks):
    *aij, (_, _, single), (_, _, several) = types_of_interpolations("pjds", ranks, "-device_enable", "none")
    assert [found[2] for found in aij] == [single, several] == [single, MAIJ[ranks]]


@pytest.mark.slow
@pytest.mark.gpu
def test_on_a_device_interpolations_have_the_type_of_the_grid():
    _, _, *ours = types_of_interpolations("pjds", 1, "-vec_type", "cuda")
    assert [found[2] for found in ours] == ["seqaijpjds"] * 2


@pytest.mark.slow
@pytest.mark.gpu
def test_interpolations_of_grids_that_are_bound_to_the_host_are_bound_too():
    _, _, *ours = interpolations("pjds", 1, "-dm_vec_type", "cuda", "-dm_bind_below", "1000")
    assert [found[2:] for found in ours] == [["seqaijpjds", "bound"]] * 2


@pytest.mark.parametrize("dof", [1, 2])
def test_multigrid_takes_as_many_iterations(options, dof):
    """Galerkin products with the interpolations too."""
    from petsc4py import PETSc

    def iterations(mat_type):
        dm = PETSc.DMDA().create([9, 9], dof=dof, stencil_width=1, comm=PETSc.COMM_SELF)
        dm.setMatType(mat_type)
        dm.setUp()
        A = dm.createMat()
        rowptr, columns, _ = A.getValuesCSR()
        rows = np.repeat(np.arange(A.size[0]), np.diff(rowptr))
        A.setValuesCSR(rowptr, columns, np.where(rows == columns, 9.5 * dof, -1.0).astype(PETSc.ScalarType))
        A.assemble()
        ksp = PETSc.KSP().create(PETSc.COMM_SELF)
        ksp.setDM(dm)
        if hasattr(PETSc.KSP, "DMActive"):
            ksp.setDMActive(PETSc.KSP.DMActive.OPERATOR, False)
        else:  # before 3.25
            ksp.setDMActive(False)
        ksp.setOperators(A)
        ksp.setType("cg")
        ksp.getPC().setType("mg")
        ksp.setFromOptions()
        x, b = A.createVecs()
        b.set(1.0)
        ksp.solve(b, x)
        interpolation = ksp.getPC().getMGInterpolation(1).getType()
        return ksp.getIterationNumber(), interpolation

    options["pc_mg_levels"], options["pc_mg_galerkin"] = 3, "both"
    expected, _ = iterations("aij")
    options["gpufmt_interpolation"] = True
    assert iterations("pjds") == (expected, "seqaijpjds")
