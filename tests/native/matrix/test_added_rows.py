"""Rows that are added to a result here are what PETSc keeps of those that it adds itself."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from builders import CsrMatrix
from petsc4py import PETSc
from petsc_products import petsc_matrix

from petsc_gpufmt.backends import native_library

LIBRARY = native_library.load()
pytestmark = pytest.mark.skipif(PETSc.Sys.getVersion() < (3, 25), reason="PETSc 3.24 adds all rows itself")


@pytest.fixture(params=["simulated", pytest.param("device", marks=pytest.mark.gpu)], autouse=True)
def place(request, options):
    simulated = request.param == "simulated"
    if simulated and not LIBRARY.GpufmtManagedSimulate(1):
        pytest.skip("there is a device")
    options["matmatmult_via"] = "rmerge"
    options["mattransposematmult_via"] = "rmerge"
    yield
    LIBRARY.GpufmtRowsForget(0)
    assert not simulated or LIBRARY.GpufmtManagedSimulate(0)


def result(empty_rows):
    """Of a product with some rows without entries, and its operands."""
    rng = np.random.default_rng(3)
    lengths = rng.integers(0, 6, 50)
    lengths[rng.choice(50, empty_rows, replace=False)] = 0
    columns = np.concatenate([np.sort(rng.choice(20, n, replace=False)) for n in lengths])
    A = CsrMatrix(50, 20, np.concatenate([[0], np.cumsum(lengths)]), columns, rng.random(len(columns)))
    eye = CsrMatrix(20, 20, np.arange(21), np.arange(20), np.ones(20))
    return petsc_matrix(A).matMult(petsc_matrix(eye))


def without_small(A):
    A.chop(0.5)
    assert LIBRARY.MatEliminateZeros(ctypes.c_void_p(A.handle), 0) == 0


def seen(C, path):
    """All that reads the lengths of rows: a view, submatrices, copies, single values, and products of type aij."""
    viewer = PETSc.Viewer().createASCII(str(path), comm=PETSc.COMM_SELF)
    viewer.pushFormat(PETSc.Viewer.Format.ASCII_INFO_DETAIL)
    C.view(viewer)
    viewer.destroy()
    some = PETSc.IS().createStride(C.size[0] // 2, 0, 2, PETSc.COMM_SELF)
    part, copy, values = C.createSubMatrix(some), C.duplicate(copy=True), C.getValues(range(9), range(20))
    aij = C.copy()
    without_small(C)
    without_small(copy)
    aij.convert("aij")
    x, z = aij.createVecs()
    x.setArray(np.arange(1.0, x.size + 1, dtype=PETSc.ScalarType))
    aij.mult(x, z)
    arrays = [
        *part.getValuesCSR(),
        *C.getValuesCSR(),
        *copy.getValuesCSR(),
        *aij.getValuesCSR(),
        values,
        z.getArray().copy(),
    ]
    return path.read_text(), C.getInfo(), arrays


@pytest.mark.parametrize("empty_rows", [0, 10, 45, 50])
def test_nobody_sees_who_has_added_the_rows(tmp_path, empty_rows):
    C = result(empty_rows)
    assert LIBRARY.GpufmtRowsForget(1)
    same = result(empty_rows)
    assert not LIBRARY.GpufmtRowsForget(0)
    here, there = seen(C, tmp_path / "here"), seen(same, tmp_path / "there")
    assert here[:2] == there[:2]
    for a, b in zip(here[2], there[2], strict=True):
        np.testing.assert_array_equal(a, b)


def test_an_assembly_forgets_the_symmetry_of_another_pattern():
    """Though it finds nothing to do: zeros were eliminated where they were."""
    C = result(0)
    square = C.transposeMatMult(C)
    square.setOption(PETSc.Mat.Option.STRUCTURALLY_SYMMETRIC, True)
    square.assemble()
    assert square.isStructurallySymmetric()
    without_small(square)
    with pytest.raises(PETSc.Error):
        square.isStructurallySymmetric()


def test_lengths_of_many_rows_are_written_by_several_threads():
    lengths = np.arange(300_001) % 3
    rowptr = np.concatenate([[0], np.cumsum(lengths)])
    columns = np.arange(rowptr[-1]) - np.repeat(rowptr[:-1], lengths)
    A = CsrMatrix(lengths.size, 2, rowptr, columns, np.ones(columns.size))
    C = petsc_matrix(A).matMult(petsc_matrix(CsrMatrix(2, 2, np.arange(3), np.arange(2), np.ones(2))))
    part = C.createSubMatrix(PETSc.IS().createStride(lengths.size, comm=PETSc.COMM_SELF))  # reads all lengths
    np.testing.assert_array_equal(part.getValuesCSR()[0], rowptr)


def test_lengths_of_rows_that_are_gone_are_taken_by_the_next():
    LIBRARY.GpufmtManagedKeptRows.restype = ctypes.c_size_t
    n = 20_000
    lengths = np.arange(n) % 3
    columns = np.concatenate([np.arange(k) for k in lengths])
    A = CsrMatrix(n, 4, np.concatenate([[0], np.cumsum(lengths)]), columns, np.ones(len(columns)))
    eye = CsrMatrix(4, 4, np.arange(5), np.arange(4), np.ones(4))
    C = petsc_matrix(A).matMult(petsc_matrix(eye))
    before = LIBRARY.GpufmtManagedKeptRows()
    C.destroy()
    kept = LIBRARY.GpufmtManagedKeptRows()
    assert kept - before == (3 * n + 1) * PETSc.IntType().itemsize

    same = petsc_matrix(A).matMult(petsc_matrix(eye))

    assert LIBRARY.GpufmtManagedKeptRows() == before
    some = PETSc.IS().createStride(n // 2, 1, 2, PETSc.COMM_SELF)
    np.testing.assert_array_equal(np.diff(same.createSubMatrix(some).getValuesCSR()[0]), lengths[1::2])
