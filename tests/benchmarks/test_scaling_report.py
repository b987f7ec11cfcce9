"""The page of MatMult over the ranks, and its picture."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("scipy.sparse")

import scaling_report  # noqa: E402

from petsc_gpufmt.backends import native_library  # noqa: E402
from petsc_gpufmt.bench.errors import BenchError  # noqa: E402


@pytest.fixture(autouse=True)
def _double_precision():
    if native_library.petsc_types() != (np.float64, np.int32):
        pytest.skip("this PETSc has not double precision and 32-bit indices, which the page is made with")


@pytest.mark.slow
@pytest.mark.parametrize(("words", "name"), [([], "scaling.md"), (["--plot"], "scaling.svg")])
def test_page_in_the_documentation_is_that_of_the_model_and_the_results(capsys, words, name):
    """After a wanted change: python benchmarks/scaling_report.py > docs/scaling.md, with --plot > docs/scaling.svg."""
    assert scaling_report.main(words) == 0
    assert capsys.readouterr().out == (scaling_report.ROOT / "docs" / name).read_text()


def test_predictions_are_as_close_to_what_was_measured_as_the_page_says():
    cases = [(*pair, run["gpu_aware"]) for run in scaling_report.all_runs() for pair in scaling_report.errors(run)]
    assert {case["ranks"] for case, *_ in cases} == {1, 2, 4}
    assert {case["mode"] for case, *_ in cases} >= {"vector", "overlap", "task", "peer"}
    for case, seconds, gpu_aware in cases:
        of_the_host = case["ranks"] > 1 and (case["mode"] != "peer" or not gpu_aware)
        short = case["ranks"] > 2 and case["seconds"] < 4e-5  # launches and waits are half of it
        assert seconds == pytest.approx(case["seconds"], rel=0.28 if of_the_host else 0.18 if short else 0.11), case


def test_a_gpu_that_the_model_does_not_know_is_an_error():
    run = {"name": "scaling, pjds", "environment": {"gpu": "another"}, "gpu_aware": True, "cases": []}
    with pytest.raises(BenchError, match="scaling, pjds: the model does not know the GPU another"):
        scaling_report.errors(run)


def test_what_is_no_stencil_in_contiguous_rows_is_measured_and_not_modelled():
    case = {"matrix": "reservoir:2", "ranks": 2, "weak": False, "type": "bsr", "ours": True, "distribution": "petsc"}
    case |= {"mode": "peer", "taken": "peer", "nnz": 10**6, "seconds": 1e-4, "correct": True}
    case |= {"least_seconds": 9e-5, "largest_seconds": 2e-4}
    alone = case | {"ranks": 1, "mode": None, "taken": None, "seconds": 1.9e-4}
    peer = case | {"type": "aijcusparse", "ours": False, "mode": None, "taken": None, "seconds": 3e-4}
    environment = {"gpu": "NVIDIA H200", "petsc": "3.26.1", "commit": "0123456789", "date": "2026-11"}
    run = {"name": "scaling, bsr", "environment": environment, "gpu_aware": True, "cases": [alone, case, peer]}
    assert scaling_report.compared(run) == ""
    lines = scaling_report.measured(run).splitlines()
    assert lines[0] == "Scaling, bsr: NVIDIA H200, PETSc 3.26.1, commit 0123456, 2026-11."
    assert lines[4:] == [
        "| reservoir:2 | bsr | 1 | 190 | 90.0-200 | 11 | 1.00 | 1.00 |  |",
        "| reservoir:2 | bsr, peer | 2 | 100 | 90.0-200 | 20 | 1.90 | 0.95 | 3.00 |",
        "| reservoir:2 | aijcusparse | 2 | 300 | 90.0-200 | 7 |  |  |  |",
    ]
    weak = [alone | {"weak": True}, case | {"weak": True, "seconds": 2e-4}]
    line = scaling_report.measured(run | {"cases": weak}).splitlines()[-1]
    assert line.startswith("| reservoir:2 on each | bsr, peer | 2 |") and line.endswith("| 1.90 | 0.95 |  |")
