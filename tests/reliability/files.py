"""Mutated files for every reader of the package: a typed error of one line, or a valid object; never anything else."""

from __future__ import annotations

import json
import math
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from reliability.attack import Report, TimedRow, add_to_journal, part_of, read_journal

ABOUT = "Mutated files for every reader: typed errors or valid objects, in bounded memory and time."
MINUTES = 65  # on two processors
ASKED = 1_000_000
PIECE = 5000  # numbers that a process has, less than a minute for all readers
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


def run(
    share: float,
    seed: int,
    report: Report,
    names: Sequence[str] = NAMES,
    worker: Path = WORKER,
    journal: Path | None = None,
    seconds: float = math.inf,
) -> list[TimedRow]:
    """Files of these numbers, in pieces, as many of them side by side as there are processors.

    Pieces that `journal` has are not read again, and none begins after `seconds`.
    """
    end, count, processors = time.monotonic() + seconds, part_of(ASKED, share), len(os.sched_getaffinity(0))
    pieces = [range(first, min(first + PIECE, count)) for first in range(0, count, PIECE)]
    known = {tuple(line["piece"]): line["rows"] for line in read_journal(journal)}

    def read_piece(numbers: range) -> dict[str, dict[str, Any]]:
        piece, begin = (seed, numbers.start, numbers.stop), time.monotonic()
        if piece in known or begin > end:
            return known.get(piece, {})
        rows = _read_piece(numbers, seed, names, worker)
        for row in rows.values():
            row.seconds = (time.monotonic() - begin) / len(rows) / processors
        ended = {name: {**row.as_json(), "seconds": row.seconds} for name, row in rows.items()}
        add_to_journal(journal, {"piece": piece, "rows": ended})
        wrong = sum(len(row.failures) for row in rows.values())
        report(f"numbers {numbers.start} to {numbers.stop - 1} of each reader: {wrong} files ended badly")
        return ended

    rows = {name: TimedRow(name, ASKED) for name in names}
    with ThreadPoolExecutor(processors) as pool:
        for ended in pool.map(read_piece, pieces):
            for name, told in ended.items():
                rows[name].tried += told["tried"]
                rows[name].failures += told["failures"]
                rows[name].seconds += told["seconds"]
    for row in rows.values():
        row.remark = REMARK if row.what.startswith("Matrix Market") or row.what == "SciPy .npz" else ""
    return list(rows.values())


def _read_piece(numbers: range, seed: int, names: Sequence[str], worker: Path) -> dict[str, TimedRow]:
    """The files of these numbers, for each reader; a process that ends before its end is followed by another."""
    rows = {name: TimedRow(name, ASKED) for name in names}
    left = {name: numbers.start for name in names}
    with TemporaryDirectory() as folder:
        while left:
            ended = _run_worker(worker, Path(folder), seed, numbers, rows, left)
            if not left:
                break
            name = next(iter(left))
            number = struct.unpack("<q", (Path(folder) / "now").read_bytes())[0]
            rows[name].failures.append(f"seed {seed}, number {number}: {ended}")
            left[name] = max(number, left[name]) + 1
            if number < 0 or left[name] >= numbers.stop or len(rows[name].failures) > MOST_SHOWN:
                rows[name].tried = min(max(number + 1, numbers.start), numbers.stop) - numbers.start
                del left[name]
    return rows


def _run_worker(
    worker: Path, folder: Path, seed: int, numbers: range, rows: dict[str, TimedRow], left: dict[str, int]
) -> str:
    """One process, to its end; how it ended. What it has done is in `rows`, and is no longer in `left`."""
    jobs = [f"{name}:{first}:{numbers.stop}" for name, first in left.items()]
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
            row.tried = told["done"] - numbers.start
            left.pop(row.what)
        elif len(row.failures) < MOST_SHOWN:
            row.failures.append(f"seed {seed}, number {told['number']}: {told['wrong']}")
    said = process.stderr.read() if process.stderr else ""
    status = process.wait()
    if status == -signal.SIGALRM:
        return "a hang"
    return f"status {status}: {' '.join(said.split())[:300]}"
