"""Values of matrices from arrays that petsc4py does not take: those of a device."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.errors import GpufmtError

INSERT_VALUES, ADD_VALUES = 1, 2  # petsc4py.PETSc.InsertMode
MESSAGE_LENGTH = 1024  # GPUFMT_MESSAGE_LENGTH in native/runtime/runtime.h


def set_values_coo(matrix: Any, values: Any, addv: bool | int | None = None) -> None:
    """As ``matrix.setValuesCOO(values, addv)``, also with values on the device. Collective.

    Parameters
    ----------
    matrix : petsc4py.PETSc.Mat
        Of a type of this package, after ``setPreallocationCOO``.
    values : (n,) array of PETSc.ScalarType
        For the n coordinates that this rank gave, in their order: a NumPy array, or one of a device, such as CuPy's
        (anything with ``__cuda_array_interface__``). It may be changed after the call.
    addv : bool, PETSc.InsertMode.INSERT_VALUES, PETSc.InsertMode.ADD_VALUES or None
        Whether they are added to the values that the matrix has. Those of repeated coordinates are added up either way.

    Raises TypeError for values of another type, ValueError for an array that is not contiguous or not one-dimensional
    or another `addv`, and GpufmtError, on all ranks, for what does not suit the matrix or fails.
    """
    add = _adds(addv)
    pointer, count, stream = _on_device(values) if hasattr(values, "__cuda_array_interface__") else _on_host(values)
    message = ctypes.create_string_buffer(MESSAGE_LENGTH)
    code = native_library.load().GpufmtSetValuesCOO(
        *(ctypes.c_void_p(matrix.handle), ctypes.c_void_p(pointer), ctypes.c_int64(count)),
        *(ctypes.c_int(add), ctypes.c_int(stream is not None), ctypes.c_void_p(stream), message),
    )
    if code:
        raise GpufmtError(f"PETSc error {code}: {message.value.decode(errors='replace')}")


def _adds(addv: bool | int | None) -> bool:
    if addv is None or isinstance(addv, (bool, np.bool_)):
        return bool(addv)
    if addv not in (INSERT_VALUES, ADD_VALUES):
        raise ValueError(f"addv is {addv!r}, and it must be a truth value, INSERT_VALUES or ADD_VALUES")
    return addv == ADD_VALUES


def _check(shape: tuple[int, ...], dtype: np.dtype, contiguous: bool) -> None:
    scalar, _ = native_library.petsc_types()
    if dtype != scalar:
        raise TypeError(f"values are of type {dtype}, and PETSc's scalars are {scalar}")
    if len(shape) != 1 or not contiguous:
        raise ValueError(f"values of shape {shape} must be one contiguous row of numbers")


def _on_host(values: Any) -> tuple[int, int, None]:
    array = np.asarray(values)
    _check(array.shape, array.dtype, array.flags.c_contiguous)
    return array.ctypes.data, array.size, None


def _on_device(values: Any) -> tuple[int, int, int]:
    """Address, number, and the stream on which they may still be computed, 0: none."""
    interface = values.__cuda_array_interface__
    shape, dtype, strides = interface["shape"], np.dtype(interface["typestr"]), interface.get("strides")
    _check(shape, dtype, strides is None or strides == (dtype.itemsize,) or 0 in shape)
    return interface["data"][0], shape[0], interface.get("stream") or 0
