"""The 3-D Bratu problem, PETSc's SNES tutorial ex14, unmodified: CG with Jacobi or GAMG, -log_view read back.

``python benchmarks/bratu.py <PETSc>/src/snes/tutorials/ex14.c`` measures it.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from petsc_gpufmt import library_path
from petsc_gpufmt.bench.command import add_output, finish, show, timed
from petsc_gpufmt.bench.compiled import compile_program, known_types, run_program, vector_type
from petsc_gpufmt.bench.errors import BenchError
from petsc_gpufmt.bench.log_view import agreement, read_csv_events, read_gpu_columns, read_iterations
from petsc_gpufmt.bench.mpiexec import launcher
from petsc_gpufmt.bench.programs import BRATU_GRID, SOLVERS
from petsc_gpufmt.bench.results import Recorder
from petsc_gpufmt.choice.registry import FORMATS
from petsc_gpufmt.cli.outcome import program

EVENTS = (
    "SNESSolve",
    "SNESJacobianEval",
    "SNESFunctionEval",
    "KSPSolve",
    "PCSetUp",
    "MatMult",
    "MatMultAdd",
    "MatPtAPSymbolic",
    "MatPtAPNumeric",
    "GpufmtPlan",
    "GpufmtRefresh",
)
PEERS, OURS = ("aijcusparse",), ("gpufmt", "pjds")
GALERKIN_EVENTS = {"symbolic": "MatPtAPSymbolic", "numeric": "MatPtAPNumeric"}


@dataclass(frozen=True)
class Setting:
    """What all types are measured with.

    Attributes
    ----------
    program : ex14, compiled
    grid : points in each direction
    ranks : of MPI
    preconditioner : a key of SOLVERS
    mpiexec : starts MPI programs; None for that of the MPI which PETSc links
    seconds : time limit of one run
    """

    program: Path
    grid: int
    ranks: int
    preconditioner: str
    mpiexec: str | None
    seconds: float


def measure_bratu(setting: Setting, matrix_type: str) -> dict[str, Any]:
    """The runs of one type. A type of PETSc's that fails with GAMG is "skipped", with what it printed last."""
    try:
        return run_bratu(setting, matrix_type)
    except BenchError as e:
        if matrix_type in FORMATS or setting.preconditioner == "jacobi":
            raise
        entry = {"mat_type": matrix_type, "vec_type": vector_type(matrix_type)}
        return entry | {"skipped": failed_where(str(e))}


def failed_where(output: str) -> str:
    """The function in which PETSc's error was raised; the first line of other failures."""
    found = re.search(r"#1 (\w+)\(\)", output)
    return f"fails in {found[1]}" if found else output.splitlines()[0][:200]


def run_bratu(setting: Setting, matrix_type: str) -> dict[str, Any]:
    """Three runs: one that does not count; one as a user would, for the solver's time; one for the products' time.

    The first compiles the kernels that no use of the type on this machine has compiled before. The last has
    -log_view_gpu_time, which makes PETSc wait for the device after each event.
    """
    entry: dict[str, Any] = {"mat_type": matrix_type, "vec_type": vector_type(matrix_type)}
    for name, gpu_time in ((None, False), ("asynchronous", False), ("synchronous", True)):
        with tempfile.TemporaryDirectory() as folder:
            table, text = Path(folder, "log.csv"), Path(folder, "log.txt")
            command = launcher(setting.ranks, setting.mpiexec)
            command += [str(setting.program), "-dll_append", str(library_path())]
            command += [word.format(size=setting.grid) for word in BRATU_GRID]
            command += [
                "-mat_type",
                matrix_type,
                "-dm_vec_type",
                entry["vec_type"],
                *SOLVERS[setting.preconditioner],
                "-ksp_converged_reason",
                "-snes_converged_reason",
            ]
            command += ["-log_view", f":{table}:ascii_csv,:{text}", *(["-log_view_gpu_time"] if gpu_time else [])]
            output = run_program(command, setting.seconds).output
            if name is None:
                continue
            entry |= read_iterations(output)
            entry[name] = {"events": read_csv_events(table, EVENTS), "gpu": read_gpu_columns(text, EVENTS)}
    return entry


def matmult_seconds(entry: dict[str, Any]) -> dict[str, float]:
    """Total of MatMult with -log_view_gpu_time, and the parts of it that only some calls have: storage, new values."""
    events = entry["synchronous"]["events"]
    total, plan, refresh = (
        events.get(name, {"seconds": 0.0})["seconds"] for name in ("MatMult", "GpufmtPlan", "GpufmtRefresh")
    )
    return {"total": total, "plan": plan, "refresh": refresh}


