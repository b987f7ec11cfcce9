"""Digests that several threads make: an operand of the same pattern is taken, one that differs anywhere is not."""

from __future__ import annotations

import numpy as np
import pytest
from petsc4py import PETSc
from petsc_products import VIA, multiply

from petsc_gpufmt.backends import native_library
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
    A = PETSc.Mat().createAIJ((N, N), csr=(rowptr, columns, np.ones(N, PETSc.ScalarType)), comm=PETSc.COMM_SELF)
    A.convert("aijpjds")
    return A


def test_large_patterns():
    A = permutation()
    C = multiply(Product.AB, [A, A])
    multiply(Product.AB, [A, permutation()], result=C)
    for swapped in ((0, 1), (N // 2, N // 2 + 1), (N - 2, N - 1)):
        with pytest.raises(PETSc.Error, match="the pattern of B has changed since the symbolic phase"):
            multiply(Product.AB, [A, permutation(swapped)], result=C)


def test_a_pattern_is_digested_once_for_all_products():
    count = native_library.load().GpufmtDigestCount
    A = permutation()
    before = count()
    products = [multiply(Product.AB, [A, A]) for _ in range(2)]
    assert count() == before + 1
    A.setOption(PETSc.Mat.Option.NEW_NONZERO_ALLOCATION_ERR, False)
    A.setValue(0, 0, 2.0)
    A.assemble()
    multiply(Product.AB, [A, A])
    assert count() == before + 2
    with pytest.raises(PETSc.Error, match="the pattern of A has changed since the symbolic phase"):
        multiply(Product.AB, [A, permutation()], result=products[1])
