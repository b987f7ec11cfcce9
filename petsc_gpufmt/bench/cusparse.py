"""The cuSPARSE that this process has loaded already, called through ctypes."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from ctypes import POINTER, c_char_p, c_int, c_void_p
from pathlib import Path
from typing import Any

from petsc_gpufmt.bench.errors import BenchError

# values of the enumerations in cusparse.h and library_types.h
INDEX_TYPES = {4: 2, 8: 3}
VALUE_TYPES = {4: 0, 8: 1}
SCALARS = {4: ctypes.c_float, 8: ctypes.c_double}
INDEX_BASE_ZERO = 0
NON_TRANSPOSE = 0

COMMON_PROTOTYPES: dict[str, Sequence[Any]] = {
    "cusparseCreate": [POINTER(c_void_p)],
    "cusparseDestroy": [c_void_p],
    "cusparseSetStream": [c_void_p, c_void_p],
    "cusparseDestroySpMat": [c_void_p],
}


class Cusparse:
    """The functions of a loaded cuSPARSE; each raises BenchError for a status other than success.

    `prototypes` gives the argument types of those that are used, `release` the CUDA release that has all of them.
    """

    def __init__(self, library: Any, prototypes: Mapping[str, Sequence[Any]], release: str):
        self.library = library
        for name, types in {**COMMON_PROTOTYPES, **prototypes}.items():
            try:
                function = getattr(library, name)
            except AttributeError:
                raise BenchError(f"this cuSPARSE has no {name}: CUDA {release} or later is needed") from None
            function.argtypes, function.restype = list(types), c_int
        library.cusparseGetErrorString.argtypes, library.cusparseGetErrorString.restype = [c_int], c_char_p

    def call(self, name: str, *arguments: Any) -> None:
        status = getattr(self.library, name)(*arguments)
        if status:
            raise BenchError(f"{name}: {self.library.cusparseGetErrorString(status).decode()}")


class Handles:
    """What was created in cuSPARSE and is destroyed in reverse order."""

    def __init__(self, cusparse: Cusparse):
        self.cusparse = cusparse
        self.alive: list[tuple[str, c_void_p]] = []

    def create(self, create: str, destroy: str, *arguments: Any) -> c_void_p:
        """What the function `create` makes in its first argument."""
        made = c_void_p()
        self.cusparse.call(create, ctypes.byref(made), *arguments)
        self.alive.append((destroy, made))
        return made

    def close(self) -> None:
        while self.alive:
            destroy, made = self.alive.pop()
            self.cusparse.call(destroy, made)


def loaded_library() -> Any:
    """The cuSPARSE that PETSc or CuPy has loaded into this process."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    paths = sorted({line.split()[-1] for line in lines if "/libcusparse.so" in line})
    if not paths:
        raise BenchError("no cuSPARSE is loaded")
    return ctypes.CDLL(paths[0])
