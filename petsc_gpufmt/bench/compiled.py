"""Compiled PETSc programs: build them, run them to their end or to a time limit, and the types to run them with."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import petsc4py

from petsc_gpufmt.bench.environment import petsc_variables
from petsc_gpufmt.bench.errors import BenchError
from petsc_gpufmt.bench.places import gpu_reason

COMPILE_SECONDS = 120
OUTPUT_SHOWN = 3000
WORDS_SHOWN = 240
PETSC_MESSAGE = re.compile(
    r"PETSC ERROR: -+ Error Message -+\n((?:\[\d+\]PETSC ERROR: (?!See https|WARNING).*\n){1,2})"
)


@dataclass(frozen=True)
class Finished:
    """A program that has ended well: standard output and error together, and the seconds from its start to its end."""

    output: str
    seconds: float


class ProgramError(BenchError):
    """A program cannot be started, fails, or has no end.

    `reason` says so in one line, the text of the error with the command before it and the output behind it.
    """

    def __init__(self, command: str, reason: str, output: str = ""):
        super().__init__(f"{command}: {reason}" + (f"\n{output[-OUTPUT_SHOWN:]}" if output else ""))
        words = last_words(output)
        self.reason = f"{reason}, {words}" if words else reason


def last_words(output: str) -> str:
    """PETSc's message of an error in one line, else the last line that is not empty."""
    if found := PETSC_MESSAGE.search(output):
        lines = re.findall(r"PETSC ERROR: (.*)", found[1])
    else:
        lines = [line for line in output.splitlines() if line.strip()][-1:]
    return " ".join(line.strip() for line in lines)[:WORDS_SHOWN]


def compile_program(source: Path, folder: Path, flags: Sequence[str] = ()) -> Path:
    """Compile a C file against the PETSc of petsc4py, with PETSc's compiler or the one that MPICC names."""
    if not source.is_file():
        raise BenchError(f"{source}: there is no such file; name the C source to compile")
    config = petsc4py.get_config()
    root = Path(config["PETSC_DIR"], config["PETSC_ARCH"])
    program = folder / source.stem
    command = [
        *shlex.split(os.environ.get("MPICC") or petsc_variables()["CC"]),
        *("-O3", *flags, str(source), "-o", str(program)),
        *(f"-I{path}" for path in dict.fromkeys((Path(config["PETSC_DIR"]) / "include", root / "include"))),
        *shlex.split(petsc_variables().get("PETSC_CC_INCLUDES", "")),
        *(f"-L{root / 'lib'}", f"-Wl,-rpath,{root / 'lib'}", "-lpetsc", "-lm"),
    ]
    try:
        run_program(command, COMPILE_SECONDS)
    except ProgramError as e:
        message = next((line for line in str(e).splitlines() if "error:" in line), e.reason)
        raise BenchError(
            f"{source} does not compile: {message}; {command[0]} is the compiler, MPICC names another"
        ) from e
    return program


def run_program(command: Sequence[str], limit: float, environment: Mapping[str, str] | None = None) -> Finished:
    """Run a program to its end, with more variables; ProgramError if it fails, or after `limit` seconds is ended."""
    line = shlex.join(command)
    start = time.perf_counter()
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            # without what the MPI of this process has set by itself: an mpiexec would take itself for a rank
            env={**os.environ, **(environment or {})},
        )
    except OSError as e:
        raise ProgramError(line, f"cannot be started: {e}") from e
    try:
        output, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        raise ProgramError(line, f"no end after {limit:.0f} s") from None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    seconds = time.perf_counter() - start
    if process.returncode != 0:
        raise ProgramError(line, f"status {process.returncode}", output)
    return Finished(output, seconds)


def known_types(peers: Sequence[str], formats: Sequence[str]) -> list[str]:
    """The peers that this PETSc has, AIJ where it has none of them, then our formats."""
    usable = [peer for peer in peers if peer == "aij" or gpu_reason() is None]
    return [*(usable or ["aij"]), *formats]


def vector_type(matrix_type: str) -> str:
    """The vectors that belong to a type: on the host for AIJ; elsewhere on the device if PETSc has one."""
    from petsc4py import PETSc

    return "standard" if matrix_type == "aij" or not PETSc.Sys.hasExternalPackage("cuda") else "cuda"
