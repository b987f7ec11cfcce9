"""Reads the two forms of PETSc's -log_view."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path
from typing import Any

GPU_COLUMNS = (
    "gpu_mflop_per_second",
    "to_gpu_count",
    "to_gpu_megabytes",
    "from_gpu_count",
    "from_gpu_megabytes",
    "gpu_flop_percent",
)


def read_csv_events(path: Path, names: Collection[str]) -> dict[str, dict[str, float]]:
    """Calls and seconds, of the slowest rank and over all stages, of events in the form ``:file:ascii_csv``."""
    count: dict[tuple[str, str], int] = defaultdict(int)
    seconds: dict[tuple[str, str], float] = defaultdict(float)
    with path.open(newline="") as lines:
        for line in csv.DictReader(lines):
            key = line["Event Name"], line["Rank"]
            if key[0] in names and int(line["Count"]):
                count[key] += int(line["Count"])
                seconds[key] += float(line["Time"])
    return {
        name: {"count": max(count[key] for key in keys), "seconds": max(seconds[key] for key in keys)}
        for name in names
        if (keys := [key for key in count if key[0] == name])
    }


def read_gpu_columns(path: Path, names: Collection[str]) -> dict[str, dict[str, Any]]:
    """The GPU columns of the text form, of the stage in which an event comes first; None stands for n/a."""
    lines = path.read_text().splitlines()
    if not any("CpuToGpu" in line for line in lines):
        return {}
    columns: dict[str, dict[str, Any]] = {}
    for line in lines:
        words = line.split()
        if len(words) > len(GPU_COLUMNS) and words[0] in names and words[0] not in columns:
            values = words[-len(GPU_COLUMNS) :]
            columns[words[0]] = {
                name: None if value == "n/a" else float(value) for name, value in zip(GPU_COLUMNS, values, strict=True)
            }
    return columns
