"""Pyramids of Galerkin products, as the set-up of algebraic multigrid computes them (RMerge paper, section 3.5)."""

from __future__ import annotations

import numpy as np
import scipy.sparse

from petsc_gpufmt.bench.matrices import BenchMatrix, with_random_values
from petsc_gpufmt.bench.spgemm_tasks import ProductTask, galerkin_product, row_lengths

SMALLEST_WIDTH = 1000
"""A narrower matrix is solved directly: the pyramid ends there."""

OUTSIDE, UNDECIDED, ROOT = 0, 1, 2


def has_pyramid(matrix: scipy.sparse.csr_matrix) -> bool:
    """Whether a pyramid is made: a symmetric pattern with a full diagonal, which positive definite matrices have."""
    if matrix.shape[0] != matrix.shape[1] or matrix.shape[0] < SMALLEST_WIDTH:
        return False
    pattern = scipy.sparse.csr_matrix((np.ones(matrix.nnz, np.int8), matrix.indices, matrix.indptr), matrix.shape)
    return bool(pattern.diagonal().all()) and (pattern != pattern.T).nnz == 0


def largest_neighbour(matrix: scipy.sparse.csr_matrix, keys: np.ndarray) -> np.ndarray:
    """(n,) the largest of `keys`, (n,), over each row's columns; all rows of `matrix` have entries."""
    return np.maximum.reduceat(keys[matrix.indices], matrix.indptr[:-1])


def aggregates(matrix: scipy.sparse.csr_matrix, rng: np.random.Generator) -> np.ndarray:
    """(n,) number of the aggregate of each row: those within two steps of the roots, a maximal set with no two closer.

    Bell, Dalton and Olson, Exposing fine-grained parallelism in algebraic multigrid methods (SISC 2012), section 4;
    `matrix` has a symmetric pattern with a full diagonal.
    """
    n = matrix.shape[0]
    priority = rng.permutation(n).astype(np.int64)
    state = np.full(n, UNDECIDED, dtype=np.int64)
    while (state == UNDECIDED).any():
        keys = state * n + priority
        largest = largest_neighbour(matrix, largest_neighbour(matrix, keys))
        undecided = state == UNDECIDED
        state[undecided & (largest == keys)] = ROOT
        state[undecided & (largest // n == ROOT)] = OUTSIDE
    label = np.zeros(n, dtype=np.int64)
    roots = np.flatnonzero(state == ROOT)
    label[roots] = 1 + np.arange(roots.size)
    for _ in range(2):
        label = np.where(label, label, largest_neighbour(matrix, label))
    return label - 1


def prolongator(matrix: scipy.sparse.csr_matrix, rng: np.random.Generator) -> scipy.sparse.csr_matrix:
    """(n, aggregates), with the pattern that a smoothing step with `matrix` gives to its aggregates; random values."""
    aggregate, index = aggregates(matrix, rng), matrix.indices.dtype
    n, count = matrix.shape[0], int(aggregate.max()) + 1
    ones = scipy.sparse.csr_matrix(
        (np.ones(n, matrix.dtype), aggregate.astype(index), np.arange(n + 1, dtype=index)), (n, count)
    )
    smoothed = scipy.sparse.csr_matrix((np.ones_like(matrix.data), matrix.indices, matrix.indptr), matrix.shape) @ ones
    smoothed.sort_indices()
    rowptr, columns = smoothed.indptr.astype(index), smoothed.indices.astype(index)
    return with_random_values(rowptr, columns, count, matrix.dtype, rng)


def pyramid(matrix: BenchMatrix, rng: np.random.Generator) -> list[ProductTask]:
    """The Galerkin products from `matrix` down to a width below SMALLEST_WIDTH."""
    tasks, A = [], matrix.csr
    while A.shape[0] >= SMALLEST_WIDTH:
        task = galerkin_product(A, prolongator(A, rng))
        tasks.append(task)
        C = task.reference.C.matrix
        if C.shape[0] == A.shape[0] or not row_lengths(C).all():
            break
        C.indptr, C.indices = C.indptr.astype(A.indptr.dtype), C.indices.astype(A.indices.dtype)
        A = C
    return tasks
