"""The comparison of outputs finds what it must find."""

from __future__ import annotations

import math

import pytest
from cases import CASES, Case
from compare import differences
from filters import FILTERS

TEXT_ONLY = {"relative": 0.0, "absolute": math.inf}
WITH_REALS = {"relative": 1e-5, "absolute": 1e-8}


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        ("  1 KSP Residual norm 3.687230e-01", "  1   KSP Residual norm 0.3687231"),
        ("row 0: (0, 1.)  (1, 2.)", "row 0: (0, 1.) (1, 2.)"),
        ("norm 1e-12", "norm 2e-12"),
        ("", ""),
    ],
)
def test_equal_within_tolerance(expected, found):
    assert differences(expected, found, **WITH_REALS) == ""


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        ("norm 1.00", "norm 1.01"),
        ("norm 1.0", "norm -1.0"),
        ("norm 1.0\nnorm 2.0", "norm 1.0"),
        ("norm 1.0", "norm 1.0 2.0"),
        ("", "leaked"),
    ],
)
def test_different(expected, found):
    assert differences(expected, found, **WITH_REALS) != ""


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        ("converged due to CONVERGED_RTOL iterations 7", "converged due to CONVERGED_RTOL iterations 8"),
        ("norm 1.0", "norm nan"),
        ("CONVERGED_RTOL", "CONVERGED_ATOL"),
        ("rows=12, cols=17", "rows=17, cols=12"),
    ],
)
def test_different_although_reals_do_not_count(expected, found):
    assert differences(expected, found, **TEXT_ONLY) != ""


def test_reals_do_not_count_when_only_text_is_compared():
    assert differences("norm 1.0 0.", "norm 5e3 0.", **TEXT_ONLY) == ""


def test_a_difference_shows_the_lines_and_not_the_others():
    shown = differences("a 1.0\nb 2.0\nc\nd\ne", "a 1.0000001\nb 2.0\nc\nd\nf", **WITH_REALS)

    assert "-e" in shown and "+f" in shown and "a 1.0" not in shown


@pytest.mark.parametrize(
    ("name", "line", "left"),
    [
        ("parent", "  type: mpiaijpjds", "  type: mpiaij"),
        ("parent", "  type: seqaijcusparse", "  type: seqaij"),
        ("vectors", "  type: seqcuda", "  type: seq"),
        ("storage", "    storage: pjds, not built yet", ""),
        ("storage", "  type: seqaij", "  type: seqaij"),
        ("levels", "      gpufmt, level 0 from the finest: on the host, 3 aggregates", ""),
        ("smoothers", "        petsc_gpufmt: steps in the product on the device", ""),
        ("reuse", "Submatrix reuse is right", "Submatrix reuse is right"),
        ("reuse", "Mat Object", ""),
        ("8 is 7", "due to CONVERGED_RTOL iterations 8", "due to CONVERGED_RTOL iterations 7"),
    ],
)
def test_filters(name, line, left):
    assert FILTERS[name].apply(line) == left


def test_every_filter_is_used():
    assert {name for case in CASES for name in case.filters} == set(FILTERS)


def test_loops_give_one_run_for_each_combination():
    case = Case("mat/tests/ex1", (1,), "-a {{0 1}} -b -c {{x y}}", "empty.out")

    assert [" ".join(words) for words in case.command_lines()] == [
        "-a 0 -b -c x",
        "-a 0 -b -c y",
        "-a 1 -b -c x",
        "-a 1 -b -c y",
    ]


@pytest.mark.parametrize(
    ("ours", "parent"),
    [("pjds", "aij"), ("aijpjds", "aij"), ("seqaijpjds", "seqaij"), ("mpiaijpjds", "mpiaij"), ("-ksp_monitor",) * 2],
)
def test_the_parent_of_an_argument(ours, parent):
    assert Case.parent(ours) == parent
