"""The emulation itself: that right kernels run, and that what a device forbids is caught."""

from pathlib import Path

import numpy as np
import pytest

from emulation.backend import EmulatedBackend, EmulationError, compile_library, cxx_compiler
from petsc_gpufmt.backends.plan import Launch, Slot

KERNELS = Path(__file__).parent / "kernels"


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


@pytest.fixture(scope="module")
def device_like(emulation_folder):
    return EmulatedBackend(np.float64, np.int32, emulation_folder, kernels=KERNELS, device_like=True)


def test_kernels_take_arrays_that_offer_no_more_than_those_of_a_device(device_like):
    x = device_like.adopt(np.arange(4 * 256, dtype=np.float64))
    (sums,) = device_like.empty((4, np.dtype(np.float64)))
    function = device_like.function("shim", "block_sum", (256,))

    device_like.run([Launch(function, (3, 1, 1), (256, 1, 1), (x[256:], Slot.Z))], {Slot.Z: sums[1:]})

    expected = np.arange(256, 4 * 256).reshape(3, 256).sum(axis=1)
    assert np.array_equal(device_like.to_host(sums), [np.nan, *expected], equal_nan=True)
    assert device_like.to_host(sums[3:1]).size == 0


def test_a_write_beside_an_array_like_those_of_a_device_is_caught(device_like):
    (y,) = device_like.empty((64, np.dtype(np.float64)))

    with pytest.raises(EmulationError, match="out-of-bounds write after an array of 32 float64"):
        launch(device_like, "write_shifted", (1, 1, 1), (32, 1, 1), np.int32(1), y[:32])


def test_arrays_like_those_of_a_device_are_cleared_and_counted_from(device_like):
    counts, values = device_like.empty((5, np.dtype(np.int64)), (2, np.dtype(np.float32)))
    assert device_like.first(counts, 1) == [np.iinfo(np.int64).min] and np.isnan(device_like.to_host(values)).all()

    device_like.clear(counts[1:4])

    assert device_like.first(counts[1:], 4) == [0, 0, 0, np.iinfo(np.int64).min]


def test_a_device_gives_few_numbers_at_once(device_like):
    (counts,) = device_like.empty((513, np.dtype(np.int64)))

    assert len(device_like.first(counts, 512)) == 512
    with pytest.raises(EmulationError, match="513 int64 are asked for at once: at most 4096 bytes can be"):
        device_like.first(counts, 513)


def test_where_arrays_are_like_those_of_a_device_there_is_no_module_to_compute_with(device_like):
    with pytest.raises(EmulationError, match=r"^xp\.cumsum where arrays offer no more than those of a device$"):
        device_like.xp.cumsum(np.ones(3))
    with pytest.raises(EmulationError, match="an array of 2 dimensions"):
        device_like.adopt(np.zeros((2, 2)))


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


def test_shuffles_sum_over_each_warp(backend):
    x = np.arange(2 * 96, dtype=np.float64)
    sums = np.full(6, np.nan)

    launch(backend, "warp_sum", (2, 1, 1), (96, 1, 1), x, sums)

    assert sums.tolist() == x.reshape(6, 32).sum(axis=1).tolist()


@pytest.mark.parametrize("width", [32, 8])
def test_shuffles_stay_in_their_segments(backend, width):
    x, y = 2**40 + np.arange(32), np.zeros((4, 32), dtype=np.int64)
    lane, first = np.arange(32), np.arange(32) // width * width

    launch(backend, "shuffles", (1, 1, 1), (32, 1, 1), x, y, template_arguments=(width,))

    assert y[0].tolist() == x[first + 3].tolist()
    assert y[1].tolist() == x[np.where(lane - 2 < first, lane, lane - 2)].tolist()
    assert y[2].tolist() == x[np.where(lane + 2 >= first + width, lane, lane + 2)].tolist()
    assert y[3].tolist() == x[lane ^ 5].tolist()


