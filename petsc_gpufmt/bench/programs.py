"""The whole programs that ``bench programs`` measures: where their sources are, and how they are run."""

from __future__ import annotations

import json
import os
import sys
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
from petsc_gpufmt.bench.log_view import read_complexity, read_csv_events, read_iterations
from petsc_gpufmt.choice.registry import FORMATS

BRATU_GRID = tuple(word for axis in "xyz" for word in (f"-da_grid_{axis}", "{size}"))
SOLVERS = {
    "jacobi": ("-ksp_type", "cg", "-pc_type", "jacobi"),
    "gamg": ("-ksp_type", "cg", "-pc_type", "gamg", "-mg_levels_pc_type", "jacobi"),
}
SOLVERS["gamg-agg"] = (*SOLVERS["gamg"], "-pc_gamg_type", "agg")
"""Of the Bratu problem; the last one with PETSc's own set-up for all types."""

EVENTS = (
    *("SNESSolve", "KSPSolve", "PCSetUp", "DMCreateMat", "SNESFunctionEval", "SNESJacobianEval"),
    *("MatAssemblyEnd", "MatMult"),
    *("MatPtAPSymbolic", "MatPtAPNumeric", "GpufmtStart", "GpufmtCompile", "GpufmtPlan", "GpufmtSymbolic"),
    *("GpufmtRefresh", "summary"),
)
"""The last is all that PETSc logs of a process, from the end of PetscInitialize to PetscFinalize."""

CACHES = ("CUPY_CACHE_DIR", "CUDA_CACHE_PATH", "PETSC_GPUFMT_CACHE")
"""Variables that name where compiled kernels are kept: by CuPy, by the driver, by this package."""

START = "GPUFMT_BENCH_START"
SOURCES = "PETSC_SRC"


def is_ours(matrix_type: str) -> bool:
    """Whether a matrix type is one of this package."""
    return matrix_type.removeprefix("aij") in FORMATS


@dataclass(frozen=True)
class Program:
    """A program to measure.

    Attributes
    ----------
    name : for the command line and the results
    source : below ``src/`` of PETSc's sources; a name alone is a file beside this one, in Python one of the examples
    options : for all types; ``{size}`` stands for the size
    size : what the size counts
    on_device, on_host : the size, unless another is asked for
    formats : types of ours, unless others are asked for
    type_option : takes the matrix type
    vector_option : takes the vector type, where the program has one for vectors that are not made from the matrix
    own_options : for types of ours alone, in place of those for all
    """

    name: str
    source: str
    options: tuple[str, ...]
    size: str
    on_device: int
    on_host: int
    formats: tuple[str, ...]
    type_option: str = "-mat_type"
    vector_option: str | None = None
    own_options: tuple[str, ...] = ()

    @property
    def in_python(self) -> bool:
        return self.source.endswith(".py")

    @property
    def prints_steps(self) -> bool:
        """Whether it is one of this package, which print the seconds of their steps."""
        return not self.in_python and "/" not in self.source

    @property
    def solves(self) -> bool:
        """Whether it prints the iterations of a solver."""
        return "-ksp_converged_reason" in self.options

    def arguments(self, size: int, matrix_type: str, on_device: bool) -> list[str]:
        """Its options with one matrix type, which come first."""
        words = [self.type_option, matrix_type]
        if on_device and self.vector_option:
            words += [self.vector_option, vector_type(matrix_type)]
        if not on_device:
            words += ["-device_enable", "none"]
        words += [word.format(size=size) for word in self.options]
        return [*words, *(self.own_options if is_ours(matrix_type) else ())]

    def command(self, path: Path, size: int, matrix_type: str, on_device: bool) -> list[str]:
        """What runs it with one matrix type; `path` is what was compiled, or the program in Python."""
        start = [sys.executable, str(path)] if self.in_python else [str(path), "-dll_append", str(library_path())]
        return [*start, *self.arguments(size, matrix_type, on_device)]


BRATU: dict[str, Any] = {"source": "snes/tutorials/ex14.c", "size": "grid points in each direction"}
BRATU |= {"formats": ("gpufmt", "pjds"), "vector_option": "-dm_vec_type"}
LAPLACIAN = BRATU | {"source": "laplacian.c", "vector_option": "-vec_type"}
REASONS = ("-snes_converged_reason", "-ksp_converged_reason")
TWO_SET_UPS = ("-set_ups", "2", *SOLVERS["gamg"], REASONS[1])

