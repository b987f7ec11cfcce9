"""Compiled kernels on disk: those that came with the package, and under them what this user's programs have compiled.

A file is one module: ``<place>/<digest>/<architecture>/<scalar>-<index>/<stem>.<names>.module``. The digest is that of
all that is compiled and of the flags, so another version of either is another folder, and nobody ever reads it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import threading
import warnings
import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.backends.kernel_modules import Module
from petsc_gpufmt.backends.kernel_sources import device_flags, source_digest
from petsc_gpufmt.user_cache import VARIABLE, make_folder, untrusted, user_cache

FORMAT = "petsc_gpufmt module 3"
ENDING = ".module"
PACKAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "kernels_compiled")
"""Read only; the build of the package fills it."""

ARCHITECTURE = re.compile("(sm|compute)_[0-9]{2,3}")

Capability = tuple[int, int]
"""Compute capability: (9, 0) of an H200."""


class Compiled(NamedTuple):
    """A compiled module.

    Attributes
    ----------
    symbols : dict from the C++ name of each kernel to its name in the module
    image : what the driver loads, machine code or PTX
    """

    symbols: dict[str, str]
    image: bytes


class Folder:
    """The modules of one place for one architecture and one pair of types.

    Attributes
    ----------
    architecture : such as "sm_90", or "compute_100" for PTX, which the driver of a later GPU translates
    """

    def __init__(self, place: str, architecture: str, scalar: np.dtype, index: np.dtype):
        self.architecture, self.scalar, self.index = architecture, scalar, index
        self._key = os.path.join(version(scalar, index), architecture, f"{scalar.name}-{index.name}")
        self.path = os.path.join(place, self._key)

    def file(self, module: Module) -> str:
        """Where a module is, if it is there."""
        return os.path.join(self.path, file_name(module))

    def read(self, module: Module) -> Compiled | None:
        """A module; None if there is none, if the file is not what was written for it, or if others could write it."""
        if refused(self.path):
            return None
        contents = native_library.module_file(self.file(module), FORMAT, self._key)
        if contents is None:
            return None
        table, _, image = contents.partition(b"\n\n")
        try:
            symbols = symbols_in(table)
        except ValueError:
            return None
        return Compiled(symbols, image) if tuple(symbols) == module.names else None

    def taken(self, module: Module) -> tuple[int, dict[str, str]] | None:
        """The handle and the symbols of a module that the library has loaded from here; None if it has not."""
        taken = native_library.take_kernels(self.file(module))
        if taken is None:
            return None
        handle, table = taken
        symbols = symbols_in(table)
        return (handle, symbols) if tuple(symbols) == module.names else None

    def files(self) -> list[str]:
        """The names of all modules that are here."""
        try:
            return [name for name in os.listdir(self.path) if name.endswith(ENDING)]
        except OSError:
            return []

    def name(self, file: str) -> None:
        """Name one of `files` to the library, to be loaded beside the application."""
        native_library.name_kernels(os.path.join(self.path, file), FORMAT, self._key)

    def write(self, module: Module, compiled: Compiled) -> None:
        """Keep a module; who reads it meanwhile gets all of it, or nothing. OSError if the place takes no files."""
        make_folder(self.path)
        table = "\n".join(f"{name} {compiled.symbols[name]}" for name in module.names)
        contents = table.encode() + b"\n\n" + compiled.image
        unfinished = f"{self.file(module)}.{os.getpid()}-{threading.get_ident()}"
        try:
            with open(unfinished, "wb") as file:
                file.write(self._header(contents) + b"\n" + contents)
            os.replace(unfinished, self.file(module))
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(unfinished)
            raise

    def keep(self, module: Module, compiled: Compiled) -> None:
        """`write` where that is possible; else one warning a process."""
        try:
            self.write(module, compiled)
        except OSError as e:
            warn_once(f"compiled kernels are not kept ({e}): each process compiles them anew; set {VARIABLE}")

    def _header(self, contents: bytes) -> bytes:
        """Of the folder too: a file that was brought from another one does not fit."""
        import hashlib  # for who compiles alone

        digest = hashlib.blake2b(contents, digest_size=32, key=self._key.encode()).hexdigest()
        return f"{FORMAT} {len(contents)} {digest}".encode()

    def missing(self, modules: Iterable[Module]) -> list[Module]:
        """Those without a file."""
        return [module for module in modules if not os.path.exists(self.file(module))]

    def nbytes(self, modules: Iterable[Module]) -> int:
        """Of the files of the modules that are there."""
        return sum(os.path.getsize(self.file(m)) for m in modules if os.path.exists(self.file(m)))


def file_name(module: Module) -> str:
    """Of a module, in each folder."""
    names = " ".join(module.names).encode()
    return f"{module.stem.replace('/', '.')}.{zlib.crc32(names):08x}{zlib.adler32(names):08x}{ENDING}"


def symbols_in(table: bytes) -> dict[str, str]:
    """The name of each kernel and its symbol, from the lines of a file; ValueError if they are something else."""
    return dict(line.split(" ") for line in table.decode().splitlines())


@functools.cache
def warn_once(text: str) -> None:
    warnings.warn(text, stacklevel=3)


def refused(path: str) -> bool:
    """Whether modules in a folder are not to be used, since others could have written them: one warning a process."""
    reason = untrusted(path)
    if reason:
        warn_once(reason)
    return reason is not None


@functools.cache
def version(scalar: np.dtype, index: np.dtype) -> str:
    """What is the same for modules that may be used for each other: sources, flags, and the format of the files."""
    flags = " ".join((FORMAT, *device_flags(scalar, index))).encode()
    return f"{source_digest()}{zlib.crc32(flags):08x}"


def cache_place() -> str:
    """Where this user's programs keep what they compile."""
    return os.path.join(user_cache(), "kernels")


def architectures_in(place: str, scalar: np.dtype, index: np.dtype) -> list[str]:
    """Those that there are modules for, of this version: machine code first, then PTX, the oldest first."""
    try:
        names = os.listdir(os.path.join(place, version(scalar, index)))
    except OSError:
        return []
    return sorted(filter(ARCHITECTURE.fullmatch, names), key=lambda name: (is_ptx(name), capability_of(name)))


def folders(capability: Capability, scalar: np.dtype, index: np.dtype) -> Iterator[Folder]:
    """Where there are modules for a GPU, the best first; those that are not to be used are left out, with a warning."""
    places = {place: architectures_in(place, scalar, index) for place in (PACKAGE, cache_place())}
    for name in usable(set().union(*places.values()), capability):
        for place, names in places.items():
            folder = Folder(place, name, scalar, index)
            if name in names and not refused(folder.path):
                yield folder


def usable(architectures: Iterable[str], capability: Capability) -> list[str]:
    """Those whose modules a GPU runs, the best first: machine code of its family, not of a later member; older PTX."""
    older = [name for name in architectures if capability_of(name) <= capability]
    fitting = [name for name in older if is_ptx(name) or capability_of(name)[0] == capability[0]]
    return sorted(fitting, key=lambda name: (not is_ptx(name), capability_of(name)), reverse=True)


def capability_of(architecture: str) -> Capability:
    """(9, 0) of "sm_90"."""
    return divmod(int(architecture.partition("_")[2]), 10)


def is_ptx(architecture: str) -> bool:
    """Whether modules for an architecture are PTX, which the driver translates, and not machine code."""
    return architecture.startswith("compute_")
