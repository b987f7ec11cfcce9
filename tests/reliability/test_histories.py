"""A part of the solves; and that a matrix that is a little off shows."""

import pytest

from reliability import histories

pytestmark = [pytest.mark.slow, pytest.mark.mpi]


def ignore(_):
    pass


def test_solves_are_those_of_aij_on_one_rank():
    rows = histories.try_all(["aijpjds"], 3, ["graph", "blocks of 3"], ignore)
    assert {row.tried for row in rows} == {2} and len(rows) == len(histories.SOLVERS)
    assert [line for row in rows for line in row.failures] == []


def test_the_attack_finds_a_matrix_that_is_a_little_off():
    rows = histories.try_all(["aijbsr"], 1, ["7-point"], ignore, planted=True)
    assert all(row.failures for row in rows if "Jacobi" in row.what)
