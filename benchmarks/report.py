"""The page with the results, and the table of the figures to reach: ``python benchmarks/report.py``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from report_tables import bratu_section, from_c_section
from targets import TARGETS, Runs, Target

from petsc_gpufmt.bench.errors import BenchError
from petsc_gpufmt.bench.programs import PROGRAMS
from petsc_gpufmt.bench.report.markdown import number, section, table
from petsc_gpufmt.bench.report.page import KINDS, kind_of, sections_of
from petsc_gpufmt.bench.report.programs_tables import programs_sections
from petsc_gpufmt.bench.results import read_runs, undated
from petsc_gpufmt.cli.outcome import program

ROOT = Path(__file__).resolve().parents[1]
NOTES = ROOT / "docs/performance_notes.md"
SET_UP = ROOT / "benchmarks/results/set_up"
ENVIRONMENT_LABELS = {
    "gpu": "GPU",
    "driver": "driver",
    "cuda_runtime": "CUDA runtime",
    "cupy": "CuPy",
    "processor": "processor",
    "petsc": "PETSc",
    "petsc_scalar": "PETSc values",
    "petsc_index": "PETSc indices",
    "petsc_configure_options": "PETSc configure options",
    "python": "Python",
    "numpy": "NumPy",
    "package": "petsc_gpufmt",
    "commit": "commit",
    "date": "date",
}

ORDER = (
    *("mult", "bsr", "real-replicated", "real", "mult-from-c", "spgemm"),
    *(f"programs, {name}" for name in PROGRAMS),
    *("bratu", "bratu, GAMG", "mult, all formats", "bratu, all formats"),
)
"""Runs come in this order; others after them, by their names."""

INTRODUCTION = """\
# Performance

Made from `benchmarks/results/` by `python benchmarks/report.py`. Do not edit this page: the text below the
first table is in `docs/performance_notes.md`.
"""

TARGETS_TEXT = """\
Medians of single MatMult calls between two CUDA events unless something else is said; *by* names the format, or the
matrix, that gave the figure. Of our formats, as they are by default, the fastest counts. A A and P^T A P are sparse
products; *both phases* are the symbolic and the numeric one. Programs are measured by wall clock from start to end.
"""

SET_UP_TEXT = """\
The figures of GAMG's set-up, from one machine within half an hour, by the programs of `run_on_gpu.sh setup`. Hosts
differ more than GPUs: the peer tells by how much.
"""

REPRODUCE = """\
    benchmarks/run_on_gpu.sh                   # with a GPU: build, test, measure; writes results/results.json
    make bench                                 # what one process measures, on the GPU or without one on the host
    python -m petsc_gpufmt bench mult --help   # other matrices, also .mtx and .npz files; other options of a format
    python benchmarks/report.py > docs/performance.md
    python benchmarks/time_plot.py > docs/bratu_time.svg
