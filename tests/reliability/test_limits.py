"""The attack on limits with small matrices, and wrong products, which it has to find."""

import pytest

from reliability import limits

pytestmark = pytest.mark.slow
SHARE = 0.003


def ignore(_):
    pass


def test_products_are_exact():
    padded, long_row, padded_row = limits.try_all(SHARE, ignore)
    assert (padded.what, padded.tried) == ("6.6e+06 stored entries", 3)
    assert (long_row.what, long_row.tried) == ("a row of 3e+05 entries", long_row.asked)
    assert (padded_row.what, padded_row.tried) == ("a row of 3e+05 entries, each padded to 16", 1)
    assert [*padded.failures, *long_row.failures, *padded_row.failures] == []


def test_the_attack_finds_wrong_products():
    rows = limits.try_all(SHARE, ignore, off_by=1.0)
    assert [len(row.failures) for row in rows] == [row.tried for row in rows]
    assert rows[0].failures[0].startswith("aijellpack: 3000 rows, row 0 is ")


def test_what_does_not_fit_is_not_tried(monkeypatch):
    monkeypatch.setattr(limits, "available_gigabytes", lambda: 0.01)
    rows = limits.try_all(SHARE, ignore)
    assert [row.tried for row in rows] == [0, 0, 0]
    assert "GB of memory, 0 are free" in rows[0].remark
    assert [row.what for row in limits.try_all(SHARE, ignore, only=["long row, p"])] == [rows[2].what]
