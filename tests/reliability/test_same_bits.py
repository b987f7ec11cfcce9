"""Results that are repeated, and defects of one bit that the attack has to find."""

import pytest

from reliability import same_bits

pytestmark = pytest.mark.slow


def ignore(_):
    pass


def test_results_have_the_same_bits():
    rows = same_bits.run(0.01, 0, ignore)
    assert {(row.tried, row.asked) for row in rows} == {(8, 8)}
    assert [line for row in rows for line in row.failures] == []


@pytest.mark.mpi
def test_on_two_ranks_too():
    rows = same_bits.try_all(
        [("mult", "aijpjds"), ("ptap", "aijpjds"), ("axpy subset", "aijpjds")], 2, 3, ignore, count=100
    )
    assert [(row.tried, row.failures) for row in rows] == [(6, [])] * 3


@pytest.mark.parametrize(
    ("name", "words"),
    [("planted now and then", "other bits in repeats [4]"), ("planted in a process", "other bits than in the other")],
)
def test_the_attack_finds(name, words):
    (row,) = same_bits.try_all([(name, "aijpjds")], 1, 6, ignore, count=50)
    assert any(words in line for line in row.failures), row
