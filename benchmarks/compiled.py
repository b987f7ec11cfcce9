"""Compiled PETSc programs: build them, run them to their end or to a time limit, and the types to run them with."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import petsc4py

from petsc_gpufmt.bench.environment import petsc_variables
from petsc_gpufmt.bench.errors import BenchError
from petsc_gpufmt.bench.places import device_reason

COMPILE_SECONDS = 120
OUTPUT_SHOWN = 3000


def compile_program(source: Path, folder: Path) -> Path:
    """Compile a C file against the PETSc of petsc4py, with PETSc's compiler or the one that MPICC names."""
    if not source.is_file():
        raise BenchError(f"{source}: there is no such file; name the C source to compile")
    config = petsc4py.get_config()
    root = Path(config["PETSC_DIR"], config["PETSC_ARCH"])
    program = folder / source.stem
    command = [
        *shlex.split(os.environ.get("MPICC") or petsc_variables()["CC"]),
        *("-O3", str(source), "-o", str(program)),
        *(f"-I{path}" for path in dict.fromkeys((Path(config["PETSC_DIR"]) / "include", root / "include"))),
        *shlex.split(petsc_variables().get("PETSC_CC_INCLUDES", "")),
        *(f"-L{root / 'lib'}", f"-Wl,-rpath,{root / 'lib'}", "-lpetsc", "-lm"),
    ]
    run_program(command, COMPILE_SECONDS)
    return program


def launcher(ranks: int, mpiexec: str | None) -> list[str]:
    """The words before a program that start it on `ranks` MPI ranks; nothing for one rank."""
    return [] if ranks == 1 else [*shlex.split(mpiexec or petsc_variables()["MPIEXEC"]), "-n", str(ranks)]


def run_program(command: Sequence[str], seconds: float) -> str:
    """Output of a program; BenchError if it fails, or is not done after `seconds` and was ended."""
    line = shlex.join(command)
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
            env=dict(os.environ),
        )
    except OSError as e:
        raise BenchError(f"{line}: cannot be started: {e}") from e
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        raise BenchError(f"{line}: no end after {seconds:.0f} s") from None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process.returncode != 0:
        raise BenchError(f"{line}: status {process.returncode}\n{output[-OUTPUT_SHOWN:]}")
    return output


def known_types(peers: Sequence[str], formats: Sequence[str]) -> list[str]:
    """The peers that this PETSc has, AIJ where it has none of them, then our formats."""
    usable = [peer for peer in peers if peer == "aij" or device_reason() is None]
    return [*(usable or ["aij"]), *formats]
