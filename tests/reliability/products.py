"""Products with a vector of matrices of all kinds of rows: each row is right to within what is promised."""

from __future__ import annotations

import json

from petsc_gpufmt.choice.registry import FORMATS
from reliability import children
from reliability.attack import Report, Row, part_of, ranks_in_words

ABOUT = (
    "Products with a vector, and of the transpose, of random matrices whose rows have few, many, repeated, unsorted or "
    "no entries, of any size, zeros among them: each row is off by (nnz_row + 2) eps (|A| |x|)_row at most. What the "
    "result held before does not matter, and NaN and infinities in x reach the rows that have an entry there alone. "
    "Of a transpose on several ranks each may add a rounding."
)
MINUTES = 5
ROWS = {1: 1_000_000, 2: 100_000, 3: 100_000, 4: 50_000, 8: 50_000}
"""To be compared of each type, by the number of ranks."""
BATCH = 5000  # of one or several matrices


def try_all(ranks: int, nrows: int, seed: int, report: Report, planted: bool = False) -> list[Row]:
    """A row for each type: of the matrix, as the rows of its transpose come on top."""
    types = [f"aij{name}" for name in FORMATS]
    request = {"types": types, "batches": max(1, nrows // BATCH), "rows": BATCH, "seed": seed, "planted": planted}
    found = children.run("products_child", [json.dumps(request)], ranks, report)
    report(f"{ranks_in_words(ranks)}: {sum(tried for _, tried, _ in found.values())} batches of {BATCH} rows")
    return [
        Row(f"rows of products of {what}, {ranks_in_words(ranks)}", asked * BATCH, tried * BATCH, bad)
        for what, (asked, tried, bad) in found.items()
    ]


def run(share: float, seed: int, report: Report) -> list[Row]:
    return [row for ranks, nrows in ROWS.items() for row in try_all(ranks, part_of(nrows, share), seed, report)]
