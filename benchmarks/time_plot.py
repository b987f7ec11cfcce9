"""The picture of where the time of the Bratu problem goes: ``python benchmarks/time_plot.py > docs/bratu_time.svg``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from figures import Runs, all_cases
from report import collect, committed_results

from petsc_gpufmt.bench.errors import BenchError
from petsc_gpufmt.bench.results import read_runs
from petsc_gpufmt.bench.svg import box, picture, text, ticks, upright
from petsc_gpufmt.cli.outcome import program

Entry = dict[str, Any]

BARS = (
    ("ex14-gamg", "aijcusparse", "ex14, aijcusparse"),
    ("ex14-gamg", "gpufmt", "ex14, gpufmt"),
    ("bratu3d", "gpufmt", "bratu3d.py, gpufmt"),
)
"""Program, matrix type, and what stands beside the bar."""

WIDTH, LEFT, RIGHT = 760, 150, 70  # of the picture, of the names, of the numbers behind the bars
TOP, STEP, HEIGHT = 44, 34, 22  # the first bar, from bar to bar, of a bar
LEGEND_STEP, LEGEND_COLUMNS = 20, 3
MOST_TICKS = 8


def event(entry: Entry, *names: str) -> float:
    events = entry["warm"]["events"]
    return sum(events[name]["seconds"] for name in names if name in events)


def rest_of_the_solve(entry: Entry) -> float:
    inside = event(entry, "SNESFunctionEval", "SNESJacobianEval", "PCSetUp", "KSPSolve")
    return max(0.0, event(entry, "SNESSolve") - inside)


PARTS: tuple[tuple[str, str, Callable[[Entry], float]], ...] = (
    ("start, grid, end", "#b0b7bf", lambda entry: entry["warm"]["outside_seconds"] - event(entry, "DMCreateMat")),
    ("pattern, by DMCreateMatrix", "#7d8fa3", lambda entry: event(entry, "DMCreateMat")),
    ("residual, Jacobian", "#e3a857", lambda entry: event(entry, "SNESFunctionEval", "SNESJacobianEval")),
    ("set-up of GAMG", "#c8553d", lambda entry: event(entry, "PCSetUp")),
    ("Krylov iterations", "#588b5b", lambda entry: event(entry, "KSPSolve")),
    ("other parts of SNESSolve", "#dcd3c0", rest_of_the_solve),
)
"""Name and colour of each part of a bar, in their order, and its seconds; SNESSolve does not include the first two."""


def measured_bars(runs: Runs) -> tuple[int, list[tuple[str, Entry]]]:
    """The largest grid for which PETSc's type was measured on a device, and the bars that there are for it."""

    def entries(name: str, matrix_type: str) -> dict[int, Entry]:
        return {
            case["size"]: entry
            for case in all_cases(runs, f"programs, {name}")
            for entry in case["entries"]
            if case["place"] == "cuda" and entry["mat_type"] == matrix_type and "warm" in entry
        }

    found = [(label, entries(name, matrix_type)) for name, matrix_type, label in BARS]
    if not found[0][1]:
        raise BenchError("the results lack ex14-gamg with aijcusparse: python -m petsc_gpufmt bench programs")
    size = max(found[0][1])
    return size, [(label, of_size[size]) for label, of_size in found if size in of_size]


def make_plot(runs: Runs) -> str:
    """The picture as SVG: a bar for each program and type, as long as its seconds."""
    size, bars = measured_bars(runs)
    longest = max(sum(seconds(entry) for _, _, seconds in PARTS) for _, entry in bars)
    scale = (WIDTH - LEFT - RIGHT) / longest
    bottom = TOP + STEP * len(bars)
    height = bottom + 34 + LEGEND_STEP * -(-len(PARTS) // LEGEND_COLUMNS) + 6
    title = f"3-D Bratu problem, {size}^3 points, CG and GAMG: seconds from start to end"
    lines = [text(10, 24, title)]
    for tick in ticks(longest, MOST_TICKS):
        x = LEFT + tick * scale
        lines.append(upright(x, TOP - 6, bottom))
        lines.append(text(x, bottom + 14, f"{tick:g}", "middle"))
    for row, (label, entry) in enumerate(bars):
        y, x = TOP + STEP * row, float(LEFT)
        lines.append(text(LEFT - 8, y + 16, label, "end"))
        for _, colour, seconds in PARTS:
            lines.append(box(x, y, seconds(entry) * scale, HEIGHT, colour))
            x += seconds(entry) * scale
        lines.append(text(x + 6, y + 16, f"{entry['warm']['median_seconds']:.2f} s"))
    for k, (label, colour, _) in enumerate(PARTS):
        x = 10 + (k % LEGEND_COLUMNS) * (WIDTH - 20) / LEGEND_COLUMNS
        y = bottom + 34 + LEGEND_STEP * (k // LEGEND_COLUMNS)
        lines += [box(x, y - 11, 14, 14, colour), text(x + 20, y, label)]
    return picture(WIDTH, height, title, lines)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="time_plot.py", description="Where the time of the Bratu problem goes, as SVG."
    )
    parser.add_argument("results", nargs="*", type=Path, help="JSON files (default: those of benchmarks/results)")
    arguments = parser.parse_args(words)
    runs = [run for path in arguments.results or committed_results() for run in read_runs(path)]
    print(make_plot(collect(runs)), end="")
    return 0


if __name__ == "__main__":
    sys.exit(program("time_plot", main))
