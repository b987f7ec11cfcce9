"""Threads with matrices of their own, and a wrong product in one of them, which the attack has to find."""

import pytest

from reliability import threads

pytestmark = pytest.mark.slow


def ignore(_):
    pass


def test_products_of_threads_are_right():
    rows = threads.run(0.04, 0, ignore)
    assert {(row.tried, row.asked) for row in rows} == {(320, 320)}
    assert [line for row in rows for line in row.failures] == []


def test_the_attack_finds_a_wrong_product():
    (row,) = threads.try_all(["aijpjds"], 3, 5, ignore, planted=True)
    assert row.failures == ["3 threads with aijpjds: thread 1, product 3: wrong"]
