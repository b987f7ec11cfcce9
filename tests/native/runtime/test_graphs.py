"""Plans that are recorded once and run many times, and small blocks that come to the host meanwhile."""

import launch
import pytest


@pytest.mark.slow  # compiles a program
@pytest.mark.parametrize("name", ["graphs", "readbacks"])
def test_on_the_host_and_through_a_driver_of_the_tests(name, tmp_path):
    flags = ("-std=gnu11", f"-I{launch.PROGRAMS.parents[2] / 'petsc_gpufmt' / 'native'}")
    finished = launch.run([launch.compiled(name, tmp_path, *flags)])
    assert finished.status == 0 and finished.output == "passed\n", finished
