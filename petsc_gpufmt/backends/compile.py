"""Kernels on a device: found compiled, or else compiled now; each module is loaded once, and stays loaded."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from petsc_gpufmt.backends import driver, native_library
from petsc_gpufmt.backends.kernel_modules import Module, default_modules, instance_name, module_of, wanted_with
from petsc_gpufmt.backends.kernel_store import Capability, Compiled, Folder, cache_place, folders

if TYPE_CHECKING:
    from petsc_gpufmt.backends.compilation import Compilation

IN_SINGLE = ("formats/", "halo/peer", "patterns/csr", "krylov/cg")
"""How stems of files begin whose kernels are wanted in single precision too where PETSc has double."""

_compilations: list[Compilation] = []


@functools.cache
def device_function(
    stem: str, kernel: str, template_arguments: tuple[int, ...], scalar: np.dtype, index: np.dtype, device: int
) -> int:
    """CUfunction handle of a kernel of ``kernels/<stem>.cu`` on `device`, which must be current.

    UnsupportedError if it has to be compiled and there is no compiler; GpufmtError if it does not compile.
    """
    name = instance_name(kernel, template_arguments)
    handle, symbols = loaded_module(module_of(stem, name), scalar, index, device)
    return driver.module_function(handle, symbols[name])


@functools.cache
def loaded_module(module: Module, scalar: np.dtype, index: np.dtype, device: int) -> tuple[int, dict[str, str]]:
    """A module's handle and the names of its kernels in it. Plans hold bare handles into it: it is never unloaded."""
    capability = driver.compute_capability(device)
    for folder in known_folders(capability, scalar, index):
        taken = folder.taken(module)
        if taken:
            return taken
        found = folder.read(module)
        handle = found and handle_if_accepted(found)
        if found and handle:
            return handle, found.symbols
    with native_library.logged_compilation():
        compiled = compilation(capability, scalar, index).compiled(module)
    return driver.load_module(compiled.image), compiled.symbols


def name_kernels(wanted: Callable[[str], Any], scalar: np.dtype, index: np.dtype, device: int) -> None:
    """Name to the library the files of compiled modules that it is to load beside the application.

    `wanted` says for the stem of a file and what follows, such as ``formats.pjds.123.module``, how late it is wanted,
    as what can be compared; None if it is not.
    """
    found: dict[str, Folder] = {}
    for folder in known_folders(driver.compute_capability(device), scalar, index):
        for file in folder.files():
            found.setdefault(file, folder)
    late = {file: wanted(file) for file in found}
    for file in sorted((file for file in found if late[file] is not None), key=lambda file: (late[file], file)):
        found[file].name(file)


def handle_if_accepted(found: Compiled) -> int | None:
    """The handle of a module from a file; None if this driver does not take what another machine has compiled."""
    try:
        return driver.load_module(found.image)
    except driver.DriverMemoryError:
        raise
    except driver.DriverError:
        return None


@functools.cache
def known_folders(capability: Capability, scalar: np.dtype, index: np.dtype) -> list[Folder]:
    """`folders`, looked for once a process."""
    return list(folders(capability, scalar, index))


@functools.cache
def compilation(capability: Capability, scalar: np.dtype, index: np.dtype) -> Compilation:
    """What compiles for a GPU, with all that default options use and that is in no folder."""
    from petsc_gpufmt.backends import nvrtc
    from petsc_gpufmt.backends.compilation import Compilation

    folder = Folder(cache_place(), nvrtc.architecture_for(capability), scalar, index)
    missing = wanted_with(scalar, default_modules())
    if scalar != native_library.petsc_types()[0]:
        missing = [module for module in missing if module.stem.startswith(IN_SINGLE)]
    for known in known_folders(capability, scalar, index):
        missing = known.missing(missing)
    _compilations.append(Compilation(folder, missing))
    return _compilations[-1]


def stop_compiling() -> None:
    """End what compiles ahead, as the program ends; what is asked for later is still compiled then."""
    for begun in _compilations:
        begun.stop()
