"""Sparse-matrix formats for GPUs as PETSc matrix types.

Importing the package registers the types: ``-mat_type pjds`` works from then on.
"""

from __future__ import annotations

from petsc_gpufmt import native_library, planner
from petsc_gpufmt.native_library import library_path

__all__ = ["library_path"]
__version__ = "0.1.0"


def _register() -> None:
    """Register the types with PETSc, unless ``-dll_append`` or the application has done so, and install the planner."""
    if not native_library.is_registered():
        import petsc4py.PETSc  # noqa: F401  initialises PETSc if the application has not

        native_library.register()
    planner.install()


_register()
