"""Exceptions where plans are made, on one rank and on two, and defects that the attack has to find."""

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


@pytest.mark.parametrize(
    ("name", "words"),
    [("planted success", "is wrong"), ("planted failure", "fails again"), ("planted silence", "says not what")],
)
def test_the_attack_finds(name, words):
    (row,) = planner_errors.try_all(1, 1, 0, 1, ignore, (name,))
    assert any(words in line for line in row.failures), row
