"""``python -m petsc_gpufmt bench``: arguments of the benchmarks, and where their results go."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from petsc_gpufmt.bench.errors import BenchError

NOTES = Path("docs/performance_notes.md")
FROM_C_MATRICES = ("7point:50", "27point:20")


def add_commands(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(title="benchmarks", required=True)

    mult = commands.add_parser(
        "mult", help="MatMult from Python: the formats, PETSc's types and CuPy, checked and timed"
    )
    mult.add_argument(
        "--matrix",
        action="append",
        metavar="M",
        help="7point:POINTS, 27point:POINTS, or a .mtx, .mtx.gz or .npz file; may be repeated",
    )
    mult.add_argument(
        "--format",
        action="append",
        metavar="F",
        help="format with options, such as pjds:slice_height=64; may be repeated (default: all formats as they are)",
    )
    mult.add_argument("--host", action="store_true", help="measure on the host only")
    mult.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="T",
        help="type to leave out, such as sellcuda; may be repeated",
    )
    add_output(mult)
    mult.set_defaults(run=run_mult)

    from_c = commands.add_parser("mult-from-c", help="MatMult called by a C program")
    from_c.add_argument("source", type=Path, help="the program, benchmarks/mult_from_c.c")
    from_c.add_argument(
        "--matrix",
        action="append",
        metavar="M",
        help=f"7point:POINTS or 27point:POINTS; may be repeated (default {', '.join(FROM_C_MATRICES)})",
    )
    from_c.add_argument("--types", nargs="+", metavar="T", help="matrix types (default: all that this PETSc has)")
    add_output(from_c)
    from_c.set_defaults(run=run_mult_from_c)

    bratu = commands.add_parser("bratu", help="PETSc's SNES tutorial ex14 with CG and Jacobi, times from -log_view")
    bratu.add_argument("source", type=Path, help="ex14.c of PETSc's src/snes/tutorials")
    bratu.add_argument(
        "--grid",
        type=int,
        nargs="+",
        default=[128, 200],
        metavar="N",
        help="grid points in each direction (default 128 200)",
    )
    bratu.add_argument("--ranks", type=int, default=1, metavar="N", help="MPI ranks (default 1)")
    bratu.add_argument(
        "--types", nargs="+", metavar="T", help="matrix types; the first is the reference for the iterations"
    )
    bratu.add_argument("--mpiexec", help="starts MPI programs (default: the one that PETSc was configured with)")
    bratu.add_argument("--seconds", type=float, default=300.0, metavar="S", help="time limit of one run (default 300)")
    add_output(bratu)
    bratu.set_defaults(run=run_bratu_benchmark)

    report = commands.add_parser("report", help="turn results into Markdown")
    report.add_argument("results", nargs="+", type=Path, help="JSON files of the other benchmarks")
    report.add_argument(
        "--notes",
        type=Path,
        metavar="FILE",
        help=f"Markdown to include, with the reasons for figures that were missed (default {NOTES}, if it is there)",
    )
    report.set_defaults(run=run_report)


def add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", type=Path, metavar="FILE", help="add the results to this file")
    parser.add_argument(
        "--commit", help="commit to name in the results (default: PETSC_GPUFMT_COMMIT, or what git says)"
    )


class Recorder:
    """Keeps the cases of one benchmark, and writes them after each: an interrupted one leaves what it measured."""

    def __init__(self, name: str, arguments: argparse.Namespace, **facts: Any):
        from petsc_gpufmt.bench.environment import describe

        self.path = arguments.json
        self.run: dict[str, Any] = {"name": name, "environment": describe(arguments.commit), **facts, "cases": []}

    def add(self, case: dict[str, Any]) -> None:
        from petsc_gpufmt.bench.results import save_run

        self.run["cases"].append(case)
        if self.path:
            save_run(self.path, self.run)


def finish(wrong: list[str]) -> int:
    """Say which results are wrong; the exit status."""
    for line in wrong:
        print(f"WRONG: {line}")
    return 1 if wrong else 0


def show(line: str) -> None:
    print(line, flush=True)


def run_mult(arguments: argparse.Namespace) -> int:
    try:
        from petsc_gpufmt.bench.contenders import all_contenders
        from petsc_gpufmt.bench.matrices import DEFAULT_MATRICES
        from petsc_gpufmt.bench.mult import measure_case
    except ModuleNotFoundError as e:
        raise BenchError(f"bench mult needs the package {e.name}, which is not installed: pip install {e.name}") from e
    from petsc_gpufmt.bench.places import available_places, device_reason
    from petsc_gpufmt.registry import FORMATS

    variants = arguments.format or list(FORMATS)
    with available_places(arguments.host) as places:
        if "cuda" not in places and not arguments.host:
            show(f"Host only: {device_reason()}.")
        specs = arguments.matrix or DEFAULT_MATRICES["cuda" if "cuda" in places else "host"]
        contenders = [c for c in all_contenders(variants, list(places)) if c.name not in arguments.without]
        ceilings = {name: place.copy_bandwidth() for name, place in places.items()}
        for name, bandwidth in ceilings.items():
            show(f"Copy on {name}: {bandwidth / 1e12:.3f} TB/s, read and written bytes counted.")
        recorder = Recorder("mult", arguments, copy_bytes_per_second=ceilings)
        wrong = []
        for spec in specs:
            case = measure_case(spec, contenders, variants, places, show)
            recorder.add(case)
            wrong += [
                f"{case['matrix']['name']}, {p['name']} on {p['place']}"
                for p in case["products"]
                if not p.get("correct", True)
            ]
    return finish(wrong)


def run_mult_from_c(arguments: argparse.Namespace) -> int:
    from petsc_gpufmt.bench.mult_from_c import case_line, measure_from_c
    from petsc_gpufmt.bench.programs import compile_program

    recorder = Recorder("mult-from-c", arguments)
    with tempfile.TemporaryDirectory() as folder:
        program = compile_program(arguments.source, Path(folder))
        for spec in arguments.matrix or FROM_C_MATRICES:
            for matrix_type in arguments.types or known_types(("aij", "aijcusparse", "sellcuda")):
                case = measure_from_c(program, spec, matrix_type)
                recorder.add(case)
                show(case_line(case))
    return 0


def run_bratu_benchmark(arguments: argparse.Namespace) -> int:
    from petsc_gpufmt.bench.bratu import agreement, entry_line, run_bratu
    from petsc_gpufmt.bench.programs import compile_program

    recorder = Recorder("bratu" if arguments.ranks == 1 else f"bratu, {arguments.ranks} ranks", arguments)
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        program = compile_program(arguments.source, Path(folder))
        for grid in arguments.grid:
            show(f"Bratu {grid}^3, ranks {arguments.ranks}")
            entries = []
            for matrix_type in arguments.types or known_types(("aijcusparse",)):
                entry = run_bratu(program, grid, arguments.ranks, matrix_type, arguments.mpiexec, arguments.seconds)
                entries.append(entry)
                show(entry_line(entry))
            recorder.add({"grid": grid, "ranks": arguments.ranks, "runs": entries})
            wrong += [f"Bratu {grid}^3, ranks {arguments.ranks}: {text}" for text in agreement(entries)]
    return finish(wrong)


def known_types(peers: tuple[str, ...]) -> list[str]:
    """The peers that this PETSc has, AIJ where it has none of them, then the formats."""
    from petsc_gpufmt.bench.places import device_reason
    from petsc_gpufmt.registry import FORMATS

    usable = [peer for peer in peers if peer == "aij" or device_reason() is None]
    return [*(usable or ["aij"]), *FORMATS]


def run_report(arguments: argparse.Namespace) -> int:
    from petsc_gpufmt.bench.report import make_report
    from petsc_gpufmt.bench.results import read_runs

    runs = [run for path in arguments.results for run in read_runs(path)]
    notes = arguments.notes or NOTES
    if arguments.notes and not notes.is_file():
        raise BenchError(f"--notes {notes}: there is no such file")
    print(make_report(runs, notes.read_text() if notes.is_file() else ""), end="")
    return 0