"""


def collect(all_runs: Sequence[dict[str, Any]]) -> Runs:
    """Runs by name, in the order of the page. Of runs of one name in several files the last counts."""
    runs = {run["name"]: run for run in all_runs}
    return dict(
        sorted(runs.items(), key=lambda item: (ORDER.index(item[0]) if item[0] in ORDER else len(ORDER), item[0]))
    )


def targets_section(runs: Runs, shown_later: Collection[Target] = ()) -> str:
    targets = [target for target in TARGETS if target not in shown_later]
    return section("Figures to reach", TARGETS_TEXT, targets_table(targets, runs))


def set_up_section(by_file: Mapping[str, Sequence[dict[str, Any]]]) -> str:
    """A table for each file, of the figures that its runs have."""
    parts = [SET_UP_TEXT]
    for name, all_runs in by_file.items():
        environment = all_runs[0]["environment"]
        where = f"`results/set_up/{name}`, {environment['gpu_count']} x {environment['gpu']}"
        table_of_file = targets_table(measured_by(all_runs), collect(all_runs))
        parts.append(f"{where}, commit {environment['commit']}:\n\n" + table_of_file)
    return section("Set-up of GAMG in one run", *parts)


def measured_by(all_runs: Sequence[dict[str, Any]]) -> list[Target]:
    """The figures that these runs have."""
    runs = collect(all_runs)
    return [target for target in TARGETS if target.find(runs)]


def targets_table(targets: Sequence[Target], runs: Runs) -> str:
    heading = ("figure", "reach", "measured", "by", "best peer", "reached")
    return table(heading, (target_row(target, runs) for target in targets))


def target_row(target: Target, runs: Runs) -> Sequence[str]:
    measured = target.find(runs)
    reach = f"{'>=' if target.at_least else '<='} {number(target.limit)} {target.unit}"
    if measured is None:
        return target.what, reach, "not measured", "-", "-", "-"
    return (
        target.what,
        reach,
        number(measured.value, digits=4),
        measured.by or "-",
        number(measured.best_peer, digits=4),
        "yes" if target.reached(measured) else "no",
    )


def environment_section(runs: Runs) -> str:
    """One table for each environment that differs in more than the date."""
    groups: list[tuple[list[str], dict[str, Any]]] = []
    for name, run in runs.items():
        environment = {key: run["environment"][key] for key in ENVIRONMENT_LABELS if key in run["environment"]}
        known = next((names for names, other in groups if undated(other) == undated(environment)), None)
        if known is None:
            groups.append(([name], environment))
        else:
            known.append(name)
    parts = [
        f"{'; '.join(names)}:\n\n" + table(("", ""), [(ENVIRONMENT_LABELS[k], str(v)) for k, v in environment.items()])
        for names, environment in groups
    ]
    return section("Environment", *parts)


def run_sections(run: dict[str, Any]) -> list[str]:
    """The tables of one run, by its name."""
    kind = kind_of(run)
    if kind == "mult-from-c":
        return [from_c_section(run)]
    if kind in ("scaling", "ksp", "parts"):
        return []  # docs/scaling.md, ksp_report.py and docs/models.md have them
    if kind in KINDS:
        return sections_of([run])
    return [bratu_section(run)]


def make_report(
    all_runs: Sequence[dict[str, Any]], notes: str, set_up: Mapping[str, Sequence[dict[str, Any]]] | None = None
) -> str:
    """The whole page; `set_up`: the runs whose figures have a table of their own, by the names of their files."""
    runs = collect(all_runs)
    shown_later = [target for of_file in (set_up or {}).values() for target in measured_by(of_file)]
    parts = [INTRODUCTION, targets_section(runs, shown_later)]
    parts += [set_up_section(set_up)] if set_up else []
    parts += [notes.strip() + "\n"] if notes.strip() else []
    parts += all_sections(runs)
    parts += [environment_section(runs), section("How to measure again", REPRODUCE)]
    return "\n".join(parts)


def all_sections(runs: Runs, of_run: Callable[[dict[str, Any]], list[str]] = run_sections) -> Iterator[str]:
    """The tables of all runs, by `of_run` but for those of programs, which share theirs."""
    programs = [run for run in runs.values() if kind_of(run) == "programs"]
    for run in runs.values():
        if kind_of(run) != "programs":
            yield from of_run(run)
        elif run is programs[0]:
            yield from programs_sections(programs)


def committed_results() -> list[Path]:
    """The files in benchmarks/results/, in the same order everywhere, and those of the set-up of GAMG."""
    return [*sorted(SET_UP.parent.glob("*.json"), key=lambda path: path.stem), *set_up_results()]


def set_up_results() -> list[Path]:
    return sorted(SET_UP.glob("*.json"), key=lambda path: path.stem)


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="report.py", description="Turn results into Markdown.")
    parser.add_argument(
        "results", nargs="*", type=Path, help="JSON files of the benchmarks (default: those of benchmarks/results)"
    )
    parser.add_argument(
        "--notes",
        type=Path,
        default=NOTES,
        metavar="FILE",
        help="Markdown to include, with the reasons for figures that were missed (default docs/performance_notes.md)",
    )
    parser.add_argument("--targets", action="store_true", help="only the table of the figures to reach")
    return parser


def main(words: list[str] | None = None) -> int:
    arguments = make_parser().parse_args(words)
    runs = [run for path in arguments.results or committed_results() for run in read_runs(path)]
    if arguments.targets:
        print(targets_section(collect(runs)), end="")
        return 0
    if not arguments.notes.is_file():
        raise BenchError(f"--notes {arguments.notes}: there is no such file")
    files = () if arguments.results else set_up_results()
    set_up = {path.name: read_runs(path) for path in files}
    print(make_report(runs, arguments.notes.read_text(), set_up), end="")
    return 0


if __name__ == "__main__":
    sys.exit(program("report", main))
