"""Uploads and downloads by several threads, with a driver whose copies come late: what arrives, and what is left."""

import launch
import pytest

pytestmark = pytest.mark.slow  # compiles a program, and waits for copies that come late
TESTS = (
    *("sizes", "downloads", "streams", "making", "making twice", "errors", "fork", "others", "row pointers"),
    *("beside", "values"),
)


@pytest.fixture(scope="module")
def uploads(tmp_path_factory):
    flags = ("-std=gnu11", f"-I{launch.PROGRAMS.parents[2] / 'petsc_gpufmt' / 'native'}")
    return launch.compiled("uploads", tmp_path_factory.mktemp("programs"), *flags)


@pytest.mark.parametrize("name", TESTS)
def test_uploads(uploads, name):
    finished = launch.run([uploads, name])
    assert finished.status == 0 and finished.output.endswith("passed\n"), finished
