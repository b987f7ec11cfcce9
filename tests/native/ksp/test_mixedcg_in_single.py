"""Type mixedcg in a PETSc of single precision, which has no lower one for it: cg solves, and the view says why."""

import numpy as np
import pytest
from petsc4py import PETSc
from solves import check_same, make_solver, right_hand_side, run, solve, view_of

pytestmark = pytest.mark.skipif(PETSc.ScalarType != np.float32, reason="PETSc has double precision")


def test_cg_solves(grid, tmp_path):
    ksp, (x, b) = make_solver(grid, "mixedcg", pc_type="jacobi"), grid.createVecs()
    b.setArray(right_hand_side(343))
    check_same(run(ksp, b, x), solve(grid, right_hand_side(343), "cg", pc_type="jacobi"))
    assert "solved by PETSc's own method, because this PETSc has single precision itself" in view_of(ksp, tmp_path)
