"""Managed memory of results that are gone is kept for the next, within bounds, and given back when it is asked for."""

from __future__ import annotations

import ctypes
import sys

import launch
import numpy as np
import pytest
from chains import Exact, operands_of
from petsc_products import multiply, petsc_matrix, stencil_csr
from test_managed import managed_matrices, place  # noqa: F401

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.backends.device_memory import free_pools
from petsc_gpufmt.backends.plan import Product

MOST_KEPT = 32
PROGRAM = """
import numpy as np
import petsc4py
petsc4py.init(["program", "-malloc_dump", "-matmatmult_via", "rmerge"])
from petsc4py import PETSc
from petsc_gpufmt.backends import native_library
native_library.load().GpufmtManagedSimulate(1)
rowptr = np.arange(10, dtype=PETSc.IntType)
A = PETSc.Mat().createAIJ((9, 9), csr=(rowptr, rowptr[:9], np.ones(9, PETSc.ScalarType)))
A.convert("pjds")
A.matMult(A).destroy()
A.destroy()
print("kept", native_library.load().GpufmtManagedKept() > 0)
"""


def kept():
    return native_library.load().GpufmtManagedKept()


@pytest.fixture(autouse=True)
def nothing_kept(place, many_rows):  # noqa: F811
    native_library.load().GpufmtManagedKept.restype = ctypes.c_size_t
    many_rows(10_000)
    native_library.trim()
    assert kept() == 0
    yield
    native_library.trim()


def square(n):
    """The square of a stencil on n^3 points."""
    grid = petsc_matrix(stencil_csr(n))
    return multiply(Product.AB, [grid, grid])


def address(C):
    columns = ctypes.c_void_p()
    handle = ctypes.c_void_p(C.handle)
    assert native_library.load().MatSeqAIJGetCSRAndMemType(handle, None, ctypes.byref(columns), None, None) == 0
    return columns.value


def test_a_result_takes_the_memory_of_one_that_is_gone():
    C = square(6)
    before, nnz, columns = address(C), int(C.getInfo()["nz_used"]), C.getValuesCSR()[1].copy()
    C.destroy()
    assert kept() >= 12 * nnz
    other = square(6)
    assert address(other) == before and kept() == 0
    np.testing.assert_array_equal(other.getValuesCSR()[1], columns)
    assert address(square(6)) != before


def test_a_smaller_result_with_more_rows_takes_it_too():
    """The row pointer has a place of its own."""
    C = square(5)
    nnz = C.getInfo()["nz_used"]
    C.destroy()
    operands = operands_of(Product.AB, 300, 300, longest=2)
    C = multiply(Product.AB, [petsc_matrix(m) for m in operands])
    assert C.getInfo()["nz_used"] < nnz and kept() == 0
    Exact.of(Product.AB, operands).check(*C.getValuesCSR())


def test_memory_is_not_wasted_on_a_result_that_is_much_smaller_nor_given_to_a_larger_one():
    C = square(14)
    C.destroy()
    there = kept()
    small = square(4)
    assert kept() == there
    large = square(15)
    assert kept() == there
    for result in (small, large):
        result.destroy()
    assert kept() > there


def test_the_oldest_goes_where_there_are_too_many():
    results = [square(3) for _ in range(MOST_KEPT + 3)]
    addresses = [address(C) for C in results]
    for C in results:
        C.destroy()
    one = kept() // MOST_KEPT
    assert kept() == MOST_KEPT * one
    assert address(square(3)) == addresses[-1]
    assert managed_matrices() <= 1


def test_what_is_kept_goes_where_memory_runs_out():
    square(4).destroy()
    assert kept() > 0
    free_pools()
    assert kept() == 0


def test_nothing_is_left_when_petsc_ends(place):  # noqa: F811
    if place != "simulated":
        pytest.skip("counts memory of the host")
    finished = launch.run([sys.executable, "-c", PROGRAM])
    assert finished.status == 0 and "kept True" in finished.output, finished
    assert "PetscMalloc" not in finished.output and "[ 0]" not in finished.output, finished
