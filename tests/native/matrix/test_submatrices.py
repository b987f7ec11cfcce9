"""Matrices of MatCreateSubMatrices, which PETSc destroys its own way, are of our types as others are."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from answers import settled_tokens
from bounds import rounding
from petsc4py import PETSc
from petsc_products import petsc_matrix, stencil_csr

from petsc_gpufmt.backends import native_library

FIRST, LAST = 10, 50


@pytest.fixture
def parts():
    """A submatrix, and the same dense."""
    grid = petsc_matrix(stencil_csr(4), "aij")
    A = PETSc.Mat().create(PETSc.COMM_SELF)
    A.setSizes(grid.size)
    A.setType("mpiaijpjds")  # of a sequential one they are destroyed as others
    A.setPreallocationCSR(grid.getValuesCSR())
    A.assemble()
    rows = PETSc.IS().createStride(LAST - FIRST, FIRST, 1, PETSc.COMM_SELF)
    (part,) = A.createSubMatrices([rows], [rows])
    return part, A[FIRST:LAST, FIRST:LAST]


def check(part, dense, mat_type):
    x, z = part.createVecs()
    x.setArray(np.arange(1.0, x.size + 1, dtype=PETSc.ScalarType))
    part.mult(x, z)
    np.testing.assert_allclose(z.getArray(), dense @ x.getArray(), rtol=rounding(1e-12), atol=rounding(1e-12))
    assert part.getType() == f"seq{mat_type}"


def test_they_become_of_other_types_and_all_that_was_stored_goes(parts):
    part, dense = parts
    before = settled_tokens()
    for mat_type in ("aijpjds", "aijbsr", "aij", "aijpjds"):
        part.convert(mat_type)
        check(part, dense, mat_type)
    part.destroy()
    assert settled_tokens() == before


def test_copies_have_their_options(parts):
    part, dense = parts
    part.setOption(PETSc.Mat.Option.KEEP_NONZERO_PATTERN, True)
    copy = part.duplicate(copy=True)
    check(copy, dense, "aijpjds")
    copy.zeroRows([3], 2.0)
    assert copy.getInfo()["nz_used"] == part.getInfo()["nz_used"]


@pytest.mark.parametrize("managed", [False, True])
def test_they_take_coordinates_and_keep_what_petsc_keeps_with_them(parts, managed):
    """Their arrays stay ordinary ones."""
    library, part = native_library.load(), parts[0]
    diagonal = np.arange(LAST - FIRST, dtype=PETSc.IntType)
    before = library.GpufmtManagedCount()
    if managed and not library.GpufmtManagedSimulate(1):
        pytest.skip("there is a device")
    try:
        part.setPreallocationCOO(diagonal.copy(), diagonal.copy())
        part.setValuesCOO((diagonal + 1.0).astype(PETSc.ScalarType))
        check(part, np.diag(diagonal + 1.0), "aijpjds")
        assert library.GpufmtManagedCount() == before
        part.destroy()
    finally:
        gc.collect()
        library.GpufmtManagedSimulate(0)
