"""What `petsc-gpufmt bench` measures on several ranks, in a process of its own."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from petsc_gpufmt.backends import driver
from petsc_gpufmt.bench.compiled import ProgramError, run_program
from petsc_gpufmt.bench.errors import BenchError

if TYPE_CHECKING:
    from report import Setting

RANKS = (1, 2, 3, 4, 8)
HOST_RANKS = (1, 2)
MOST_SECONDS = 3600.0

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
        try:
            run_program(command, MOST_SECONDS)
        except ProgramError as e:
            raise BenchError(f"bench {words[0]}: {e.reason}") from e
        return [case for run in json.loads(results.read_text())["runs"] for case in run["cases"]]


def comma_separated(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))
