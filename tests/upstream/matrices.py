"""Matrices of PETSc from those of SciPy, and what a product may differ by."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
from petsc4py import PETSc

import petsc_gpufmt  # noqa: F401  registers the types
from petsc_gpufmt.choice.registry import FORMATS

TYPES = tuple(f"aij{name}" for name in FORMATS)
EPS = np.finfo(PETSc.RealType).eps


def random(nrows: int, ncols: int, density: float, seed: int) -> scipy.sparse.csr_matrix:
    rng = np.random.default_rng(seed)
    made = scipy.sparse.random(nrows, ncols, density, "csr", random_state=rng, data_rvs=rng.standard_normal)
    return made.astype(PETSc.ScalarType)


def petsc_matrix(matrix: scipy.sparse.spmatrix, mat_type: str, comm: Any = PETSc.COMM_SELF) -> PETSc.Mat:
    """It may live on a device, as its vectors do."""
    csr = scipy.sparse.csr_matrix(matrix)
    csr.sort_indices()
    arrays = csr.indptr.astype(PETSc.IntType), csr.indices.astype(PETSc.IntType), csr.data.astype(PETSc.ScalarType)
    return PETSc.Mat().createAIJ(csr.shape, csr=arrays, comm=comm).convert(mat_type)


def scipy_matrix(A: PETSc.Mat) -> scipy.sparse.csr_matrix:
    rowptr, colidx, values = A.getValuesCSR()
    return scipy.sparse.csr_matrix((values, colidx, rowptr), shape=A.getSize())


def bound(matrix: scipy.sparse.spmatrix, x: np.ndarray) -> np.ndarray:
    """By how much a product with a vector may be off in each row."""
    csr = scipy.sparse.csr_matrix(matrix)
    return (np.diff(csr.indptr) + 2) * EPS * (abs(csr) @ abs(x))


def check_product(C: PETSc.Mat, A: scipy.sparse.spmatrix, B: scipy.sparse.spmatrix) -> None:
    """C is A B: all entries that it may have, each once, and right to within the rounding of its terms."""
    found, terms = scipy_matrix(C), abs(A) @ abs(B)
    found.sort_indices()
    terms.sort_indices()
    assert found.shape == terms.shape and found.has_canonical_format
    ones = (scipy.sparse.csr_matrix((np.ones(M.nnz), M.indices, M.indptr), M.shape) for M in (A.tocsr(), B.tocsr()))
    left, right = ones
    assert found.nnz == (left @ right).nnz
    longest = np.diff(scipy.sparse.csr_matrix(A).indptr).max(initial=0)
    wrong = abs(found - A @ B) - (longest + 2) * EPS * terms
    assert wrong.max() <= 0 if 0 not in wrong.shape else not wrong.nnz
