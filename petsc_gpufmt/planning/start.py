"""What is ready before the first plan: modules and kernels that plans need."""

from __future__ import annotations

import importlib
from typing import Any

from petsc_gpufmt.backends.kernel_modules import declared_by
from petsc_gpufmt.choice.registry import FORMATS, find_format
from petsc_gpufmt.planning.requests import backend_at


def prepare(place: Any, format_name: str | None) -> None:
    """Import and load what the first plan in a format needs at a place; without a format, what later plans may need.

    It runs in a thread beside the application: nothing of PETSc is called, not even for an upload.
    """
    if format_name is None:
        import_all()
        return
    find_format(format_name).accepted_options()
    with backend_at(place):
        pass


def import_all() -> None:
    """Import all that plans are made by."""
    list(FORMATS.values())
    importlib.import_module("petsc_gpufmt.spgemm.chain")


declared_by(import_all)
