"""Whole programs in turn with PETSc's type and with ours: wall-clock seconds, and what the pairs' ratios say."""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from petsc_gpufmt.bench.command import progress
from petsc_gpufmt.bench.compiled import ProgramError
from petsc_gpufmt.bench.errors import BenchError
from petsc_gpufmt.bench.log_view import agreement
from petsc_gpufmt.bench.memory_watch import MemoryWatch
from petsc_gpufmt.bench.mpiexec import launcher
from petsc_gpufmt.bench.programs import Program, run_once

SHOWN_EVENTS = ("SNESSolve", "KSPSolve", "PCSetUp", "MatMult", "GpufmtStart", "GpufmtCompile", "GpufmtPlan")

OBSERVED = ("events", "operator_complexity", "device_bytes")
"""Of the first run of a type, in which PETSc waits for the device after each event."""


@dataclass(frozen=True)
class Setting:
    """How a program is measured.

    Attributes
    ----------
    program, size : what runs
    path : the program, compiled, or in Python
    types : of matrices; the first is PETSc's, with which ours are compared
    on_device : else on the host alone
    pairs : runs of each type that count
    cold : runs of ours with empty caches of kernels
    limit : seconds after which a run is ended
    ranks : of MPI
    mpiexec : starts MPI programs; None for that of the MPI which PETSc links
    """

    program: Program
    size: int
    path: Path
    types: Sequence[str]
    on_device: bool
    pairs: int
    cold: int
    limit: float
    ranks: int = 1
    mpiexec: str | None = None

    def command(self, matrix_type: str) -> list[str]:
        start = launcher(self.ranks, self.mpiexec)
        return [*start, *self.program.command(self.path, self.size, matrix_type, self.on_device)]

    def observe(self, matrix_type: str) -> dict[str, Any]:
        """A run that does not count: PETSc waits for the device after each event and shows its solvers."""
        words = ["-log_view_gpu_time", *(["-ksp_view"] if self.program.solves else [])]
        with MemoryWatch() as memory:
            run = run_once([*self.command(matrix_type), *words], self.program, self.limit)
        return run | {"device_bytes": memory.most_bytes}

    def run(self, matrix_type: str) -> dict[str, Any]:
        return run_once(self.command(matrix_type), self.program, self.limit)

    def run_cold(self, matrix_type: str) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as caches:
            return run_once(self.command(matrix_type), self.program, self.limit, Path(caches))


def new_case(setting: Setting) -> dict[str, Any]:
    """What is known before anything runs."""
    return {
        "program": setting.program.name,
        "size": setting.size,
        "size_counts": setting.program.size,
        "place": "cuda" if setting.on_device else "host",
        "ranks": setting.ranks,
        "options": " ".join(setting.program.arguments(setting.size, "TYPE", setting.on_device)[2:]),
        "own_options": " ".join(setting.program.own_options),
        "petsc_options": os.environ.get("PETSC_OPTIONS", ""),
        "peer": setting.types[0],
        "entries": [{"mat_type": name, "ours": name != setting.types[0]} for name in setting.types],
    }


def measure_program(
    setting: Setting, case: dict[str, Any], show: Callable[[str], None], changed: Callable[[], None]
) -> list[str]:
    """Fill `case`, which `changed` is told of after each step; what is wrong with ours, a line each.

    Each type runs once before anything counts: memory is touched, caches of kernels are filled, and what the run does
    is observed. Then ours run with empty caches, then all in turn, every second time in the opposite order.
    """
    entries = case["entries"]
    for entry in entries:
        if run := attempt(entry, setting.observe, show):
            entry["warm_up_seconds"] = run["seconds"]
            entry["observed"] = {name: run[name] for name in OBSERVED if name in run}
            show(f"  {entry['mat_type']:14}{run['seconds']:9.3f} s  to warm up{observed_text(entry['observed'])}")
    for entry in entries[1:]:
        cold: list[dict[str, Any]] = []
        for _ in range(setting.cold):
            if run := attempt(entry, setting.run_cold, show):
                entry["cold"] = summary(cold := [*cold, run])
                show(f"  {entry['mat_type']:14}{run['seconds']:9.3f} s  with empty caches")
    changed()
    warm: dict[str, list[dict[str, Any]]] = {entry["mat_type"]: [] for entry in entries}
    for number in range(setting.pairs):
        if all("skipped" in entry for entry in entries):
            break
        for entry in entries if number % 2 == 0 else entries[::-1]:
            if run := attempt(entry, setting.run, show):
                warm[entry["mat_type"]].append(run)
                entry["warm"] = summary(warm[entry["mat_type"]])
                entry |= {name: run[name] for name in ("newton_iterations", "krylov_iterations")}
        compare(entries)
        changed()
        show(round_line(number, warm))
    for line in entry_lines(entries):
        show(line)
    name = f"{setting.program.name} {setting.size}" + (f", {setting.ranks} ranks" if setting.ranks > 1 else "")
    failed = [f"{name}, {e['mat_type']}: {e['skipped']}" for e in entries if e["ours"] and "skipped" in e]
    return [*failed, *(f"{name}: {text}" for text in agreement(entries))]


