"""The tables of whole programs on the page with the results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from petsc_gpufmt.bench.report.markdown import number, section, table

FIRST_TEXT = """\
The steps of the programs of one product, in ms: until `main`, PetscInitialize, creation, assembly, vectors, the first
product and the second one, each with a norm that waits for it, and the end.
"""
NEW_VALUES_TEXT = """\
Values at coordinates, from an array of the device, in ms: MatSetPreallocationCOO; the first values with the first
product; later ones, each with a product; and a product alone. All products have a norm that waits for them.
"""
SET_UPS_TEXT = """\
Two solvers in one process, one after the other, in ms: KSPSetUp and KSPSolve, each until the device has ended; of the
set-up, symbolic and numeric phases of the Galerkin products.
"""
STEP_TABLES = (
    ("mult1", "Whole programs: a first product", FIRST_TEXT),
    ("values_and_mult", "Whole programs: new values", NEW_VALUES_TEXT),
    ("set_up1", "Whole programs: two set-ups of GAMG", SET_UPS_TEXT),
)
"""A step that a program prints, and the table of the programs that print it."""

GAMG_TEXT = """\
`aijcusparse` has PETSc's set-up of type agg, ours are as they are by default; in `ex14-gamg-agg` all have agg. PCSetUp
and KSPSolve are medians of runs as users make them; the phases of the Galerkin products, of all set-ups together, are
of a run in which PETSc waits for the device after each event. *GB* is the most memory of a GPU that was in use, with
the context of the driver.
"""

TEXT = """\
Wall clock from the start of a process to its end, in seconds, medians. Programs run in turn with PETSc's type and with
ours, every second time in the opposite order; *ratio* is the median over the pairs of our seconds to PETSc's, beside it
the least and the largest. *empty caches*: the first run on a machine, which compiles kernels that did not come with
the package. *outside SNESSolve*: what is left of the wall clock without that event, with the start and the end of the
process. Behind it the events of `-log_view` in the median, in seconds: *start* is what of the start of Python was
waited for, *compile* the wait for compilers, which is within *plan*, storing matrices. What the programs are:
[waiting.md](waiting.md).
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
    """A row for each program and type; hierarchies of GAMG; and the steps of programs that tell them."""
    entries = [(case, entry) for run in runs for case in run["cases"] for entry in case["entries"]]
    events = [name for name in EVENT_COLUMNS if any(name in events_of(entry) for _, entry in entries)]
    heading = ["program", "size", "type", "pairs", "s", "ratio", "least", "largest", "empty caches"]
    heading += ["outside SNESSolve", *(EVENT_COLUMNS[name] for name in events)]
    rows = [(program_row(case, entry, events) + ["-"] * len(heading))[: len(heading)] for case, entry in entries]
    sections = [section("Whole programs", TEXT, table(heading, rows))]
    sections += [gamg_section(entries)] if any(has_hierarchy(entry) for _, entry in entries) else []
    for step, title, text in STEP_TABLES:
        chosen = [(case, entry) for case, entry in entries if step in entry.get("warm", {}).get("steps", {})]
        if chosen:
            sections.append(section(title, text, steps_table(chosen)))
    return sections


def steps_table(entries: Sequence[tuple[dict[str, Any], dict[str, Any]]]) -> str:
    steps = list(entries[0][1]["warm"]["steps"])
    rows = [
        [*head(case, entry), *(number(entry["warm"]["steps"][step] * 1e3) for step in steps)] for case, entry in entries
    ]
    return table(["program", "size", "type", *steps], rows)


def has_hierarchy(entry: dict[str, Any]) -> bool:
    return "warm" in entry and "operator_complexity" in entry.get("observed", {})


def gamg_section(entries: Sequence[tuple[dict[str, Any], dict[str, Any]]]) -> str:
    """Programs with a hierarchy of GAMG: what its set-up and its use take, and how good it is."""
    heading = ["program", "size", "type", "PCSetUp s", "symbolic ms", "numeric ms", "KSPSolve s"]
    heading += ["Newton / Krylov", "operator complexity", "GB"]
    rows = [
        [
            *head(case, entry),
            number(seconds(entry["warm"], "PCSetUp")),
            *(number(seconds(entry["observed"], f"MatPtAP{name}", 1e-3)) for name in ("Symbolic", "Numeric")),
            number(seconds(entry["warm"], "KSPSolve")),
            f"{entry['newton_iterations']} / {entry['krylov_iterations']}",
            f"{entry['observed']['operator_complexity']:g}",
            number(gigabytes(entry["observed"])),
        ]
        for case, entry in entries
        if has_hierarchy(entry)
    ]
    return section("Whole programs: GAMG", GAMG_TEXT, table(heading, rows))


def seconds(run: dict[str, Any], event: str, unit: float = 1.0) -> float | None:
    return run["events"][event]["seconds"] / unit if event in run["events"] else None


def gigabytes(observed: dict[str, Any]) -> float | None:
    most = observed.get("device_bytes")
    return None if most is None else most / 1e9


def events_of(entry: dict[str, Any]) -> dict[str, Any]:
    return entry.get("warm", {}).get("events", {})


def head(case: dict[str, Any], entry: dict[str, Any]) -> list[str]:
    several = f", {case['ranks']} ranks" if case.get("ranks", 1) > 1 else ""
    return [case["program"] + several, str(case["size"]), entry["mat_type"]]


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
