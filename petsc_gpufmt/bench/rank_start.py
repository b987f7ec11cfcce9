"""Starts a program of this package on some ranks, with a task as JSON and a file, and reads the cases that it adds."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from petsc_gpufmt.bench.command import progress, show, timed
from petsc_gpufmt.bench.compiled import ProgramError, run_program
from petsc_gpufmt.bench.errors import BenchError
from petsc_gpufmt.bench.mpiexec import launcher
from petsc_gpufmt.bench.rank_cases import reason_file
from petsc_gpufmt.bench.results import Recorder

Case = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Start:
    """How a task is started.

    Attributes
    ----------
    on_device : else on the host alone
    mpiexec : starts MPI programs; None for that of the MPI which PETSc links
    limit : seconds after which a number of ranks is ended
    """

    on_device: bool
    mpiexec: str | None
    limit: float

    def run(self, task: Any, ranks: int, add: Callable[[Case], None]) -> None:
        """Measure a task on so many ranks, by the program that it is of.

        BenchError if they fail, after `add` of the cases before that, with what the first rank that failed has said.
        """
        given = os.environ.get("PETSC_OPTIONS", "")
        options = given if self.on_device else f"{given} -device_enable none"
        words = [sys.executable, "-m", type(task).__module__, json.dumps(dataclasses.asdict(task))]
        with tempfile.TemporaryDirectory() as folder:
            (path := Path(folder, "cases")).touch()
            try:
                run_program([*launcher(ranks, self.mpiexec), *words, str(path)], self.limit, {"PETSC_OPTIONS": options})
            except ProgramError:
                if (said := reason_file(path)).is_file():
                    raise BenchError(f"on {ranks} rank{'s' * (ranks > 1)}, {said.read_text()}") from None
                raise
            finally:
                for line in path.read_text().splitlines():
                    add(json.loads(line))


def measure_on_ranks(
    start: Start,
    task: Any,
    ranks: Sequence[int],
    recorder: Recorder,
    gpu_aware: bool,
    reason: str | None,
    case_line: Callable[[Case], str],
    summary_lines: Callable[[Sequence[Case]], list[str]],
) -> None:
    """A task on each number of ranks: cases are recorded and shown, then their summary. `reason`: why on the host."""

    def add(case: Case) -> None:
        recorder.add(case, gpu_aware=gpu_aware)
        show(case_line(case))

    with timed(recorder.run["name"]):
        if reason:
            show(f"Host only: {reason}.")
        for size in ranks:
            progress(f"{recorder.run['name']} on {size} rank{'s' * (size > 1)}")
            start.run(task, size, add)
        for line in summary_lines(recorder.cases):
            show(line)


def refuse_options(names: Sequence[str], command: str) -> None:
    """BenchError for PETSc options, from wherever they are, that would make contenders others than their labels say."""
    from petsc4py import PETSc

    database = PETSc.Options()
    for name in names:
        if database.hasName(name):
            raise BenchError(
                f"-{name} is among PETSc's options (PETSC_OPTIONS or .petscrc): bench {command} sets what it stands "
                "for by arguments of its own, so take it out"
            )
