"""Exceptions where plans are made, on one rank and on two."""

import pytest

from reliability import planner_errors

pytestmark = pytest.mark.slow


def ignore(_):
    pass


@pytest.mark.parametrize(
    ("ranks", "step"), [pytest.param(1, 3), pytest.param(2, 6, marks=pytest.mark.mpi)], ids=["alone", "two ranks"]
)
def test_all_ranks_fail_and_everything_works_again(ranks, step):
    names = ("mult", "matMult", "COO", "GAMG set-up", "gpucg")
    (row,) = planner_errors.try_all(ranks, step, 0, 1, ignore, names)
    assert row.tried == row.asked > 5 and not row.failures, row
