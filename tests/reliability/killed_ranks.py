"""A rank is killed in the middle of a run."""

from __future__ import annotations

import os
import random
import selectors
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import launch

from reliability.attack import Report, Row, part_of

ABOUT = "One of 4 ranks is killed at a random moment: the job is gone within 60 s, and no process is left."
MINUTES = 2
MOMENTS, RANKS, SECONDS, START = 20, 4, 60.0, 60.0
MODES = ("overlap", "vector", "task", "peer")


def running(process: int) -> bool:
    """Whether there is such a process that is not only waiting to be collected."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def processes_of(job: subprocess.Popen, ranks: int) -> list[int]:
    """The ranks' processes, once all have said so; fewer if they do not."""
    found, text = [], b""
    with selectors.DefaultSelector() as ready:
        ready.register(job.stdout, selectors.EVENT_READ)
        end = time.monotonic() + START
        while len(found) < ranks and time.monotonic() < end and job.poll() is None:
            if ready.select(0.5):
                text += os.read(job.stdout.fileno(), 4096)
                found = [int(line.split()[1]) for line in text.splitlines() if line.startswith(b"process ")]
    return found


def kill_one(program: list[str], ranks: int, victim: int, delay: float, seconds: float = SECONDS) -> str:
    """What is wrong after one of the ranks is killed `delay` seconds after the start; '' if nothing."""
    mpiexec = shlex.split(os.environ.get("MPIEXEC") or launch.petsc_variables()["MPIEXEC"])
    job = subprocess.Popen(
        [*mpiexec, "-n", str(ranks), *program],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    processes = []
    try:
        processes = processes_of(job, ranks)
        if len(processes) < ranks:
            return f"only {len(processes)} ranks have started"
        time.sleep(delay)
        os.kill(processes[victim], signal.SIGKILL)
        try:
            job.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            return f"the job goes on after {seconds:.0f} s"
        end = time.monotonic() + 5
        while (left := [p for p in processes if running(p)]) and time.monotonic() < end:
            time.sleep(0.1)
        return f"{len(left)} processes are left" if left else "" if job.returncode else "the exit status is 0"
    finally:
        launch.end_group(job)
        for process in filter(running, processes):
            os.kill(process, signal.SIGKILL)


def run(share: float, seed: int, report: Report) -> list[Row]:
    chance, program = random.Random(seed), Path(__file__).with_name("endless_child.py")
    row = Row(f"kill -9 of one of {RANKS} ranks", part_of(MOMENTS, share))
    for number in range(row.asked):
        mode, victim, delay = (
            MODES[number % len(MODES)],
            chance.randrange(RANKS),
            chance.uniform(0, 3 * min(1, share * 20)),
        )
        wrong = kill_one([sys.executable, str(program), mode], RANKS, victim, delay)
        row.tried += 1
        if wrong:
            row.failures.append(f"rank {victim} after {delay:.2f} s in mode {mode}: {wrong}")
        report(f"rank {victim} after {delay:.2f} s in mode {mode}: {wrong or 'gone'}")
    return [row]
