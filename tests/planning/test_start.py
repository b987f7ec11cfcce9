"""What threads make ready, for the first plan and for later ones."""

import subprocess
import sys

import pytest

from petsc_gpufmt.backends import compile, kernel_modules
from petsc_gpufmt.backends.kernel_modules import default_modules
from petsc_gpufmt.backends.kernel_store import file_name
from petsc_gpufmt.planning import abi, planner, start

OTHERS = ["patterns.csr", "halo.peer", "spgemm.hash"]
HOST, CUDA = (abi.BACKENDS.index(name) for name in ("host", "cuda"))


@pytest.fixture
def named(monkeypatch):
    """Files among these that were named to the library, in turn, and for which types and device."""
    files = [f"{stem}.0123.module" for stem in ("spgemm.hash", "patterns.csr", "other.kernels", "halo.peer")]
    files += [f"formats.{stem}.0123.module" for stem in ("bsr", "bsr_values", "columns", "ellpack", "ellpackr", "pjds")]
    names = []

    def name_kernels(wanted, *where):
        turns = {file: wanted(file) for file in files}
        names.extend(sorted(f.removesuffix(".0123.module") for f in files if turns[f] is not None))
        names.sort(key=lambda name: turns[f"{name}.0123.module"])
        names.append(where)

    monkeypatch.setattr(compile, "name_kernels", name_kernels)
    return names


def name_kernels(format_name, backend=CUDA, block_size=1):
    place = abi.PlaceStruct(backend, 2, 4, 8, 0, None)
    planner._planner.name_kernels(abi.c.addressof(place), format_name, block_size)


def prepare(format_name):
    place = abi.PlaceStruct(HOST, 0, 4, 8, 0, None)
    return planner._planner.prepare(abi.c.addressof(place), format_name)


@pytest.mark.parametrize(
    ("format_name", "formats"),
    [
        (b"pjds", ["columns", "pjds"]),
        (b"bsr", ["bsr", "bsr_values", "columns"]),
        (b"ellpack", ["columns", "ellpack", "ellpackr"]),
        (b"ellpackr", ["columns", "ellpackr"]),
    ],
)
def test_kernels_of_a_format_are_named_first_and_those_of_others_are_not(named, format_name, formats):
    name_kernels(format_name)
    assert named == [*(f"formats.{name}" for name in formats), *OTHERS, ("float64", "int32", 2)]


def test_where_a_format_is_chosen_kernels_of_the_first_come_first_and_of_others_without_blocks_last(named):
    name_kernels(b"gpufmt")
    last = [f"formats.{name}" for name in ("ellpack", "ellpackr")]
    assert named == ["formats.columns", "formats.pjds", *OTHERS, *last, ("float64", "int32", 2)]


@pytest.mark.parametrize("block_size", [2, 3, 5, 9])
def test_where_a_format_is_chosen_kernels_of_the_block_size_come_first(monkeypatch, block_size):
    """Of all that are compiled ahead; of elasticity those of coarse levels and of prolongators too."""
    modules, wanted = default_modules(), []
    monkeypatch.setattr(compile, "name_kernels", lambda turn, *where: wanted.append(turn))
    name_kernels(b"gpufmt", block_size=block_size)
    (turn,) = wanted
    first = [m for m in modules if m.stem.startswith("formats/bsr") and turn(file_name(m)) == 0]
    assert all(turn(file_name(m)) is None for m in modules if m.stem.startswith("formats/bsr") and m not in first)
    shapes = {tuple(name.partition("<")[2].split(",")[:2]) for m in first for name in m.names} - {("",)}
    sizes = {2: "23", 3: "36", 5: "5", 9: ""}[block_size]
    assert shapes == {(row, column) for row in sizes for column in sizes}
    assert {m.stem for m in first if "<" not in m.names[0]} == {"formats/bsr_layout", "formats/bsr_values"}


def test_on_the_host_no_kernels_are_named(named):
    name_kernels(b"pjds", HOST)
    assert named == []


def test_kernels_that_cannot_be_named_are_left_to_plans(monkeypatch):
    def fail(*arguments):
        raise ZeroDivisionError

    monkeypatch.setattr(compile, "name_kernels", fail)
    name_kernels(b"pjds")


def test_all_that_plans_are_made_by_is_imported_in_short_steps(monkeypatch):
    imported = []
    monkeypatch.setattr(planner, "_later", None)
    monkeypatch.setattr(start.importlib, "import_module", imported.append)
    steps = 0
    while prepare(None):
        steps += 1
        assert len(imported) <= steps
    assert tuple(imported[: len(start.OTHERS)]) == start.OTHERS
    assert not prepare(None)


def test_kernels_are_listed_before_plans_ask_for_them(monkeypatch):
    modules = default_modules()
    monkeypatch.setattr(planner, "_later", None)
    for found in (kernel_modules.declared, kernel_modules._module_of_name):
        found.cache_clear()
    while prepare(None):
        pass
    monkeypatch.setattr(kernel_modules, "_declarations", {})  # a plan need not look there
    assert all(kernel_modules.module_of(module.stem, name) == module for module in modules for name in module.names)


def test_what_fails_is_left_to_the_plan(monkeypatch):
    monkeypatch.setattr(start, "backend_at", lambda place: 1 / 0)
    assert not prepare(b"pjds")
    assert not prepare(b"no such format")


def test_importing_the_package_imports_no_format_and_nothing_of_products():
    program = (
        "import sys, numpy\n"
        "before = set(sys.modules)\n"  # NumPy's are its own affair: that of Python 3.10 has subprocess
        "import petsc_gpufmt\n"
        "assert 'petsc_gpufmt.distribute' not in sys.modules and petsc_gpufmt.distribute.rows\n"
        "names = [name.removeprefix('petsc_gpufmt.') for name in sorted(sys.modules) if 'petsc_gpufmt.' in name]\n"
        "print(*(n for n in names if n.startswith(('formats.', 'spgemm.', 'choice.')) and n.count('.') == 1))\n"
        "print(*(name in sys.modules.keys() - before for name in ('scipy', 'cupy', 'argparse', 'subprocess')))"
    )
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert finished.stdout.splitlines() == ["choice.registry formats.common", "False False False False"]


FIRST_PLAN = """
import petsc4py; petsc4py.init(["first plan"])
from petsc4py import PETSc
import petsc_gpufmt
from petsc_gpufmt.planning import planner
A, B = (PETSc.Mat().createConstantDiagonal(3, 2.0).convert("aij").convert("aijpjds") for _ in range(2))
answer = planner._answer
def after_another(*arguments):
    planner._answer = answer
    B.mult(*B.createVecs())
    answer(*arguments)
planner._answer = after_another
PETSc.Log.begin()
PETSc.Log.Stage("products").push()
event, (x, y) = PETSc.Log.Event("MatMult"), A.createVecs()
for count in (1, 2, 3):
    A.mult(x, y)
    print(event.getPerfInfo()["count"])
"""


def test_events_go_on_after_a_first_plan_in_which_another_is_made():
    finished = subprocess.run(
        [sys.executable, "-c", FIRST_PLAN], capture_output=True, text=True, timeout=60, check=True
    )
    counts = [int(line) for line in finished.stdout.split()]
    assert counts[0] + 2 == counts[1] + 1 == counts[2]
