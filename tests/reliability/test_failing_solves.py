"""Solves that break, and answers that the attack has to find."""

import pytest

from reliability import failing_solves

pytestmark = pytest.mark.slow


def ignore(_):
    pass


@pytest.mark.parametrize("ranks", [1, pytest.param(4, marks=pytest.mark.mpi)])
def test_solves_end_and_the_next_is_right(ranks):
    rows = failing_solves.try_all(("gpucg", "mixedcg"), ranks, ignore)
    assert len(rows) == 9 and all(row.tried == row.asked > 0 for row in rows)
    assert [line for row in rows for line in row.failures] == []


@pytest.mark.parametrize(
    ("planted", "words"), [("reason", "is not that of a NaN"), ("wrong", "the next solve is wrong")]
)
def test_the_attack_finds(planted, words):
    rows = failing_solves.try_all(("gpucg",), 1, ignore, planted)
    assert any(words in line for row in rows for line in row.failures), rows
