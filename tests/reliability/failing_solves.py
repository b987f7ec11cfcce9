"""What goes wrong in the middle of a solve."""

from __future__ import annotations

import json

from reliability import children
from reliability.attack import Report, Row, ranks_in_words

ABOUT = (
    "Numbers that are none, and exceptions in callbacks, before and within solves: each ends within 10 s, on all ranks "
    "alike, with a reason or an error, and the next solve is right."
)
MINUTES = 1
RANKS = (1, 4)
SOLVERS = ("gpucg", "gpubcgs", "gpugmres", "gpufgmres", "mixedcg", "gpuchebyshev", "cg with gamg")
QUICK_SHARE = 0.05
QUICK_SOLVERS = ("gpucg", "gpugmres", "cg with gamg")
REMARKS = {
    "NaN in the matrix within a solve": "not with gpuchebyshev: PETSc's KSPCHEBYSHEV crashes there with aij too",
    "an exception in a preconditioner, on one rank": "on several ranks solvers of ours: in others ranks wait",
}


def try_all(solvers: tuple[str, ...], ranks: int, report: Report, planted: str = "") -> list[Row]:
    """A row for each way to fail."""
    request = {"solvers": solvers, "planted": planted}
    found = children.run("failing_child", [json.dumps(request)], ranks, report)
    where = ranks_in_words(ranks)
    return [
        Row(f"{what}, {where}", asked, tried, bad, REMARKS.get(what, "")) for what, (asked, tried, bad) in found.items()
    ]


def run(share: float, seed: int, report: Report) -> list[Row]:
    rows = []
    for ranks in RANKS:
        rows += try_all(SOLVERS if share >= QUICK_SHARE else QUICK_SOLVERS, ranks, report)
        report(f"{ranks} ranks: {sum(len(row.failures) for row in rows)} ended badly so far")
    return rows
