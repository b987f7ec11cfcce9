"""Memory of a device: taken and given back in stream order, from one pool, whatever ends first."""

import gc

import numpy as np
import pytest
from fake_driver import CONTEXT, fake_driver

from petsc_gpufmt.backends import device_memory, driver
from petsc_gpufmt.backends.device_memory import MOST_ZEROS, SMALL, ZEROS, memory_of, trim_all

INT, DOUBLE = np.dtype(np.int32), np.dtype(np.float64)
MOST_KEPT = 1 << 16  # bytes, in these tests
LARGE = MOST_KEPT // 4 + 1  # integers that are not kept
S, OTHER = 0x51, 0x52  # streams
TAKE, FREE, FILL = "cuMemAllocFromPoolAsync", "cuMemFreeAsync", "cuMemsetD8Async"


@pytest.fixture
def fake():
    with fake_driver() as made:
        yield made


@pytest.fixture
def memory(fake, monkeypatch):
    monkeypatch.setattr(device_memory, "MOST_KEPT", MOST_KEPT)
    return memory_of(0)


def test_arrays_share_an_allocation_and_begin_where_a_device_likes_it(fake, memory):
    a, b, nothing, c = memory.empty(((3, INT), (np.int8(100), DOUBLE), (0, INT), (np.int64(5), np.dtype(np.int64))), S)

    assert fake.named(TAKE) == [(TAKE, 2048, 0xB0, S)]
    assert [x.ptr - a.ptr for x in (a, b, c)] == [0, 256, 1280] and nothing.ptr == 0
    assert [(x.size, x.dtype) for x in (a, b, nothing, c)] == [(3, INT), (100, DOUBLE), (0, INT), (5, np.int64)]
    assert all(type(x.size) is int for x in (a, b, nothing, c))


def test_empty_arrays_take_no_memory(fake, memory):
    a, b = memory.empty(((0, INT), (0, DOUBLE)), S)

    assert (a.ptr, b.ptr, fake.named(TAKE)) == (0, 0, [])
    assert a.__cuda_array_interface__["data"] == (0, False)


def test_the_last_view_gives_memory_back_before_more_is_taken(fake, memory):
    (a, b) = memory.empty(((LARGE, INT), (4, DOUBLE)), S)
    address, view = a.ptr, a[10:20]
    del a, b
    memory.empty(((2 * LARGE, INT),), S)
    assert not [call for call in fake.named(FREE) if call[1] == address]
    del view
    assert not fake.named(FREE)  # what becomes garbage calls nothing

    memory.empty(((3 * LARGE, INT),), S)

    assert (FREE, address, S) in fake.named(FREE)
    assert fake.calls[-1][0] == TAKE


@pytest.mark.parametrize(("first", "second"), [(LARGE, LARGE), (10, 64), (300, 400), (4097, 5120), (1800, 1900)])
def test_what_has_come_back_is_taken_again_for_as_much(fake, memory, first, second):
    a = memory.empty(((first, INT),), S)
    address = a[0].ptr
    del a

    (b,) = memory.empty(((second, INT),), S)
    (c,) = memory.empty(((second, INT),), S)

    assert b.ptr == address != c.ptr and len(fake.named(TAKE)) == 2 and not fake.named(FREE)


