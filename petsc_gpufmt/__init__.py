"""Sparse-matrix formats for GPUs as PETSc matrix types.

Importing the package registers the types, before or after PETSc is initialised: ``-mat_type pjds`` works from then on.
"""

from __future__ import annotations

from petsc_gpufmt import distribute
from petsc_gpufmt.assembly import set_preallocation_coo, set_values_coo
from petsc_gpufmt.backends import native_library
from petsc_gpufmt.backends.native_library import library_path
from petsc_gpufmt.planning import planner
from petsc_gpufmt.version import __version__

__all__ = ["__version__", "distribute", "library_path", "set_preallocation_coo", "set_values_coo"]


native_library.register()
planner.install()
