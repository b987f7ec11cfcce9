"""PCJACOBI of solvers of ours: its diagonal comes from where the matrix is, and zeros are replaced as by PETSc."""

from __future__ import annotations

import sys
from pathlib import Path

import launch
import numpy as np
import pytest
from petsc_products import petsc_matrix, stencil_csr
from solves import make_solver, right_hand_side

from petsc_gpufmt.planning.abi import Ask

OURS = ("gpucg", "gpubcgs", "gpugmres", "gpufgmres", "mixedcg")
POINTS = 6


def solver_of(mat_type, ksp_type, **settings):
    A = petsc_matrix(stencil_csr(POINTS), mat_type)
    return A, make_solver(A, ksp_type, pc_type="jacobi", ksp_max_it=3, **settings)


def solve_with_diagonal(A, ksp, value):
    """Of one row, in a pattern that stays; the right-hand side with the preconditioner applied afterwards."""
    A.setValue(3, 3, value)
    A.assemble()
    x, b = A.createVecs()
    b.setArray(right_hand_side(b.size))
    ksp.solve(b, x)
    ksp.getPC().apply(b, x)
    return x.getArray().copy()


@pytest.mark.parametrize(
    "more", [{}, {"pc_jacobi_fixdiagonal": False}, {"pc_jacobi_abs": True}, {"pc_jacobi_type": "rowmax"}]
)
@pytest.mark.parametrize("ksp_type", OURS)
def test_diagonals_are_those_of_petsc(managed, ksp_type, more):
    """Of a set-up after one without zeros, and before another."""
    (A, ours), (B, theirs) = (solver_of(name, ksp, **more) for name, ksp in (("pjds", ksp_type), ("aij", "cg")))
    for value in (5.0, 0.0, -2.0, 4.0):
        expected = solve_with_diagonal(B, theirs, value)
        assert solve_with_diagonal(A, ours, value).tolist() == expected.tolist()
        assert np.isfinite(expected).all()


LIFE = """
import sys
import petsc4py
petsc4py.init(["program", "-device_enable", "none"])
sys.path[:0] = sys.argv[1:]
from answers import counted_requests
from petsc_gpufmt.backends import native_library
from petsc_gpufmt.planning.abi import Ask
from test_pcjacobi import OURS, solve_with_diagonal, solver_of

assert native_library.load().GpufmtManagedSimulate(1)
counts = counted_requests()
for turn, ksp_type in enumerate(OURS, 1):
    (A, first), (B, second) = solver_of("pjds", ksp_type), solver_of("pjds", ksp_type)
    for value in (5.0, 6.0):
        solve_with_diagonal(A, first, value)
        solve_with_diagonal(B, second, value)
    for thing in (first, second, A, B):
        thing.destroy()
    assert counts[Ask.JACOBI] == turn, (ksp_type, counts)
print("as it should")
"""


@pytest.mark.slow
def test_signs_are_looked_at_where_the_diagonal_is():
    """By one plan, that goes with the last solver. In a process of its own: solvers of other tests may be there."""
    folder = Path(__file__).parent
    paths = (folder, folder.parents[1] / "support", folder.parents[2] / "tools")
    finished = launch.run([sys.executable, "-c", LIFE, *paths])
    assert finished.status == 0 and "as it should" in finished.output, str(finished)


def test_a_preconditioner_that_is_to_stay_stays(managed):
    """Set up by a solver of PETSc's, and used by one of ours for other values."""
    A, ksp = solver_of("pjds", "cg")
    first = solve_with_diagonal(A, ksp, 5.0)
    ksp.getPC().setReusePreconditioner(True)
    ksp.setType("gpucg")
    assert solve_with_diagonal(A, ksp, 8.0).tolist() == first.tolist()
    ksp.getPC().setReusePreconditioner(False)
    assert solve_with_diagonal(A, ksp, 8.0)[3] != first[3]


def test_another_matrix_is_not_stored_for_its_diagonal(managed, asked):
    """It is not multiplied."""
    A, ksp = solver_of("pjds", "gpucg")
    ksp.setOperators(A, petsc_matrix(stencil_csr(POINTS), "pjds"))
    solve_with_diagonal(A, ksp, 5.0)
    assert asked[Ask.STORE] == 1 and not asked[Ask.JACOBI]
