"""The program that times MatMult on several ranks."""

from __future__ import annotations

import sys
from pathlib import Path

import launch
import pytest

pytest.importorskip("scipy.sparse")

from petsc_gpufmt.bench.results import read_runs  # noqa: E402

PROGRAM = Path(__file__).resolve().parents[2] / "benchmarks/mult_ranks.py"
pytestmark = pytest.mark.mpi


def test_products_are_right_and_timed_on_rank_0(tmp_path):
    path = tmp_path / "ranks.json"
    matrices, modes = ["--matrix", "7point:5", "--matrix", "27point:4"], ["--mode", "overlap", "--mode", "task"]
    words = [*matrices, "--weak", *modes, "--json", path]
    finished = launch.run([sys.executable, PROGRAM, *words], ranks=3)
    assert finished.status == 0, finished
    (run,) = read_runs(path)
    assert run["name"] == "mult in slabs, 3 ranks" and run["gpu_aware"] is True
    assert [(case["matrix"], case["mode"], case["ranks"], case["weak"]) for case in run["cases"]] == [
        (matrix, mode, 3, True) for matrix in ("7point:5", "27point:4") for mode in ("overlap", "task")
    ]
    for case in run["cases"]:
        assert case["seconds"] > 0 and f"{case['matrix']} on 3 ranks, {case['mode']}: " in finished.output


def test_a_matrix_without_planes_is_refused():
    finished = launch.run([sys.executable, PROGRAM, "--matrix", "absent.mtx"], ranks=1)
    assert finished.status == 1, finished
    assert "mult_ranks: --matrix absent.mtx: give a stencil and its grid points" in finished.output
