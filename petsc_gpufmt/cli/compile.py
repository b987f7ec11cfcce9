"""``python -m petsc_gpufmt compile``: the kernels that default options use, compiled before anyone asks for them."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

import numpy as np

from petsc_gpufmt.backends import driver, native_library, nvrtc
from petsc_gpufmt.backends.kernel_modules import Module, default_modules, wanted_with
from petsc_gpufmt.backends.kernel_store import ARCHITECTURE, PACKAGE, Folder, architectures_in, cache_place
from petsc_gpufmt.errors import GpufmtError, UnsupportedError
from petsc_gpufmt.planning import start  # noqa: F401  all that declares kernels

ARCHITECTURES = ("sm_80", "sm_90", "sm_100", "compute_100")
"""Where there is no GPU to ask: machine code for these families, and what drivers translate for later ones."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--arch",
        action="append",
        metavar="A",
        help="architecture such as sm_90, or compute_90 for PTX; may be repeated or a list with commas "
        f"(default: those of the GPUs here; without any {', '.join(ARCHITECTURES)})",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--in-package", action="store_const", const=PACKAGE, dest="output", help="put them there for all who use it"
    )
    where.add_argument("--output", metavar="FOLDER", help="where to put them (default: this user's cache)")
    parser.set_defaults(run=run_compile)


def run_compile(arguments: argparse.Namespace) -> int:
    asked_for = [name.strip() for names in arguments.arch or () for name in names.split(",")]
    types = native_library.petsc_types()
    modules = [*filter(nvrtc.compiles, wanted_with(types[0], default_modules()))]
    architectures, begin = checked(asked_for or default_architectures()), time.monotonic()
    if not arguments.output:
        architectures = not_in_package(architectures, types, modules)
    place = os.path.abspath(arguments.output or cache_place())
    folders = [Folder(place, name, *types) for name in architectures]
    compile_missing(folders, modules)
    for folder in folders:
        print(f"{folder.architecture:12}{in_words(folder, modules)}")
    if folders:
        print(f"in {place}, after {time.monotonic() - begin:.1f} s")
    return 0


def not_in_package(
    architectures: Sequence[str], types: tuple[np.dtype, np.dtype], modules: Sequence[Module]
) -> list[str]:
    """Those for which the package does not have all modules; says so of the others."""
    left = []
    for name in architectures:
        folder = Folder(PACKAGE, name, *types)
        if all(map(folder.read, modules)):
            print(f"{name:12}{in_words(folder, modules)}, in the package {PACKAGE}")
        else:
            left.append(name)
    return left


def default_architectures() -> list[str]:
    """Those of the GPUs here, or ARCHITECTURES, as far as the compiler knows them."""
    try:
        here = {driver.compute_capability(device) for device in range(driver.device_count())}
    except (UnsupportedError, driver.DriverError):  # no driver, or no GPU
        here = set()
    return [nvrtc.architecture_for(c) for c in sorted(here)] or [a for a in ARCHITECTURES if nvrtc.supported(a)]


def checked(architectures: Sequence[str]) -> list[str]:
    """Each architecture once. UnsupportedError for one that the compiler does not know."""
    for name in architectures:
        if not ARCHITECTURE.fullmatch(name) or not nvrtc.supported(name):
            known = ", ".join("sm_{}{}".format(*capability) for capability in nvrtc.supported_capabilities())
            raise UnsupportedError(f"--arch {name}: NVRTC here compiles for {known}, or for one of them as compute_XY")
    return list(dict.fromkeys(architectures))


def compile_missing(folders: Sequence[Folder], modules: Sequence[Module]) -> None:
    """Compile what is missing in each folder, on all cores. GpufmtError for what does not compile or cannot be kept."""
    missing = [(folder, module) for folder in folders for module in modules if folder.read(module) is None]
    pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)))
    try:
        begun = [pool.submit(compile_into, folder, module) for folder, module in missing]
        for number, finished in enumerate(as_completed(begun), 1):
            finished.result()
            show_progress(number, len(missing))
    finally:
        pool.shutdown(cancel_futures=True)


def compile_into(folder: Folder, module: Module) -> None:
    compiled = nvrtc.compile_module(module, folder.scalar, folder.index, folder.architecture)
    try:
        folder.write(module, compiled)
    except OSError as e:
        raise GpufmtError(f"compiled kernels cannot be kept ({e}): name another folder by --output") from e


def show_progress(number: int, total: int) -> None:
    """One line that changes, for who sits before it."""
    if sys.stdout.isatty():
        print(f"\r{number} of {total} modules", end="\n" if number == total else "", flush=True)


def in_words(folder: Folder, modules: Sequence[Module]) -> str:
    """How many of the modules a folder has."""
    there = len(modules) - len(folder.missing(modules))
    return f"{there} of {len(modules)} modules of kernels, {folder.nbytes(modules) / 1e6:.1f} MB"


def kernel_rows() -> list[tuple[str, str]]:
    """For ``info``: what is compiled, in the package and in the user's cache."""
    types, rows = native_library.petsc_types(), []
    modules = wanted_with(types[0], default_modules())
    for what, place in (("package", PACKAGE), ("cache", cache_place())):
        for architecture in architectures_in(place, *types):
            folder = Folder(place, architecture, *types)
            rows.append(("kernels", f"{architecture}: {in_words(folder, modules)}, in the {what} {place}"))
    return rows or [("kernels", "not compiled ahead: run `petsc-gpufmt compile`")]
