"""Ctrl-C in the middle of operations."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

from reliability import children
from reliability.attack import Report, Row, part_of

ABOUT = (
    "SIGINT at moments spread over an operation: it ends within 10 s, and the same objects work afterwards. At every "
    "second moment Python has a profile function, in which it sees interrupts sooner. Then the same, and the program "
    "ends by it."
)
MINUTES = 4
MOMENTS = 40
ENDING, ENDINGS = Path(__file__).with_name("interrupted_end.py"), 8
ENDED = {0, 1, -signal.SIGINT, 128 + signal.SIGINT}
"""Statuses of a program that was over, or ended by an exception, or by Ctrl-C."""
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


def end_all(names: tuple[str, ...], moments: int, limit: float = 10.0) -> list[Row]:
    """The same of programs that end then."""
    rows = []
    for name in names:
        ends = [_end_of(name, (k + 0.5) / moments * 1.2, k % 2, limit) for k in range(moments)]
        bad = [f"moment {k} of {moments}: {end}" for k, end in enumerate(ends) if end]
        rows.append(Row(f"SIGINT in {name}, and the end", moments, len(ends), bad))
    return rows


def _end_of(name: str, share: float, traced: int, limit: float) -> str:
    """What is wrong with the end of a program that gets SIGINT after a share of an operation's time."""
    command = [sys.executable, ENDING, name, str(SIZES.get(name, 1500)), str(traced)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            time.sleep(share * float(process.stdout.readline()))
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            process.kill()
            return f"it did not end in {limit:g} s"
    return "" if process.returncode in ENDED else f"status {process.returncode}: {errors[-300:]}"


def run(share: float, seed: int, report: Report) -> list[Row]:
    if share < QUICK_SHARE:
        return try_all(QUICK_OPERATIONS, 4, report) + end_all(QUICK_OPERATIONS, 2)
    rows = end_all(OPERATIONS, part_of(ENDINGS, share))
    return try_all(OPERATIONS, part_of(MOMENTS, share), report) + rows
