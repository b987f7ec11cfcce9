"""What the library gives, as arrays and patterns on a backend; requests name them by addresses."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from petsc_gpufmt.backends.backend import Backend, CudaBackend, HostBackend
from petsc_gpufmt.backends.device_memory import on_devices
from petsc_gpufmt.patterns.csr import CsrPattern, validated_patterns
from petsc_gpufmt.planning import abi
from petsc_gpufmt.planning.held_patterns import held_arrays, held_pattern, know

SCALARS: dict[bool, dict[int, np.dtype]] = {
    False: {4: np.dtype(np.float32), 8: np.dtype(np.float64)},
    True: {8: np.dtype(np.complex64), 16: np.dtype(np.complex128)},
}
INDICES: dict[int, np.dtype] = {4: np.dtype(np.int32), 8: np.dtype(np.int64)}


def types_at(place: Any) -> tuple[np.dtype, np.dtype]:
    """The dtypes of scalars and of indices at a place."""
    return SCALARS[bool(place.is_complex)][place.scalar_bytes], INDICES[place.index_bytes]


@functools.cache
def cuda_backend(scalar: np.dtype, index: np.dtype, device: int) -> CudaBackend:
    """Made once: its pinned memory and the like take as long as a few launches."""
    return CudaBackend(scalar, index, device)


@contextlib.contextmanager
def backend_at(place: Any) -> Iterator[Backend]:
    """The backend of a place, on PETSc's device and stream."""
    scalar, index = types_at(place)
    if abi.BACKENDS[place.backend] == "host":
        yield HostBackend(scalar, index)
        return
    with on_devices, cuda_backend(scalar, index, place.device).on(place.stream or 0) as backend:
        yield backend


def host_view(pointer: int | None, size: int, dtype: np.dtype) -> np.ndarray:
    """(size,) NumPy array over memory of the caller; zeros if the pointer is null."""
    if not size or not pointer:
        return np.zeros(size, dtype=dtype)
    memory: Any = (ctypes.c_char * (size * dtype.itemsize)).from_address(pointer)
    return np.frombuffer(memory, dtype=dtype)


def on_backend(pointer: int | None, size: int, dtype: np.dtype, backend: Backend) -> Any:
    """(size,) array over memory on the backend, such as that of an answer that is held."""
    return (backend.view if isinstance(backend, CudaBackend) else host_view)(pointer, size, dtype)


def indices(pointer: int | None, size: int, backend: Backend, *, keep: bool = True) -> Any:
    """(size,) array of indices that are on the host, brought to the backend; `keep`: while the caller's may go."""
    return backend.adopt(host_view(pointer, size, backend.index), keep=keep)


def pattern_of(matrix: Any, backend: Backend, *, keep_columns: bool = True, **blocks: int) -> CsrPattern:
    """What is given as the pattern of a matrix, on the backend.

    Its arrays are those that an answer or a plan has, or copies, of columns only if they are kept.
    """
    held = held_pattern(matrix.held, **blocks)
    if held is not None:
        return held
    rowptr, colidx = held_arrays(matrix.held)
    if rowptr is None:
        rowptr = indices(matrix.rowptr, matrix.nrows + 1, backend)
    if colidx is None:
        colidx = indices(matrix.colidx, matrix.nnz, backend, keep=keep_columns)
    pattern = CsrPattern(matrix.nrows, matrix.ncols, rowptr, colidx, **blocks)
    on_host = backend.name == "host"
    know(matrix.held, replace(pattern, colidx=None) if on_host and not keep_columns else pattern)
    return pattern


def operand_patterns(request: Any, backend: Backend) -> list[CsrPattern]:
    """The patterns of the operands of a product; a matrix that comes twice is brought to the backend once."""
    operands = {_identity(o): o for o in request.operands[: request.noperands]}
    patterns = validated_patterns([pattern_of(o, backend) for o in operands.values()], backend)
    known = dict(zip(operands, patterns, strict=True))
    return [known[_identity(o)] for o in request.operands[: request.noperands]]


def _identity(operand: Any) -> tuple:
    return operand.rowptr, operand.colidx, operand.nrows, operand.ncols, operand.nnz