PROGRAMS = {
    program.name: program
    for program in (
        Program("first", "first.c", ("-n", "{size}"), "rows", 1000, 1000, ("pjds",)),
        Program("first-after-1s", "first.c", ("-n", "{size}", "-assemble_for", "1"), "rows", 1000, 1000, ("pjds",)),
        Program("ex14-gamg", options=(*BRATU_GRID, *SOLVERS["gamg"], *REASONS), on_device=128, on_host=32, **BRATU),
        Program(
            "ex14-gamg-agg", options=(*BRATU_GRID, *SOLVERS["gamg-agg"], *REASONS), on_device=128, on_host=32, **BRATU
        ),
        Program(
            "bratu3d",
            options=(*BRATU_GRID, *SOLVERS["gamg"], *REASONS),
            on_device=128,
            on_host=32,
            type_option="-dm_mat_type",
            **(BRATU | {"source": "bratu3d.py"}),
        ),
        Program("ex14-jacobi", options=(*BRATU_GRID, *SOLVERS["jacobi"], *REASONS), on_device=200, on_host=32, **BRATU),
        Program(
            "ex14-gpucg",
            options=(*BRATU_GRID, *SOLVERS["jacobi"], *REASONS),
            on_device=200,
            on_host=32,
            own_options=("-ksp_type", "gpucg"),
            **BRATU,
        ),
        Program(
            "ex19",
            "snes/tutorials/ex19.c",
            ("-da_refine", "{size}", "-ksp_type", "fgmres", "-pc_type", "mg", "-mg_levels_pc_type", "jacobi", *REASONS),
            *("refinements of the grid", 7, 3, ("gpufmt", "bsr"), "-dm_mat_type", "-dm_vec_type"),
        ),
        Program(
            "ex56",
            "ksp/ksp/tutorials/ex56.c",
            (*("-ne", "{size}", "-alpha", "1e-3", "-use_mat_nearnullspace"), *SOLVERS["gamg"], REASONS[1]),
            *("elements in each direction", 39, 7, ("gpufmt", "bsr")),
        ),
        Program(
            "laplacian-7point",
            options=("-n", "{size}", *TWO_SET_UPS),
            on_device=128,
            on_host=32,
            **LAPLACIAN,
        ),
        Program(
            "laplacian-27point",
            options=("-n", "{size}", "-stencil", "27", *TWO_SET_UPS),
            on_device=128,
            on_host=32,
            **LAPLACIAN,
        ),
        Program("new-values", options=("-n", "{size}", "-new_values", "20"), on_device=200, on_host=32, **LAPLACIAN),
    )
}

PROGRAM_SETS: dict[str, dict[str, tuple[int, ...]]] = {
    "gamg": {
        "ex14-gamg": (128, 200),
        "bratu3d": (128, 200),
        "laplacian-7point": (128,),
        "laplacian-27point": (128,),
        "ex56": (39,),
        "new-values": (200,),
    }
}
"""Programs that are measured together, with their sizes on a device."""


def programs_of_set(name: str, on_device: bool) -> list[tuple[Program, int | None]]:
    """The programs of a set, with each of their sizes, on the host with the usual one; BenchError for another name."""
    if name not in PROGRAM_SETS:
        raise BenchError(f"--program-set {name}: there is no such set, choose from {', '.join(PROGRAM_SETS)}")
    sizes = PROGRAM_SETS[name]
    return [(PROGRAMS[program], size) for program in sizes for size in (sizes[program] if on_device else (None,))]


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
        if not is_ours(name):
            raise BenchError(f"--type {name}: this is no type of ours, choose from {', '.join(FORMATS)}")


def source_folders(named: Path | None) -> list[Path]:
    """Where PETSc's sources may be: in `named` alone, or where PETSC_SRC and PETSc's own folders are."""
    if named:
        return [named]
    petsc = Path(petsc4py.get_config()["PETSC_DIR"])
    places = [petsc, petsc / "share/petsc/examples"]
    return [Path(os.environ[SOURCES]), *places] if os.environ.get(SOURCES) else places


def find_source(program: Program, named: Path | None, examples: Path) -> Path:
    """The file of a program, PETSc's below `named` if that is given; BenchError if it is not there."""
    if program.prints_steps:
        return Path(__file__).with_name(program.source)
    if program.in_python:
        if (path := examples / program.source).is_file():
            return path
        raise BenchError(f"{program.name}: {program.source} is not in {examples}: name its folder by --examples")
    folders = source_folders(named)
    for folder in folders:
        if (path := folder / "src" / program.source).is_file():
            return path
    raise BenchError(
        f"{program.name}: src/{program.source} is not in {', '.join(map(str, folders))}: "
        "name PETSc's source tree by --petsc-source"
    )


def run_once(command: Sequence[str], program: Program, limit: float, caches: Path | None = None) -> dict[str, Any]:
    """One run: its wall-clock seconds, events, steps, iterations, and what it shows of a hierarchy.

    `caches` is an empty folder for kernels.
    """
    environment: Mapping[str, str] = {name: str(caches / name) for name in CACHES} if caches else {}
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log.csv")
        words = [*command, "-log_view", f":{log}:ascii_csv"]
        finished = run_program(words, limit, {**environment, START: f"{time.time():.6f}"})
        run: dict[str, Any] = {"seconds": finished.seconds, "events": read_csv_events(log, EVENTS), "steps": {}}
    iterations = (
        read_iterations(finished.output) if program.solves else {"newton_iterations": 0, "krylov_iterations": 0}
    )
    run |= iterations | read_complexity(finished.output)
    if program.prints_steps:
        lines = [line for line in finished.output.splitlines() if line.startswith("{")]
        if len(lines) != 1:
            raise ProgramError(" ".join(words), f"{len(lines)} lines of JSON, one was expected", finished.output)
        run["steps"] = json.loads(lines[0])
    return run
