"""The page of what was attacked, and how often: `python benchmarks/reliability_report.py > docs/reliability.md`.

Reads what `python tests/reliability --json benchmarks/results/reliability` has written, failures included.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results" / "reliability"

INTRODUCTION = """\
# What can be relied on

Made by `python benchmarks/reliability_report.py` from `benchmarks/results/reliability/`; do not edit this page.

The package is attacked from outside: hostile input, failures on purpose, random sequences of operations beside a twin.
An attack counts what it has tried, and keeps a line for whatever ended badly, from which it can be tried again.
`make test` runs a small part of each; all of them, or those that `ATTACKS` names:

    make test-long ATTACKS="twins files"

*Asked for* is the number that a full run tries.
"""


def page(results: Sequence[dict[str, Any]]) -> str:
    """The page of the results of attacks, in the order of their names."""
    sections = [_section(result) for result in sorted(results, key=lambda result: result["attack"])]
    return "\n".join([INTRODUCTION, *sections]).rstrip() + "\n"


def _section(result: dict[str, Any]) -> str:
    environment, rows = result["environment"], result["rows"]
    place = environment.get("gpu") or "the host"
    lines = [
        f"## {result['attack'].replace('_', ' ').capitalize()}",
        "",
        result["about"],
        "",
        f"On {place}, PETSc {environment['petsc']}, commit {environment['commit']}, {environment['date']}: "
        f"{_minutes(result['seconds'])}, share {result['share']:g}, seed {result['seed']}.",
        "",
        *(_kinds(rows) if "counts" in rows[0] else _tries(rows)),
        "",
    ]
    failures = [failure for row in rows for failure in row["failures"]]
    if failures:
        lines += ["Ended badly:", "", *(f"    {failure}" for failure in failures), ""]
    return "\n".join(lines)


def _tries(rows: Sequence[dict[str, Any]]) -> list[str]:
    header = ["| what | tried | asked for | ended badly | remark |", "| --- | --: | --: | --: | --- |"]
    return [*header, *(_line(row) for row in rows)]


def _kinds(rows: Sequence[dict[str, Any]]) -> list[str]:
    """How many of each kind, and what explains those that differ."""
    rows, without = [row for row in rows if row["tried"]], sum(not row["tried"] for row in rows)
    kinds = [kind for kind in rows[0]["counts"] if any(row["counts"][kind] for row in rows)]
    lines = [f"| what | asked for | {' | '.join(kinds)} |", f"| --- |{' --: |' * (1 + len(kinds))}"]
    for row in rows:
        what = row["what"].replace("|", "\\|")
        lines.append(f"| {what} | {row['asked']} | {' | '.join(str(row['counts'][kind]) for kind in kinds)} |")
    if without:
        lines += ["", f"{without} more rows have nothing to compare, or were not run."]
    whys: dict[str, list[str]] = {}
    for row in rows:
        for why, runs in row["explained"].items():
            whys.setdefault(why, []).extend(runs)
    if whys:
        lines += ["", "| explained by | runs | in |", "| --- | --: | --- |"]
    for why, runs in sorted(whys.items(), key=lambda known: -len(known[1])):
        programs = sorted({run.split(": ", 1)[1].split()[0] for run in runs})
        lines.append(f"| {why} | {len(runs)} | {', '.join(programs)} |")
    return lines


def _line(row: dict[str, Any]) -> str:
    what, remark = (row[name].replace("|", "\\|") for name in ("what", "remark"))
    return f"| {what} | {row['tried']} | {row['asked']} | {len(row['failures'])} | {remark} |"


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.0f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", nargs="*", type=Path, help="JSON files (default: those of benchmarks/results)")
    files = parser.parse_args().results or sorted(RESULTS.glob("*.json"))
    print(page([json.loads(file.read_text()) for file in files]), end="")


if __name__ == "__main__":
    main()
