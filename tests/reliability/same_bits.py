"""The same bits in every run."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from petsc_gpufmt.choice.registry import FORMATS
from reliability import children
from reliability.attack import Report, Row, part_of, ranks_in_words

ABOUT = (
    "An operation is repeated in two processes, half of the times with new matrices: all results have the same bits."
)
MINUTES = 8
REPEATS, PROCESSES = 200, 2
QUICK_SHARE = 0.05
QUICK = [
    ("mult", "aijpjds"),
    ("multTranspose", "aijbsr"),
    ("ptap", "aijpjds"),
    ("GAMG solve", "aijpjds"),
    ("gpucg", "aijpjds"),
]
WITH_A_VECTOR = ("mult", "multAdd", "multTranspose")
LEFT_OUT = ("create", "convert", "convert back", "duplicate", "transpose", "submatrix", "view")
"""They move values and add none up."""
REMARKS = {"aijgpufmt": "with -mat_gpufmt_timed_after 0, as its page says"}


def jobs(share: float) -> list[tuple[str, str]]:
    """Operations and types: products with a vector of all formats, all others of pjds."""
    from reliability.operations import OPERATIONS

    if share < QUICK_SHARE:
        return QUICK
    types = [f"aij{name}" for name in FORMATS]
    others = [name for name in OPERATIONS if name not in (*WITH_A_VECTOR, *LEFT_OUT)]
    return [(name, t) for t in types for name in WITH_A_VECTOR] + [(name, "aijpjds") for name in others]


def try_all(given: list[tuple[str, str]], ranks: int, repeats: int, report: Report, count: int = 400) -> list[Row]:
    """Rows of the jobs, with matrices of `count` rows: repeats are counted in both processes."""
    rows: dict[str, Row] = {}
    with tempfile.TemporaryDirectory() as folder:
        for process in range(PROCESSES):
            request = {"jobs": given, "repeats": repeats, "digests": str(Path(folder, "digests")), "count": count}
            found = children.run("bits_child", [json.dumps(request)], ranks, report, PYTHONHASHSEED=str(process))
            for what, (asked, tried, bad) in found.items():
                remark = next((text for name, text in REMARKS.items() if name in what), "")
                row = rows.setdefault(what, Row(f"{what}, {ranks_in_words(ranks)}", 0, 0, [], remark))
                row.asked += asked * repeats
                row.tried += tried * repeats
                row.failures += [f"process {process}: {line}" for line in bad]
    return list(rows.values())


def run(share: float, seed: int, report: Report) -> list[Row]:
    rows = []
    for ranks in (1, 2) if share >= QUICK_SHARE else (1,):
        made = try_all(jobs(share), ranks, part_of(REPEATS, max(share, 0.02)), report)
        report(f"{ranks_in_words(ranks)}: {sum(row.tried for row in made)} results compared")
        rows += made
    return rows
