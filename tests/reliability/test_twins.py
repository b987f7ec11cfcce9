"""Twins of type aij and of ours agree; and the harness finds defects that are put in, and says how to repeat them."""

import sys
from pathlib import Path

import launch
import pytest

from reliability import twins

pytestmark = [pytest.mark.slow, pytest.mark.mpi]

HAVE_ENDED_BADLY = [
    (
        *(1, 1002197),
        "product:142442 submatrix_from_here_on:26456 convert_to_another_format:715616 product_again:394560",
    ),
    (1, 1006318, "product_from_here_on:47439 set_diagonal:170869 product_from_here_on:256732"),
    (
        *(2, 2001201),
        "swap:858125 zero_rows:367770 galerkin_product:925636 transpose_in_place:651298 galerkin_product_again:387021",
    ),
    (
        *(3, 3000231),
        "product_of_transpose:301224 add_of_type_aij:145706 convert_to_another_format:72425 "
        "product_of_transpose_again:6602",
    ),
    (
        *(3, 3000333),
        "zero_rows:465668 product_of_transpose:687135 save_and_load:441636 product_of_transpose_again:500280",
    ),
    (
        *(3, 3000333),
        "zero_rows:465668 convert_by_another_type:702157 product_of_transpose:687135 save_and_load:441636 "
        "product_of_transpose_again:500280",
    ),
    (1, 1000009, "product:95334"),  # with PETSc's checks
    (1, 1000015, "galerkin_product:453061"),  # likewise
]
"""Number of ranks, seed and calls."""


@pytest.mark.parametrize(("ranks", "number"), [(1, 140), (2, 40), (3, 20)])
def test_twins_agree(ranks, number):
    row = twins.run_on(ranks, 0, number, lambda line: None)
    assert row.tried == number and not row.failures, row


@pytest.mark.parametrize(("ranks", "seed", "calls"), HAVE_ENDED_BADLY)
def test_sequences_that_have_ended_badly(ranks, seed, calls):
    program = Path(__file__).with_name("twin_ranks.py")
    finished = launch.run([sys.executable, program, "--seed", seed, "--calls", *calls.split()], ranks=ranks)
    assert finished.status == 0, finished


def test_a_sequence_that_merely_was_too_slow_is_told_so(monkeypatch):
    slow = 'begin 7\nTimeout (0:00:30)!\nThread 1:\n  File "/tests/twin/vectors.py", line 50 in mult\n'
    programs = iter([(slow, 142), ("begin 7\nend 1\n", 0)])
    monkeypatch.setattr(twins, "_ended", lambda *_: next(programs))
    ended = twins.run_batch(2, 7, 4)
    assert ended.tried == 1 and next(programs, None) is None
    assert ended.failures[0].endswith("or was too slow; before, no end: a rank is in mult() (vectors.py:50)")


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
