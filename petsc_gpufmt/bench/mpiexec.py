"""What starts MPI programs: the mpiexec of the MPI that petsc4py's PETSc links."""

from __future__ import annotations

import ctypes
import functools
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.bench.environment import petsc_variables
from petsc_gpufmt.bench.errors import BenchError

VARIABLE = "MPIEXEC"
FAMILIES = {
    "Open MPI": r"Open MPI|OpenRTE|PRRTE|prterun",
    "MPICH": r"MPICH|HYDRA|MVAPICH|Intel\(R\) MPI",
}
"""MPIs that start each other's programs -> what their libraries and mpiexecs call themselves."""

LIBRARY_VERSION_BYTES = 8192  # the most of any MPI, MPI_MAX_LIBRARY_VERSION_STRING
ANSWER_SECONDS = 20
FOLDERS_ABOVE = 5  # of a library in /usr/lib/x86_64-linux-gnu/openmpi/lib the last is /usr


def launcher(ranks: int, mpiexec: str | None) -> list[str]:
    """The words before a program that start it on `ranks` MPI ranks; nothing for one rank."""
    return [] if ranks == 1 else [*shlex.split(mpiexec or find_mpiexec()), "-n", str(ranks)]


@functools.cache
def find_mpiexec() -> str:
    """The first of `candidates` that is of the MPI which PETSc links.

    Where that MPI is none of FAMILIES, the first of all; BenchError if all are of another one.
    """
    library = library_version()
    family = family_of(library)
    found = []
    for command in dict.fromkeys(candidates()):
        if family is None:
            return command
        answer = version_of(command)
        if family_of(answer) == family:
            return command
        found.append(f"{command}: {family_of(answer) or (answer.splitlines() or ['says nothing'])[0]}")
    raise BenchError(
        f"PETSc links {library.splitlines()[0]}, and no mpiexec of {family} was found ({'; '.join(found)}): "
        f"name one by --mpiexec or {VARIABLE}"
    )


def candidates() -> Iterator[str]:
    """Commands that may start MPI programs, the most wanted first."""
    if command := os.environ.get(VARIABLE):
        yield command
    if path := beside_the_library(library_path()):
        yield shlex.quote(str(path))
    if command := petsc_variables().get("MPIEXEC"):
        yield command
    yield "mpiexec"


def beside_the_library(library: Path) -> Path | None:
    """The mpiexec of the folders that an MPI was installed into."""
    folders = library.parents[:FOLDERS_ABOVE]
    return next((path for folder in folders if (path := folder / "bin/mpiexec").is_file()), None)


class _Symbol(ctypes.Structure):
    """Dl_info of dlfcn.h."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("file_address", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def library_path() -> Path:
    """The file of the MPI that PETSc links."""
    symbol, function = _Symbol(), ctypes.cast(native_library.load().MPI_Get_library_version, ctypes.c_void_p)
    ctypes.CDLL(None).dladdr(function, ctypes.byref(symbol))
    return Path(os.fsdecode(symbol.file)).resolve()


def library_version() -> str:
    """What that MPI says of itself; it need not have been started."""
    text, length = ctypes.create_string_buffer(LIBRARY_VERSION_BYTES), ctypes.c_int()
    native_library.load().MPI_Get_library_version(text, ctypes.byref(length))
    return text.value.decode(errors="replace")


def family_of(version: str) -> str | None:
    """Whose version that is; None for an MPI that is not known."""
    return next((name for name, words in FAMILIES.items() if re.search(words, version)), None)


def version_of(command: str) -> str:
    """What an mpiexec says of itself, or why it does not."""
    try:
        finished = subprocess.run(
            [*shlex.split(command), "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=ANSWER_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as e:
        return f"does not start ({e})"
    return finished.stdout
