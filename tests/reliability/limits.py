"""Sizes beyond 32 bits, with real memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from petsc_gpufmt.bench.environment import gpu_environment
from petsc_gpufmt.choice.registry import FORMATS
from reliability import children
from reliability.attack import Report, Row, part_of

ABOUT = (
    "Matrices whose padding passes 2^31 entries, and rows of 10^8: the product is exact, or refused in one line that "
    "says how much memory it needs. Other limits are tested without memory for them."
)
MINUTES = 3
ROWS, LONGEST = 1_000_000, 2200  # 2.2e9 stored entries, 26 GB
ENTRIES, FEW_ROWS = 100_000_000, 3
SLICED = {"mat_pjds_sigma_window": 1, "mat_pjds_slice_height": 32}  # a long row in each slice
PADDED = ("aijellpack", "aijellpackr", "aijpjds")
OF_JAGGED_DIAGONALS = ("aijjds",)
GIGABYTES = {"padded": (60, 10), "long row": (12, 12), "long row, padded": (24, 12)}
"""Of the host, for a full run, without a GPU and with one: there the stored matrix is on the device."""
SECONDS = 300.0


def cases(share: float) -> list[tuple[str, str, tuple[int, int], list[str], dict[str, int]]]:
    """Rows with the kind of matrix, its size, types and options; in part, matrices are smaller."""
    stored, entries = f"{ROWS * LONGEST * share:.2g}", f"{part_of(ENTRIES, share):.2g}"
    others = [f"aij{name}" for name in FORMATS if f"aij{name}" not in OF_JAGGED_DIAGONALS]
    size = part_of(ROWS, share), LONGEST
    return [
        (f"{stored} stored entries", "padded", size, list(PADDED), SLICED),
        (f"a row of {entries} entries", "long row", (part_of(ENTRIES, share), FEW_ROWS), others, {}),
        (
            *(f"a row of {entries} entries, each padded to 16", "long row, padded"),
            *((part_of(ENTRIES, share), FEW_ROWS), list(OF_JAGGED_DIAGONALS), {}),
        ),
    ]


def try_all(share: float, report: Report, off_by: float = 0.0, only: Sequence[str] = ()) -> list[Row]:
    """Rows of all kinds of matrices, or of those whose names begin with a word of `only`."""
    rows, on_device = [], bool(gpu_environment())
    for case in [case for case in cases(share) if not only or case[1].startswith(tuple(only))]:
        row, kind, _, types, _ = case
        needed = GIGABYTES[kind][on_device] * share
        if (there := available_gigabytes()) < needed:
            rows.append(Row(row, len(types), 0, [], f"needs {needed:.0f} GB of memory, {there:.0f} are free"))
            continue
        request = {"cases": [case], "seconds": SECONDS, "off_by": off_by}
        found = children.run("limits_child", [json.dumps(request)], 1, report, seconds=2 * SECONDS)
        rows += [Row(what, asked, tried, bad) for what, (asked, tried, bad) in found.items()]
    return rows


def available_gigabytes() -> float:
    """Of the host's memory, as the kernel says; 0 where it does not."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) * 1024 / 1e9 for line in lines if line.startswith("MemAvailable")), 0.0)


def run(share: float, seed: int, report: Report, only: Sequence[str] = ()) -> list[Row]:
    rows = try_all(share, report, only=only)
    report(f"{sum(row.tried for row in rows)} matrices")
    return rows
