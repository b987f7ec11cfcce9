"""Reads what PETSc prints of a run: the two forms of -log_view, iterations of solvers, sizes of hierarchies."""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path
from typing import Any

from petsc_gpufmt.bench.errors import BenchError

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


def read_iterations(output: str) -> dict[str, int]:
    """Newton and Krylov iterations from what -snes_converged_reason and -ksp_converged_reason print."""
    newton = [int(count) for count in re.findall(r"Nonlinear solve converged due to \w+ iterations (\d+)", output)]
    krylov = [int(count) for count in re.findall(r"Linear solve converged due to \w+ iterations (\d+)", output)]
    if not krylov or "solve did not converge" in output:
        raise BenchError(f"the program did not print the iterations of solves that converged; it printed:\n{output}")
    return {"newton_iterations": sum(newton), "krylov_iterations": sum(krylov)}


def read_complexity(output: str) -> dict[str, float]:
    """The operator complexity of GAMG from the last of what -ksp_view prints; nothing where it was not printed."""
    found = re.findall(r"Complexity: +grid = \S+ +operator = (\S+)", output)
    return {"operator_complexity": float(found[-1])} if found else {}


def agreement(entries: list[dict[str, Any]]) -> list[str]:
    """What differs from the first type: Newton iterations, or Krylov iterations by more than 1 and 1 in 100."""
    complaints, measured = [], [entry for entry in entries if "skipped" not in entry]
    for entry in measured[1:]:
        first = measured[0]
        same = entry["newton_iterations"] == first["newton_iterations"]
        allowed = max(1, 0.01 * first["krylov_iterations"])
        if not same or abs(entry["krylov_iterations"] - first["krylov_iterations"]) > allowed:
            counts = [
                f"{e['mat_type']} {e['newton_iterations']} Newton, {e['krylov_iterations']} Krylov"
                for e in (first, entry)
            ]
            complaints.append(f"iterations differ: {' against '.join(counts)}")
    return complaints
