"""The table of MatMult over the ranks."""

from __future__ import annotations

from typing import Any

from petsc_gpufmt.bench.report.markdown import microseconds, table
from petsc_gpufmt.bench.scaling import Case, contender, efficiency, gflops, lines_of

Run = dict[str, Any]


def title(run: Run) -> str:
    """What was measured, with what."""
    facts = "{gpu}, PETSc {petsc}, commit {commit:.7}, {date}".format(**run["environment"])
    return f"{run['name'][0].upper()}{run['name'][1:]}: {facts}.\n"


def matrix_name(case: Case) -> str:
    return f"{case['matrix']}{' on each' if case['weak'] else ''}"


def measured(run: Run) -> str:
    """A table of what `bench scaling` has measured, a line for each contender and number of ranks."""
    peers = {(case["matrix"], case["ranks"]): case for case in run["cases"] if not case["ours"]}
    rows = []
    for *_, of_line in lines_of(run["cases"]):
        for case in of_line:
            peer = peers.get((case["matrix"], case["ranks"])) if case["ours"] else None
            spread = "-".join(microseconds(case[key]) for key in ("least_seconds", "largest_seconds"))
            times = (microseconds(case["seconds"]), spread, f"{gflops(case):.0f}")
            speed = efficiency(case, of_line[0]) * case["ranks"]
            relative = (f"{speed:.2f}", f"{speed / case['ranks']:.2f}") if of_line[0]["ranks"] == 1 else ("", "")
            against = f"{peer['seconds'] / case['seconds']:.2f}" if peer else ""
            rows.append((matrix_name(case), contender(case), str(case["ranks"]), *times, *relative, against))
    head = (
        "matrix",
        "type, mode",
        "ranks",
        "us",
        "least-largest",
        "GF/s",
        "speed-up",
        "efficiency",
        "aijcusparse / ours",
    )
    return f"{title(run)}\n{table(head, dict.fromkeys(rows))}"
