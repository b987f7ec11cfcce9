"""The native library: where it is, and what Python calls in it."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from petsc_gpufmt.backends.plan import address
from petsc_gpufmt.errors import GpufmtError, LibraryError, UnsupportedError

MESSAGE_LENGTH = 1024  # GPUFMT_MESSAGE_LENGTH in native/runtime/runtime.h
REINSTALL = "pip install --no-build-isolation --no-cache-dir --force-reinstall --no-deps"
SYMBOL_OF_HOST_KERNEL = "gpufmt_host_{kernel}"
SYMBOL_IN_SINGLE = "gpufmt_host_single_{kernel}"
"""Of those that are there for values in single precision as well, where PETSc's are in double."""


def library_path() -> Path:
    """Absolute path of libpetscgpufmt.so, for ``-dll_append`` and for linking."""
    return Path(__file__).resolve().parents[1] / "native" / "libpetscgpufmt.so"


@functools.cache
def load() -> ctypes.PyDLL:
    """The library, loaded once a process; LibraryError if it is not there or does not load.

    PETSc is for one thread at a time: Python does not go on with another one in a call, as in those of petsc4py.
    """
    path = library_path()
    if not path.exists():
        tree = Path(__file__).resolve().parents[2]
        if (tree / "setup.py").exists():
            raise LibraryError(
                f"{path} is missing: the source tree {tree} shadows a petsc_gpufmt that is installed, "
                "so start in another folder (or compile the library in the tree with `make setup`)"
            )
        raise LibraryError(f"{path} is missing: install again with `pip install --no-build-isolation .`")
    try:
        return ctypes.PyDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    except OSError as e:
        raise LibraryError(
            f"{path} does not load ({e}): rebuild it against the PETSc that petsc4py uses, by {REINSTALL}"
        ) from e


@functools.cache
def without_lock() -> ctypes.CDLL:
    """The library, for calls that wait and do not touch PETSc: Python goes on with another thread meanwhile."""
    load()
    return ctypes.CDLL(str(library_path()))


def call(name: str, *arguments: Any) -> None:
    """Call a function of the library that takes ctypes' `arguments`, and then a place for the message of an error.

    Raises GpufmtError with that message, and PETSc's number for it.
    """
    message = ctypes.create_string_buffer(MESSAGE_LENGTH)
    code = getattr(load(), name)(*arguments, message)
    if code:
        raise GpufmtError(f"PETSc error {code}: {message.value.decode(errors='replace')}")


def host_function(kernel: str, scalar: np.dtype, index: np.dtype) -> int:
    """Address of the host counterpart of a kernel. UnsupportedError unless it was compiled for these dtypes."""
    built = petsc_types()
    symbols = {np.dtype(np.float32): SYMBOL_IN_SINGLE, built[0]: SYMBOL_OF_HOST_KERNEL}
    known = scalar in symbols and index == built[1]
    function = getattr(load(), symbols[scalar].format(kernel=kernel), None) if known else None
    if function is None:
        raise UnsupportedError(
            f"the host kernel {kernel} was asked for with {scalar} values and {index} indices: the library has all "
            f"for {built[0]} and {built[1]}, and for float32 those of storage formats and of inner methods"
        )
    return ctypes.cast(function, ctypes.c_void_p).value or 0


@functools.cache
def launch_all() -> Callable[..., int]:
    """What queues launches by a function of the driver, as `driver.Launches` says."""
    function = load().GpufmtLaunchAll
    function.argtypes = ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
    return function


def upload(dev_array: Any, host_array: np.ndarray, stream: int) -> None:
    """Copy a contiguous host array to the device, counted in PETSc's log; returns when `host_array` may change."""
    dev, host, handle = (ctypes.c_void_p(p) for p in (address(dev_array), host_array.ctypes.data, stream))
    code = load().GpufmtUpload(dev, host, ctypes.c_size_t(host_array.nbytes), handle)
    if code:
        raise GpufmtError(f"PETSc error {code} in an upload of {host_array.nbytes} bytes: its message is above")


