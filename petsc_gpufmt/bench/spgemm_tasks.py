"""What the benchmark of sparse products multiplies, C = A B or C = P^T A P, with references made by SciPy."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from petsc_gpufmt.bench.errors import BenchError

THREADS = min(32, os.cpu_count() or 1)
BLOCKS_A_THREAD = 4
SMALLEST_MAGNITUDE = 2.0**-60
"""In place of smaller magnitudes, so that no entry of |A| |B| is 0: a bound as good, and SciPy strips none of them."""


def row_lengths(matrix: scipy.sparse.csr_matrix) -> np.ndarray:
    """(nrows,) int64."""
    return np.diff(matrix.indptr).astype(np.int64)


def count_terms(A: scipy.sparse.csr_matrix, B: scipy.sparse.csr_matrix) -> np.ndarray:
    """(nrows of A,) int64: products a_ik b_kj that each row of A B sums."""
    sums = np.concatenate([[0], np.cumsum(row_lengths(B)[A.indices])])
    return np.diff(sums[A.indptr])


def row_blocks(work: np.ndarray) -> list[tuple[int, int]]:
    """Ranges of rows with about equal sums of `work`, (nrows,), some for each thread."""
    before = np.concatenate([[0], np.cumsum(work + 1)])
    shares = np.linspace(0, before[-1], THREADS * BLOCKS_A_THREAD + 1)
    bounds = np.unique(np.searchsorted(before, shares[:-1]).tolist() + [work.size])
    return list(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True))


def in_threads(function: Callable[[int, int], Any], blocks: list[tuple[int, int]]) -> list[Any]:
    """function(first row, row after the last) for each block; SciPy and NumPy let threads run."""
    with ThreadPoolExecutor(THREADS) as threads:
        return list(threads.map(lambda block: function(*block), blocks))


def some_rows(matrix: scipy.sparse.csr_matrix, values: np.ndarray, begin: int, end: int) -> scipy.sparse.csr_matrix:
    """Rows of `matrix`, with others of its (nnz,) `values`; the arrays are not copied."""
    first, last = matrix.indptr[begin], matrix.indptr[end]
    arrays = values[first:last], matrix.indices[first:last], matrix.indptr[begin : end + 1] - first
    return scipy.sparse.csr_matrix(arrays, shape=(end - begin, matrix.shape[1]))


def with_zeros(product: scipy.sparse.csr_matrix, pattern: scipy.sparse.csr_matrix) -> np.ndarray:
    """(nnz of `pattern`,) values of `product`, which SciPy has stripped of its zeros; the rows of both are sorted."""

    def keys(matrix: scipy.sparse.csr_matrix) -> np.ndarray:
        return np.repeat(np.arange(matrix.shape[0]) * matrix.shape[1], np.diff(matrix.indptr)) + matrix.indices

    values = np.zeros(pattern.nnz, dtype=product.dtype)
    values[np.searchsorted(keys(pattern), keys(product))] = product.data
    return values


@dataclass(frozen=True)
class Bounded:
    """A matrix with sorted rows, and for each entry the (nnz,) sum of the magnitudes of what it is the sum of."""

    matrix: scipy.sparse.csr_matrix
    magnitudes: np.ndarray

    @classmethod
    def of(cls, matrix: scipy.sparse.csr_matrix) -> Bounded:
        return cls(matrix, np.maximum(abs(matrix.data), matrix.dtype.type(SMALLEST_MAGNITUDE)))

    def __matmul__(self, right: Bounded) -> Bounded:
        largest = scipy.sparse.csr_matrix(
            (right.magnitudes, right.matrix.indices, right.matrix.indptr), right.matrix.shape
        )

        def block(begin: int, end: int) -> tuple[scipy.sparse.csr_matrix, np.ndarray]:
            product = some_rows(self.matrix, self.matrix.data, begin, end) @ right.matrix
            magnitude = some_rows(self.matrix, self.magnitudes, begin, end) @ largest
            product.sort_indices()
            magnitude.sort_indices()
            values = product.data if product.nnz == magnitude.nnz else with_zeros(product, magnitude)
            magnitude.data, largest_sums = values, np.maximum(magnitude.data, SMALLEST_MAGNITUDE, dtype=values.dtype)
            return magnitude, largest_sums

        parts = in_threads(block, row_blocks(count_terms(self.matrix, right.matrix)))
        shape = self.matrix.shape[0], right.matrix.shape[1]
        if not parts:
            return Bounded.of(scipy.sparse.csr_matrix(shape, dtype=self.matrix.dtype))
        matrix = scipy.sparse.vstack([product for product, _ in parts], format="csr")
        matrix.has_sorted_indices = matrix.has_canonical_format = True
        return Bounded(matrix, np.concatenate([magnitudes for _, magnitudes in parts]))


@dataclass(frozen=True)
class ProductReference:
    """The right C, rows sorted, and how many roundings an entry of each row may have: |C - C_ref| <= k eps |A| |B|."""

    C: Bounded
    roundings: np.ndarray

    def error(self, result: scipy.sparse.csr_matrix, sort: bool = False) -> float:
        """Largest error as a share of its bound; infinite for another pattern or an entry that is not finite.

        The rows of `result` must be sorted, unless `sort` allows a peer's not to be.
        """
        right = self.C.matrix
        if result.shape != right.shape or not np.array_equal(result.indptr, right.indptr):
            return float("inf")

        def block(begin: int, end: int) -> float:
            found, expected = (some_rows(matrix, matrix.data, begin, end) for matrix in (result, right))
            if sort:
                found = scipy.sparse.csr_matrix(found, copy=True)
                found.sort_indices()
            if not np.array_equal(found.indices, expected.indices) or not np.isfinite(found.data).all():
                return float("inf")
            magnitudes = self.C.magnitudes[right.indptr[begin] : right.indptr[end]]
            bound = np.repeat(self.roundings[begin:end], np.diff(expected.indptr)) * np.finfo(right.dtype).eps
            return float((abs(found.data - expected.data) / (bound * magnitudes)).max(initial=0.0))

        return max(in_threads(block, row_blocks(row_lengths(right))), default=0.0)


@dataclass(frozen=True)
class ProductTask:
    """One product: "AB" with operands (A, B), or "PtAP" with (A, P); its terms, and the right result.

    A product of two equal operands has the same object twice.
    """

    kind: str
    operands: tuple[scipy.sparse.csr_matrix, scipy.sparse.csr_matrix]
    terms: int
    reference: ProductReference

    @property
    def result_bytes(self) -> int:
        """Bytes of C in CSR form."""
        C, index = self.reference.C.matrix, self.operands[0].indices.itemsize
        return C.nnz * (C.data.itemsize + index) + (C.shape[0] + 1) * index


def sorted_transpose(matrix: scipy.sparse.csr_matrix) -> scipy.sparse.csr_matrix:
    """The transpose, its rows sorted, its indices of the same type."""
    transpose = matrix.T.tocsr()
    transpose.indptr, transpose.indices = (
        transpose.indptr.astype(matrix.indptr.dtype),
        transpose.indices.astype(matrix.indices.dtype),
    )
    transpose.has_sorted_indices = transpose.has_canonical_format = True
    return transpose


def matrix_product(A: scipy.sparse.csr_matrix, B: scipy.sparse.csr_matrix) -> ProductTask:
    """C = A B; an entry is the sum of at most as many terms as the row of A has entries."""
    if A.shape[1] != B.shape[0]:
        raise BenchError(f"a product of {A.shape} and {B.shape} matrices: the inner sizes differ")
    C = Bounded.of(A) @ Bounded.of(B)
    return ProductTask("AB", (A, B), int(count_terms(A, B).sum()), ProductReference(C, row_lengths(A) + 2))


def galerkin_product(A: scipy.sparse.csr_matrix, P: scipy.sparse.csr_matrix) -> ProductTask:
    """C = P^T (A P); the roundings of both products add up."""
    transpose, product = sorted_transpose(P), Bounded.of(A) @ Bounded.of(P)
    C = Bounded.of(transpose) @ product
    terms = count_terms(A, P).sum() + count_terms(transpose, product.matrix).sum()
    roundings = row_lengths(transpose) + int(row_lengths(A).max(initial=0)) + 2
    return ProductTask("PtAP", (A, P), int(terms), ProductReference(C, roundings))
