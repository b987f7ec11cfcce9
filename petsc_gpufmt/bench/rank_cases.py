"""What programs on ranks have in common: rank 0 keeps cases in a file, and one rank that fails ends all of them."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from petsc_gpufmt.backends import native_library

REASON = ".reason"
"""Suffix of the file beside that of the cases in which the first rank that fails says why."""


def reason_file(path: Path) -> Path:
    return path.with_name(path.name + REASON)


def keep_cases(cases: Callable[[], Iterable[dict[str, Any]]], path: Path) -> None:
    """Add a line of JSON to the file for each case, on rank 0; a failure on any rank ends the MPI program at once.

    Without that the others would wait for the rank in their next message, as it would for them when MPI ends.
    """
    from petsc4py import PETSc

    try:
        for case in cases():
            if PETSc.COMM_WORLD.rank == 0:
                with path.open("a") as file:
                    file.write(json.dumps(case) + "\n")
    except Exception as e:
        give_up(f"rank {PETSc.COMM_WORLD.rank}: {in_one_line(e)}", path)


def in_one_line(error: Exception) -> str:
    """The message of an error; of PETSc's, which ends with what was wrong, its last line."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    words = (lines[-1] if hasattr(error, "ierr") else " ".join(lines)) if lines else ""
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def give_up(reason: str, path: Path) -> None:
    """Say why, unless another rank has, and end all ranks without waiting for one of them."""
    with contextlib.suppress(OSError), reason_file(path).open("x") as file:
        file.write(reason)
    print(reason, file=sys.stderr, flush=True)
    library = native_library.load()
    # a pointer or a number, as MPIs have it: of the number MPI_Abort() reads the lower half
    world = ctypes.c_void_p.in_dll(library, "PETSC_COMM_WORLD")
    library.MPI_Abort(world, 1)
    os._exit(1)
