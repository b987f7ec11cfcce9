"""Matrices of PETSc from those of SciPy, and what a product may differ by."""

from __future__ import annotations

import numpy as np
import scipy.sparse
from dealt import dealt
from petsc4py import PETSc

import petsc_gpufmt  # noqa: F401  registers the types
from petsc_gpufmt.choice.registry import FORMATS

TYPES = tuple(f"aij{name}" for name in FORMATS)
EPS = np.finfo(PETSc.RealType).eps


def random(nrows: int, ncols: int, density: float, seed: int) -> scipy.sparse.csr_matrix:
    rng = np.random.default_rng(seed)
    made = scipy.sparse.random(nrows, ncols, density, "csr", random_state=rng, data_rvs=rng.standard_normal)
    return made.astype(PETSc.ScalarType)


def petsc_matrix(matrix: scipy.sparse.spmatrix, mat_type: str) -> PETSc.Mat:
    """It may live on a device, as its vectors do."""
    return dealt(matrix, mat_type, PETSc.COMM_SELF, *([size] for size in matrix.shape))


def scipy_matrix(A: PETSc.Mat) -> scipy.sparse.csr_matrix:
    rowptr, colidx, values = A.getValuesCSR()
    return scipy.sparse.csr_matrix((values, colidx, rowptr), shape=A.getSize())


def bound(matrix: scipy.sparse.spmatrix, x: np.ndarray) -> np.ndarray:
    """By how much a product with a vector may be off in each row."""
    csr = scipy.sparse.csr_matrix(matrix)
    return (np.diff(csr.indptr) + 2) * EPS * (abs(csr) @ abs(x))


def check_mult(found: np.ndarray, matrix: scipy.sparse.spmatrix, x: np.ndarray, parts: int = 1) -> None:
    """`found` is the product with x, to within the bound of each row; of a transpose, so many ranks add up parts."""
    assert (abs(found - matrix @ x) <= parts * bound(matrix, x)).all()


def check_product(C: PETSc.Mat, A: scipy.sparse.spmatrix, B: scipy.sparse.spmatrix) -> None:
    """C is A B: all entries that it may have, each once, and right to within the rounding of its terms."""
    A, B = A.tocsr(), B.tocsr()
    found, terms = scipy_matrix(C), abs(A) @ abs(B)
    found.sort_indices()
    terms.sort_indices()
    assert found.shape == terms.shape and found.has_canonical_format
    left, right = (scipy.sparse.csr_matrix((np.ones(M.nnz), M.indices, M.indptr), M.shape) for M in (A, B))
    assert found.nnz == (left @ right).nnz
    longest = np.diff(A.indptr).max(initial=0)
    wrong = abs(found - A @ B) - (longest + 2) * EPS * terms
    assert wrong.max() <= 0 if 0 not in wrong.shape else not wrong.nnz
