"""Runs programs as a user would: to their end or to a time limit, with nothing left behind."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from petsc_config import find_petsc

PROGRAMS = Path(__file__).parent / "programs"
TIMEOUT_SECONDS = 120
_CLEANUP_SECONDS = 5


@dataclass(frozen=True)
class Finished:
    """A program that has ended: its command as one line, exit status, and standard output and error together."""

    command: str
    status: int
    output: str

    def __str__(self):
        return f"{self.command}\nstatus {self.status}\n{self.output[-6000:]}"


@cache
def petsc_variables() -> dict[str, str]:
    """The assignments in the petscvariables file of the PETSc at hand."""
    return find_petsc().variables


@cache
def petsc_checks() -> bool:
    """Whether PETSc was configured with debugging: it then looks at arguments before we do."""
    configuration = find_petsc().build_directory / "include" / "petscconf.h"
    return "define PETSC_USE_DEBUG " in configuration.read_text()


def run(
    command: list,
    *,
    ranks: int | None = None,
    cwd: Path | None = None,
    seconds: float = TIMEOUT_SECONDS,
    **environment: str,
) -> Finished:
    """Run a command, on `ranks` MPI ranks if given; TimeoutError after `seconds`, with all its processes ended.

    It finds the package that the tests run with, whether that is installed or not.
    """
    import petsc_gpufmt

    if ranks is not None:
        command = [*shlex.split(os.environ.get("MPIEXEC") or petsc_variables()["MPIEXEC"]), "-n", ranks, *command]
    command = [str(word) for word in command]
    python_path = [str(Path(petsc_gpufmt.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(python_path), "OMP_NUM_THREADS": "1", **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"no end after {seconds:g} s: {shlex.join(command)}") from None
    finally:
        end_group(process)
    return Finished(shlex.join(command), process.returncode, output)


def compiled(name: str, folder: Path, *more_flags: str) -> Path:
    """A C program or library of tests/support/programs, compiled into `folder` as an application would be.

    With $CFLAGS, as the package: they may be those of a sanitizer.
    """
    variables = petsc_variables()
    output = folder / name
    flags = [
        shlex.split(variables.get(name, "")) for name in ("CC_FLAGS", "PETSC_CC_INCLUDES", "PETSC_WITH_EXTERNAL_LIB")
    ]
    source = PROGRAMS / f"{name}.c"
    compiler = [*shlex.split(variables["CC"]), *flags[0], *shlex.split(os.environ.get("CFLAGS", ""))]
    command = [*compiler, *more_flags, *flags[1], source, "-o", output, *flags[2]]
    finished = run(command, LD_PRELOAD="")  # compilers do not run with a sanitizer
    assert finished.status == 0, finished
    return output


def end_group(process: subprocess.Popen) -> None:
    """End the launcher, which ends its ranks, then whatever is left of its process group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        try:
            process.communicate(timeout=_CLEANUP_SECONDS)
        except subprocess.TimeoutExpired:
            continue
