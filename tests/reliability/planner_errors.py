"""Exceptions where plans are made."""

from __future__ import annotations

import json

from reliability import children
from reliability.attack import Report, Row

ABOUT = "Each request to the planner fails on each rank in turn: an error on all ranks, and then all works again."
MINUTES = 5
PEER = {"mat_halo_mode": "peer"}
REMARK = "loops are of CUDA graphs, and other requests that no operation makes on this many ranks are not tried"


def jobs() -> list[tuple[str, dict[str, str]]]:
    from reliability.operations import OPERATIONS

    return [*((name, {}) for name in OPERATIONS), ("mult", PEER), ("gpucg", PEER)]


def try_all(ranks: int, step: int, seed: int, uses: int, report: Report, names: tuple[str, ...] = ()) -> list[Row]:
    """Every `step`-th combination of request, operation, exception and rank; `uses` operations of each request.

    `names` of operations, all if none, or of those with a defect that planner_child.py has.
    """
    request = {
        "jobs": [job for job in jobs() if not names or job[0] in names] or [(name, {}) for name in names],
        "type": "aijpjds",
        "step": step,
        "offset": seed,
        "uses": uses,
        "row": f"exceptions in plans, {ranks} ranks",
    }
    rows = children.run("planner_child", [json.dumps(request)], ranks, report)
    return [Row(row, asked, tried, bad, REMARK) for row, (asked, tried, bad) in rows.items()]


def run(share: float, seed: int, report: Report) -> list[Row]:
    rows, step = [], max(1, min(round(1 / share), 8))
    for ranks in (1, 2, 3) if share >= 0.05 else (1, 2):
        rows += try_all(ranks, step, seed, 99 if share == 1 else 2, report)
    return rows
