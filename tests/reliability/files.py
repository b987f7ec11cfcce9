"""Mutated files for every reader of the package: a typed error of one line, or a valid object; never anything else."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from reliability.attack import Report, Row, part_of

ABOUT = "Mutated files for every reader: typed errors or valid objects, in bounded memory and time."
MINUTES = 90
ASKED = 1_000_000
NAMES = (
    "Matrix Market",
    "Matrix Market, packed",
    "PETSc binary",
    "SciPy .npz",
    "tuned options",
    "compiled kernels",
    "results of bench",
    "counters of ncu",
)
WORKER = Path(__file__).with_name("file_worker.py")
MOST_SHOWN = 20
REMARK = "row pointers of rows that a file counts and does not have come on top of four times the file"


def run(share: float, seed: int, report: Report, names: Sequence[str] = NAMES, worker: Path = WORKER) -> list[Row]:
    rows = {name: Row(name, ASKED) for name in names}
    count = part_of(ASKED, share)
    left = {name: 0 for name in names}
    with TemporaryDirectory() as folder:
        while left:
            jobs = [f"{name}:{first}:{count}" for name, first in left.items()]
            ended = _run_worker(worker, Path(folder), seed, jobs, rows, left, report)
            if not left:
                break
            name = next(iter(left))
            number = struct.unpack("<q", (Path(folder) / "now").read_bytes())[0]
            rows[name].failures.append(f"seed {seed}, number {number}: {ended}")
            left[name] = max(number, left[name]) + 1
            if number < 0 or left[name] >= count or len(rows[name].failures) > MOST_SHOWN:
                rows[name].tried = min(max(number + 1, 0), count)
                del left[name]
    for row in rows.values():
        row.remark = REMARK if row.what.startswith("Matrix Market") or row.what == "SciPy .npz" else ""
    return list(rows.values())


def _run_worker(
    worker: Path, folder: Path, seed: int, jobs: list[str], rows: dict[str, Row], left: dict[str, int], report: Report
) -> str:
    """One process, to its end; how it ended. What it has done is in `rows`, and is no longer in `left`."""
    (folder / "now").write_bytes(struct.pack("<q", -1))
    process = subprocess.Popen(
        [sys.executable, str(worker), str(folder), str(seed), *jobs],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if worker == WORKER else subprocess.DEVNULL,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert process.stdout
    for line in process.stdout:
        if not line.startswith("{"):
            continue  # PETSc's warnings
        told = json.loads(line)
        row = rows[told["reader"]]
        if "done" in told:
            row.tried = told["done"]
            left.pop(row.what)
            report(f"{row.what}: {row.tried} files, {len(row.failures)} ended badly")
        elif len(row.failures) < MOST_SHOWN:
            row.failures.append(f"seed {seed}, number {told['number']}: {told['wrong']}")
    said = process.stderr.read() if process.stderr else ""
    status = process.wait()
    if status == -signal.SIGALRM:
        return "a hang"
    return f"status {status}: {' '.join(said.split())[:300]}"
