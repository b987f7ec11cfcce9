"""Tables of what `bench ksp` has measured: ``python benchmarks/ksp_report.py FILE.json``; with ``--plot`` a picture.

The picture has the true residuals of solves in double and in mixed precision, which `bench ksp --history` keeps.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from report import committed_results

from petsc_gpufmt.bench.errors import BenchError
from petsc_gpufmt.bench.ksp import MIXED, Case
from petsc_gpufmt.bench.report.ksp_tables import make_tables
from petsc_gpufmt.bench.report.page import kind_of
from petsc_gpufmt.bench.results import read_runs
from petsc_gpufmt.bench.svg import dot, level, path, picture, text, ticks, upright
from petsc_gpufmt.cli.outcome import program

Run = dict[str, Any]

COLOURS = ("#3b6ea5", "#c8553d", "#588b5b", "#e3a857")
PANEL, HEIGHT = 400, 330  # width and height of what belongs to one matrix and one axis
LEFT, RIGHT, TOP, BOTTOM = 60, 20, 70, 40  # around the axes, in a panel
LEGEND_STEP = 20
MOST_TICKS = 6


def make_plot(run: Run) -> str:
    """True residuals over iterations and over time, for each matrix, of the solves on the fewest ranks."""
    fewest = min(case["ranks"] for case in run["cases"])
    doubles = {case["against"] for case in run["cases"] if case["ksp"] == MIXED}
    drawn = [case for case in run["cases"] if case["ksp"] == MIXED or case["label"] in doubles]
    drawn = [case for case in drawn if case["ranks"] == fewest and case.get("history")]
    matrices = list(dict.fromkeys(case["matrix"] for case in drawn))
    labels = list(dict.fromkeys(case["label"] for case in drawn))
    colour = {label: COLOURS[k % len(COLOURS)] for k, label in enumerate(labels)}
    parts = [text(10, 24, f"{run['environment'].get('gpu', 'host')}: true residual, relative to the right-hand side")]
    for row, matrix in enumerate(matrices):
        of_matrix = [case for case in drawn if case["matrix"] == matrix]
        for column, unit in enumerate(("iterations", "ms")):
            parts += draw_panel(of_matrix, unit, colour, PANEL * column, (HEIGHT - TOP + 20) * row)
    below = (HEIGHT - TOP + 20) * len(matrices) + TOP - 10
    for k, label in enumerate(labels):
        y = below + LEGEND_STEP * k
        parts += [path([(20, y), (44, y)], colour[label], 2), text(52, y + 4, label)]
    return picture(PANEL * 2, below + LEGEND_STEP * len(labels), "Convergence in double and mixed precision", parts)


def draw_panel(cases: Sequence[Case], unit: str, colour: dict[str, str], x0: float, y0: float) -> Iterator[str]:
    """Axes, and a line for each solver with a dot where it corrects; time is that of the solve, in equal shares."""
    left, right, top, bottom = x0 + LEFT, x0 + PANEL - RIGHT, y0 + TOP, y0 + HEIGHT - BOTTOM
    scales = [
        1.0 if unit == "iterations" else case["solve_seconds"] * 1e3 / max(1, case["iterations"]) for case in cases
    ]
    most = max(case["history"][-1][0] * scale for case, scale in zip(cases, scales, strict=True)) or 1.0
    powers = [math.log10(residual) for case in cases for _, residual in case["history"] if residual > 0]
    highest = math.ceil(max(powers, default=0))
    lowest = min(math.floor(min(powers, default=0)), highest - 1)

    def at(value: float, residual: float) -> tuple[float, float]:
        power = math.log10(residual) if residual > 0 else lowest  # an exact solution lies on the lower edge
        share = (highest - power) / (highest - lowest)
        return left + (right - left) * value / most, top + (bottom - top) * share

    yield text(left, top - 10, f"{cases[0]['matrix']}, {unit}")
    for value in ticks(most, MOST_TICKS):
        yield upright(at(value, 1)[0], top, bottom)
        yield text(at(value, 1)[0], bottom + 16, f"{value:g}", "middle")
    for power in range(highest, lowest - 1, -2):
        yield level(at(0, 10.0**power)[1], left, right)
        yield text(left - 6, at(0, 10.0**power)[1] + 4, f"1e{power}", "end")
    for case, scale in zip(cases, scales, strict=True):
        points = [at(count * scale, residual) for count, residual in case["history"]]
        yield path(points, colour[case["label"]], 2)
        if case["ksp"] == MIXED:
            yield from (dot(*point, colour[case["label"]]) for point in points)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="ksp_report.py", description="Tables or a picture of what bench ksp measured."
    )
    parser.add_argument("results", nargs="*", type=Path, help="JSON files (default: those of benchmarks/results)")
    parser.add_argument("--plot", action="store_true", help="a picture of the first run with histories, as SVG")
    arguments = parser.parse_args(words)
    runs = [
        run for file in arguments.results or committed_results() for run in read_runs(file) if kind_of(run) == "ksp"
    ]
    if arguments.plot:
        runs = [run for run in runs if any(c["ksp"] == MIXED and c.get("history") for c in run["cases"])][:1]
    if not runs:
        raise BenchError(
            "the results have nothing to show: petsc-gpufmt bench ksp --method mixed --history --json FILE"
        )
    print("\n".join((make_plot if arguments.plot else make_tables)(run) for run in runs), end="")
    return 0


if __name__ == "__main__":
    sys.exit(program("ksp_report", main))
