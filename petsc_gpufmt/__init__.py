"""Sparse-matrix formats for GPUs as PETSc matrix types.

Importing the package registers the types, before or after PETSc is initialised: ``-mat_type pjds`` works from then on.
"""

from __future__ import annotations

from petsc_gpufmt import native_library, planner
from petsc_gpufmt.native_library import library_path

__all__ = ["library_path"]
__version__ = "0.1.0"


native_library.register()
planner.install()
