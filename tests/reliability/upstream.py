"""Defects of other libraries, replayed: the tests of tests/upstream, a row for each issue that they name."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import launch

from reliability.attack import Report, Row, cases_of, part_of

ABOUT = (
    "What went wrong in other libraries, with matrices like those of the issues that report it: products are right, "
    "or refused."
)
MINUTES = 1
FOLDER = Path(__file__).resolve().parents[1] / "upstream"
SECONDS = 600.0


def rows_of(results: Path) -> list[Row]:
    """By issue, in the order of their names, from pytest's results; a test of several types counts once for each."""
    rows: dict[str, Row] = {}
    for case in cases_of(results):
        if case.ended == "skipped":
            continue
        told = case.properties
        what = f"{told['issue']}: {told['what']}" if "issue" in told else case.place
        row = rows.setdefault(what, Row(what, 0))
        row.asked += 1
        row.tried += 1
        if case.ended == "failed":
            row.failures.append(f"{case.name}: {case.message[:300]}")
    return [rows[what] for what in sorted(rows)]


def run(share: float, seed: int, report: Report, folder: Path = FOLDER) -> list[Row]:
    """A share of the files of tests."""
    files = sorted(folder.glob("test_*.py"))
    with TemporaryDirectory() as place:
        results = Path(place, "results.xml")
        pytest = ("-m", "pytest", "-q", "-n", len(os.sched_getaffinity(0)), f"--junitxml={results}")
        command = [sys.executable, *pytest, *files[: part_of(len(files), share)]]
        finished = launch.run(command, cwd=FOLDER.parents[1], seconds=SECONDS)
        if not results.exists():
            return [Row("all", len(files), 0, [f"status {finished.status}: {finished.output[-900:]}"])]
        rows = rows_of(results)
    report(f"{len(rows)} issues, {sum(row.tried for row in rows)} tests")
    return rows
