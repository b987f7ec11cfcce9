"""What is said of a library that is missing, does not load, is of another version, or returns an error."""

import ctypes
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.errors import GpufmtError, LibraryError, UnsupportedError
from petsc_gpufmt.planning import abi, planner


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A tree with a package that has no library."""
    (tmp_path / "petsc_gpufmt" / "native").mkdir(parents=True)
    monkeypatch.setattr(native_library, "__file__", str(tmp_path / "petsc_gpufmt" / "backends" / "native_library.py"))
    return tmp_path


def test_a_source_tree_without_the_library_says_how_to_compile_it(package):
    (package / "setup.py").touch()
    with pytest.raises(LibraryError, match=r"libpetscgpufmt.so is missing: the source tree .* shadows .*`make setup`"):
        native_library.load.__wrapped__()


def test_a_package_without_the_library_says_how_to_install_it(package):
    with pytest.raises(LibraryError, match=r"libpetscgpufmt.so is missing: install again with `pip install"):
        native_library.load.__wrapped__()


def test_a_library_that_does_not_load_says_why(package):
    (package / "petsc_gpufmt" / "native" / "libpetscgpufmt.so").write_text("no library")
    with pytest.raises(LibraryError, match=r"does not load \(.*\): rebuild it against the PETSc that petsc4py uses"):
        native_library.load.__wrapped__()


def test_a_library_of_another_version_is_refused(monkeypatch):
    other = SimpleNamespace(GpufmtSetPlanner=lambda planner: abi.ABI_VERSION + 1)
    monkeypatch.setattr(planner, "_planner", None)
    monkeypatch.setattr(native_library, "load", lambda: other)
    with pytest.raises(UnsupportedError, match=f"speaks plan interface {abi.ABI_VERSION + 1}, the Python package"):
        planner.install()


def test_what_is_of_real_numbers_is_refused_where_scalars_are_complex(monkeypatch):
    types = np.dtype(np.complex128), np.dtype(np.int32)
    monkeypatch.setattr(native_library, "petsc_types", lambda: types)
    with pytest.raises(
        UnsupportedError, match=r"this PETSc has complex scalars: take them with .* without --with-scalar"
    ):
        native_library.real_types()


def test_codes_that_the_library_returns_become_exceptions(monkeypatch):
    failing = SimpleNamespace(GpufmtUpload=lambda *_: 55, GpufmtCite=lambda _: 77)
    monkeypatch.setattr(native_library, "load", lambda: failing)
    with pytest.raises(GpufmtError, match="PETSc error 55 in an upload of 24 bytes"):
        native_library.upload(8, np.zeros(3), 0)
    with pytest.raises(GpufmtError, match="PETSc error 77 on the citation of pjds"):
        native_library.cite("pjds")


def test_python_goes_on_with_another_thread_only_in_calls_without_its_lock():
    counts, over = [0], threading.Event()

    def count():
        while not over.is_set():
            counts[0] += 1

    def counted(call, *arguments):
        before = counts[0]
        call(*arguments)
        return counts[0] - before

    thread = threading.Thread(target=count)
    thread.start()
    try:
        unlocked = counted(native_library.without_lock().usleep, 200_000)
        assert counted(native_library.call, "usleep", 200_000) < unlocked / 2  # it gets a place for a message too
    finally:
        over.set()
        thread.join()


def test_fortran_finds_the_types_by_its_own_name():
    code = ctypes.c_int(-1)
    native_library.load().petscgpufmtinitialize_(ctypes.byref(code))
    assert code.value == 0
