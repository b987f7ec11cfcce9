"""Where what this user's programs have found out is kept: options that were measured, kernels that were compiled.

What lies there is loaded as code, so nobody else may write there: folders are made for their owner alone, and a cache
that belongs to another user, or that others can write to, is neither read nor written.
"""

from __future__ import annotations

import os
import stat

VARIABLE = "PETSC_GPUFMT_CACHE"

OWNER_ONLY = 0o700
WRITTEN_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
ROOT = 0
"""Whose folders are taken too: who is root can do anything as it is."""


class UntrustedCacheError(OSError):
    """Others than this user could have written what lies in the cache."""


def user_cache() -> str:
    """The folder: $PETSC_GPUFMT_CACHE, or else petsc_gpufmt in $XDG_CACHE_HOME, or in ~/.cache; it need not exist."""
    named = os.environ.get(VARIABLE)
    if named:
        return named
    return os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "petsc_gpufmt")


def untrusted(path: str) -> str | None:
    """Why what lies at or below `path` is not to be used, in one line; None if it may be, and for what is no cache.

    Looked at are the cache and the folders in it that lead to `path`: who can write into one can put others below it.
    """
    cache = os.path.abspath(user_cache())
    for folder in _leading(cache, os.path.abspath(path)):
        try:
            found = os.stat(folder)
        except OSError:
            continue
        if found.st_uid not in (os.geteuid(), ROOT):
            return f"the cache {folder} is not used: it belongs to another user; set {VARIABLE} to a folder of yours"
        if found.st_mode & WRITTEN_BY_OTHERS:
            return f"the cache {folder} is not used: others can write there; chmod go-w it, or set {VARIABLE}"
    return None


def _leading(cache: str, path: str) -> list[str]:
    """The cache and what leads from it to `path`; nothing if `path` is elsewhere."""
    if path != cache and not path.startswith(cache.rstrip(os.sep) + os.sep):
        return []
    steps = os.path.relpath(path, cache).split(os.sep)
    return [cache, *(os.path.join(cache, *steps[: k + 1]) for k in range(len(steps)) if steps != [os.curdir])]


def make_folder(path: str) -> None:
    """A folder and those above it that are missing: in the cache for this user alone, elsewhere as any folder.

    UntrustedCacheError, an OSError, if it is in a cache that is not to be used.
    """
    reason = untrusted(path)
    if reason:
        raise UntrustedCacheError(reason)
    for folder in _leading(os.path.abspath(user_cache()), os.path.abspath(path)):
        if not os.path.isdir(folder):
            os.makedirs(os.path.dirname(folder), exist_ok=True)
            try:
                os.mkdir(folder, OWNER_ONLY)
            except FileExistsError:  # another process; a file is an error of who writes below it
                continue
    os.makedirs(path, exist_ok=True)
