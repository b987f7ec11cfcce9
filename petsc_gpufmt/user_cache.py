"""Where what this user's programs have found out is kept: options that were measured, kernels that were compiled."""

from __future__ import annotations

import os

VARIABLE = "PETSC_GPUFMT_CACHE"


def user_cache() -> str:
    """The folder: $PETSC_GPUFMT_CACHE, or else petsc_gpufmt in $XDG_CACHE_HOME, or in ~/.cache; it need not exist."""
    named = os.environ.get(VARIABLE)
    if named:
        return named
    return os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "petsc_gpufmt")
