"""What is stored for one matrix is not taken for that of another, when PETSc moves the data or changes the type."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from answers import settled_tokens
from bounds import rounding
from builders import shape
from petsc4py import PETSc
from petsc_products import petsc_matrix

from petsc_gpufmt.backends import native_library


def row_sums(A):
    x, z = A.createVecs()
    x.set(1.0)
    A.mult(x, z)
    return z.getArray().copy()


@pytest.mark.real
@pytest.mark.parametrize("function", ["MatHeaderMerge", "MatHeaderReplace"])
def test_data_that_move_to_a_matrix_of_the_same_state_are_stored_anew(function):
    library, A, moved = native_library.load(), petsc_matrix(shape("power_law")), ctypes.c_void_p()
    handle = ctypes.c_void_p(A.handle)
    expected = 3.0 * row_sums(A)
    assert library.MatDuplicate(handle, PETSc.Mat.DuplicateOption.COPY_VALUES, ctypes.byref(moved)) == 0
    x, z = A.createVecs()
    assert library.MatMult(moved, ctypes.c_void_p(x.handle), ctypes.c_void_p(z.handle)) == 0
    state = ctypes.c_int64()
    assert library.PetscObjectStateGet(moved, ctypes.byref(state)) == 0
    A.stateSet(state.value - 1)  # PETSc raises it once: then it is that of the product
    assert library.MatScale(moved, np.ctypeslib.as_ctypes_type(PETSc.ScalarType)(3.0)) == 0
    assert getattr(library, function)(handle, ctypes.byref(moved)) == 0
    assert row_sums(A) == pytest.approx(expected, rel=rounding(1e-6))


def test_a_type_of_ours_that_replaces_another_leaves_nothing_of_it():
    """As under -mat_seqaij_type seqaijpjds -mat_type bsr, where PETSc makes the one type on the way to the other."""
    before = settled_tokens()
    A = petsc_matrix(shape("power_law"))
    expected = row_sums(A)
    assert native_library.load().MatSeqAIJSetType(ctypes.c_void_p(A.handle), b"seqaijbsr") == 0
    assert A.getType() == "seqaijbsr"
    assert settled_tokens() == before
    assert row_sums(A) == pytest.approx(expected, rel=rounding(1e-6))
    A.destroy()
    assert settled_tokens() == before
