"""The programs for compute-sanitizer, on the host."""

from __future__ import annotations

import sys
from pathlib import Path
from unittest import mock

import launch
import numpy as np
import pytest
from emulation.backend import EmulatedBackend
from fake_driver import fake_driver

from petsc_gpufmt.backends import device_memory
from petsc_gpufmt.backends.backend import CudaBackend

pytest.importorskip("scipy.sparse")

import exact_memory  # noqa: E402
import small_coarsening  # noqa: E402
import small_krylov  # noqa: E402
import small_products  # noqa: E402
import small_programs  # noqa: E402
import small_spgemm  # noqa: E402
import small_sums  # noqa: E402


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "lines"),
    [
        (small_coarsening, ["27 points, distance 2", "rows alone, distance 1"]),
        (
            small_krylov,
            ["gmres, 777 rows", "bsr, many rows", "5000 narrowed", "gpucg, pjds, jacobi", "refinement, far apart"],
        ),
        (small_products, ["uneven rows, some empty", "unsorted"]),
        (small_spgemm, ["long row of the product", "RARt"]),
        (
            small_sums,
            [
                "rows elsewhere",
                "2000 x 3000 scaled",
                "700 on the diagonal",
                "9000 coordinates",
                "block of 9000 coordinates",
            ],
        ),
    ],
)
def test_small_products_are_right(monkeypatch, capsys, program, lines):
    monkeypatch.setattr(sys, "argv", ["program", "--host"])
    assert program.main() == 0
    output = capsys.readouterr().out
    assert [line for line in lines if line not in output] == []


def test_a_part_leaves_the_others_out(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["program", "--host", "--part", "second", "--part", "third"])
    parts = {name: lambda _, name=name: {f"of {name}": name != "third"} for name in ("first", "second", "third")}
    assert small_programs.right_or_wrong("program", "what it does", parts) == 1
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["of", "second", "right"],
        ["of", "third", "WRONG"],
    ]


def test_steps_of_krylov_methods_are_told_from_others(emulation_folder):
    """An emulated device agrees with the host; with a sum that is not the same, it does not."""
    backend = EmulatedBackend("float64", "int32", emulation_folder, device_like=True)
    assert [name for name, right in small_krylov.steps_are_right(backend).items() if not right] == []
    left = small_krylov.steps_of_cg(backend, 33)
    for wrong, what in enumerate(left):
        if what.dtype == float and np.isfinite(what).all() and np.any(what):
            assert not small_krylov.agree([*left[:wrong], what * (1 + 1e-6), *left[wrong + 1 :]], left)


@pytest.mark.mpi
@pytest.mark.slow
def test_small_halo_exchanges_are_right():
    program = Path(__file__).with_name("small_halo.py")
    finished = launch.run([sys.executable, program, "--host"], ranks=2, PYTHONSAFEPATH="")
    lines = finished.output.splitlines()
    assert finished.status == 0, str(finished)
    assert len(lines) == 24 and all(line.endswith("right") for line in lines), finished.output


def test_arrays_have_memory_of_their_own(emulation_folder, monkeypatch):
    changed = [(device_memory.DeviceMemory, "empty"), (CudaBackend, "empty")]
    for owner, name in [*changed, *((device_memory, constant) for constant in ("ALIGNMENT", "SMALL", "MEDIUM"))]:
        monkeypatch.setattr(owner, name, getattr(owner, name))  # as they are, again, after the test
    with fake_driver(emulation_folder, pools=False) as driver:
        backend = CudaBackend("float64", "int32", device=0)
        backend.xp = mock.Mock()
        exact_memory.take_arrays_one_by_one(backend)
        floats, none, numbers = backend.empty((3, backend.scalar), (0, backend.index), (5, backend.index))
        zeros, more = backend.empty((3, backend.index), (3, backend.index), zeros=1)
        assert [nbytes for _, nbytes in driver.named("cuMemAlloc_v2")] == [24, 20, 12, 12]
        assert backend.first(zeros, 3) == [0] * 3 and backend.first(more, 3) == [-1] * 3
        assert np.isnan(backend.to_host(floats)).all() and none.size == 0
        assert backend.first(numbers, 5) == [-1] * 5
