"""Tables and the picture of what ``bench ksp`` has measured."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import pytest

pytest.importorskip("scipy.sparse")

import ksp_report  # noqa: E402
import report  # noqa: E402

from petsc_gpufmt.bench.errors import BenchError  # noqa: E402
from petsc_gpufmt.bench.report import ksp_tables  # noqa: E402
from petsc_gpufmt.bench.results import save_run  # noqa: E402


def some_case(label, against=None, **changes):
    case = {"matrix": "7point:9", "ranks": 1, "label": label, "ksp": re.split(r"[ ,]", label)[0], "against": against}
    case |= {"matrix_type": label.split(", ")[1], "iteration_seconds": 2e-5, "solve_seconds": 1e-3, "iterations": 50}
    return case | {"residual": 9e-9, "correct": True} | changes


CASES = [
    some_case("cg, aijcusparse"),
    some_case("cg, gpufmt", "cg, aijcusparse", iteration_seconds=1.5e-5),
    some_case("gpucg, gpufmt", "cg, aijcusparse", iteration_seconds=1e-5, history=[[0, 1.0], [25, 3.0], [50, 9e-9]]),
    some_case("mixedcg (flexible), gpufmt", "gpucg, gpufmt", iterations=80, history=[[0, 1.0], [80, 1e-9]]),
]
RUN = {"name": "ksp, cg, mixed, gpufmt", "cases": CASES}
RUN["environment"] = {"gpu": "GPU", "petsc": "3.26.1", "commit": "0123456789", "date": "2026-11"}


def test_tables_of_iterations_and_of_solves():
    lines = ksp_tables.make_tables(RUN).splitlines()
    assert lines[0] == "ksp, cg, mixed, gpufmt: GPU, PETSc 3.26.1, commit 0123456, 2026-11."
    assert lines[4] == "| 7point:9 | 1 | gpucg, gpufmt | 20.0 | 15.0 | 10.0 | 2.00 |" and lines[5] == ""
    solver = "mixedcg (flexible), gpufmt | 80 | 1.00 | 9.0e-09 | 1.00 |"
    assert lines[10] == f"| 7point:9 | 1 | gpucg, gpufmt | 50 | 1.00 | 9.0e-09 | {solver}"
    assert lines[-1].startswith(
        "- mixedcg (flexible), gpufmt against gpucg, gpufmt: iterations 0.50 times as fast (1 case)"
    )


def test_iterations_that_were_not_timed_are_a_dash():
    cases = [case | {"iteration_seconds": None} for case in CASES]
    assert "| gpucg, gpufmt | - | - | - | - |" in ksp_tables.iterations_table({"cases": cases})
    assert ksp_tables.iterations_table({"cases": CASES[2:]}) == ""


def test_picture_has_each_residual(tmp_path, capsys):
    save_run(tmp_path / "results.json", RUN)
    assert ksp_report.main(["--plot", str(tmp_path / "results.json")]) == 0
    drawn = ElementTree.fromstring(capsys.readouterr().out)
    words = [element.text for element in drawn.findall(".//{*}text")]
    assert {"7point:9, iterations", "7point:9, ms", "1e1", "1e-9", "gpucg, gpufmt"} <= set(words)
    dots = [(float(dot.get("cx")), float(dot.get("cy"))) for dot in drawn.findall(".//{*}circle")]
    left, right = ksp_report.LEFT, ksp_report.PANEL - ksp_report.RIGHT
    bottom = ksp_report.HEIGHT - ksp_report.BOTTOM
    assert len(dots) == 4 and dots[0][0] == left and dots[1] == (right, bottom) and dots[3] == (right + 400, bottom)


def test_the_page_of_products_leaves_solvers_out():
    assert report.run_sections(RUN) == []


def test_results_without_solvers_are_said(tmp_path):
    save_run(tmp_path / "results.json", {"name": "mult", "environment": {}, "cases": []})
    with pytest.raises(BenchError, match="the results have nothing to show: petsc-gpufmt bench ksp"):
        ksp_report.main([str(tmp_path / "results.json")])


def test_exact_solutions_lie_on_the_lower_edge_of_the_picture():
    solved = {"iterations": 1, "history": [[0, 1.0], [1, 0.0]], "residual": 0.0}
    at_once = {"iterations": 0, "history": [[0, 0.0]], "residual": 0.0}
    for change in (solved, at_once):
        drawn = ElementTree.fromstring(ksp_report.make_plot(RUN | {"cases": [CASES[2] | change, CASES[3] | change]}))
        heights = [float(dot.get("cy")) for dot in drawn.findall(".//{*}circle")]
        assert max(heights) == ksp_report.HEIGHT - ksp_report.BOTTOM
