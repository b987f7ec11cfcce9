"""Defects that other libraries have had in products with vectors, with matrices like those of their reports."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from matrices import EPS, TYPES, bound, check_mult, petsc_matrix, random, scipy_matrix
from petsc4py import PETSc

EVERY_TYPE = pytest.mark.parametrize("mat_type", TYPES)


def vectors(A: PETSc.Mat, seed: int) -> tuple[PETSc.Vec, PETSc.Vec]:
    """A random one for A, and one of NaN for the result."""
    x, y = A.createVecs()
    x.setArray(np.random.default_rng(seed).standard_normal(x.getSize()).astype(PETSc.ScalarType))
    y.set(np.nan)
    return x, y


@EVERY_TYPE
def test_hypre_246_matrices_without_entries(mat_type):
    """hypre-space/hypre#246: products of matrices without entries failed on GPUs."""
    for shape in ((50, 50), (30, 70), (0, 20), (20, 0)):
        A = petsc_matrix(scipy.sparse.csr_matrix(shape), mat_type)
        x, y = vectors(A, 1)
        A.mult(x, y)
        assert not y.array_r.any()
        y.set(1.0)
        x.set(np.nan)
        A.multTranspose(y, x)
        assert not x.array_r.any()


@EVERY_TYPE
def test_kokkos_kernels_2188_result_holds_nan_before(mat_type):
    """kokkos/kokkos-kernels#2188: NaN in the vector of the result stayed, although it is not read."""
    matrix = random(200, 150, 0.05, seed=2)
    A = petsc_matrix(matrix, mat_type)
    x, y = vectors(A, 2)
    A.mult(x, y)
    check_mult(y.array_r, matrix, x.array_r)
    back = x.duplicate()
    back.set(np.nan)
    A.multTranspose(y, back)
    check_mult(back.array_r, matrix.T, y.array_r)


@pytest.mark.slow
@EVERY_TYPE
def test_cupy_3822_half_of_the_entries(mat_type):
    """cupy/cupy#3822: products of a matrix half full were numbers that had never been written."""
    matrix = random(1000, 1500, 0.5, seed=3)
    A = petsc_matrix(matrix, mat_type)
    x, y = vectors(A, 3)
    A.mult(x, y)
    check_mult(y.array_r, matrix, x.array_r)


@EVERY_TYPE
@pytest.mark.parametrize("shape", [(1, 400), (400, 1), (1, 1)], ids=str)
def test_cuopt_1856_one_row_or_one_column(mat_type, shape):
    """NVIDIA/cuopt#1856: cuSPARSE ignored what a product is added to where a matrix has one row or one column."""
    matrix = random(*shape, 0.9, seed=4)
    A = petsc_matrix(matrix, mat_type)
    x, y = vectors(A, 4)
    before = np.arange(1.0, shape[0] + 1).astype(PETSc.ScalarType)
    y.setArray(before)
    A.multAdd(x, y, y)
    assert (abs(y.array_r - before - matrix @ x.array_r) <= bound(matrix, x.array_r) + EPS * before).all()
    y.set(1.0)
    w = x.copy()
    A.multTransposeAdd(y, w, w)
    exact, size = x.array_r + matrix.T @ y.array_r, abs(x.array_r)
    assert (abs(w.array_r - exact) <= bound(matrix.T, y.array_r) + EPS * (size + abs(exact))).all()


@EVERY_TYPE
def test_cuda_jl_2582_the_same_bits_in_every_run(mat_type):
    """JuliaGPU/CUDA.jl#2582: products with the same matrix and vector changed their last digits from run to run."""
    A = petsc_matrix(random(3000, 2000, 0.01, seed=5), mat_type)
    x, y = vectors(A, 5)
    back = x.duplicate()
    seen = set()
    for _ in range(50):
        A.mult(x, y)
        A.multTranspose(y, back)
        seen.add((y.array_r.tobytes(), back.array_r.tobytes()))
    assert len(seen) == 1


@EVERY_TYPE
def test_cupy_9323_the_same_bits_with_a_dense_matrix(mat_type):
    """cupy/cupy#9323: products of a sparse and a dense matrix were others in every run."""
    A = petsc_matrix(random(300, 300, 0.25, seed=6), mat_type)
    numbers = np.random.default_rng(6).random((300, 4)).astype(PETSc.ScalarType)
    B = PETSc.Mat().createDense((300, 4), array=numbers, comm=PETSc.COMM_SELF)
    seen = {A.matMult(B).getDenseArray(readonly=True).tobytes() for _ in range(20)}
    assert len(seen) == 1


@EVERY_TYPE
def test_clsparse_153_fewer_entries_than_rows(mat_type):
    """clMathLibraries/clSPARSE#153: coordinates of fewer entries than rows became wrong row pointers."""
    rows, columns = np.array([7, 2, 7], PETSc.IntType), np.array([1, 5, 1], PETSc.IntType)
    A = PETSc.Mat().create(comm=PETSc.COMM_SELF)
    A.setSizes((9, 6))
    A.setType(mat_type)
    A.setPreallocationCOO(rows, columns)
    A.setValuesCOO(np.array([1.0, 2.0, 4.0], PETSc.ScalarType))
    expected = np.zeros((9, 6), PETSc.ScalarType)
    expected[7, 1], expected[2, 5] = 5.0, 2.0
    assert (scipy_matrix(A).toarray() == expected).all()
    x, y = vectors(A, 7)
    A.mult(x, y)
    assert (y.array_r == expected @ x.array_r).all()


@EVERY_TYPE
def test_cusplibrary_61_stored_zeros_stay(mat_type):
    """cusplibrary/cusplibrary#61: entries that are stored and 0 got lost on the way to another format and back."""
    matrix = random(60, 60, 0.1, seed=8)
    matrix.data[::3] = 0.0
    back = scipy_matrix(petsc_matrix(matrix, mat_type).convert("aij"))
    assert (back.indptr == matrix.indptr).all() and (back.indices == matrix.indices).all()
    assert (back.data == matrix.data).all()
