"""Ctrl-C in the middle of operations."""

from __future__ import annotations

import json

from reliability import children
from reliability.attack import Report, Row, part_of

ABOUT = (
    "SIGINT at moments spread over an operation: it ends within 10 s, and the same objects work afterwards. At every "
    "second moment Python has a profile function, in which it sees interrupts sooner."
)
MINUTES = 3
MOMENTS = 40
SIZES = {"mult": 3000, "create": 1000, "GAMG set-up": 1000, "GAMG solve": 1000, "gpucg": 3000, "gpugmres": 3000}
"""Rows of matrices; 1500 for sparse products."""
OPERATIONS = (
    *("create", "mult", "multTranspose", "matMult", "matMult again", "ptap", "ptap again", "rart", "COO"),
    *("axpy different", "GAMG set-up", "GAMG solve", "gpucg", "gpugmres"),
)
QUICK_SHARE = 0.05
QUICK_OPERATIONS = ("mult", "ptap", "GAMG set-up", "gpucg")


def try_all(names: tuple[str, ...], moments: int, report: Report, limit: float = 10.0) -> list[Row]:
    """Rows of the named operations."""
    request = {"jobs": [[name, SIZES.get(name, 1500)] for name in names], "moments": moments, "limit": limit}
    rows = children.run("interrupts_child", [json.dumps(request)], 1, report)
    return [Row(f"SIGINT in {row}", asked, tried, bad) for row, (asked, tried, bad) in rows.items()]


def run(share: float, seed: int, report: Report) -> list[Row]:
    names = OPERATIONS if share >= QUICK_SHARE else QUICK_OPERATIONS
    return try_all(names, part_of(MOMENTS, share) if share >= QUICK_SHARE else 4, report)
