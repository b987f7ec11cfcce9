"""Pages that a thread makes ahead: whoever takes an array, at whatever time, has it to himself."""

import launch
import pytest

TESTS = ("touched", "taken", "left", "alone", "fork", "exit")


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    flags = ("-std=gnu11", f"-I{launch.PROGRAMS.parents[2] / 'petsc_gpufmt' / 'native'}")
    return launch.compiled("pages_ahead", tmp_path_factory.mktemp("programs"), *flags)


@pytest.mark.slow  # compiles a program
@pytest.mark.parametrize("name", TESTS)
def test_pages(pages, name):
    finished = launch.run([pages, name])
    assert finished.status == 0 and finished.output == "passed\n", finished
