"""The tables of solvers: iterations against PETSc's methods, and solves to the same residual."""

from __future__ import annotations

from typing import Any

from petsc_gpufmt.bench.ksp import METHODS, Case, mean_lines, ratios
from petsc_gpufmt.bench.report.markdown import microseconds, number, table

Run = dict[str, Any]


def named(case: Case) -> tuple[str, str]:
    return case["matrix"], str(case["ranks"])


def iterations_table(run: Run) -> str:
    """A line for each matrix, ranks, method and type of ours; empty if no method of PETSc's was measured."""
    rows, cases = [], run["cases"]
    for ours in cases:
        method = next((name for name, of_ours in METHODS.items() if of_ours == ours["ksp"]), None)
        same = {case["label"]: case for case in cases if named(case) == named(ours)}
        peer, petscs = same.get(ours["against"]), same.get(f"{method}, {ours['matrix_type']}")
        if peer and petscs:
            times = [case["iteration_seconds"] for case in (peer, petscs, ours)]
            shown = [microseconds(seconds) if seconds else "-" for seconds in times]
            rows.append((*named(ours), ours["label"], *shown, number(ratios(ours, cases)[0])))
    head = ("matrix", "ranks", "ours", "peer us", "PETSc's method us", "ours us", "peer / ours")
    return table(head, rows) if rows else ""


def solves_table(run: Run) -> str:
    """A line for each solver that is compared with another one, to the same true residual."""
    rows, cases = [], run["cases"]
    for case in cases:
        other = next((o for o in cases if named(o) == named(case) and o["label"] == case["against"]), None)
        if other:
            one, two = (
                (of["label"], str(of["iterations"]), number(of["solve_seconds"] * 1e3), f"{of['residual']:.1e}")
                for of in (other, case)
            )
            rows.append((*named(case), *one, *two, number(ratios(case, cases)[1])))
    of_each = ("iterations", "ms", "residual")
    head = ("matrix", "ranks", "reference", *of_each, "solver", *of_each, "times as fast")
    return table(head, rows) if rows else ""


def make_tables(run: Run) -> str:
    """Of one run: iterations, whole solves, and means of both."""
    facts = "{gpu}, PETSc {petsc}, commit {commit:.7}, {date}".format_map({"gpu": "host"} | run["environment"])
    means = "".join(f"- {line}\n" for line in mean_lines(run["cases"]))
    parts = (f"{run['name']}: {facts}.\n", iterations_table(run), solves_table(run), means)
    return "\n".join(part for part in parts if part)