def test_a_shuffle_from_a_thread_that_takes_no_part_gives_nan(backend):
    x = np.zeros(32)

    launch(backend, "shuffle_from_outside", (1, 1, 1), (32, 1, 1), x)

    assert np.isnan(x[:16]).all() and not x[16:].any()


def test_votes_of_the_threads_that_the_mask_names(backend):
    x, y = np.ones(32, dtype=np.int32), np.zeros(32, dtype=np.int64)
    x[[0, 2]] = 0

    launch(backend, "votes", (1, 1, 1), (32, 1, 1), x, y)

    even, odd = 4 * (0x55555555 - 5) + 1, 4 * 0xAAAAAAAA + 3
    assert y.tolist() == [even, odd] * 16


def test_warp_operations_do_not_wait_for_threads_that_have_ended(backend):
    x = np.zeros(64, dtype=np.int32)

    launch(backend, "some_leave", (1, 1, 1), (64, 1, 1), x)

    expected = [*range(101, 120), 119, *[0] * 12, *range(133, 152), 151, *[0] * 12]
    assert x.tolist() == [20000 + e if e else 0 for e in expected]


def test_warp_operations_barriers_and_tickets_together(backend):
    x = np.arange(5 * 128, dtype=np.float64)
    block_sums, ticket, total = np.full(5, np.nan), np.zeros(1, dtype=np.uint32), np.full(1, np.nan)

    for _ in range(2):
        launch(backend, "grid_sum", (5, 1, 1), (128, 1, 1), x, block_sums, ticket, total)

        assert total[0] == x.sum() and ticket[0] == 0


def test_atomics_of_all_integer_types(backend):
    counts = [np.array([0, 50, 50, 0, 77, 64], dtype=t) for t in (np.int32, np.uint32, np.int64, np.uint64)]

    launch(backend, "atomics", (1, 1, 1), (64, 1, 1), *counts)

    assert all(c.tolist() == [64, 0, 63, 63, 0, 95] for c in counts)


@pytest.mark.parametrize(
    ("x", "expected"), [(0, [0, 0, 32, 0, 5, 5]), (12, [2, 3, 28, 5, 12, 12]), (-1, [32, 1, 0, -1, 5, 5])]
)
def test_arithmetic(backend, x, expected):
    y = np.full(6, -7, dtype=np.int32)

    launch(backend, "arithmetic", (1, 1, 1), (1, 1, 1), np.int32(x), y)

    assert y.tolist() == expected


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (
            "warp_operation_against_barrier",
            r"threads of warp 0 of block \(0,0,0\) wait at the warp operation in line \d+, "
            r"another of the same mask at the barrier in line \d+",
        ),
        ("part_at_warp_operations", r"warp 0 of block \(0,0,0\) wait at different warp operations, in lines \d+ and"),
        ("different_masks", r"in line \d+ with different masks, 55555557 and ffffffff"),
        ("outside_own_mask", r"thread 3 of block \(0,0,0\) is not in its own mask fffffff7 at the warp"),
    ],
)
def test_a_warp_operation_that_some_threads_miss_is_caught(backend, kernel, message):
    with pytest.raises(EmulationError, match=message):
        launch(backend, kernel, (2, 1, 1), (64, 1, 1), np.zeros(64))

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


@pytest.mark.skipif(cxx_compiler() is None, reason="no C++ compiler")
def test_a_library_is_compiled_again_only_after_a_change(tmp_path):
    source, header, build = tmp_path / "a.cpp", tmp_path / "a.h", tmp_path / "build"
    source.write_text('#include "a.h"\nint one = ONE;\n')
    header.write_text("#define ONE 1\n")

    first = compile_library(build, "a", [source], [source])
    written = first.stat().st_mtime_ns
    assert compile_library(build, "a", [source], [source]) == first and first.stat().st_mtime_ns == written
    other_arguments = compile_library(build, "a", [source, "-DTWO=2"], [source])
    header.write_text("#define ONE 2\n")
    other_header = compile_library(build, "a", [source], [source])

    assert sorted(build.iterdir()) == sorted({first, other_arguments, other_header})
    assert len({first, other_arguments, other_header}) == 3
