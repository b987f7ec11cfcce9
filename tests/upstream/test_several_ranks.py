"""Defects that other libraries have had on several ranks, with matrices like those of their reports."""

from __future__ import annotations

import sys
from pathlib import Path

import launch
import pytest

pytestmark = pytest.mark.mpi


def run(ranks: int, name: str) -> None:
    finished = launch.run([sys.executable, Path(__file__).with_name("several_ranks.py"), name], ranks=ranks)
    assert finished.status == 0, finished


def test_hypre_1444_all_columns_on_the_last_rank():
    """hypre-space/hypre#1444: products crashed where a rank has rows and no columns."""
    run(2, "all_columns_on_the_last_rank")


def test_hypre_173_many_more_columns_than_rows():
    """hypre-space/hypre#173: matrices of many more columns than rows, or rows than columns, crashed or hung."""
    run(2, "many_more_columns_than_rows")


def test_hypre_151_one_row_and_one_column():
    """hypre-space/hypre#151: the product of a row of 12 and a column of 12 failed on three ranks."""
    run(3, "one_row_and_one_column")


@pytest.mark.double
def test_hypre_1599_multigrid_where_a_rank_has_no_rows():
    """hypre-space/hypre#1599: systems of blocks crashed or hung where a rank has no rows."""
    run(2, "multigrid_where_a_rank_has_no_rows")


@pytest.mark.double
def test_hypre_220_multigrid_on_one_rank_and_on_two():
    """hypre-space/hypre#220: multigrid converged on one GPU and not on two."""
    run(2, "multigrid_on_one_rank_and_on_two")


@pytest.mark.double
def test_tandem_52_multigrid_as_with_aij():
    """TEAR-ERC/tandem#52: multigrid on GPUs had other results than on processors."""
    run(2, "multigrid_as_with_aij")


def test_cashocs_736_nothing_is_destroyed():
    """sblauth/cashocs#736: what Python forgot of several ranks without destroy() stayed in memory."""
    run(2, "nothing_is_destroyed")
