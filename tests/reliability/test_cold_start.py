"""A few processes that start on one cache, and defects that the attack has to find."""

import pytest

from reliability import cold_start

pytestmark = pytest.mark.slow


def ignore(_):
    pass


def test_processes_start_on_any_cache():
    rows = cold_start.try_all(4, 0, ignore)
    assert [row.tried for row in rows] == [4] * 5
    assert [line for row in rows for line in row.failures] == []


@pytest.mark.parametrize(
    ("planted", "what", "words"),
    [
        ("trusting", "a cache with each file damaged", ("another module", "status")),
        ("forgetful", "a full cache", ("modules compiled by all",)),
    ],
)
def test_the_attack_finds(planted, what, words):
    rows = {row.what.partition(",")[0]: row for row in cold_start.try_all(2, 0, ignore, planted)}
    assert any(word in line for line in rows[what].failures for word in words), rows[what]
