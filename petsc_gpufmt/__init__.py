"""Sparse-matrix formats for GPUs as PETSc matrix types.

Importing the package registers the types, before or after PETSc is initialised: ``-mat_type pjds`` works from then on.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from petsc_gpufmt.assembly import set_preallocation_coo, set_values_coo
from petsc_gpufmt.backends import native_library
from petsc_gpufmt.backends.native_library import library_path
from petsc_gpufmt.planning import planner
from petsc_gpufmt.version import __version__

if TYPE_CHECKING:
    from petsc_gpufmt import device_arrays, distribute

__all__ = [
    "__version__",
    "device_arrays",
    "distribute",
    "library_path",
    "set_preallocation_coo",
    "set_values_coo",
]


def __getattr__(name: str) -> Any:
    """`device_arrays` and `distribute`, imported by those who use them."""
    if name in ("device_arrays", "distribute"):
        return importlib.import_module(f"petsc_gpufmt.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


native_library.register()
planner.install()
