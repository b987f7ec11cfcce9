"""The whole programs that ``bench programs`` measures: where their sources are, and how they are run."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import petsc4py

from petsc_gpufmt.backends.native_library import library_path
from petsc_gpufmt.bench.compiled import ProgramError, run_program, vector_type
from petsc_gpufmt.bench.errors import BenchError
from petsc_gpufmt.bench.log_view import read_csv_events, read_iterations
from petsc_gpufmt.choice.registry import FORMATS

BRATU_GRID = tuple(word for axis in "xyz" for word in (f"-da_grid_{axis}", "{size}"))
SOLVERS = {
    "jacobi": ("-ksp_type", "cg", "-pc_type", "jacobi"),
    "gamg": ("-ksp_type", "cg", "-pc_type", "gamg", "-mg_levels_pc_type", "jacobi"),
}
SOLVERS["gamg-agg"] = (*SOLVERS["gamg"], "-pc_gamg_type", "agg")
"""Of the Bratu problem; the last one with PETSc's own set-up for all types."""

EVENTS = (
    *("SNESSolve", "KSPSolve", "PCSetUp", "DMCreateMat", "SNESJacobianEval", "MatAssemblyEnd", "MatMult"),
    *("MatPtAPSymbolic", "MatPtAPNumeric", "GpufmtStart", "GpufmtCompile", "GpufmtPlan", "GpufmtSymbolic"),
    *("GpufmtRefresh", "summary"),
)
"""The last is all that PETSc logs of a process, from the end of PetscInitialize to PetscFinalize."""

CACHES = ("CUPY_CACHE_DIR", "CUDA_CACHE_PATH", "PETSC_GPUFMT_CACHE")
"""Variables that name where compiled kernels are kept: by CuPy, by the driver, by this package."""

START = "GPUFMT_BENCH_START"
SOURCES = "PETSC_SRC"


@dataclass(frozen=True)
class Program:
    """A program to measure.

    Attributes
    ----------
    name : for the command line and the results
    source : below ``src/`` of PETSc's sources, without suffix; None for first.c of this package
    options : for all types; ``{size}`` stands for the size
    size : what the size counts
    on_device, on_host : the size, unless another is asked for
    formats : types of ours, unless others are asked for
    type_option : takes the matrix type
    vector_option : takes the vector type, where the program has one for vectors that are not made from the matrix
    """

    name: str
    source: str | None
    options: tuple[str, ...]
    size: str
    on_device: int
    on_host: int
    formats: tuple[str, ...]
    type_option: str = "-mat_type"
    vector_option: str | None = None

    def command(self, executable: Path, size: int, matrix_type: str, on_device: bool) -> list[str]:
        """What runs it with one matrix type."""
        words = [str(executable), "-dll_append", str(library_path()), self.type_option, matrix_type]
        if on_device and self.vector_option:
            words += [self.vector_option, vector_type(matrix_type)]
        if not on_device:
            words += ["-device_enable", "none"]
        return words + [word.format(size=size) for word in self.options]


BRATU: dict[str, Any] = {"source": "snes/tutorials/ex14", "size": "grid points in each direction"}
BRATU |= {"formats": ("gpufmt", "pjds"), "vector_option": "-dm_vec_type"}
REASONS = ("-snes_converged_reason", "-ksp_converged_reason")

PROGRAMS = {
    program.name: program
    for program in (
        Program("first", None, ("-n", "{size}"), "rows", 1000, 1000, ("pjds",)),
        Program("first-after-1s", None, ("-n", "{size}", "-assemble_for", "1"), "rows", 1000, 1000, ("pjds",)),
        Program("ex14-gamg", options=(*BRATU_GRID, *SOLVERS["gamg"], *REASONS), on_device=128, on_host=32, **BRATU),
        Program(
            "ex14-gamg-agg", options=(*BRATU_GRID, *SOLVERS["gamg-agg"], *REASONS), on_device=128, on_host=32, **BRATU
        ),
        Program("ex14-jacobi", options=(*BRATU_GRID, *SOLVERS["jacobi"], *REASONS), on_device=200, on_host=32, **BRATU),
        Program(
            "ex19",
            "snes/tutorials/ex19",
            ("-da_refine", "{size}", "-ksp_type", "fgmres", "-pc_type", "mg", "-mg_levels_pc_type", "jacobi", *REASONS),
            *("refinements of the grid", 7, 3, ("gpufmt", "bsr"), "-dm_mat_type", "-dm_vec_type"),
        ),
        Program(
            "ex56",
            "ksp/ksp/tutorials/ex56",
            (*("-ne", "{size}", "-alpha", "1e-3", "-use_mat_nearnullspace"), *SOLVERS["gamg"], REASONS[1]),
            *("elements in each direction", 39, 7, ("gpufmt", "bsr")),
        ),
    )
}


def parse_program(spec: str) -> tuple[Program, int | None]:
    """The program and the size of NAME or NAME:SIZE; BenchError for others."""
    name, colon, size = spec.partition(":")
    if name not in PROGRAMS:
        raise BenchError(f"--program {spec}: there is no such program, choose from {', '.join(PROGRAMS)}")
    if not colon:
        return PROGRAMS[name], None
    if not (size.isascii() and size.isdigit() and int(size)):
        raise BenchError(f"--program {spec}: {size!r} is no size, give a positive number of {PROGRAMS[name].size}")
    return PROGRAMS[name], int(size)


def check_types(types: Sequence[str]) -> None:
    """BenchError for a type that is not of ours."""
    for name in types:
        if name.removeprefix("aij") not in FORMATS:
            raise BenchError(f"--type {name}: this is no type of ours, choose from {', '.join(FORMATS)}")


def source_folders(named: Path | None) -> list[Path]:
    """Where PETSc's sources may be: in `named` alone, or where PETSC_SRC and PETSc's own folders are."""
    if named:
        return [named]
    petsc = Path(petsc4py.get_config()["PETSC_DIR"])
    places = [petsc, petsc / "share/petsc/examples"]
    return [Path(os.environ[SOURCES]), *places] if os.environ.get(SOURCES) else places


def find_source(program: Program, named: Path | None) -> Path:
    """The C file of a program; BenchError if it is not there."""
    if program.source is None:
        return Path(__file__).with_name("first.c")
    folders = source_folders(named)
    for folder in folders:
        if (path := folder / "src" / f"{program.source}.c").is_file():
            return path
    raise BenchError(
        f"{program.name}: src/{program.source}.c is not in {', '.join(map(str, folders))}: "
        "name PETSc's source tree by --petsc-source"
    )


def run_once(command: Sequence[str], program: Program, limit: float, caches: Path | None = None) -> dict[str, Any]:
    """One run: its wall-clock seconds, events, and its steps or iterations; `caches`: an empty folder for kernels."""
    environment: Mapping[str, str] = {name: str(caches / name) for name in CACHES} if caches else {}
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log.csv")
        words = [*command, "-log_view", f":{log}:ascii_csv"]
        finished = run_program(words, limit, {**environment, START: f"{time.time():.6f}"})
        run: dict[str, Any] = {"seconds": finished.seconds, "events": read_csv_events(log, EVENTS)}
    if program.source is not None:
        return run | {"steps": {}} | read_iterations(finished.output)
    lines = [line for line in finished.output.splitlines() if line.startswith("{")]
    if len(lines) != 1:
        raise ProgramError(" ".join(words), f"{len(lines)} lines of JSON, one was expected", finished.output)
    return run | {"steps": json.loads(lines[0]), "newton_iterations": 0, "krylov_iterations": 0}
