"""The tables of the page with the results that are of the project's own benchmarks: from C, and the Bratu problem."""

from __future__ import annotations

from typing import Any

from bratu import GALERKIN_EVENTS, SOLVERS, galerkin_seconds, matmult_seconds

from petsc_gpufmt.bench.report.markdown import microseconds, number, section, table
from petsc_gpufmt.bench.report.mult_tables import after_comma

BRATU_TEXT = """\
PETSc's SNES tutorial ex14, unmodified, with `{options}`.
SNESSolve and KSPSolve are from a run as users make it, the rest from one with `-log_view_gpu_time`, which waits for the
device after each event. *plan* stores the pattern of a matrix: the first one starts Python and CuPy and is logged
beside the solver's events, not inside them. *refresh* brings new values and is part of MatMult. Copies and flops are
those inside KSPSolve.
"""
GALERKIN_TEXT = """\
*PtAP* are the Galerkin products of the set-up, their symbolic and their numeric phases, each with its calls.
"""


def from_c_section(run: dict[str, Any]) -> str:
    rows = [
        (
            *(case[key] for key in ("matrix", "mat_type", "vec_type")),
            *(microseconds(case[f"{name}_seconds"]) for name in ("host", "back_to_back")),
        )
        for case in run["cases"]
    ]
    return section("MatMult from C", table(("matrix", "type", "vectors", "host us", "back to back us"), rows))


def bratu_section(run: dict[str, Any]) -> str:
    entries = [(case, entry) for case in run["cases"] for entry in case["runs"]]
    galerkin = any(galerkin_seconds(entry, "numeric") is not None for _, entry in entries if "skipped" not in entry)
    heading = (
        *("grid", "type", "Newton / Krylov", "SNESSolve s", "KSPSolve s", "MatMult s", "calls"),
        *("plan s", "refresh s", "copies to GPU", "flops on GPU %"),
        *(("PtAP symbolic ms", "calls", "PtAP numeric ms", "calls") if galerkin else ()),
    )
    rows = [(bratu_row(case, entry, galerkin) + ("-",) * len(heading))[: len(heading)] for case, entry in entries]
    preconditioner = "gamg" if "GAMG" in run["name"] else "jacobi"
    text = BRATU_TEXT.format(options=" ".join(SOLVERS[preconditioner]))
    return section(
        f"Bratu problem{after_comma(run['name'])}", text, GALERKIN_TEXT if galerkin else "", table(heading, rows)
    )


def bratu_row(case: dict[str, Any], entry: dict[str, Any], galerkin: bool) -> tuple[str, ...]:
    head = f"{case['grid']}^3", entry["mat_type"]
    if "skipped" in entry:
        return *head, entry["skipped"]
    events, mult = entry["asynchronous"]["events"], matmult_seconds(entry)
    gpu = entry["synchronous"]["gpu"].get("KSPSolve", {"to_gpu_count": None, "gpu_flop_percent": None})
    return (
        *head,
        f"{entry['newton_iterations']} / {entry['krylov_iterations']}",
        *(number(events[name]["seconds"]) for name in ("SNESSolve", "KSPSolve")),
        number(mult["total"]),
        str(entry["synchronous"]["events"]["MatMult"]["count"]),
        *(number(mult[name]) for name in ("plan", "refresh")),
        *(number(gpu[name]) for name in ("to_gpu_count", "gpu_flop_percent")),
        *(galerkin_cells(entry) if galerkin else ()),
    )


def galerkin_cells(entry: dict[str, Any]) -> list[str]:
    """Milliseconds and calls of both phases."""
    events = [entry["synchronous"]["events"].get(name) for name in GALERKIN_EVENTS.values()]
    return [text for e in events for text in ((number(e["seconds"] * 1e3), str(e["count"])) if e else ("-", "-"))]
