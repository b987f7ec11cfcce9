"""What every attack of this folder gives: how often something was tried, how often it ended badly, and what did.

An attack is a module with `ABOUT`, a sentence; `MINUTES`, about how long its full run takes; and
`run(share, seed, report)`, which tries `share` (0 < share <= 1) of the full number and returns its rows. Tests run
small shares, `make test-long` all, `docs/reliability.md` is made from what that has written.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

Report = Callable[[str], None]


@dataclass
class Row:
    """One line of an attack's table.

    `what` was tried `tried` times, `asked` is the number to reach; `failures` has a line for each that ended badly,
    as short as it can be repeated from; `remark` says what a reader has to know, such as why it is less than asked.
    """

    what: str
    asked: int
    tried: int = 0
    failures: list[str] = field(default_factory=list)
    remark: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class TimedRow(Row):
    seconds: float = 0.0  # of this run and those before that it adds to

    def as_json(self) -> dict[str, Any]:
        return {name: value for name, value in super().as_json().items() if name != "seconds"}


def ranks_in_words(ranks: int) -> str:
    return "one rank" if ranks == 1 else f"{ranks} ranks"


def read_journal(journal: Path | None) -> list[dict[str, Any]]:
    """What runs that were stopped have written, a line each; nothing without such a file."""
    if not journal or not journal.exists():
        return []
    return [json.loads(line) for line in journal.read_text().splitlines()]


def add_to_journal(journal: Path | None, line: dict[str, Any]) -> None:
    if journal:
        with journal.open("a") as file:
            file.write(json.dumps(line) + "\n")


def part_of(number: int, share: float) -> int:
    """That share of a number, 1 at least."""
    return max(1, round(number * share))


class Case(NamedTuple):
    """A test in pytest's file of results: where it is, `passed`, `failed` or `skipped`, why, and its properties."""

    place: str
    name: str
    ended: str
    message: str
    properties: dict[str, str]


def cases_of(results: Path) -> list[Case]:
    """Nothing without such a file."""
    if not results.exists():
        return []
    return [_case(found) for found in ElementTree.parse(results).iter("testcase")]


def _case(found: ElementTree.Element) -> Case:
    bad = next((part for kind in ("failure", "error") if (part := found.find(kind)) is not None), None)
    ended = "failed" if bad is not None else "skipped" if found.find("skipped") is not None else "passed"
    message = "" if bad is None else "".join(bad.get("message", "").splitlines()[:1])
    properties = {part.get("name", ""): part.get("value", "") for part in found.iter("property")}
    return Case(found.get("classname", ""), found.get("name", ""), ended, message, properties)