def test_small_pieces_are_kept_until_memory_is_trimmed(fake, memory):
    a, b = memory.empty(((10, INT),), S), memory.empty(((SMALL // 4, INT),), S)
    small = [a[0].ptr, b[0].ptr]
    del a, b
    (large,) = memory.empty(((LARGE, INT),), S)
    assert not fake.named(FREE)

    trim_all()

    assert sorted(call[1] for call in fake.named(FREE)) == sorted(small) and list(fake.memory) == [large.ptr]


def test_pieces_are_kept_until_they_are_many(fake, memory):
    """One that is new each time, say, which nothing fits."""
    (medium,) = memory.empty(((SMALL, INT),), S)
    address = medium.ptr
    del medium
    for _ in range(2):
        memory.empty(((MOST_KEPT // 4 - SMALL, INT),), S)
    assert not fake.named(FREE) and len(fake.named(TAKE)) == 2  # not more than MOST_KEPT

    memory.empty(((LARGE, INT),), S)
    assert not fake.named(FREE)
    memory.empty(((2 * LARGE, INT),), S)

    assert len(fake.named(FREE)) == 3 and (FREE, address, S) in fake.named(FREE)


def test_short_arrays_of_zeros_are_filled_together(fake, memory):
    a, nothing, b = memory.zeros(((3, DOUBLE), (0, INT), (70, INT)), S)
    (c,) = memory.zeros(((MOST_ZEROS // 8, DOUBLE),), S)

    assert fake.named(FILL) == [(FILL, a.ptr, 0, ZEROS, S)] and nothing.ptr == 0
    assert [x.ptr - a.ptr for x in (b, c)] == [256, 256 + 512]
    for x in (a, b, c):
        to = np.empty(x.size, x.dtype)
        memory.to_host(x.ptr, to, S)
        assert not to.any()
    parts = [memory.zeros(((MOST_ZEROS, np.dtype(np.int8)),), S)[0] for _ in range(ZEROS // MOST_ZEROS)]
    assert len(fake.named(FILL)) == 2 and parts[-1].ptr == parts[-2].ptr + MOST_ZEROS


def test_long_arrays_of_zeros_are_filled_by_themselves(fake, memory):
    nothing, a, b = memory.zeros(((0, INT), (MOST_ZEROS, INT), (5, DOUBLE)), S)

    assert fake.named(FILL) == [(FILL, a.ptr, 0, 4 * MOST_ZEROS + 256, S)] and nothing.ptr == 0
    assert b.ptr == a.ptr + 4 * MOST_ZEROS


def test_zeros_are_filled_anew_for_another_stream_and_after_trimming(fake, memory):
    for stream in (S, OTHER):
        memory.zeros(((1, INT),), stream)
    trim_all()
    assert not fake.memory

    memory.zeros(((1, INT),), OTHER)

    assert [call[-1] for call in fake.named(FILL)] == [S, OTHER, OTHER]


def test_another_stream_is_followed_after_a_wait_for_the_device(fake, memory):
    a = memory.empty(((1, INT),), S)
    b = memory.empty(((LARGE, INT),), S)
    assert not fake.named("cuCtxSynchronize")  # no memory was used on the stream before
    address = b[0].ptr
    del b

    memory.empty(((2 * LARGE, INT),), OTHER)

    used = fake.named("cuCtxSynchronize", FREE, TAKE)[-3:]
    assert [call[0] for call in used] == ["cuCtxSynchronize", FREE, TAKE]
    assert used[1] == (FREE, address, OTHER) and used[2][-1] == OTHER
    assert a[0].__cuda_array_interface__["stream"] == memory.stream == OTHER


def test_trimming_gives_all_but_arrays_back_without_a_stream(fake, memory):
    kept, gone = memory.empty(((10, INT),), S), memory.empty(((1000, INT),), S)
    driver.fill(gone[0].ptr, 0, 4, 0)
    del gone
    fake.contexts = []

    trim_all()

    assert list(fake.memory) == [kept[0].ptr] and fake.reserved == 256
    assert fake.contexts == [] and [stream for *_, stream in fake.named(FREE)] == [0]
    assert [name for name, *_ in fake.calls[-7:]] == [
        "cuCtxPushCurrent_v2",
        "cuCtxSynchronize",
        "cuMemFreeAsync",
        "cuStreamSynchronize",
        "cuMemPoolTrimTo",
        "cuMemPoolSetAttribute",
        "cuCtxPopCurrent_v2",
    ]


def test_a_device_that_has_failed_is_trimmed_quietly(fake, memory):
    a = memory.empty(((10, INT),), S)
    del a
    fake.failing = {"cuCtxSynchronize": 700, "cuMemFree_v2": 700}

    trim_all()

    assert fake.named("cuCtxSynchronize") and fake.contexts == [CONTEXT]


def test_trimming_a_device_that_was_not_used_calls_nothing(fake, memory):
    before = len(fake.calls)

    trim_all()

    assert len(fake.calls) == before


def test_memory_that_is_kept_for_later_is_counted(fake, memory):
    assert memory.pooled_bytes() == memory.most_used_bytes() == 0
    a, b = memory.empty(((1000, INT),), S), memory.empty(((10, DOUBLE),), S)
    assert (memory.pooled_bytes(), memory.most_used_bytes()) == (0, 4096 + 256)

    del a

    assert (memory.pooled_bytes(), memory.most_used_bytes()) == (4096, 4096 + 256)
    assert memory.keeps(4096) and not memory.keeps(4097)
    c = memory.empty(((900, INT),), S)
    assert not memory.keeps(1) and c[0].size == 900
    assert not fake.named(FREE)  # the stream may have been destroyed
    assert b[0].size == 10


def test_memory_that_runs_out_is_an_error_of_the_driver(fake, memory):
    fake.limit = 1000

    with pytest.raises(driver.DriverMemoryError):
        memory.empty(((1000, INT),), S)

    assert memory.empty(((10, INT),), S)[0].size == 10


def test_a_device_without_pools_takes_and_gives_back_at_once(monkeypatch):
    monkeypatch.setattr(device_memory, "MOST_KEPT", MOST_KEPT)
    with fake_driver(pools=False) as fake:
        memory = memory_of(0)
        a = memory.empty(((2 * LARGE, INT),), S)
        nbytes = len(fake.memory[a[0].ptr])
        assert fake.named("cuMemAlloc_v2") == [("cuMemAlloc_v2", nbytes)]
        address = a[0].ptr
        del a
        b = memory.empty(((LARGE, INT),), S)
        assert ("cuMemFree_v2", address) in fake.calls and list(fake.memory) == [b[0].ptr]
        assert memory.pooled_bytes() == memory.most_used_bytes() == 0 and not memory.keeps(1)
        del b

        trim_all()

        assert not fake.memory and not [name for name, *_ in fake.calls if "Pool" in name]


def test_what_is_garbage_after_its_memory_has_gone_is_harmless(fake, memory):
    """Python ends: modules, pools and arrays go in any order, and the driver may have gone before."""
    cycle = memory.empty(((10, INT),), S)
    cycle.append(cycle)
    before = len(fake.calls)
    driver.FUNCTIONS.clear()
    fake.failing = dict.fromkeys((*driver.QUICK, *driver.PATIENT), 4)
    del memory, cycle

    gc.collect()

    assert len(fake.calls) == before


def test_to_host_and_first_wait_for_the_copy(fake, memory):
    a, nothing = memory.empty(((4, INT), (0, DOUBLE)), S)
    driver.fill(a[1:3].ptr, 0, 8, 0)

    to = np.empty(4, INT)
    memory.to_host(a.ptr, to, S)

    assert to.tolist() == [-1, 0, 0, -1] == memory.first(a.ptr, 4, INT, S)
    assert len(fake.named("cuStreamSynchronize")) == 2
    memory.to_host(nothing.ptr, np.empty(0), S)
    assert len(fake.named("cuStreamSynchronize")) == 2
    assert memory.first(a.ptr, 1, INT, S) == [-1] and len(fake.named("cuMemAllocHost_v2")) == 1


def test_what_is_queued_meanwhile_is_not_waited_for(fake, memory):
    (a,) = memory.empty(((2, INT),), S)
    fake.calls.clear()

    assert memory.first(a.ptr, 2, INT, S, lambda: driver.fill(a.ptr, 0, 8, S)) == [-1, -1]

    names = [name for name, *_ in fake.calls]
    assert names == ["cuMemcpyDtoHAsync_v2", "cuEventRecord", "cuMemsetD8Async", "cuEventSynchronize"]


def test_more_than_fits_the_pinned_memory_is_refused(memory):
    (a,) = memory.empty(((1025, INT),), S)

    assert memory.first(a.ptr, 1024, INT, S) == [-1] * 1024
    with pytest.raises(ValueError, match="4100 bytes are asked for at once: at most 4096"):
        memory.first(a.ptr, 1025, INT, S)
