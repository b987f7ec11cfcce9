"""MatZeroRows and MatZeroRowsColumns of matrices with managed arrays: done there, and as on type aij."""

from __future__ import annotations

import numpy as np
import pytest
from bounds import rounding
from petsc4py import PETSc
from petsc_products import multiply
from test_managed import diagonally_dominant, managed_matrices, ordinary, place, product  # noqa: F401
from test_managed_scale_and_add import check, empty, plans, product_with_vector, vector

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.backends.plan import Product

KEEP = PETSc.Mat.Option.KEEP_NONZERO_PATTERN
OUT_OF_RANGE, WRONG_STATE, WRONG_SIZE = 63, 73, 60
ROWS = [5, 17, 5, 0, 63]  # one of them twice
METHODS = ("zeroRows", "zeroRowsColumns")
EVERY_METHOD = pytest.mark.parametrize("method", METHODS)


def kept(*matrices):
    for A in matrices:
        A.setOption(KEEP, True)
    return matrices


def vectors(A):
    """x and b, twice with the same entries."""
    return [(vector(A.size[1], 1), vector(A.size[0], 2)) for _ in range(2)]


@EVERY_METHOD
@pytest.mark.parametrize("with_vectors", [False, True])
@pytest.mark.parametrize("diagonal", [0.0, -2.5])
def test_rows_become_zeros_where_they_are(method, with_vectors, diagonal):
    C = diagonally_dominant()[1]
    C, same = kept(C, ordinary(C))
    before = plans()
    for rows in (ROWS, ROWS[:2], []):
        ours, petscs = vectors(C) if with_vectors else [(None, None)] * 2
        state = C.stateGet()
        getattr(C, method)(rows, diagonal, *ours)
        getattr(same, method)(rows, diagonal, *petscs)
        assert C.stateGet() > state and managed_matrices() == 1
        check(C, same)
        if with_vectors:
            np.testing.assert_allclose(
                ours[1].getArray(), petscs[1].getArray(), rtol=rounding(1e-13), atol=rounding(1e-13)
            )
        np.testing.assert_allclose(
            product_with_vector(C), product_with_vector(same), rtol=rounding(1e-12), atol=rounding(1e-12)
        )
    assert plans() - before == 2  # zeros, and what is multiplied


def test_columns_become_zeros_whether_or_not_the_pattern_is_kept():
    C = diagonally_dominant()[1]
    same = ordinary(C)
    for A in (C, same):
        A.zeroRowsColumns(ROWS, 1.0)
    check(C, same)
    assert managed_matrices() == 1


def test_entries_that_go_are_taken_away_by_petsc(capfd):
    """The pattern is another one, the products after it are right, and -info says why."""
    C = diagonally_dominant()[1]
    same, library = ordinary(C), native_library.load()
    capfd.readouterr()
    library.PetscInfoSetFile(None, b"w")  # standard output
    library.PetscInfoAllow(1)
    C.zeroRows(ROWS, 3.0)
    library.PetscInfoAllow(0)
    assert "with MAT_KEEP_NONZERO_PATTERN they would become zeros where they are" in capfd.readouterr().out
    same.zeroRows(ROWS, 3.0)
    check(C, same)
    assert managed_matrices() == 0
    np.testing.assert_allclose(product_with_vector(C), product_with_vector(same), rtol=rounding(1e-12))


def test_rows_of_a_rectangle():
    C = product(Product.AB, longest=20)[2]
    C, same = kept(C, ordinary(C))
    ours, petscs = vectors(C)
    for A, (x, b) in ((C, ours), (same, petscs)):
        A.zeroRows(range(0, C.size[0], 3), 0.0, x, b)
    check(C, same)
    np.testing.assert_array_equal(ours[1].getArray(), petscs[1].getArray())
    assert managed_matrices() == 1


def test_columns_of_a_rectangle_are_petscs():
    C = product(Product.AB, longest=20)[2]
    same = ordinary(C)
    for A in (C, same):
        A.zeroRowsColumns([1, 4], 0.0)
    check(C, same)
    assert managed_matrices() == 0