def galerkin_seconds(entry: dict[str, Any], phase: str) -> float | None:
    """Total of one phase, "symbolic" or "numeric", of P^T A P with -log_view_gpu_time; None if there was none."""
    event = entry["synchronous"]["events"].get(GALERKIN_EVENTS[phase])
    return event["seconds"] if event else None


def entry_line(entry: dict[str, Any]) -> str:
    if "skipped" in entry:
        return f"  {entry['mat_type']:14}{entry['skipped']}"
    events, mult = entry["asynchronous"]["events"], matmult_seconds(entry)
    solves = ", ".join(f"{name} {events[name]['seconds']:.3f} s" for name in ("SNESSolve", "KSPSolve"))
    gpu = entry["synchronous"]["gpu"].get("KSPSolve")
    copies = (
        f", KSPSolve copies to GPU {gpu['to_gpu_count']:.0f}, flops on GPU {gpu['gpu_flop_percent']:.0f} %"
        if gpu
        else ""
    )
    iterations = f"{entry['newton_iterations']}/{entry['krylov_iterations']} iterations"
    parts = f"plan {mult['plan']:.4f}, refresh {mult['refresh']:.4f}"
    galerkin = [(phase, galerkin_seconds(entry, phase)) for phase in GALERKIN_EVENTS]
    products = "".join(f", PtAP {phase} {seconds * 1e3:.1f} ms" for phase, seconds in galerkin if seconds is not None)
    times = f"{solves}, MatMult {mult['total']:.4f} s of which {parts}{products}{copies}"
    return f"  {entry['mat_type']:14}{iterations}, {times}"


def run_name(arguments: argparse.Namespace) -> str:
    """What tells the results of one preconditioner, set of types and number of ranks from others."""
    parts = ["bratu"]
    if arguments.pc != "jacobi":
        parts.append(arguments.pc.upper())
    if arguments.all_formats:
        parts.append("all formats")
    if arguments.ranks > 1:
        parts.append(f"{arguments.ranks} ranks")
    return ", ".join(parts)


def run(arguments: argparse.Namespace) -> int:
    recorder = Recorder(run_name(arguments), arguments.json, arguments.commit)
    wrong = []
    with timed(recorder.run["name"]), tempfile.TemporaryDirectory() as folder:
        executable = compile_program(arguments.source, Path(folder))
        for grid in arguments.grid:
            show(f"Bratu {grid}^3, ranks {arguments.ranks}")
            setting = Setting(executable, grid, arguments.ranks, arguments.pc, arguments.mpiexec, arguments.seconds)
            entries = []
            for matrix_type in arguments.types or known_types(PEERS, tuple(FORMATS) if arguments.all_formats else OURS):
                entry = measure_bratu(setting, matrix_type)
                entries.append(entry)
                show(entry_line(entry))
            recorder.add({"grid": grid, "ranks": arguments.ranks, "runs": entries})
            wrong += [f"Bratu {grid}^3, ranks {arguments.ranks}: {text}" for text in agreement(entries)]
    return finish(wrong)


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bratu.py", description="PETSc's SNES tutorial ex14 with CG and Jacobi or GAMG, times from -log_view."
    )
    parser.add_argument("source", type=Path, help="ex14.c of PETSc's src/snes/tutorials")
    parser.add_argument(
        "--grid",
        type=int,
        nargs="+",
        default=[128, 200],
        metavar="N",
        help="grid points in each direction (default 128 200)",
    )
    parser.add_argument("--ranks", type=int, default=1, metavar="N", help="MPI ranks (default 1)")
    formats = parser.add_mutually_exclusive_group()
    formats.add_argument(
        "--types",
        nargs="+",
        metavar="T",
        help="matrix types; the first is the reference for the iterations (default: PETSc's own, gpufmt and pjds)",
    )
    formats.add_argument("--all-formats", action="store_true", help="PETSc's own type and every format")
    parser.add_argument("--pc", choices=tuple(SOLVERS), default="jacobi", help="preconditioner (default %(default)s)")
    parser.add_argument("--mpiexec", help="starts MPI programs (default: that of the MPI which PETSc links)")
    parser.add_argument("--seconds", type=float, default=300.0, metavar="S", help="time limit of one run (default 300)")
    add_output(parser)
    return parser


def main(words: list[str] | None = None) -> int:
    return run(make_parser().parse_args(words))


if __name__ == "__main__":
    sys.exit(program("bratu", main))
