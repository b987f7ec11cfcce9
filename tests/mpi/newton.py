"""Newton's method for the 3-D Bratu problem takes as many Newton and Krylov iterations with our type as with aij."""

import sys
from pathlib import Path

import numpy as np
from dense import FORMAT, rounding
from petsc4py import PETSc

sys.path.append(str(Path(__file__).parents[2] / "examples"))

import bratu3d  # noqa: E402

LAMBDA = 6.0
GRID = (9, 8, 7)
SOLVERS = [
    {"ksp_type": "cg", "pc_type": "jacobi"},
    {"ksp_type": "gmres", "pc_type": "bjacobi"},
    {"ksp_type": "cg", "pc_type": "gamg", "mg_levels_pc_type": "jacobi", "pc_gamg_gpufmt_order": "petsc"},
]


def solve(matrix_type, options):
    """(Newton, Krylov) iterations, and the solution of this rank."""
    prefix = f"{matrix_type}_"
    database = PETSc.Options(prefix)
    for key, value in {**options, "dm_mat_type": matrix_type}.items():
        database[key] = value
    da = PETSc.DMDA().create(dim=3, dof=1, sizes=GRID, stencil_width=1, setup=False)
    snes = PETSc.SNES().create()
    for solver_or_grid in (da, snes):
        solver_or_grid.setOptionsPrefix(prefix)
    da.setFromOptions()
    da.setUp()
    problem = bratu3d.Bratu(LAMBDA)
    snes.setDM(da)
    snes.setFunction(problem.residual)
    snes.setJacobian(problem.jacobian)
    snes.setFromOptions()
    x = da.createGlobalVec()
    bratu3d.initial_guess(da, x, LAMBDA)
    snes.solve(None, x)
    assert snes.getConvergedReason() > 0, f"{matrix_type}, {options}: reason {snes.getConvergedReason()}"
    assert matrix_type in snes.getJacobian()[1].getType(), f"the Jacobian is {snes.getJacobian()[1].getType()}"
    return (snes.getIterationNumber(), snes.getLinearSolveIterations()), x.getArray().copy()


for options in SOLVERS:
    expected, solution = solve("aij", options)
    iterations, ours = solve(FORMAT, options)
    assert iterations == expected, f"{options}: {iterations} Newton and Krylov iterations, aij {expected}"
    assert expected[1] > expected[0] > 1
    assert np.allclose(ours, solution, rtol=rounding(1e-8), atol=rounding(1e-12))
