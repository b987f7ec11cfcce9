"""Two versions measured in turn on one machine: ``python benchmarks/compare_versions.py before.json after.json``.

Files of `petsc_gpufmt bench mult` and `bench spgemm`; where a file has several runs of one name, medians of them are
compared. Peers, which are the same code both times, tell how much of a difference is noise.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from petsc_gpufmt.bench.report.markdown import microseconds, number, table
from petsc_gpufmt.bench.results import read_runs
from petsc_gpufmt.cli.outcome import program

FIGURES = {"median_seconds": "MatMult", "cold_seconds": "symbolic + numeric", "numeric_seconds": "numeric"}
Key = tuple[str, str, str, bool]  # matrix, contender and its place, figure, ours


def medians(runs: Sequence[dict[str, Any]]) -> dict[Key, float]:
    """Seconds of what was measured, medians over runs."""
    found: dict[Key, list[float]] = {}
    for run in runs:
        for case in run["cases"]:
            for entry in case["products"]:
                for figure, title in FIGURES.items():
                    if entry.get(figure):
                        name = f"{entry['name']} ({entry['place']})"
                        key = case["matrix"]["name"], name, title, bool(entry["ours"])
                        found.setdefault(key, []).append(entry[figure])
    return {key: median(seconds) for key, seconds in found.items()}


def comparison(before: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]]) -> str:
    """A table of ours, and the ratios of all together, ours and the peers'."""
    old, new = medians(before), medians(after)
    both = [key for key in old if key in new]
    rows = [
        (matrix, name, figure, microseconds(old[key]), microseconds(new[key]), number(new[key] / old[key]))
        for key in both
        for matrix, name, figure, ours in [key]
        if ours
    ]
    lines = [table(("matrix", "type", "figure", "before us", "after us", "after : before"), rows)]
    for figure in FIGURES.values():
        for ours, who in ((True, "ours"), (False, "peers")):
            ratios = [new[key] / old[key] for key in both if key[2:] == (figure, ours)]
            if ratios:
                least, most = number(min(ratios)), number(max(ratios))
                lines.append(f"{figure}, {who}: {number(geometric_mean(ratios))} in the mean, {least} to {most}\n")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="compare_versions.py", description="Compare two files of results.")
    parser.add_argument("before", type=Path, help="JSON file of the version of before")
    parser.add_argument("after", type=Path, help="JSON file of the version of after, measured on the same machine")
    chosen = parser.parse_args(arguments)
    print(comparison(read_runs(chosen.before), read_runs(chosen.after)), end="")
    return 0


if __name__ == "__main__":
    sys.exit(program("compare_versions", main))
