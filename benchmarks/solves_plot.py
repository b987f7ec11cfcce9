"""The picture of whole solves and their memory: ``python benchmarks/solves_plot.py > docs/whole_solves.svg``.

PETSc's own type, hypre and this package, each bar as a share of the longest of its problem. Our figures and those of
PETSc's type are results of `petsc-gpufmt bench programs`; those of hypre are in hypre_h200.json, with their source.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from figures import Runs, all_cases
from report import collect, committed_results

from petsc_gpufmt.bench.errors import BenchError
from petsc_gpufmt.bench.report.markdown import number
from petsc_gpufmt.bench.results import read_runs
from petsc_gpufmt.bench.svg import box, picture, text
from petsc_gpufmt.cli.outcome import program

HYPRE = Path(__file__).resolve().parent / "hypre_h200.json"
PEER, OURS = "aijcusparse", "gpufmt"
COLOURS = {PEER: "#7d8fa3", "hypre": "#e3a857", OURS: "#588b5b"}
PROBLEMS = (
    ("ex14-gamg", "Bratu problem, {size}^3, PETSc's ex14"),
    ("bratu3d", "the same, assembled on the device"),
    ("ex56", "elasticity, {size}^3 elements, PETSc's ex56"),
    ("laplacian-7point", "Laplacian, 7-point {size}^3, set-up and solve"),
    ("laplacian-27point", "Laplacian, 27-point {size}^3, set-up and solve"),
)
"""Programs, and what stands above their bars."""

WIDTH, NAMES, ROOM, GAP = 760, 90, 75, 20  # of the picture, of the names, of the numbers behind bars, between panels
TOP, HEAD, STEP, HEIGHT = 66, 22, 19, 14  # the first problem, its words, from bar to bar, of a bar
BETWEEN = 8


@dataclass(frozen=True)
class Solve:
    """What a solver takes for one problem; `device_bytes` None: not measured."""

    solver: str
    seconds: float
    device_bytes: float | None


def solves_of(runs: Runs, name: str, hypre: dict[str, Any]) -> tuple[int, list[Solve]]:
    """The largest size at which PETSc's type was measured, and the solves of it; BenchError without that type or ours.

    Of programs that time their steps the first set-up and solve count, else the program from start to end.
    """
    measured: dict[int, list[Solve]] = {}
    for case in all_cases(runs, f"programs, {name}"):
        entries = {entry["mat_type"]: entry for entry in case["entries"] if "warm" in entry}
        if case["place"] == "cuda" and {PEER, OURS} <= set(entries):
            measured[case["size"]] = [solve_of(entries[kind]) for kind in (PEER, OURS)]
    if not measured:
        raise BenchError(f"the results lack {name} with {PEER} and {OURS}: python -m petsc_gpufmt bench programs")
    size = max(measured)
    settings = [
        Solve(hypre["solver"], solve["set_up_seconds"] + solve["solve_seconds"], solve.get("device_bytes"))
        for solve in hypre["solves"]
        if (solve["program"], solve["size"]) == (name, size)
    ]
    peer, ours = measured[size]
    return size, [peer, *sorted(settings, key=lambda solve: solve.seconds)[:1], ours]  # the better of its settings


def solve_of(entry: dict[str, Any]) -> Solve:
    steps = entry["warm"].get("steps", {})
    seconds = entry["warm"]["median_seconds"]
    if {"set_up1", "solve1"} <= set(steps):
        seconds = steps["set_up1"] + steps["solve1"]
    return Solve(entry["mat_type"], seconds, entry["observed"]["device_bytes"])


def make_plot(runs: Runs, hypre: dict[str, Any]) -> str:
    """The picture as SVG: for each problem and solver a bar of seconds and one of the device's memory."""
    panel = (WIDTH - NAMES - GAP) / 2
    title = "Whole solves on one H200, with CG and algebraic multigrid"
    lines = [text(10, 24, title)]
    lefts = (NAMES, NAMES + panel + GAP)
    lines += [text(left, 48, words) for left, words in zip(lefts, ("seconds", "memory of the device"), strict=True)]
    y = TOP
    for name, words in PROBLEMS:
        size, solves = solves_of(runs, name, hypre)
        lines.append(text(NAMES, y + 8, words.format(size=size)))
        y += HEAD
        longest = max(solve.seconds for solve in solves)
        largest = max(solve.device_bytes or 0 for solve in solves)
        for solve in solves:
            lines.append(text(NAMES - 8, y + 7, solve.solver, "end"))
            shares = (solve.seconds / longest, (solve.device_bytes or 0) / largest)
            known = solve.device_bytes is not None
            labels = (
                f"{number(solve.seconds, 2)} s",
                f"{number(solve.device_bytes / 1e9, 2)} GB" if known else "not measured",
            )
            for left, share, label in zip(lefts, shares, labels, strict=True):
                length = share * (panel - ROOM)
                lines += [
                    box(left, y - 4, length, HEIGHT, COLOURS[solve.solver]),
                    text(left + length + 6, y + 7, label),
                ]
            y += STEP
        y += BETWEEN
    return picture(WIDTH, y + 4, title, lines)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="solves_plot.py", description="Whole solves and their memory, as SVG.")
    parser.add_argument("results", nargs="*", type=Path, help="JSON files (default: those of benchmarks/results)")
    arguments = parser.parse_args(words)
    runs = [run for path in arguments.results or committed_results() for run in read_runs(path)]
    print(make_plot(collect(runs), json.loads(HYPRE.read_text())), end="")
    return 0


if __name__ == "__main__":
    sys.exit(program("solves_plot", main))
