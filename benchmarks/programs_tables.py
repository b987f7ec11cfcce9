"""The tables of whole programs on the page with the results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markdown_parts import number, section, table

TEXT = """\
Wall clock from the start of a process to its end, in seconds, medians. Programs run in turn with PETSc's type and with
ours, every second time in the opposite order; *ratio* is the median over the pairs of our seconds to PETSc's, beside it
the least and the largest. *empty caches*: the first run on a machine, which compiles kernels that did not come with
the package. *outside SNESSolve*: what is left of the wall clock without that event, with the start and the end of the
process. Behind it the events of `-log_view` in the median, in seconds: *start* is what of the start of Python was
waited for, *compile* the wait for compilers, which is within *plan*, storing matrices. What the programs are:
[waiting.md](waiting.md).
"""
STEPS_TEXT = """\
The steps of the programs of one product, in ms: until `main`, PetscInitialize, creation, assembly, vectors, the first
product and the second one, each with a norm that waits for it, and the end.
"""
EVENT_COLUMNS = {
    "SNESSolve": "SNESSolve",
    "KSPSolve": "KSPSolve",
    "PCSetUp": "PCSetUp",
    "MatMult": "MatMult",
    "GpufmtStart": "start",
    "GpufmtCompile": "compile",
    "GpufmtPlan": "plan",
}


def programs_sections(runs: Sequence[dict[str, Any]]) -> list[str]:
    """A row for each program and type; and the steps of those that tell them."""
    entries = [(case, entry) for run in runs for case in run["cases"] for entry in case["entries"]]
    events = [name for name in EVENT_COLUMNS if any(name in events_of(entry) for _, entry in entries)]
    heading = ["program", "size", "type", "pairs", "s", "ratio", "least", "largest", "empty caches"]
    heading += ["outside SNESSolve", *(EVENT_COLUMNS[name] for name in events)]
    rows = [(program_row(case, entry, events) + ["-"] * len(heading))[: len(heading)] for case, entry in entries]
    sections = [section("Whole programs", TEXT, table(heading, rows))]
    with_steps = [(case, entry) for case, entry in entries if entry.get("warm", {}).get("steps")]
    if with_steps:
        steps = list(with_steps[0][1]["warm"]["steps"])
        rows = [
            [*head(case, entry), *(number(entry["warm"]["steps"][step] * 1e3) for step in steps)]
            for case, entry in with_steps
        ]
        sections.append(
            section("Whole programs: a first product", STEPS_TEXT, table(["program", "size", "type", *steps], rows))
        )
    return sections


def events_of(entry: dict[str, Any]) -> dict[str, Any]:
    return entry.get("warm", {}).get("events", {})


def head(case: dict[str, Any], entry: dict[str, Any]) -> list[str]:
    return [case["program"], str(case["size"]), entry["mat_type"]]


def program_row(case: dict[str, Any], entry: dict[str, Any], events: Sequence[str]) -> list[str]:
    if "warm" not in entry:
        return [*head(case, entry), entry.get("skipped", "-")]
    ratio = entry.get("ratio", {})
    return [
        *head(case, entry),
        str(len(entry["warm"]["seconds"])),
        number(entry["warm"]["median_seconds"]),
        *(number(ratio.get(name)) for name in ("median", "least", "largest")),
        number(entry["cold"]["median_seconds"] if "cold" in entry else None),
        number(entry["warm"]["outside_seconds"]),
        *(number(events_of(entry).get(name, {"seconds": None})["seconds"]) for name in events),
    ]
