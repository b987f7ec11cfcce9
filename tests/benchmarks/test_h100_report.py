"""The page of a second GPU beside the first."""

from __future__ import annotations

import h100_report
import pytest


def product(name, seconds, **more):
    return {"name": name, "ours": name == "pjds", "place": "cuda", "correct": True, "median_seconds": seconds} | more


def solver(ksp, label, seconds, ranks=1):
    return {"matrix": "7point:8", "ranks": ranks, "ksp": ksp, "label": label, "iteration_seconds": seconds}


def runs(factor):
    products = [product("pjds", 1e-4 * factor), product("pjds:slice_height=8", 1e-6), product("aijcusparse", 3e-4)]
    wrong = [product("pjds", 1e-6, correct=False), product("aijcusparse", 2e-4)]
    cases = [{"matrix": {"name": name}, "products": of} for name, of in (("stencil", products), ("wrong", wrong))]
    solvers = [
        solver("cg", "cg, aijcusparse", 4e-4),
        solver("gpucg", "gpucg, gpufmt", 2e-4 * factor),
        solver("gpucg", "gpucg, gpufmt", 1e-6, ranks=2),
    ]
    return {"mult": {"cases": cases}, "ksp, cg, mixed, gpufmt, 1 and 2 ranks": {"cases": solvers}}


def test_page_in_the_documentation_is_that_of_the_results(capsys):
    """After a wanted change: python benchmarks/h100_report.py > docs/performance_h100.md."""
    assert h100_report.main([]) == 0
    assert capsys.readouterr().out == (h100_report.ROOT / "docs/performance_h100.md").read_text()


def test_what_both_have_stands_side_by_side():
    """Our formats as they are, on one rank, with right results alone."""
    lines = h100_report.beside_section(runs(1.0), runs(2.0)).splitlines()
    assert [line for line in lines if line.startswith("| ")][2:] == [
        "| stencil | 200 | 100 | 2.00 | 1.50 | 3.00 |",
        "| CG, 7point:8 | 400 | 200 | 2.00 | 1.00 | 2.00 |",
    ]


@pytest.mark.parametrize("missing", ["mult", "ksp, cg, mixed, gpufmt, 1 and 2 ranks"])
def test_what_only_one_has_is_left_out(missing):
    there = {name: run for name, run in runs(1.0).items() if name != missing}
    rows = [line for line in h100_report.beside_section(there, runs(2.0)).splitlines() if line.startswith("| ")]
    assert len(rows) == 3
