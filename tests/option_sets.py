"""Settings of each format's options under which its tests run."""

from __future__ import annotations

from itertools import product

from petsc_gpufmt.formats.pjds import ALL_ROWS, AUTOMATIC, SLICE_HEIGHTS

ALL_OPTION_SETS: dict[str, list[dict[str, int]]] = {
    "pjds": [
        {"slice_height": height, "sigma_window": window}
        for height, window in product(SLICE_HEIGHTS, (AUTOMATIC, ALL_ROWS, 1, 8))
    ],
}
"""Every combination that takes another path."""

QUICK_OPTION_SETS: dict[str, list[dict[str, int]]] = {
    "pjds": [
        {},
        {"slice_height": 8, "sigma_window": ALL_ROWS},
        {"slice_height": 128, "sigma_window": 8},
    ],
}
"""The default, and a few far from it."""


def option_id(options: dict[str, int]) -> str:
    return ",".join(f"{name}={value}" for name, value in options.items()) or "default"
