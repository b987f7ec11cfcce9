"""The harness of twins finds defects that are put in, and says how to repeat them."""

import pytest

from reliability import twins

pytestmark = [pytest.mark.slow, pytest.mark.mpi]


def test_a_defect_is_found_and_shrunk():
    ended = twins.run_batch(1, 0, 4, "--defect", "a little off")
    found = [failure for failure in ended.failures if "shift:" in failure]
    assert found, ended.failures
    calls = found[0].split(" : ")[0].split("--calls ")[1].split()
    assert len(calls) <= 4
