"""The page of a second GPU, beside the first: ``python benchmarks/h100_report.py > docs/performance_h100.md``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from figures import MICROSECOND, Measured, Runs, all_cases, best_of, device_products
from report import ROOT, all_sections, collect, committed_results, environment_section, run_sections

from petsc_gpufmt.bench.report.ksp_tables import make_tables
from petsc_gpufmt.bench.report.markdown import number, section, table
from petsc_gpufmt.bench.report.page import kind_of
from petsc_gpufmt.bench.results import read_runs
from petsc_gpufmt.cli.outcome import program

RESULTS = ROOT / "benchmarks/results/h100"
NOTES = ROOT / "docs/performance_h100_notes.md"
SOLVERS = "ksp, cg, mixed, gpufmt"
"""How the names of runs with both kinds of solvers begin, whatever their ranks."""

INTRODUCTION = """\
# Performance on an H100

Made from `benchmarks/results/h100/` by `python benchmarks/h100_report.py`. Do not edit this page: the text below the
first table is in `docs/performance_h100_notes.md`. MatMult on one, two and four of them is in [scaling.md](scaling.md).
"""

BESIDE_TEXT = """\
Products from Python, the fastest of our formats as they are, and an iteration of CG with Jacobi by `gpucg`, in us; the
H200's are those of [performance.md](performance.md) and [solvers.md](solvers.md). *peer / ours*: PETSc's types and
cuSPARSE, of solvers `cg` with aijcusparse. A copy moves 3.00 TB/s on the H100, 4.25 on the H200: 1.42 times as much.
"""


def product_of(case: dict[str, Any]) -> Measured | None:
    entries = [p for p in device_products(case) if ":" not in p["name"]]
    return best_of(entries, "name", "median_seconds")


def named_products(runs: Runs) -> Iterator[tuple[str, Measured]]:
    """The products of generated matrices, by what they multiply."""
    for name in ("mult", "bsr"):
        for case in all_cases(runs, name):
            measured = product_of(case)
            if measured:
                yield case["matrix"]["name"], measured


def named_iterations(runs: Runs) -> Iterator[tuple[str, Measured]]:
    """Those of gpucg on one rank."""
    for name, run in runs.items():
        of_peers = {
            case["matrix"]: case["iteration_seconds"]
            for case in run["cases"]
            if name.startswith(SOLVERS) and case["ranks"] == 1 and case["label"] == "cg, aijcusparse"
        }
        for case in run["cases"]:
            if case.get("ksp") == "gpucg" and case["ranks"] == 1 and case["matrix"] in of_peers:
                seconds = (case["iteration_seconds"], of_peers[case["matrix"]])
                yield f"CG, {case['matrix']}", Measured(*(s / MICROSECOND for s in seconds))


def beside_section(first: Runs, second: Runs) -> str:
    """What was measured on both GPUs."""
    found = [dict([*named_products(runs), *named_iterations(runs)]) for runs in (second, first)]
    rows = []
    for name, here in found[0].items():
        there = found[1].get(name)
        if there:
            ratios = (number(m.best_peer / m.value) if m.best_peer else "-" for m in (here, there))
            rows.append((name, number(here.value), number(there.value), number(here.value / there.value), *ratios))
    head = ("", "H100", "H200", "H100 / H200", "peer / ours, H100", "peer / ours, H200")
    return section("Beside the H200", BESIDE_TEXT, table(head, rows))


def read_folder(files: Sequence[Any]) -> Runs:
    return collect([run for file in files for run in read_runs(file)])


def sections_of_run(run: dict[str, Any]) -> list[str]:
    """Solvers as well, which have a page of their own for the first GPU."""
    return [section("Solvers", make_tables(run))] if kind_of(run) == "ksp" else run_sections(run)


def make_page(first: Runs, second: Runs, notes: str) -> str:
    parts = [INTRODUCTION, beside_section(first, second), notes.strip() + "\n"]
    return "\n".join([*parts, *all_sections(second, sections_of_run), environment_section(second)])


def main(words: Sequence[str] | None = None) -> int:
    argparse.ArgumentParser(prog="h100_report.py", description="The page of a second GPU.").parse_args(words)
    first, second = read_folder(committed_results()), read_folder(sorted(RESULTS.glob("*.json")))
    print(make_page(first, second, NOTES.read_text()), end="")
    return 0


if __name__ == "__main__":
    sys.exit(program("h100_report", main))
