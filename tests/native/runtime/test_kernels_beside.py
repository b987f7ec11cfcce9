"""Kernels that a thread loads beside the application: what plans take of them, whichever way the program ends."""

import launch
import pytest

pytestmark = pytest.mark.slow  # compiles a program
TESTS = ("all", "wanted", "errors", "again", "fork", "exit")


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    flags = ("-std=gnu11", f"-I{launch.PROGRAMS.parents[2] / 'petsc_gpufmt' / 'native'}")
    return launch.compiled("kernels_beside", tmp_path_factory.mktemp("programs"), *flags)


@pytest.mark.parametrize("name", TESTS)
def test_kernels(kernels, name, tmp_path):
    finished = launch.run([kernels, name], cwd=tmp_path)
    assert finished.status == 0 and finished.output == "passed\n", finished
