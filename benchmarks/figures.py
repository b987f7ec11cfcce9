"""Figures to reach: what one is, and how it is found among the results."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

MICROSECOND = 1e-6
MILLISECOND = 1e-3

Runs = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Measured:
    """A figure of this package, what gave it (format or matrix) and, where there is one, the best of its peers."""

    value: float
    best_peer: float | None = None
    by: str = ""


@dataclass(frozen=True)
class Target:
    """What is measured, the largest value allowed (the least, if `at_least`), its unit, and how it is found.

    `find` gives None where the results lack it.
    """

    what: str
    limit: float
    unit: str
    find: Callable[[Runs], Measured | None]
    at_least: bool = False

    def reached(self, measured: Measured) -> bool:
        return measured.value >= self.limit if self.at_least else measured.value <= self.limit


def all_cases(runs: Runs, *names: str) -> list[dict[str, Any]]:
    return [case for name in names for case in runs.get(name, {"cases": []})["cases"]]


def device_products(case: dict[str, Any]) -> list[dict[str, Any]]:
    """The products of a case that ran on the device and came out right."""
    return [p for p in case["products"] if p["place"] == "cuda" and p.get("correct")]


def best_of(entries: Iterable[dict[str, Any]], name: str, figure: str, unit: float = MICROSECOND) -> Measured | None:
    """The least of our figures, in units of `unit`, and the least of the peers'; both `name` and `figure` are keys."""
    ours: list[tuple[float, str]] = []
    peers: list[tuple[float, str]] = []
    for entry in entries:
        (ours if entry["ours"] else peers).append((entry[figure] / unit, entry[name]))
    return Measured(min(ours)[0], min(peers)[0] if peers else None, min(ours)[1]) if ours else None
