"""The native library: where it is, and what Python calls in it."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any

import numpy as np

from petsc_gpufmt.errors import GpufmtError, UnsupportedError

SYMBOL_OF_HOST_KERNEL = "gpufmt_host_{kernel}"


def library_path() -> Path:
    """Absolute path of libpetscgpufmt.so, for ``-dll_append`` and for linking."""
    return Path(__file__).resolve().parent / "native" / "libpetscgpufmt.so"


@functools.cache
def load() -> ctypes.CDLL:
    """The library, loaded once a process; UnsupportedError if it is not there or does not load."""
    path = library_path()
    if not path.exists():
        raise UnsupportedError(
            f"{path} is missing: "
            "build it against your PETSc with `pip install --no-build-isolation .`, or `make setup` in a source tree"
        )
    try:
        return ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    except OSError as e:
        raise UnsupportedError(f"{path} does not load ({e}): rebuild it against the PETSc that petsc4py uses") from e


def host_function(kernel: str) -> int:
    """Address of the host counterpart of a kernel."""
    return ctypes.cast(getattr(load(), SYMBOL_OF_HOST_KERNEL.format(kernel=kernel)), ctypes.c_void_p).value or 0


def upload(dev_array: Any, host_array: np.ndarray, stream: int) -> None:
    """Copy a contiguous host array to the device, counted in PETSc's log; returns when `host_array` may change."""
    dev, host, handle = (ctypes.c_void_p(p) for p in (dev_array.data.ptr, host_array.ctypes.data, stream))
    code = load().GpufmtUpload(dev, host, ctypes.c_size_t(host_array.nbytes), handle)
    if code:
        raise GpufmtError(f"PETSc error {code} in an upload of {host_array.nbytes} bytes: its message is above")


def petsc_types() -> tuple[np.dtype, np.dtype]:
    """(scalar, index) dtypes of the PETSc that the library was built for."""
    library = load()
    scalar = {4: np.float32, 8: np.float64}[library.gpufmt_host_scalar_bytes()]
    index = {4: np.int32, 8: np.int64}[library.gpufmt_host_index_bytes()]
    return np.dtype(scalar), np.dtype(index)


def check_types(scalar: np.dtype, index: np.dtype) -> None:
    """Raise UnsupportedError unless the host functions were compiled for these dtypes."""
    if (scalar, index) != petsc_types():
        built = petsc_types()
        raise UnsupportedError(
            f"host kernels for {scalar} values and {index} indices were asked for, "
            f"the library has them for {built[0]} and {built[1]}"
        )


def option_table() -> dict[str, dict[str, int | str]]:
    """Options of each format with their defaults, as the library announces them under -help."""
    table: dict[str, dict[str, int | str]] = {}
    library = load()
    library.GpufmtOptionTable.restype = ctypes.c_char_p
    for line in library.GpufmtOptionTable().decode().splitlines():
        format_name, option, default = line.split()
        table.setdefault(format_name, {})[option] = int(default) if default.lstrip("-").isdigit() else default
    return table


def is_registered() -> bool:
    """Whether the types are known to the PETSc of this process."""
    return bool(load().GpufmtIsRegistered())


def register() -> None:
    """Register the types with PETSc, which must be initialised."""
    from petsc4py import PETSc

    PETSc.Sys.pushErrorHandler("traceback")  # petsc4py's own would keep the message to itself
    try:
        code = load().PetscGpuFmtInitialize()
    finally:
        PETSc.Sys.popErrorHandler()
    if code:
        raise UnsupportedError(f"PETSc error {code} while registering the matrix types: its message is above")
