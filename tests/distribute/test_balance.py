"""What is said about a distribution."""

import numpy as np
import pytest

from petsc_gpufmt.distribute import Balance

UNEVEN = Balance(np.array([10, 10, 10]), np.array([20, 100, 30]), np.array([0, 4, 2]))


def test_the_report_has_a_line_for_each_count():
    assert str(UNEVEN).splitlines() == [
        "rows: 10 to 10 a rank, the largest 1.00 of the mean",
        "non-zeros: 20 to 100 a rank, the largest 2.00 of the mean",
        "halo entries: 0 to 4 a rank, the largest 2.00 of the mean",
    ]


def test_without_columns_nothing_is_said_about_the_halo():
    assert "halo" not in str(Balance(UNEVEN.rows, UNEVEN.nonzeros, None))
    with pytest.raises(ValueError, match="no columns"):
        Balance(UNEVEN.rows, UNEVEN.nonzeros, None).largest_over_mean("halo")


def test_nothing_is_even():
    assert Balance(np.zeros(3), np.zeros(3), np.zeros(3)).largest_over_mean("halo") == 1
