"""Tests marked gpu are skipped where there is no CUDA device, those marked real where scalars are complex, those marked
double where PETSc has not double precision and 32-bit indices; emulated ones are slow. And what several files share."""

import gc
import signal
from pathlib import Path

import pytest

from petsc_gpufmt.backends.native_library import petsc_types

pytest.register_assert_rewrite("format_checks", "stored_matrix")


def has_cuda_device() -> bool:
    try:
        import cupy

        return cupy.cuda.runtime.getDeviceCount() > 0
    except Exception:  # no CuPy, no driver, or no device: CuPy raises a different class for each
        return False


ROOMS_FOR_REAL_NUMBERS = ("analysis", "bench", "benchmarks", "krylov", "native/ksp", "reliability", "reproduce")
ROOMS_FOR_REAL_NUMBERS += ("sanitizer", "scaling", "tune")


FOR_DOUBLE = (
    *("analysis", "bench", "choice", "krylov", "reliability", "scaling", "tune", "formats/test_bsr_layout.py"),
    *("formats/test_columns.py", "formats/test_csr_arrays.py", "formats/test_ell", "formats/test_evchyb"),
    *("formats/test_pjds_padding.py", "formats/test_row_patterns.py", "spgemm/test_hash.py"),
)


def is_for_real_numbers(item):
    """Whether a test is marked so, or is about solvers and commands that are for real numbers alone."""
    room = item.path.parent.relative_to(Path(__file__).parent).as_posix()
    return room.startswith(ROOMS_FOR_REAL_NUMBERS) or item.get_closest_marker("real") is not None


def is_for_double(item):
    """Whether a test is marked so, or is about times and bytes, or host kernels, of the types that it names."""
    path = item.path.relative_to(Path(__file__).parent).as_posix()
    return path.startswith(FOR_DOUBLE) or item.get_closest_marker("double") is not None


def runs_emulated_kernels(item):
    """Whether a test compiles kernels for the processor, or has the place of such ones among its parameters."""
    values = item.callspec.params.values() if hasattr(item, "callspec") else ()
    words = [word for value in values for word in (value if isinstance(value, tuple) else (value,))]
    places = [word for word in words if isinstance(word, str) and word in ("emulation", "device_like")]
    return bool(places) or "emulation_folder" in item.fixturenames


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(items):
    """Kernels in emulation are for `make test`: the same tests run on the host in `make check`."""
    for item in items:
        if runs_emulated_kernels(item):
            item.add_marker(pytest.mark.slow)
    scalar, index = petsc_types()
    if scalar.itemsize != (16 if scalar.kind == "c" else 8) or index.itemsize != 4:
        for item in filter(is_for_double, items):
            item.add_marker(pytest.mark.skip(reason="PETSc has not double precision with 32-bit indices"))
    if scalar.kind == "c":
        for item in filter(is_for_real_numbers, items):
            item.add_marker(pytest.mark.skip(reason="PETSc has complex scalars"))
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