def lacking():
    """A result that lacks diagonal entries, the same of type aij, a row without one, and a row with one."""
    C = product(Product.PTAP, longest=2)[2]
    rowptr, colidx, _ = C.getValuesCSR()
    rows = np.repeat(np.arange(C.size[0]), np.diff(rowptr))
    full = np.unique(rows[rows == colidx])
    without = np.setdiff1d(np.unique(rows), full)
    assert full.size and without.size
    return C, ordinary(C), int(without[0]), int(full[0])


def test_a_diagonal_entry_that_is_missing_is_an_error_and_nothing_changes():
    C, same, without, full = lacking()
    kept(C, same)
    values = C.getValuesCSR()[2].copy()
    for A in (C, same):
        with pytest.raises(PETSc.Error) as failure:
            A.zeroRows([full, without], 1.0)
        assert failure.value.ierr == WRONG_STATE
        assert A is same or f"missing diagonal entry in the zeroed row {without}" in str(failure.value)
    np.testing.assert_array_equal(C.getValuesCSR()[2], values)
    assert managed_matrices() == 1


def test_zeros_on_the_diagonal_and_rows_that_have_theirs_need_no_other():
    C, same, without, full = lacking()
    kept(C, same)
    for A in (C, same):
        A.zeroRows([full], 2.0)
        A.zeroRows([without], 0.0)
        A.zeroRowsColumns([without], 0.0)
    check(C, same)
    assert managed_matrices() == 1


def test_petsc_inserts_a_diagonal_entry_that_is_missing_in_a_column():
    C, same, without, _ = lacking()
    same.setOption(PETSc.Mat.Option.NEW_NONZERO_ALLOCATION_ERR, False)
    for A in (C, same):
        A.zeroRowsColumns([without], 2.0)
    check(C, same)
    assert managed_matrices() == 0


@EVERY_METHOD
@pytest.mark.parametrize("row", [-1, 64])
def test_a_row_outside_is_an_error(method, row):
    C = diagonally_dominant()[1]
    kept(C)
    values = C.getValuesCSR()[2].copy()
    with pytest.raises(PETSc.Error) as failure:
        getattr(C, method)([3, row], 1.0)
    assert failure.value.ierr == OUT_OF_RANGE and f"Row {row} is to become zeros" in str(failure.value)
    np.testing.assert_array_equal(C.getValuesCSR()[2], values)


@EVERY_METHOD
def test_vectors_of_another_length_are_an_error(method):
    C = diagonally_dominant()[1]
    kept(C)
    for x, b in ((vector(63, 1), vector(64, 1)), (vector(64, 1), vector(65, 1))):
        with pytest.raises(PETSc.Error) as failure:
            getattr(C, method)([3], 1.0, x, b)
        assert failure.value.ierr == WRONG_SIZE


@pytest.mark.parametrize(("n", "m"), [(0, 0), (0, 7), (7, 0), (1, 1)])
def test_small_and_empty_matrices(n, m):
    C = empty(n, m)
    C, same = kept(C, ordinary(C))
    for method in METHODS:
        for A in (C, same):
            getattr(A, method)(range(A.size[0]), 0.0, vector(A.size[1], 1), vector(A.size[0], 1))
    check(C, same)


def test_options_of_a_copy_and_of_arrays_that_came_back():
    """What keeps the pattern is remembered where PETSc's data goes."""
    matrices, C = diagonally_dominant()
    kept(C)
    copy = C.duplicate(copy=True)
    C.setOption(PETSc.Mat.Option.NEW_NONZERO_ALLOCATION_ERR, False)  # it has ordinary arrays from here on
    multiply(Product.AB, matrices, result=C)
    for A in (C, copy):
        nonzeros = A.getInfo()["nz_used"]
        A.zeroRows(ROWS, 3.0)
        assert A.getInfo()["nz_used"] == nonzeros
