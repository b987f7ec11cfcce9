"""Matrices from coordinates in arrays that petsc4py does not take: those of a device."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np

from petsc_gpufmt.backends import native_library

INSERT_VALUES, ADD_VALUES = 1, 2  # petsc4py.PETSc.InsertMode


def set_preallocation_coo(matrix: Any, rows: Any, columns: Any) -> None:
    """As ``matrix.setPreallocationCOO((rows, columns))``, also with coordinates on the device. Collective.

    Parameters
    ----------
    matrix : petsc4py.PETSc.Mat of a type of this package
    rows, columns : (n,) arrays of PETSc.IntType
        Global numbers, of NumPy or of a device (anything with ``__cuda_array_interface__``), both alike. They stay as
        they are. An entry with a negative row or column is left out, repeated ones are one entry of the matrix.

    Raises TypeError for indices of another type, ValueError for arrays that are not contiguous, not one-dimensional or
    not alike, and GpufmtError for what does not suit the matrix or fails.
    """
    _, index = native_library.petsc_types()
    given = [_array(a, index, "indices") for a in (rows, columns)]
    if given[0].size != given[1].size or given[0].on_device != given[1].on_device:
        raise ValueError("rows and columns must be as many, and both on the host or both on the device")
    if not given[0].on_device:
        given = [_array(np.array(a), index, "indices") for a in (rows, columns)]  # PETSc changes them
    native_library.call(
        "GpufmtSetPreallocationCOO",
        *(ctypes.c_void_p(matrix.handle), *(ctypes.c_void_p(a.pointer) for a in given), ctypes.c_int64(given[0].size)),
        *(ctypes.c_int(given[0].on_device), *(ctypes.c_void_p(a.stream) for a in given)),
    )


def set_values_coo(matrix: Any, values: Any, addv: bool | int | None = None) -> None:
    """As ``matrix.setValuesCOO(values, addv)``, also with values on the device. Collective.

    Parameters
    ----------
    matrix : petsc4py.PETSc.Mat
        Of a type of this package, after ``setPreallocationCOO`` or `set_preallocation_coo`.
    values : (n,) array of PETSc.ScalarType
        For the n coordinates that this rank gave, in their order: a NumPy array, or one of a device, such as CuPy's
        (anything with ``__cuda_array_interface__``). It may be changed after the call.
    addv : bool, PETSc.InsertMode.INSERT_VALUES, PETSc.InsertMode.ADD_VALUES or None
        Whether they are added to the values that the matrix has. Those of repeated coordinates are added up either way.

    Raises TypeError for values of another type, ValueError for an array that is not contiguous or not one-dimensional
    or another `addv`, and GpufmtError, on all ranks, for what does not suit the matrix or fails.
    """
    add = _adds(addv)
    scalar, _ = native_library.petsc_types()
    given = _array(values, scalar, "values")
    native_library.call(
        "GpufmtSetValuesCOO",
        *(ctypes.c_void_p(matrix.handle), ctypes.c_void_p(given.pointer), ctypes.c_int64(given.size)),
        *(ctypes.c_int(add), ctypes.c_int(given.on_device), ctypes.c_void_p(given.stream)),
    )


class _Given(NamedTuple):
    """An array of the caller, which is kept; `stream`: on which it may still be computed, 0: none."""

    array: Any
    pointer: int
    size: int
    on_device: bool
    stream: int


def _array(array: Any, dtype: np.dtype, what: str) -> _Given:
    on_device = hasattr(array, "__cuda_array_interface__")
    if not on_device:
        array = np.asarray(array)
        shape, given, contiguous = array.shape, array.dtype, array.flags.c_contiguous
    else:
        interface = array.__cuda_array_interface__
        shape, given, strides = interface["shape"], np.dtype(interface["typestr"]), interface.get("strides")
        contiguous = strides is None or strides == (given.itemsize,) or 0 in shape
    if given != dtype:
        raise TypeError(f"{what} are of type {given}, and PETSc's are {dtype}")
    if len(shape) != 1 or not contiguous:
        raise ValueError(f"{what} of shape {shape} must be one contiguous row of numbers")
    if not on_device:
        return _Given(array, array.ctypes.data, array.size, False, 0)
    return _Given(array, interface["data"][0], shape[0], True, interface.get("stream") or 0)


def _adds(addv: bool | int | None) -> bool:
    if addv is None or isinstance(addv, (bool, np.bool_)):
        return bool(addv)
    if addv not in (INSERT_VALUES, ADD_VALUES):
        raise ValueError(f"addv is {addv!r}, and it must be a truth value, INSERT_VALUES or ADD_VALUES")
    return addv == ADD_VALUES
