"""Many processes that start at once on one cache; a cache that is damaged, and none."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import launch

from reliability.attack import Report, Row, part_of

ABOUT = (
    "Processes start at the same time on one cache of kernels and tuned options: it is empty, full, damaged in each "
    "file, or cannot be made. All get the right kernels, damaged ones are compiled anew, and what a user has to know "
    "is one line."
)
MINUTES = 2
PROCESSES, SECONDS = 64, 300.0
REMARK = "where there is no GPU, a compiler and a driver that only note what they are asked for"
KEPT = "are not kept"
TUNED = "its options are not used"


def cut(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data))]


def flipped(data: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << chance.randrange(8)]) + data[place + 1 :]


def damage(cache: Path, chance: random.Random) -> int:
    """Each file of kernels is cut, has a bit flipped, or is replaced by another one: how many there are."""
    files = sorted(cache.rglob("*.module"))
    whole = {path: path.read_bytes() for path in files}
    for number, path in enumerate(files):
        if number % 3 == 2:
            path.write_bytes(whole[files[number - 1]])
        else:
            path.write_bytes((cut if number % 3 else flipped)(whole[path], chance))
    return len(files)


def start(number: int, planted: str, **environment: str) -> list[dict]:
    """What each of so many processes says; one that does not end well says why."""
    program = Path(__file__).with_name("cold_child.py")
    command = [sys.executable, str(program), planted]
    started = [
        subprocess.Popen(
            command,
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        for _ in range(number)
    ]
    said = []
    for process in started:
        try:
            output, errors = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            output, errors = "", f"no end after {SECONDS:.0f} s"
        finally:
            launch.end_group(process)
        lines = [line for line in output.splitlines() if line.startswith("{")]
        bad = {"bad": [f"status {process.returncode}: {errors[-300:]}"], "compiled": 0, "warnings": []}
        said.append(json.loads(lines[-1]) if lines and not process.returncode else bad)
    return said


def judge(row: Row, said: list[dict], cache: Path, compiles: Callable[[int], bool], warnings: set[str]) -> None:
    """Into the row: what each process says, whether so many modules were compiled, and what is left in the cache."""
    row.tried += len(said)
    for number, process in enumerate(said):
        row.failures += [f"process {number}: {line}" for line in process["bad"]]
        counted = Counter(word for word in (KEPT, TUNED) for line in process["warnings"] if word in line)
        if set(counted) != warnings or any(times > 1 for times in counted.values()):
            row.failures.append(f"process {number}: warnings {process['warnings']}")
        row.failures += [f"process {number}: more than a line: {w!r}" for w in process["warnings"] if "\n" in w]
    compiled = sum(process["compiled"] for process in said)
    if not compiles(compiled):
        row.failures.append(f"{compiled} modules compiled by all processes")
    unfinished = [path.name for path in cache.rglob("*.module.*")] if cache.is_dir() else []
    row.failures += [f"left behind: {name}" for name in unfinished]


def try_all(processes: int, seed: int, report: Report, planted: str = "") -> list[Row]:
    """Rows of the states of the cache, each tried by so many processes at once."""
    rows = []

    def attempt(what: str, cache: Path, compiles: Callable[[int], bool], *warnings: str, **environment: str) -> None:
        row = Row(f"{what}, {processes} processes at once", processes, remark=REMARK)
        judge(row, start(processes, planted, **environment), cache, compiles, set(warnings))
        report(f"{row.what}: {len(row.failures)} ended badly")
        rows.append(row)

    with tempfile.TemporaryDirectory() as place:
        cache, home = Path(place, "cache"), Path(place, "home")
        home.touch()  # nobody, root neither, makes a folder in it
        named = {"PETSC_GPUFMT_CACHE": str(cache)}
        attempt("an empty cache", cache, bool, **named)
        attempt("a full cache", cache, lambda n: not n, **named)
        files = damage(cache, random.Random(seed))
        tuning = next(cache.rglob("*.json"), None)
        if tuning:
            tuning.write_text("{")
        report(f"{files} files damaged")
        attempt("a cache with each file damaged", cache, lambda n: n >= files, *[TUNED] if tuning else [], **named)
        if tuning:
            tuning.unlink()
        attempt("the same afterwards", cache, lambda n: not n, **named)
        shutil.rmtree(cache, ignore_errors=True)
        nowhere = {"HOME": str(home), "XDG_CACHE_HOME": "", "PETSC_GPUFMT_CACHE": ""}
        attempt("a home that cannot be written", cache, bool, KEPT, **nowhere)
    return rows


def run(share: float, seed: int, report: Report) -> list[Row]:
    return try_all(max(3, part_of(PROCESSES, share)), seed, report)