def trim() -> None:
    """Give memory that the library keeps for later back to the device."""
    load().GpufmtTrim()


@contextlib.contextmanager
def logged_compilation() -> Iterator[None]:
    """What waits for a compiler in a ``with`` statement is the event GpufmtCompile in PETSc's log."""
    load().GpufmtLogCompile(1)
    try:
        yield
    finally:
        load().GpufmtLogCompile(0)


def petsc_types() -> tuple[np.dtype, np.dtype]:
    """(scalar, index) dtypes of the PETSc that the library was built for."""
    library = load()
    kind = "c" if library.gpufmt_host_scalar_is_complex() else "f"
    scalar = f"{kind}{library.gpufmt_host_scalar_bytes()}"
    index = {4: np.int32, 8: np.int64}[library.gpufmt_host_index_bytes()]
    return np.dtype(scalar), np.dtype(index)


def real_types() -> tuple[np.dtype, np.dtype]:
    """`petsc_types` for what is for real numbers alone; UnsupportedError where PETSc's scalars are complex."""
    types = petsc_types()
    if types[0].kind == "c":
        raise UnsupportedError(
            "measurements and predictions are of real numbers, and this PETSc has complex scalars: "
            "take them with a PETSc that was configured without --with-scalar-type=complex"
        )
    return types


@functools.cache
def _function(name: str, result: Any, *arguments: Any) -> Any:
    """A function of the library with its types, called without Python's lock."""
    function = getattr(without_lock(), name)
    function.restype, function.argtypes = result, arguments
    return function


def module_file(path: str, file_format: str, folder: str) -> bytes | None:
    """A file of compiled kernels without its first line; None if it is not what was written into that folder.

    `folder` is its name, the key of the digest.
    """
    text, nbytes = ctypes.c_char_p, ctypes.c_size_t()
    read = _function("GpufmtModuleFileRead", ctypes.c_void_p, text, text, text, ctypes.c_void_p)
    contents = read(os.fsencode(path), file_format.encode(), folder.encode(), ctypes.addressof(nbytes))
    if not contents:
        return None
    try:
        return ctypes.string_at(contents, nbytes.value)
    finally:
        _function("GpufmtModuleFileFree", None, ctypes.c_void_p)(contents)


def name_kernels(path: str, file_format: str, folder: str) -> None:
    """Name a file, as for `module_file`, whose kernels the library is to load beside the application."""
    text = ctypes.c_char_p
    name = _function("GpufmtKernelsName", None, text, text, text)
    name(os.fsencode(path), file_format.encode(), folder.encode())


def take_kernels(path: str) -> tuple[int, bytes] | None:
    """The handle of a module that the library has loaded from a file, and its lines of names and symbols.

    It may be waited for. None if the caller is to load it; then the library does not.
    """
    module = ctypes.c_void_p()
    take = _function("GpufmtKernelsTake", ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p)
    symbols = take(os.fsencode(path), ctypes.addressof(module))
    return None if symbols is None else (module.value or 0, symbols)


def option_table() -> dict[str, dict[str, tuple[int | str, ...]]]:
    """Options of each format, as the library announces them: the default, and the other words of a choice."""
    table: dict[str, dict[str, tuple[int | str, ...]]] = {}
    library = load()
    library.GpufmtOptionTable.restype = ctypes.c_char_p
    for line in library.GpufmtOptionTable().decode().splitlines():
        format_name, option, default, *others = line.split()
        first = int(default) if default.lstrip("-").isdigit() else default
        table.setdefault(format_name, {})[option] = (first, *others)
    return table


def cite(name: str) -> None:
    """Let ``-citations`` print the paper that a format follows, or sparse products: "rmerge"."""
    code = load().GpufmtCite(name.encode())
    if code:
        raise GpufmtError(f"PETSc error {code} on the citation of {name}: its message is above")


def register() -> None:
    """Make the types known to PETSc: at once, or when it is initialised."""
    code = load().GpufmtRegister(os.fsencode(library_path()))
    if code:
        raise UnsupportedError(f"PETSc error {code} while registering the matrix types: its message is above")
