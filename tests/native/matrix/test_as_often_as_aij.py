"""What PETSc counts between a matrix and its products: our types cause no more of it than aij does."""

from __future__ import annotations

import gc

import pytest
from petsc4py import PETSc
from petsc_products import VIA, gamg_iterations, stencil_csr

from petsc_gpufmt.backends import native_library

# MatConvert is not among them: MatTranspose() gives its result a type of ours in place, by that function
EVENTS = ("MatAssemblyBegin", "MatAssemblyEnd", "DMCreateMat", "MatGetRow", "MatCopy", "MatGetSubMats", "MatMult")


def counts():
    return {name: PETSc.Log.Event(name).getPerfInfo()["count"] for name in EVENTS}


def solve_with_multigrid(mat_type):
    grid = stencil_csr(9)
    A = PETSc.Mat().create(PETSc.COMM_SELF)
    A.setSizes((grid.nrows, grid.ncols))
    A.setType(mat_type)
    A.setPreallocationNNZ(7)
    for row in range(grid.nrows):
        entries = slice(grid.rowptr[row], grid.rowptr[row + 1])
        A.setValues(row, grid.colidx[entries].astype(PETSc.IntType), grid.values[entries].astype(PETSc.ScalarType))
    A.assemble()
    gamg_iterations(A)


def solve_on_a_grid(mat_type):
    """The matrix comes from a DM, as in PETSc's tutorials."""
    dm = PETSc.DMDA().create([9, 9, 9], dof=1, stencil_width=1, comm=PETSc.COMM_SELF)
    dm.setMatType(mat_type)
    dm.setUp()
    A = dm.createMat()
    A.shift(7.0)
    ksp = PETSc.KSP().create(PETSc.COMM_SELF)
    ksp.setOperators(A)
    x, b = A.createVecs()
    b.set(1.0)
    ksp.solve(b, x)


def counted(program, mat_type):
    before = counts()
    program(mat_type)
    return {name: count - before[name] for name, count in counts().items()}


@pytest.fixture
def managed_results(options):
    """Products as on a device, by RMerge with managed arrays; elsewhere ordinary memory takes the place of these."""
    simulated = native_library.load().GpufmtManagedSimulate(1)
    if simulated:
        for via in VIA.values():
            options[via] = "rmerge"
    yield
    if simulated:
        for via in VIA.values():
            options.delValue(via)  # aij does not know the name
        gc.collect()
        assert native_library.load().GpufmtManagedSimulate(0)


@pytest.fixture(scope="module")
def stage():
    """Where a product of another test has failed, PETSc counts no more of them in its stage."""
    PETSc.Log.begin()
    own = PETSc.Log.Stage("as often as aij")
    own.push()
    yield
    own.pop()


@pytest.fixture(scope="module")
def of_aij(stage):
    return {program: counted(program, "aij") for program in (solve_with_multigrid, solve_on_a_grid)}


@pytest.mark.parametrize("program", [solve_with_multigrid, solve_on_a_grid])
@pytest.mark.parametrize("mat_type", ["pjds", "gpufmt", "bsr"])
def test_no_event_is_more_often_than_with_aij(of_aij, program, mat_type):
    ours = counted(program, mat_type)
    assert ours["MatAssemblyEnd"] and ours["MatMult"]
    assert {name: (ours[name], n) for name, n in of_aij[program].items() if ours[name] > n} == {}


def test_results_of_products_are_assembled_no_more_often(of_aij, managed_results):
    ours, aij = counted(solve_with_multigrid, "pjds"), of_aij[solve_with_multigrid]
    assert {name: (ours[name], n) for name, n in aij.items() if ours[name] > n} == {}
