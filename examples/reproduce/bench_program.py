"""What `petsc-gpufmt bench` measures on several ranks, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from petsc_gpufmt.backends import driver
from petsc_gpufmt.bench.errors import BenchError

if TYPE_CHECKING:
    from report import Setting

RANKS = (1, 2, 3, 4, 8)
HOST_RANKS = (1, 2)

Case = dict[str, Any]


def ranks_of(setting: Setting) -> list[int]:
    """Of RANKS those for which there are GPUs; a few on the host."""
    if setting.place.name == "host":
        return list(HOST_RANKS)
    return [n for n in RANKS if n <= driver.device_count()]


def bench_cases(setting: Setting, *words: str) -> list[Case]:
    """The cases of `petsc-gpufmt bench WORDS`; BenchError with its last words if it fails."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder, "results.json")
        command = [sys.executable, "-m", "petsc_gpufmt", "bench", *words, "--json", str(results)]
        command += ["--host"] * (setting.place.name == "host")
        # os.environ has what Python began with, and not what the MPI of this process has put beside it: with that,
        # ranks of another mpiexec take themselves for those of this process
        finished = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ))
        if finished.returncode:
            last = (finished.stderr.strip() or finished.stdout.strip())[-400:]
            raise BenchError(f"bench {words[0]} ended with status {finished.returncode}: {last}")
        return [case for run in json.loads(results.read_text())["runs"] for case in run["cases"]]


def comma_separated(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))
