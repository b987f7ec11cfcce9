"""Hostile values for every option of the package: one clear line, or a right result, and no file outside the cache."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from reliability.attack import Report, Row, part_of

ABOUT = "Hostile values for every option: a PETSc error of one line, or a right result; no file, no name of a kernel."
MINUTES = 1
ASKED = 500
WORKER = Path(__file__).with_name("option_worker.py")
MOST_SHOWN = 10
FILES = "files outside of the cache"
WHO_PARSES = "options that PETSc parses (numbers of solvers, switches, algorithms) have messages of PETSc's own"


def run(share: float, seed: int, report: Report, options: Sequence[str] = (), worker: Path = WORKER) -> list[Row]:
    count = part_of(ASKED, share)
    with TemporaryDirectory() as place:
        folder, inside = Path(place), Path(place) / "home" / "above" / "here"  # ../../x of a value stays in `place`
        inside.mkdir(parents=True)
        (folder / "now").write_bytes(b"%-20d" % -1)
        environment = {
            **os.environ,
            **{"HOME": str(folder / "home"), "XDG_CACHE_HOME": str(folder / "cache"), "OMP_NUM_THREADS": "1"},
        }
        environment.pop("PETSC_GPUFMT_CACHE", None)
        command = [sys.executable, str(worker.resolve()), str(folder), str(seed), str(count)]
        if not options:
            listed = subprocess.run(command, cwd=inside, env=environment, capture_output=True, check=True)
            options = json.loads(listed.stdout.splitlines()[0])
        rows, left = {name: Row(f"-{name}", ASKED) for name in options}, dict.fromkeys(options, 0)
        before = _files(folder)
        while left:
            ended = _run_worker(command, inside, environment, rows, left)
            if not left:
                break
            name, number = next(iter(left)), int((folder / "now").read_text().split()[0])
            rows[name].failures.append(f"seed {seed}, number {number}: {ended}")
            left[name] = max(number, left[name]) + 1
            if number < 0 or left[name] >= count or len(rows[name].failures) > MOST_SHOWN:
                rows[name].tried = min(max(number + 1, 0), count)
                del left[name]
        made = sorted(_files(folder) - before)
    tried = sum(row.tried for row in rows.values())
    report(f"{len(rows)} options, {tried} values, {sum(len(row.failures) for row in rows.values())} ended badly")
    outside = [path for path in made if not path.startswith("cache/petsc_gpufmt")]
    outside += [f"/tmp/{path.name}" for path in Path("/tmp").glob("gpufmt_hostile_file*")]
    return [*rows.values(), Row(FILES, ASKED * len(rows), tried, outside, WHO_PARSES)]


def _files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def _run_worker(
    command: list[str], folder: Path, environment: dict[str, str], rows: dict[str, Row], left: dict[str, int]
) -> str:
    """One process, to its end; how it ended. What it has done is in `rows`, and is no longer in `left`."""
    jobs = [f"{name}:{first}" for name, first in left.items()]
    with subprocess.Popen(
        [*command, *jobs], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout
        for line in process.stdout:
            if not line.startswith('{"option"'):
                continue  # PETSc's warnings
            told = json.loads(line)
            row = rows[told["option"]]
            if "done" in told:
                row.tried = told["done"]
                left.pop(told["option"])
            elif len(row.failures) < MOST_SHOWN:
                row.failures.append(f"number {told['number']}: {told['wrong']}")
    return "a hang" if process.returncode == -signal.SIGALRM else f"status {process.returncode}"