def attempt(
    entry: dict[str, Any], measure: Callable[[str], dict[str, Any]], show: Callable[[str], None]
) -> dict[str, Any] | None:
    """A run of a type; None if it fails, or has failed before: the type is skipped from then on."""
    if "skipped" in entry:
        return None
    progress(f"{entry['mat_type']} runs")
    try:
        return measure(entry["mat_type"])
    except BenchError as e:
        entry["skipped"] = e.reason if isinstance(e, ProgramError) else str(e).splitlines()[0]
        show(f"  {entry['mat_type']:14}{entry['skipped']}")
        return None


def summary(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """All wall-clock seconds and their median, that of those outside SNESSolve, and the medians of steps and events."""
    names = dict.fromkeys(name for run in runs for name in run["events"])
    events = {name: [run["events"][name] for run in runs if name in run["events"]] for name in names}
    return {
        "seconds": [run["seconds"] for run in runs],
        "median_seconds": statistics.median(run["seconds"] for run in runs),
        "outside_seconds": outside(runs),
        "steps": {step: statistics.median(run["steps"][step] for run in runs) for step in runs[0]["steps"]},
        "events": {
            name: {"count": values[-1]["count"], "seconds": statistics.median(value["seconds"] for value in values)}
            for name, values in events.items()
        },
    }


def outside(runs: Sequence[dict[str, Any]]) -> float | None:
    """Median of the wall-clock seconds outside SNESSolve; None where there is no such event."""
    if any("SNESSolve" not in run["events"] for run in runs):
        return None
    return statistics.median(run["seconds"] - run["events"]["SNESSolve"]["seconds"] for run in runs)


def compare(entries: Sequence[dict[str, Any]]) -> None:
    """The ratios of our seconds to those of the peer, pair by pair: median, least and largest."""
    peer = entries[0].get("warm", {"seconds": []})["seconds"]
    for entry in entries[1:]:
        ours = entry.get("warm", {"seconds": []})["seconds"]
        ratios = [own / other for own, other in zip(ours, peer, strict=False)]
        if ratios:
            entry["ratio"] = {
                "pairs": len(ratios),
                "median": statistics.median(ratios),
                "least": min(ratios),
                "largest": max(ratios),
            }


def observed_text(observed: dict[str, Any]) -> str:
    """For the terminal: the operator complexity and the memory of the device, where they are known."""
    complexity, most = observed.get("operator_complexity"), observed.get("device_bytes")
    text = f", operator complexity {complexity:g}" if complexity else ""
    return text + (f", {most / 1e6:.0f} MB of the device" if most else "")


def round_line(number: int, warm: dict[str, list[dict[str, Any]]]) -> str:
    times = [f"{name} {runs[number]['seconds']:.3f} s" for name, runs in warm.items() if len(runs) > number]
    return f"  pair {number + 1}: {', '.join(times)}"


def entry_lines(entries: Sequence[dict[str, Any]]) -> list[str]:
    """For the terminal: medians, the ratio to the peer, and where the time went."""
    lines = []
    for entry in entries:
        if "warm" not in entry:
            continue
        warm, ratio = entry["warm"], entry.get("ratio")
        compared = f"{ratio['median']:6.3f} ({ratio['least']:.3f} to {ratio['largest']:.3f})" if ratio else ""
        events = {name: warm["events"][name]["seconds"] for name in SHOWN_EVENTS if name in warm["events"]}
        events |= {} if warm["outside_seconds"] is None else {"outside SNESSolve": warm["outside_seconds"]}
        parts = ", ".join(f"{name} {seconds:.4f}" for name, seconds in (warm["steps"] or events).items())
        lines.append(f"  {entry['mat_type']:14}{warm['median_seconds']:9.3f} s  {compared:26}{parts}")
    return [f"  {'median':>25}  ratio (least to largest)", *lines] if lines else []
