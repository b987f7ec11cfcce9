"""The JSON files with the results: {"schema": 1, "runs": [one for each benchmark]}."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from petsc_gpufmt.bench.errors import BenchError

SCHEMA = 1
LARGEST_NUMBER, LONGEST = 1e30, 1e9
LARGEST_SHOWN = 1e300
"""A whole number may be larger than a floating-point one."""
LONGEST_WORD = 40
"""Letters of what a file has, which may be anything, in a message."""


def read_runs(path: Path) -> list[dict[str, Any]]:
    """The runs of a file of results."""
    try:
        document = json.loads(path.read_text(), parse_constant=_no_number)
    except (OSError, ValueError, RecursionError) as e:
        raise BenchError(f"{path} is not a file of results: {e}") from e
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        found = document.get("schema") if isinstance(document, dict) else type(document).__name__
        raise BenchError(f"{path} has schema {str(found)[:LONGEST_WORD]}, this version reads {SCHEMA}: measure again")
    runs = document.get("runs")
    if not isinstance(runs, list) or not all(_is_run(run) for run in runs):
        raise BenchError(f"{path} is not a file of results: its runs have to have a name and cases; measure again")
    for run in runs:
        try:
            _check_numbers(run, f"{path}, run {run['name'][:LONGEST_WORD]!r}")
        except RecursionError as e:  # what JSON reads may be deeper
            raise BenchError(f"{path} is not a file of results: {e}") from e
    return runs


def _is_run(run: Any) -> bool:
    return isinstance(run, dict) and isinstance(run.get("name"), str) and isinstance(run.get("cases"), list)


def _no_number(word: str) -> float:
    """NaN and infinities, which JSON does not have."""
    raise ValueError(f"{word} is no result")


def _check_numbers(item: Any, where: str, key: str = "") -> None:
    """BenchError for seconds that nothing takes, and for numbers that are none of a computer."""
    if isinstance(item, dict):
        for name, value in item.items():
            _check_numbers(value, where, name)
    elif isinstance(item, list):
        for value in item:
            _check_numbers(value, where, key)
    elif isinstance(item, int | float) and not isinstance(item, bool):
        timed = key == "seconds" or key.endswith("_seconds")
        if abs(item) > LARGEST_NUMBER or (timed and not 0 <= item <= LONGEST):
            name, value = " ".join(key.split())[:LONGEST_WORD], max(-LARGEST_SHOWN, min(item, LARGEST_SHOWN))
            raise BenchError(f"{where} has {name} {value:g}, which nothing has; measure it again")


def save_run(path: Path, run: dict[str, Any]) -> None:
    """Write `run` to a file, in place of an earlier run of the same name; other runs in the file stay."""
    others = [r for r in read_runs(path) if r["name"] != run["name"]] if path.exists() else []
    path.parent.mkdir(parents=True, exist_ok=True)
    new = _new_file(path)
    new.write_text(json.dumps({"schema": SCHEMA, "runs": [*others, run]}, indent=1) + "\n")
    os.replace(new, path)


def check_file(path: Path) -> None:
    """BenchError if results cannot be kept in this file; its folder is made."""
    if path.exists():
        read_runs(path)
    new = _new_file(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new.touch()
        new.unlink()
    except OSError as e:
        raise BenchError(f"--json {path}: cannot be written ({e.strerror}): name a file in a folder of yours") from e


def _new_file(path: Path) -> Path:
    """Written first, then put in place of the other."""
    return path.with_name(path.name + ".new")


class Recorder:
    """Keeps the cases of one benchmark, and writes them after each: an interrupted one leaves what it measured.

    It is made before anything is measured: a file that cannot be written is found out then. With `subject`, which says
    of a case what it measures, cases of other subjects stay in the file that an earlier run of the name has measured,
    with the same versions and hardware.
    """

    def __init__(
        self, name: str, path: Path | None, commit: str | None, subject: Callable[[dict[str, Any]], Any] | None = None
    ):
        from petsc_gpufmt.bench.environment import describe

        if path:
            check_file(path)
        self.path = path
        self.run: dict[str, Any] = {"name": name, "environment": describe(commit)}
        self.cases: list[dict[str, Any]] = []
        self.subject = subject or (lambda _: None)
        self.earlier = _cases_like(self.run, path) if path and path.exists() and subject else []

    def add(self, case: dict[str, Any], **facts: Any) -> None:
        """One more case, and what the run says of all cases so far."""
        self.cases.append(case)
        self.run |= facts
        self.save()

    @property
    def measured(self) -> dict[str, Any]:
        """The run with all cases as they are now."""
        return {**self.run, "cases": self.cases}

    def save(self) -> None:
        """Write it."""
        if self.path:
            subjects = [self.subject(case) for case in self.cases]
            others = [case for case in self.earlier if self.subject(case) not in subjects]
            save_run(self.path, {**self.run, "cases": [*others, *self.cases]})


def _cases_like(run: dict[str, Any], path: Path) -> list[dict[str, Any]]:
    """Of the run of this name in a file, if its environment is the same but for the date."""
    earlier = next((r for r in read_runs(path) if r["name"] == run["name"]), None)
    same = earlier and undated(earlier.get("environment", {})) == undated(run["environment"])
    return earlier["cases"] if earlier and same else []


def undated(environment: dict[str, Any]) -> dict[str, Any]:
    """What a run was measured with, whatever the day."""
    return {key: value for key, value in environment.items() if key != "date"}
