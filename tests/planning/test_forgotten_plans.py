"""Plans that are forgotten in the middle of an operation."""

import sys
from pathlib import Path

import launch
import pytest

PROGRAM = Path(__file__).with_name("forgotten_plans.py")


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.mpi)])
def test_an_operation_whose_plans_go_is_an_error_or_right(ranks):
    finished = launch.run([sys.executable, PROGRAM], ranks=ranks)
    assert finished.status == 0 and "gone" in finished.output, str(finished)
