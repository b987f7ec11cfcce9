"""The emulation itself: that right kernels run, and that what a device forbids is caught."""

from pathlib import Path

import numpy as np
import pytest
from emulation.backend import EmulatedBackend, EmulationError

from petsc_gpufmt.plan import Launch, Slot

KERNELS = Path(__file__).parent / "emulation" / "kernels"


@pytest.fixture(scope="module")
def backend(emulation_folder):
    return EmulatedBackend(np.float64, np.int32, emulation_folder, kernels=KERNELS)


def launch(backend, kernel, grid, block, *arguments, template_arguments=()):
    backend.run([Launch(backend.function("shim", kernel, template_arguments), grid, block, arguments)])


def test_barriers_order_the_threads_of_a_block(backend):
    x = np.arange(3 * 256, dtype=np.float64)
    sums = np.full(3, np.nan)

    launch(backend, "block_sum", (3, 1, 1), (256, 1, 1), x, sums, template_arguments=(256,))

    assert sums.tolist() == x.reshape(3, 256).sum(axis=1).tolist()


def test_every_thread_of_the_grid_runs_once_at_its_place(backend):
    places = np.full(2 * 3 * 4 * 5 * 6 * 7, -1, dtype=np.int32)

    launch(backend, "thread_places", (2, 3, 4), (5, 6, 7), places)

    assert places.tolist() == list(range(places.size))


def test_slots_are_filled_from_the_arrays_given(backend):
    sums = np.zeros(1)
    function = backend.function("shim", "block_sum", (32,))

    backend.run([Launch(function, (1, 1, 1), (32, 1, 1), (Slot.X, Slot.Z))], {Slot.X: np.ones(32), Slot.Z: sums})

    assert sums[0] == 32


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        ("leave_before_barrier", r"31 of 32 threads of block \(0,0,0\) wait at the barrier in line \d+, "),
        ("part_at_barriers", r"threads of block \(0,0,0\) wait at different barriers, in lines \d+ and \d+"),
    ],
)
def test_a_barrier_that_some_threads_miss_is_caught(backend, kernel, message):
    with pytest.raises(EmulationError, match=message):
        launch(backend, kernel, (2, 1, 1), (32, 1, 1), np.zeros(32))

    launch(backend, "write_shifted", (1, 1, 1), (32, 1, 1), np.int32(0), np.zeros(32))  # the next launch is sound


@pytest.mark.parametrize(("shift", "where"), [(1, "after"), (-1, "before")])
def test_a_write_beyond_an_array_is_caught(backend, shift, where):
    with pytest.raises(EmulationError, match=f"out-of-bounds write {where} an array of 32 float64"):
        launch(backend, "write_shifted", (1, 1, 1), (32, 1, 1), np.int32(shift), np.zeros(32))


def test_a_write_to_an_array_that_must_not_change_is_caught(backend):
    x = np.ones(32)
    x.flags.writeable = False

    with pytest.raises(EmulationError, match="write to a read-only array"):
        launch(backend, "write_shifted", (1, 1, 1), (32, 1, 1), np.int32(0), x)


def test_reading_beyond_an_array_gives_nan(backend):
    sums = np.zeros(2)

    launch(backend, "block_sum", (2, 1, 1), (32, 1, 1), np.ones(63), sums, template_arguments=(32,))

    assert sums[0] == 32 and np.isnan(sums[1])


def test_shared_memory_is_nan_until_the_block_writes_it(backend):
    x = np.zeros(32)

    launch(backend, "read_unwritten_shared", (2, 1, 1), (32, 1, 1), x)

    assert np.isnan(x).all()


@pytest.mark.parametrize(
    ("grid", "block", "message"),
    [
        ((0, 1, 1), (32, 1, 1), "grid"),
        ((1, 65536, 1), (32, 1, 1), "grid"),
        ((1, 1, 1), (32, 1, 65), "block"),
        ((1, 1, 1), (1024, 2, 1), "2048 threads a block"),
    ],
)
def test_a_geometry_that_no_device_takes_is_caught(backend, grid, block, message):
    with pytest.raises(EmulationError, match=message):
        launch(backend, "write_shifted", grid, block, np.int32(0), np.zeros(32))


def test_a_kernel_that_does_not_compile_shows_the_compiler_output(backend):
    with pytest.raises(EmulationError, match="no_such_kernel"):
        backend.function("shim", "no_such_kernel", ())
