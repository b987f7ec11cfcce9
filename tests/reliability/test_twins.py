"""Twins of type aij and of ours agree; and the harness finds defects that are put in, and says how to repeat them."""

import pytest

from reliability import twins

pytestmark = [pytest.mark.slow, pytest.mark.mpi]


@pytest.mark.parametrize(("ranks", "number"), [(1, 140), (2, 40), (3, 20)])
def test_twins_agree(ranks, number):
    row = twins.run_on(ranks, 0, number, lambda line: None)
    assert row.tried == number and not row.failures, row


def test_a_defect_is_found_and_shrunk():
    ended = twins.run_batch(1, 0, 4, "--defect", "a little off")
    found = [failure for failure in ended.failures if "shift:" in failure]
    assert found, ended.failures
    calls = found[0].split(" : ")[0].split("--calls ")[1].split()
    assert len(calls) <= 4


def test_what_cannot_be_destroyed_is_found():
    ended = twins.run_batch(1, 0, 4, "--defect", "cannot be destroyed", tries=0)
    assert any("error 73 while siblings are destroyed" in failure for failure in ended.failures), ended


def test_a_rank_that_waits_is_found_and_named():
    ended = twins.run_batch(2, 0, 4, "--defect", "waits", "--limit", "4", tries=0)
    assert any("no end: " in failure and "in _wait() (defects.py:" in failure for failure in ended.failures), ended
