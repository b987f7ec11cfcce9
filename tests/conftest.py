"""Tests marked gpu are skipped where there is no CUDA device; what tests of several files share."""

import gc
import signal
from pathlib import Path

import pytest

pytest.register_assert_rewrite("format_checks", "stored_matrix")


def has_cuda_device() -> bool:
    try:
        import cupy

        return cupy.cuda.runtime.getDeviceCount() > 0
    except Exception:  # no CuPy, no driver, or no device: CuPy raises a different class for each
        return False


def pytest_collection_modifyitems(items):
    gpu_tests = [item for item in items if item.get_closest_marker("gpu")]
    if not gpu_tests:
        return
    if has_cuda_device():
        import petsc4py.PETSc  # noqa: F401  initialises PETSc, through whose device context arrays are uploaded
    else:
        for item in gpu_tests:
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))


def pytest_collection_finish():
    """Thousands of tests need not be looked at whenever garbage is collected."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def emulation_folder():
    """Where emulated kernels are compiled, and kept from session to session."""
    from emulation.backend import cxx_compiler

    if cxx_compiler() is None:
        pytest.skip("no C++ compiler")
    return Path(__file__).resolve().parents[1] / "build" / "emulation"


@pytest.fixture
def options():
    """PETSc's options database; what a test sets is gone after it."""
    from petsc4py import PETSc

    database = PETSc.Options()
    before = database.getAll()
    yield database
    for name in set(database.getAll()) - set(before):
        database.delValue(name)


@pytest.fixture
def interruptible():
    """Ctrl-C raises KeyboardInterrupt, also in a run that was started in the background, where it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
