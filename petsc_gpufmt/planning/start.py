"""What is ready before plans are asked for: modules of Python, and kernels that are compiled already.

Threads make it ready beside the application. So nothing of PETSc is called here, not even for an upload.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from petsc_gpufmt.backends import compile
from petsc_gpufmt.backends.kernel_modules import declared_by, list_declared
from petsc_gpufmt.backends.kernel_store import file_name
from petsc_gpufmt.choice.registry import FORMATS, STORAGE_FORMATS, find_format
from petsc_gpufmt.planning import abi
from petsc_gpufmt.planning.given import backend_at, types_at

COARSENING = (
    *("strength", "shuffle", "aggregates", "prolongator", "smoothed", "start_vector"),
    *("parallel_aggregates", "parallel_prolongator", "parallel_smoothed"),
)
OTHERS = (
    "petsc_gpufmt.backends.loop",
    "petsc_gpufmt.spgemm.chain",
    "petsc_gpufmt.patterns.symmetry",
    *(f"petsc_gpufmt.coarsening.{name}" for name in COARSENING),
    "petsc_gpufmt.halo.peer",
    *(f"petsc_gpufmt.krylov.{name}" for name in ("cg", "mixedcg", "bcgs", "chebyshev", "gmres", "jacobi")),
)
"""Imported when a plan first needs them, beside formats."""
IN_TURN = ("formats.", "patterns.", "coarsening.", "halo.", "krylov.", "spgemm.")
"""How files of kernels begin, in the order in which plans come to them."""
FOR_BLOCK_SIZES = "formats.bsr"
"""Most of these are for block sizes that a program does not have: where it does not ask for them, they can wait."""


def name_kernels(place: Any, format_name: str, block_size: int) -> None:
    """Name to the library what it is to load for plans at a place that begin with a format: it loads beside Python.

    Where a format is chosen, a block size above 1 lets plans begin with blocks of that size.
    """
    if abi.BACKENDS[place.backend] == "host":
        return
    chooses = format_name not in STORAGE_FORMATS
    first = next(iter(STORAGE_FORMATS)) if chooses else format_name
    others = tuple(f"formats.{name}" for name in STORAGE_FORMATS if name != first)
    of_blocks = _files_for_blocks(block_size) if chooses and block_size > 1 else set()

    def turn(file: str) -> int | None:
        if file in of_blocks:
            return 0
        if file.startswith(others) and not file.startswith(f"formats.{first}"):
            return len(IN_TURN) if chooses and not file.startswith(FOR_BLOCK_SIZES) else None
        return next((k for k, beginning in enumerate(IN_TURN) if file.startswith(beginning)), None)

    compile.name_kernels(turn, *types_at(place), place.device)


def _files_for_blocks(block_size: int) -> set[str]:
    from petsc_gpufmt.formats.bsr.bsr import modules_for  # where blocks are likely, and not before

    return {file_name(module) for module in modules_for(block_size)}


def prepare(place: Any, format_name: str) -> None:
    """Import and make what the first plan in a format needs at a place: formats not in use are not imported so far."""
    find_format(format_name).accepted_options()
    with backend_at(place):
        pass


def prepare_later() -> Iterator[None]:
    """Import what later plans may need, and list its kernels, a little at a time."""
    for name in OTHERS:
        importlib.import_module(name)
        yield
    for name in FORMATS:
        find_format(name)
        yield
    yield from list_declared()


def import_all() -> None:
    """Import all that plans are made by."""
    list(FORMATS.values())
    for name in OTHERS:
        importlib.import_module(name)


declared_by(import_all)
