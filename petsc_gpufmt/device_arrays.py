"""Entries of vectors and values of matrices as arrays of CuPy, in the memory that PETSc has them in.

On the host they are arrays of NumPy, so a program that takes its functions from `array_module` runs in both places:

    with vector_array(x, "r") as u, vector_array(f, "w") as result:
        result[...] = array_module(u).exp(u)

Each function is a context manager. Inside of it PETSc's stream is CuPy's current one: what is computed there comes
after what PETSc has queued, and before what PETSc queues next, and nobody waits. Large arrays that CuPy makes there
take memory that plans do not use now, and leave it to them, unless CuPy has another allocator than its own. Afterwards
the object counts as changed, unless it was read, and the array must not be used any more.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.backends.cupy_state import borrowed_stream
from petsc_gpufmt.backends.device_memory import Allocation, free_pools, memory_of, on_devices
from petsc_gpufmt.errors import GpufmtError, UnsupportedError

MODES = {"r": 0, "w": 1, "rw": 2}  # of native/matrix/arrays.c
LARGE = 1 << 20  # bytes of an array for which memory is not to be kept twice; CuPy takes small pieces faster


class Access(ctypes.Structure):
    """What native/matrix/arrays.c says of an access: where up to two arrays are, and what it needs to end it."""

    _fields_ = (
        ("arrays", ctypes.c_void_p * 2),
        ("counts", ctypes.c_int64 * 2),
        ("on_device", ctypes.c_int64),
        ("device", ctypes.c_int64),
        ("stream", ctypes.c_void_p),
        ("held", ctypes.c_void_p),
    )


class BlockValues(NamedTuple):
    """Values of a matrix, by blocks; of a sequential matrix the first has all, and the second is empty."""

    diagonal: Any
    offdiagonal: Any


def array_module(array: Any) -> Any:
    """CuPy for its arrays, NumPy for others."""
    if isinstance(array, np.ndarray):
        return np
    return _cupy()


@contextlib.contextmanager
def vector_array(vector: Any, mode: str = "rw") -> Iterator[Any]:
    """The entries of a vector that this rank has, without a copy. Not collective.

    Parameters
    ----------
    vector : petsc4py.PETSc.Vec of any type
        Its entries are on the device if that is a CUDA type that is not bound to the CPU.
    mode : "r", "w" or "rw"
        Read, written (all of them: what is there before is undefined), or both. On the host an array to be read refuses
        to be written; CuPy has no such arrays.

    Yields a (n,) array of PETSc.ScalarType. Raises TypeError for what is no vector, ValueError for another mode, and
    GpufmtError for a vector that is being written, or read in order to be written: by another access, or by a solver.
    """
    with _access("Vec", vector, mode) as arrays:
        yield arrays[0]


@contextlib.contextmanager
def matrix_values(matrix: Any, mode: str = "rw") -> Iterator[BlockValues]:
    """The CSR values of a matrix on this rank, without a copy. Not collective; the pattern stays as it is.

    Values are on the device if there is one and the matrix is not bound to the CPU. Those that are on the host alone
    are sent there first; once written on the device they stay there, and products take them from there.

    Parameters
    ----------
    matrix : petsc4py.PETSc.Mat of a type of this package, assembled
    mode : "r", "w" or "rw"
        As of `vector_array`.

    Yields the values of the diagonal and of the off-diagonal block, as (nnz,) arrays of PETSc.ScalarType by row, and
    within it by column: the order of ``matrix.getDiagonalBlock().getRowIJ()``. Raises as `vector_array`, and
    GpufmtError for a matrix of another type or one that is not assembled.
    """
    with _access("Mat", matrix, mode) as blocks:
        yield BlockValues(*blocks)


@contextlib.contextmanager
def diagonal(matrix: Any, mode: str = "r") -> Iterator[Any]:
    """The diagonal entries of a matrix on this rank: a copy, which becomes the diagonal if it is written. Collective.

    Parameters
    ----------
    matrix : petsc4py.PETSc.Mat, assembled
        Matrices of this package have the copy where their vectors are, on the device if there is one.
    mode : "r", "w" or "rw"
        As of `vector_array`. A diagonal entry that is lacking reads as zero, and is inserted when it is written, as by
        ``matrix.setDiagonal``. After an exception inside, the matrix is as before.

    Yields a (n,) array of PETSc.ScalarType, n the rows of this rank. Raises as `vector_array`, and GpufmtError for a
    matrix that is not assembled, or being written as `matrix_values`.
    """
    _number(mode)
    handle = _handle("Mat", matrix).value or 0
    if not matrix.isAssembled():
        raise GpufmtError("the matrix is not assembled: call its method assemble(), or set_values_coo(), first")
    _refuse_nested("Mat", _open.get(handle, []), mode)
    entries = matrix.createVecLeft()
    try:
        if mode != "w":
            matrix.getDiagonal(entries)
        with vector_array(entries, mode) as array:
            yield array
        if mode != "r":
            matrix.setDiagonal(entries)
    finally:
        entries.destroy()


_open: dict[int, list[str]] = {}  # modes of the accesses to an object, by its handle


@contextlib.contextmanager
def _access(kind: str, given: Any, mode: str) -> Iterator[list[Any]]:
    number, handle, access = _number(mode), _handle(kind, given), Access()
    key = handle.value or 0
    _refuse_nested(kind, _open.get(key, []), mode)
    native_library.call(f"Gpufmt{kind}AccessBegin", handle, ctypes.c_int(number), ctypes.byref(access))
    _open.setdefault(key, []).append(mode)
    try:
        with contextlib.ExitStack() as scope:
            yield _arrays(access, mode == "r", given, scope)
    finally:
        _open[key].remove(mode)
        if not _open[key]:
            del _open[key]
        native_library.call(f"Gpufmt{kind}AccessEnd", handle, ctypes.c_int(number), ctypes.byref(access))


def _refuse_nested(kind: str, outer: list[str], mode: str) -> None:
    if outer and {mode, *outer} != {"r"}:
        what = {"Vec": "vector", "Mat": "matrix"}[kind]
        raise GpufmtError(
            f'an access "{mode}" to a {what} inside of an access "{outer[-1]}" to the same {what}: '
            "end the outer one first, as only reading may be nested"
        )


def _number(mode: str) -> int:
    if mode not in MODES:
        raise ValueError(f'the mode is {mode!r}, and it must be "r", "w" or "rw"')
    return MODES[mode]


def _handle(kind: str, given: Any) -> ctypes.c_void_p:
    from petsc4py import PETSc

    if not isinstance(given, getattr(PETSc, kind)):
        raise TypeError(f"a petsc4py.PETSc.{kind} is needed here, and this is a {type(given).__name__}")
    if not given.handle:
        raise ValueError(f"this PETSc.{kind} was not created yet, or is destroyed")
    return ctypes.c_void_p(given.handle)


class _Memory:
    """Describes an array in the memory of a PETSc object, which it keeps."""

    def __init__(self, owner: Any, pointer: int, count: int, dtype: np.dtype, on_device: bool, readonly: bool):
        self.owner = owner
        described = {"shape": (count,), "typestr": dtype.str, "data": (pointer, readonly), "version": 3}
        if on_device:
            # no stream: PETSc's is current, so nothing need be waited for
            self.__cuda_array_interface__ = {**described, "data": (pointer, False), "stream": None}
        else:
            self.__array_interface__ = described


def _arrays(access: Access, readonly: bool, owner: Any, scope: contextlib.ExitStack) -> list[Any]:
    """Both arrays; on a device, that, the stream and the allocator are CuPy's current ones until the end of `scope`."""
    scalar, _ = native_library.petsc_types()
    on_device = bool(access.on_device)
    module = _cupy() if on_device else np
    if on_device:
        scope.enter_context(module.cuda.Device(access.device))
        scope.enter_context(borrowed_stream(module.cuda, access.stream or 0, access.device))
        allocate = _allocator(module, access.device, access.stream or 0)
        scope.enter_context(module.cuda.using_allocator(allocate))
    return [
        module.asarray(_Memory(owner, pointer, count, scalar, on_device, readonly))
        if count
        else module.empty(0, scalar)
        for pointer, count in zip(access.arrays, access.counts, strict=True)
    ]


