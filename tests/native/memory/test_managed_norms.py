"""Norms of matrices with managed arrays: made of sums where the values are, and as on type aij."""

from __future__ import annotations

import pytest
from bounds import rounding
from petsc4py import PETSc
from petsc_products import petsc_matrix, stencil_csr
from test_managed import diagonally_dominant, managed_matrices, ordinary, place, product  # noqa: F401
from test_managed_scale_and_add import empty, flops_of, plans

from petsc_gpufmt.backends.plan import Product
from petsc_gpufmt.planning import planner

NORMS = {
    "one": PETSc.NormType.NORM_1,
    "Frobenius": PETSc.NormType.FROBENIUS,
    "infinity": PETSc.NormType.NORM_INFINITY,
}
EVERY_NORM = pytest.mark.parametrize("norm", NORMS.values(), ids=NORMS)
UNSUPPORTED = 56


@pytest.mark.skipif(PETSc.Sys.getVersion() < (3, 25), reason="PETSc 3.24 counts flops in another way")
@EVERY_NORM
@pytest.mark.parametrize("rectangular", [False, True])
def test_norms(norm, rectangular):
    C = product(Product.AB, longest=20)[2] if rectangular else diagonally_dominant()[1]
    same, before, state, tokens = ordinary(C), plans(), C.stateGet(), planner.owned_tokens()
    for factor in (1.0, -3.0):
        ours, petscs = (flops_of(lambda A=A: A.norm(norm)) for A in (C, same))
        assert ours == petscs and C.norm(norm) == pytest.approx(same.norm(norm), rel=rounding(1e-13))
        if factor == 1.0:
            assert C.stateGet() == state and managed_matrices() == 1
            assert plans() - before == (2 if norm == PETSc.NormType.NORM_1 else 1)
            assert planner.owned_tokens() - tokens == (0 if norm == PETSc.NormType.NORM_1 else 1)
        for A in (C, same):
            A.scale(factor)


@EVERY_NORM
@pytest.mark.parametrize(("n", "m"), [(0, 0), (0, 7), (7, 0), (1, 1)])
def test_small_and_empty_matrices(norm, n, m):
    C = empty(n, m)
    assert C.norm(norm) == pytest.approx(ordinary(C).norm(norm))


def test_another_norm_is_the_error_of_petsc():
    with pytest.raises(PETSc.Error) as failure:
        diagonally_dominant()[1].norm(PETSc.NormType.NORM_2)
    assert failure.value.ierr == UNSUPPORTED


@EVERY_NORM
def test_ordinary_matrices_are_left_to_petsc(norm):
    A, before = petsc_matrix(stencil_csr(3)), plans()
    assert A.norm(norm) > 0 and plans() == before
