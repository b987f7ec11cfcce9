"""What the thread that starts Python makes ready, for the first plan and for later ones."""

import contextlib
import subprocess
import sys

import pytest

from petsc_gpufmt.backends.kernel_modules import default_modules
from petsc_gpufmt.planning import abi, planner, start


@pytest.fixture
def loaded(monkeypatch):
    """The kernel modules that a backend was told to load."""
    modules = []

    class Recording:
        load = staticmethod(modules.append)

    monkeypatch.setattr(start, "backend_at", lambda place: contextlib.nullcontext(Recording))
    monkeypatch.setattr(planner, "_later", None)
    return modules


def prepare(format_name):
    place = abi.PlaceStruct(0, 0, 4, 8, None)
    return planner._planner.prepare(abi.c.addressof(place), format_name)


def test_the_first_plan_finds_the_kernels_that_store_and_multiply(loaded):
    prepare(b"pjds")
    stems = {module.stem for module in loaded}
    assert {"patterns/csr", "formats/pjds", "formats/columns"} <= stems
    assert all(stem == "patterns/csr" or stem.startswith("formats/") for stem in stems)


def test_all_kernels_are_ready_after_short_steps(loaded):
    steps = 0
    while prepare(None):
        steps += 1
        assert len(loaded) <= steps
    assert loaded == default_modules()
    assert not prepare(None)


def test_what_fails_is_left_to_the_plan(loaded, monkeypatch):
    monkeypatch.setattr(start, "backend_at", lambda place: 1 / 0)
    assert not prepare(b"pjds")
    assert not prepare(b"no such format")


def test_importing_the_package_imports_no_format_and_nothing_of_products():
    program = (
        "import sys, petsc_gpufmt\n"
        "names = [name.removeprefix('petsc_gpufmt.') for name in sorted(sys.modules) if 'petsc_gpufmt.' in name]\n"
        "print(*(n for n in names if n.startswith(('formats.', 'spgemm.', 'choice.')) and n.count('.') == 1))\n"
        "print('scipy' in sys.modules, 'cupy' in sys.modules, 'argparse' in sys.modules, 'subprocess' in sys.modules)"
    )
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert finished.stdout.splitlines() == ["choice.registry formats.common", "False False False False"]