def _allocator(cupy: Any, device: int, stream: int) -> Callable[[int], Any]:
    """Memory for arrays of CuPy, large ones from where plans take theirs. Who has set another allocator keeps it."""
    default, current = cupy.get_default_memory_pool().malloc, cupy.cuda.get_allocator()
    if current != default:
        return current

    def allocate(nbytes: int) -> Any:
        if nbytes < LARGE:
            return default(nbytes)
        taken = _taken(nbytes, device, stream)
        return cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(taken.address, nbytes, taken, device), 0)

    return allocate


def _taken(nbytes: int, device: int, stream: int) -> Allocation:
    with on_devices:
        memory = memory_of(device)
        with contextlib.suppress(MemoryError):
            return memory.allocate(nbytes, stream)
        free_pools()
        try:
            return memory.allocate(nbytes, stream)
        except MemoryError as e:
            raise MemoryError(
                f"an array of {nbytes} bytes was asked for, and device {device} has no room for it ({e}): "
                "use more ranks and GPUs"
            ) from e


def _cupy() -> Any:
    try:
        import cupy
    except ImportError as e:
        raise UnsupportedError(
            f"an array on the GPU needs CuPy, and importing it failed ({e}): pip install petsc_gpufmt[cuda13] "
            "(or [cuda12]), or stay on the host with -device_enable none"
        ) from e
    return cupy
