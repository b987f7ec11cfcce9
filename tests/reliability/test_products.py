"""A part of the products; and that a row that is off by little more than it may be is found."""

import pytest

from reliability import products

pytestmark = [pytest.mark.slow, pytest.mark.mpi]


def ignore(_):
    pass


@pytest.mark.parametrize("ranks", [1, 3])
def test_products_are_right(ranks):
    rows = products.try_all(ranks, products.BATCH, 11, ignore)
    assert len(rows) == 10 and {row.tried for row in rows} == {products.BATCH}
    assert [line for row in rows for line in row.failures] == []


def test_the_attack_finds_a_row_that_is_a_little_off():
    rows = products.try_all(1, products.BATCH, 12, ignore, planted=True)
    assert all(any(": mult: 1 rows of" in line for line in row.failures) for row in rows)
