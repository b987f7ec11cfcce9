"""A sparse product on a backend, planned and computed as an application would, and what it must be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from builders import CsrMatrix, from_row_lengths, poison, random_values, scalars
from scipy import sparse

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.plan import Slot
from petsc_gpufmt.spgemm.product import SparseProduct


class ComputedProduct:
    """C = A B of two test matrices whose rows are sorted; memory is poisoned before its first use.

    `validated`: their longest rows are known.
    """

    def __init__(
        self, A: CsrMatrix, B: CsrMatrix, backend: Backend, options: dict | None = None, validated: bool = False
    ):
        poison(backend)
        self.backend = backend
        patterns = [matrix.pattern_on(backend) for matrix in (A, B)]
        if validated:
            patterns = [pattern.validated(backend) for pattern in patterns]
        self.plan = SparseProduct.build(*patterns, backend, options)
        self.compute(A, B)

    def compute(self, A: CsrMatrix, B: CsrMatrix) -> None:
        """The numeric phase with the values of A and B, rounded to the backend's scalar."""
        adopt, scalar = self.backend.adopt, self.backend.scalar
        self.A, self.B = (replace(m, values=scalars(m.values, scalar)) for m in (A, B))
        values = adopt(np.full(self.plan.stats.nnz, np.nan, dtype=scalar))
        slots = {Slot.X: adopt(self.A.values), Slot.Y: adopt(self.B.values), Slot.Z: values}
        self.backend.run(self.plan.numeric(Slot.X, Slot.Y, Slot.Z), slots)
        self.values = self.backend.to_host(values)

    @property
    def rowptr(self) -> np.ndarray:
        return self.backend.to_host(self.plan.pattern.rowptr)

    @property
    def colidx(self) -> np.ndarray:
        return self.backend.to_host(self.plan.pattern.colidx)

    def check(self) -> None:
        """AssertionError unless C has the pattern of the product, sorted, and values to within rounding."""
        pattern = scipy_matrix(self.A, counted) @ scipy_matrix(self.B, counted)
        pattern.sort_indices()
        exact = on_pattern(pattern, scipy_matrix(self.A) @ scipy_matrix(self.B))
        magnitude = on_pattern(pattern, scipy_matrix(self.A, np.abs) @ scipy_matrix(self.B, np.abs))
        shape = (self.plan.pattern.nrows, self.plan.pattern.ncols)

        assert shape == pattern.shape
        assert self.rowptr.dtype == self.colidx.dtype == self.backend.index
        assert np.array_equal(self.rowptr, pattern.indptr)
        assert np.array_equal(self.colidx, pattern.indices)
        terms = pattern.data  # that each entry sums
        eps = np.finfo(self.backend.scalar).eps
        wrong = ~(np.abs(self.values - exact) <= (terms + 2) * eps * magnitude)
        assert not wrong.any(), f"entries {np.flatnonzero(wrong)[:10]}: {self.values[wrong][:10]}"
        assert self.plan.stats.nnz == pattern.nnz
        assert self.plan.stats.terms == int(terms.sum())


def scipy_matrix(matrix: CsrMatrix, function=np.asarray) -> sparse.csr_array:
    """The matrix in double precision, its values changed by `function`; entries that are zero are kept."""
    values = function(matrix.values.astype(np.result_type(matrix.values, np.float64)))
    return sparse.csr_array((values, matrix.colidx, matrix.rowptr), shape=(matrix.nrows, matrix.ncols))


def counted(values: np.ndarray) -> np.ndarray:
    """What makes a product of patterns count its terms."""
    return np.ones(values.size)


def on_pattern(pattern: sparse.csr_array, matrix: sparse.csr_array) -> np.ndarray:
    """(pattern.nnz,) the entries of `matrix`, and zeros: SciPy drops sums that are zero."""
    found = np.zeros(pattern.nnz, matrix.dtype)
    found[np.searchsorted(keys(pattern), keys(matrix))] = matrix.data
    return found


def keys(matrix: sparse.csr_array) -> np.ndarray:
    """(nnz,) int64, in ascending order where rows are sorted."""
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    return rows * matrix.shape[1] + matrix.indices


def sorted_rows(matrix: CsrMatrix) -> CsrMatrix:
    """The matrix with sorted rows and the first of repeated entries alone, as PETSc assembles it."""
    keys = matrix.rows * matrix.ncols + matrix.colidx
    kept, first = np.unique(keys, return_index=True)
    rowptr = np.searchsorted(kept, np.arange(matrix.nrows + 1) * matrix.ncols)
    return replace(matrix, rowptr=rowptr, colidx=kept % max(1, matrix.ncols), values=matrix.values[first])


def chained(matrix: CsrMatrix) -> CsrMatrix:
    """Another matrix with as many rows as this has columns: rows of 0 to 8 entries."""
    lengths = np.random.default_rng(80).integers(0, 9, matrix.ncols)
    return from_row_lengths(lengths, 200, seed=81)


def other_values(matrix: CsrMatrix, seed: int = 82) -> CsrMatrix:
    return replace(matrix, values=random_values(np.random.default_rng(seed), matrix.values.size))
