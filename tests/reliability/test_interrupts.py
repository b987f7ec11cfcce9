"""Ctrl-C in the middle of operations, and defects put in on purpose that the attack has to find."""

import pytest

from reliability import interrupts

pytestmark = pytest.mark.slow


def ignore(_):
    pass


def test_operations_end_and_work_afterwards():
    for row in interrupts.try_all(interrupts.QUICK_OPERATIONS, 4, ignore):
        assert (row.tried, row.failures) == (4, []), row


def test_programs_end():
    for row in interrupts.end_all(interrupts.QUICK_OPERATIONS, 2):
        assert (row.tried, row.failures) == (2, []), row
    (row,) = interrupts.end_all(("planted crash",), 1)
    assert "status -11" in row.failures[0], row


@pytest.mark.parametrize(("name", "words"), [("planted change", "is wrong"), ("planted hang", "status")])
def test_the_attack_finds(name, words):
    (row,) = interrupts.try_all((name,), 2, ignore, limit=1.0)
    assert any(words in line for line in row.failures), row
