"""Defects that other libraries have had in products of sparse matrices, with factors like those of their reports."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from matrices import EPS, check_product, petsc_matrix, random
from petsc4py import PETSc

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.backends.backend import HostBackend
from petsc_gpufmt.backends.plan import Product
from petsc_gpufmt.patterns.csr import CsrPattern
from petsc_gpufmt.spgemm.chain import plan_product

TYPE = "aijpjds"  # all types multiply in the same way


@pytest.fixture(autouse=True)
def our_products(options):
    """Also without a device, where products are PETSc's own if nobody asks."""
    for name in ("matmatmult", "matmattransmult", "mattransposematmult"):
        options[f"{name}_via"] = "rmerge"


def multiply(left: scipy.sparse.spmatrix, right: scipy.sparse.spmatrix) -> PETSc.Mat:
    C = petsc_matrix(left, TYPE).matMult(petsc_matrix(right, TYPE))
    check_product(C, left, right)
    return C


def test_pytorch_90693_factors_without_rows():
    """pytorch/pytorch#90693: products of factors without rows, or without columns, were wrong."""
    shapes = ((0, 10), (10, 0), (0, 0), (10, 10))
    for left in shapes:
        for right in shapes:
            if left[1] == right[0]:
                multiply(random(*left, 0.3, seed=1), random(*right, 0.3, seed=2))


def test_pytorch_90836_nothing_in_common():
    """pytorch/pytorch#90836: where no entries meet, the row pointer of the product was never written."""
    left = scipy.sparse.csr_matrix(np.hstack([np.ones((2, 2)), np.zeros((2, 2))]))
    C = multiply(left, scipy.sparse.csr_matrix(np.vstack([np.zeros((2, 2)), np.ones((2, 2))])))
    assert C.getValuesCSR()[0].tolist() == [0, 0, 0]


@pytest.mark.slow
def test_cupy_10033_many_terms():
    """cupy/cupy#10033: X^T X of a tall X was an error, and of a taller one, of more than 2^31 terms, all 0."""
    on_device = "cuda" in petsc_matrix(random(1, 1, 1.0, seed=3), TYPE).createVecRight().getType()
    tall = random(*((50_000, 5000) if on_device else (20_000, 500)), 0.05, seed=3)
    A = petsc_matrix(tall, TYPE)
    C = A.transposeMatMult(A)
    assert C.getInfo()["nz_used"] == tall.shape[1] ** 2
    x, y = C.createVecs()
    x.setArray(np.random.default_rng(3).standard_normal(x.getSize()).astype(PETSc.ScalarType))
    C.mult(x, y)
    size = abs(tall.T) @ (abs(tall) @ abs(x.array_r))
    assert (abs(y.array_r - tall.T @ (tall @ x.array_r)) <= tall.shape[0] * EPS * size).all()


@pytest.mark.slow
def test_ginkgo_1794_more_rows_than_four_millions():
    """ginkgo-project/ginkgo#1794: the operator of Poisson's equation from two factors of 4194305 rows was an error."""
    n = 4_194_305
    differences = scipy.sparse.diags([-1.0, 1.0], [0, 1], (n, n + 1), "csr", PETSc.ScalarType)
    C = petsc_matrix(differences, TYPE).matTransposeMult(petsc_matrix(differences, TYPE))
    rowptr, colidx, values = C.getValuesCSR()
    assert (np.diff(rowptr) == 3)[1:-1].all() and rowptr[-1] == 3 * n - 2
    rows = np.repeat(np.arange(n), np.diff(rowptr))
    assert (abs(colidx - rows) <= 1).all() and (values == np.where(colidx == rows, 2.0, -1.0)).all()


def test_ginkgo_1166_many_empty_rows_and_columns():
    """ginkgo-project/ginkgo#1166: products of a matrix of 11107 rows with 6639 entries on its diagonal crashed."""
    kept = np.sort(np.random.default_rng(4).choice(11107, 6639, replace=False))
    matrix = scipy.sparse.csr_matrix((np.arange(1.0, 6640.0), (kept, kept)), (11107, 11107))
    A = petsc_matrix(matrix, TYPE)
    check_product(A.matMult(A), matrix, matrix)
    check_product(A.transposeMatMult(A), matrix.T.tocsr(), matrix)
    check_product(A.matTransposeMult(A), matrix, matrix.T.tocsr())


def test_kokkos_kernels_599_left_factor_without_rows():
    """kokkos/kokkos-kernels#599: the longest row of a left factor without rows was the smallest integer."""
    multiply(scipy.sparse.csr_matrix((0, 40)), random(40, 30, 0.1, seed=5))


def test_kokkos_kernels_402_sizes_that_do_not_fit():
    """kokkos/kokkos-kernels#402: the square of a matrix that is not square crashed, or was wrong."""
    matrix = random(30, 20, 0.2, seed=6)
    A = petsc_matrix(matrix, TYPE)
    with pytest.raises(PETSc.Error) as refused:
        A.matMult(A)
    assert refused.value.ierr == 60  # PETSC_ERR_ARG_SIZ
    check_product(A.transposeMatMult(A), matrix.T.tocsr(), matrix)


def test_kokkos_kernels_1738_another_pattern_under_reuse():
    """kokkos/kokkos-kernels#1738: values were computed for the pattern of earlier factors, without a word."""
    A, other = (petsc_matrix(random(40, 40, 0.1, seed=seed), TYPE) for seed in (7, 8))
    C = A.matMult(A)
    other.copy(A, structure=PETSc.Mat.Structure.DIFFERENT)
    with pytest.raises(PETSc.Error) as refused:
        A.matMult(A, result=C)
    assert refused.value.ierr == 73  # PETSC_ERR_ARG_WRONGSTATE
    A.matMult(A)


def test_cupy_7044_memory_of_a_dense_product():
    """cupy/cupy#7044: a product of 600 x 600 matrices without zeros took 6 GB."""
    n, types = 600, native_library.petsc_types()
    backend = HostBackend(*types)
    rowptr, colidx = (made.astype(backend.index) for made in (np.arange(0, n * n + 1, n), np.tile(np.arange(n), n)))
    A = CsrPattern(n, n, rowptr, colidx).validated(backend)
    plan = plan_product(Product.AB, [A, A], backend, {})
    assert plan.pattern.nnz == n * n
    assert plan.bytes_needed < 10 * n * n * sum(dtype.itemsize for dtype in types)
