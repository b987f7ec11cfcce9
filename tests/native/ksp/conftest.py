"""Matrices that tests of solvers share."""

from __future__ import annotations

import numpy as np
import pytest
from petsc_products import petsc_matrix, stencil_csr


@pytest.fixture(scope="module")
def grid():
    """A symmetric positive definite matrix of 343 rows with diagonals of several magnitudes."""
    A = petsc_matrix(scaled_laplacian(7))
    yield A
    A.destroy()


def scaled_laplacian(n):
    """On n^3 points."""
    matrix = stencil_csr(n)
    scale = 1 + 9 * np.random.default_rng(0).random(n**3)
    matrix.values[:] *= scale[matrix.rows] * scale[matrix.colidx]
    return matrix
