"""What is ready before plans are asked for: modules of Python, and kernels that are compiled already.

A thread makes it ready beside the application. So nothing of PETSc is called here, not even for an upload.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from petsc_gpufmt.backends.kernel_modules import declared_by, declared_so_far, default_modules
from petsc_gpufmt.choice.registry import FORMATS, find_format
from petsc_gpufmt.planning.given import backend_at

COARSENING = (
    *("strength", "shuffle", "aggregates", "prolongator", "smoothed", "start_vector"),
    *("parallel_aggregates", "parallel_prolongator", "parallel_smoothed"),
)
OTHERS = (
    "petsc_gpufmt.spgemm.chain",
    "petsc_gpufmt.patterns.symmetry",
    *(f"petsc_gpufmt.coarsening.{name}" for name in COARSENING),
    "petsc_gpufmt.halo.peer",
)
"""Imported when a plan first needs them, beside formats."""
FIRST_STEMS = ("formats/", "patterns/csr")


def prepare(place: Any, format_name: str) -> None:
    """Import and load what the first plan in a format needs at a place: formats not in use are not imported so far."""
    find_format(format_name).accepted_options()
    with backend_at(place) as backend:
        for module in declared_so_far(FIRST_STEMS):
            backend.load(module)


def prepare_later(place: Any) -> Iterator[None]:
    """Import and load what later plans may need at a place, a little at a time."""
    for name in OTHERS:
        importlib.import_module(name)
        yield
    for name in FORMATS:
        find_format(name)
        yield
    for module in default_modules():
        with backend_at(place) as backend:
            backend.load(module)
        yield


def import_all() -> None:
    """Import all that plans are made by."""
    list(FORMATS.values())
    for name in OTHERS:
        importlib.import_module(name)


declared_by(import_all)
