"""Rows that are added to a result here are what PETSc keeps of those that it adds itself."""

from __future__ import annotations

import ctypes
import gc

import numpy as np
import pytest
from answers import settled_tokens
from builders import CsrMatrix
from petsc4py import PETSc
from petsc_products import petsc_matrix

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.planning import requests
from petsc_gpufmt.planning.abi import Ask

LIBRARY = native_library.load()
PRODUCT_AB = 1  # MATPRODUCT_AB
pytestmark = pytest.mark.skipif(PETSc.Sys.getVersion() < (3, 25), reason="PETSc 3.24 adds all rows itself")


@pytest.fixture(params=["simulated", pytest.param("device", marks=pytest.mark.gpu)], autouse=True)
def place(request, options):
    simulated = request.param == "simulated"
    gc.collect()
    if simulated and not LIBRARY.GpufmtManagedSimulate(1):
        pytest.skip("there is a device")
    options["matmatmult_via"] = "rmerge"
    options["mattransposematmult_via"] = "rmerge"
    yield
    LIBRARY.GpufmtRowsForget(0)
    gc.collect()
    assert not simulated or LIBRARY.GpufmtManagedSimulate(0)


@pytest.fixture(params=[1, 10_000], ids=["managed", "on the host"], autouse=True)
def many(request, many_rows):
    """Whether the row pointer and the lengths of a result are managed, too."""
    many_rows(request.param)
    return request.param == 1


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


def test_lengths_of_rows_are_made_by_one_plan(asked, many):
    lengths = np.arange(3001) % 3
    rowptr = np.concatenate([[0], np.cumsum(lengths)])
    columns = np.arange(rowptr[-1]) - np.repeat(rowptr[:-1], lengths)
    A = petsc_matrix(CsrMatrix(lengths.size, 2, rowptr, columns, np.ones(columns.size)))
    eye = petsc_matrix(CsrMatrix(2, 2, np.arange(3), np.arange(2), np.ones(2)))
    results = [A.matMult(eye), A.matMult(eye)]
    assert asked[Ask.LENGTHS] == many
    for result in results:
        but_one = PETSc.IS().createStride(lengths.size - 1, comm=PETSc.COMM_SELF)
        part = result.createSubMatrix(but_one)  # reads lengths
        np.testing.assert_array_equal(part.getValuesCSR()[0], rowptr[:-1])
        assert longest_row(result) == 2
        result.destroy()
    results.append(A.matMult(eye))  # the plan has gone with the last of them
    assert asked[Ask.LENGTHS] == 2 * many


def longest_row(A):
    longest = ctypes.c_longlong()
    assert LIBRARY.MatSeqAIJGetMaxRowNonzeros(ctypes.c_void_p(A.handle), ctypes.byref(longest)) == 0
    return int(np.frombuffer(longest, PETSc.IntType)[0])


@pytest.mark.parametrize("after", ["it is destroyed", "entries", "coordinates", "a product"])
def test_a_result_that_is_preallocated_anew_has_lengths_of_its_own(after):
    """Those of before belong to the arrays that it had."""
    C = result(10)
    C.setPreallocationNNZ(3)
    if after == "coordinates":
        C.setPreallocationCOO(np.arange(20, dtype=PETSc.IntType), np.arange(20, dtype=PETSc.IntType))
        C.setValuesCOO(np.ones(20, PETSc.ScalarType))
    elif after != "it is destroyed":
        C.setValues(range(20), [7], np.ones((20, 1), PETSc.ScalarType))
        C.assemble()
    if after == "a product":
        C = C.transposeMatMult(C)
    elif after != "it is destroyed":
        assert C.getValuesCSR()[0][-1] == 20 and longest_row(C) == 1
    C.destroy()


def test_a_result_is_the_result_of_another_product_by_petsc(options):
    """Which would free the lengths of rows that it finds there."""
    C = result(10)
    options["mat_product_algorithm"] = "sorted"
    eye = petsc_matrix(CsrMatrix(50, 50, np.arange(51), np.arange(50), np.full(50, 2.0)))
    expected = C.getValuesCSR()[2] * 2.0
    other = C.duplicate(copy=True)
    a, b, c = (ctypes.c_void_p(matrix.handle) for matrix in (eye, other, C))
    assert LIBRARY.MatProductCreateWithMat(a, b, None, c) == 0
    assert LIBRARY.MatProductSetType(c, PRODUCT_AB) == 0
    for step in (LIBRARY.MatProductSetFromOptions, LIBRARY.MatProductSymbolic, LIBRARY.MatProductNumeric):
        assert step(c) == 0
    np.testing.assert_array_equal(C.getValuesCSR()[2], expected)


@pytest.mark.parametrize("error", [MemoryError, RuntimeError])
def test_lengths_that_cannot_be_made(monkeypatch, many, error):
    def fail(*arguments):
        raise error("no lengths")

    monkeypatch.setitem(requests.KINDS, Ask.LENGTHS, requests.KINDS[Ask.LENGTHS]._replace(fill=fail))
    before = LIBRARY.GpufmtManagedCount(), settled_tokens()
    if not many:
        result(0).destroy()
        return
    with pytest.raises(PETSc.Error, match="lengths of rows on .*no lengths"):
        result(0)
    gc.collect()
    assert (LIBRARY.GpufmtManagedCount(), settled_tokens()) == before
    monkeypatch.undo()
    assert result(0).getSize() == (50, 20)
