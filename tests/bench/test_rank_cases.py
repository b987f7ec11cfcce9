"""Programs on ranks: one that fails ends all of them, and its reason is shown."""

from __future__ import annotations

import importlib
import os
import time

import pytest

pytest.importorskip("scipy.sparse")

from petsc_gpufmt.bench.errors import BenchError  # noqa: E402
from petsc_gpufmt.bench.rank_cases import in_one_line  # noqa: E402
from petsc_gpufmt.bench.rank_start import Start  # noqa: E402
from petsc_gpufmt.cli.main import main  # noqa: E402

FAILS_ALONE = """
import dataclasses
import sys
from pathlib import Path


@dataclasses.dataclass
class Task:
    failing: int


def cases():
    from petsc4py import PETSc

    comm = PETSc.COMM_WORLD
    yield {"ranks": comm.size}
    comm.barrier()  # the case is kept
    if comm.rank == int(sys.argv[1][-2]):
        raise MemoryError("no room for\\nthese rows")
    comm.barrier()


if __name__ == "__main__":
    from petsc_gpufmt.bench.rank_cases import keep_cases

    keep_cases(cases, Path(sys.argv[2]))
"""


@pytest.mark.mpi
def test_a_rank_that_fails_alone_ends_all_and_is_heard(tmp_path, monkeypatch):
    (tmp_path / "fails_alone.py").write_text(FAILS_ALONE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.syspath_prepend(str(tmp_path))
    task, kept, start = importlib.import_module("fails_alone").Task(1), [], time.perf_counter()
    with pytest.raises(BenchError) as error:
        Start(False, None, 100.0).run(task, 2, kept.append)
    assert str(error.value) == "on 2 ranks, rank 1: MemoryError: no room for these rows"
    assert kept == [{"ranks": 2}] and time.perf_counter() - start < 50


def test_messages_are_one_line():
    petscs = RuntimeError("error code 56\n[0] MatMult() at mat.c\n[0] No support")
    petscs.ierr = 56
    assert in_one_line(petscs) == "RuntimeError: [0] No support"
    assert in_one_line(ValueError("a\nb")) == "ValueError: a b" and in_one_line(KeyError()) == "KeyError"


@pytest.mark.parametrize(
    ("option", "command"),
    [(name, "ksp") for name in ("ksp_type", "ksp_norm_type", "ksp_pc_side", "pc_type", "mat_type")]
    + [("mat_type", "scaling")],
)
def test_options_that_change_contenders_are_refused(option, command, capsys):
    from petsc4py import PETSc

    PETSc.Options()[option] = "gmres"
    try:
        assert main(["bench", command, "--host", "--matrix", "7point:3"]) == 2
    finally:
        PETSc.Options().delValue(option)
    error = capsys.readouterr().err
    assert error.startswith(f"petsc_gpufmt: -{option} is among PETSc's options") and error.count("\n") == 1
