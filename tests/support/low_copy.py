"""The library's copy of a matrix in single precision, on the host: made, and multiplied with."""

import ctypes

import numpy as np

from petsc_gpufmt.backends import native_library

LIBRARY = native_library.load()
HOST = 0
EPS = np.finfo(np.float32).eps


def update(A):
    """The error code of the library, and the local part of S, or None where the copy is that of A itself."""
    scaling, array = ctypes.c_void_p(), ctypes.c_void_p()
    error = LIBRARY.GpufmtLowUpdate(ctypes.c_void_p(A.handle), HOST, ctypes.byref(scaling))
    if error or not scaling:
        return error, None
    assert LIBRARY.VecGetArrayRead(scaling, ctypes.byref(array)) == 0
    memory = (ctypes.c_double * A.getLocalSize()[0]).from_address(array.value or 8)  # none of which is read if empty
    factors = np.array(memory, dtype=np.float64)
    assert LIBRARY.VecRestoreArrayRead(scaling, ctypes.byref(array)) == 0
    return error, factors


def mult(A, x):
    """The error code, and the local part of the product, written over NaN, with the local part of x."""
    x, z = np.ascontiguousarray(x, np.float32), np.full(A.getLocalSize()[0], np.nan, np.float32)
    arguments = (ctypes.c_void_p(a.ctypes.data) for a in (x, z))
    return LIBRARY.GpufmtLowMult(ctypes.c_void_p(A.handle), HOST, *arguments), z


def check(z, matrix, x, what=""):
    """AssertionError unless z is the product of these dense rows, in double, with x, to within rounding in single."""
    bound = (np.count_nonzero(matrix, axis=1) + 2) * EPS * (np.abs(matrix) @ np.abs(x))
    wrong = np.flatnonzero(~(np.abs(z - matrix @ x) <= bound))
    assert not wrong.size, f"{what}: rows {wrong[:10]}: {z[wrong[:10]]} is not {(matrix @ x)[wrong[:10]]}"
