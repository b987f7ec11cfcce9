"""Digests that several threads make: an operand of the same pattern is taken, one that differs anywhere is not."""

from __future__ import annotations

import numpy as np
import pytest
from petsc4py import PETSc
from petsc_products import VIA, multiply

from petsc_gpufmt.backends.plan import Product

N = 700_000  # row pointer and columns are pieces of some megabytes


@pytest.fixture(autouse=True)
def by_rmerge(options):
    options[VIA[Product.AB]] = "rmerge"


def permutation(swapped=()):
    """The matrix of ones that moves row i to n - 1 - i, with two rows swapped."""
    columns = np.arange(N, dtype=PETSc.IntType)[::-1].copy()
    columns[list(swapped)] = columns[list(swapped)][::-1]
    rowptr = np.arange(N + 1, dtype=PETSc.IntType)
    A = PETSc.Mat().createAIJ((N, N), csr=(rowptr, columns, np.ones(N)), comm=PETSc.COMM_SELF)
    A.convert("aijpjds")
    return A


def test_large_patterns():
    A = permutation()
    C = multiply(Product.AB, [A, A])
    multiply(Product.AB, [A, permutation()], result=C)
    for swapped in ((0, 1), (N // 2, N // 2 + 1), (N - 2, N - 1)):
        with pytest.raises(PETSc.Error, match="the pattern of B has changed since the symbolic phase"):
            multiply(Product.AB, [A, permutation(swapped)], result=C)
