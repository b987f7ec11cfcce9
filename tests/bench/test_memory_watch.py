"""The memory of GPUs that is in use while a program runs, from a stand-in for their driver."""

from __future__ import annotations

import ctypes
import threading

import pytest

from petsc_gpufmt.bench import memory_watch
from petsc_gpufmt.bench.memory_watch import MemoryWatch


class Driver:
    """NVML with two GPUs; `readings` are what is in use on both, one after another, the last one for ever."""

    def __init__(self, *readings, fails=""):
        self.readings, self.fails, self.number = list(readings), fails, -1
        self.all_read, self.first = threading.Event(), 0

    def nvmlInit_v2(self):  # noqa: N802
        return int(self.fails == "init")

    def nvmlDeviceGetCount_v2(self, count):  # noqa: N802
        count._obj.value = 2
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, number, handle):  # noqa: N802
        handle._obj.value = number.value + 1
        return int(self.fails == "handle")

    def nvmlDeviceGetMemoryInfo(self, handle, memory):  # noqa: N802
        self.first = self.first or handle.value
        self.number += handle.value == self.first
        if self.number >= len(self.readings):
            self.all_read.set()
        both = self.readings[min(self.number, len(self.readings) - 1)]
        if both is None:
            return 1
        memory._obj.used = both[handle.value - 1]
        return 0


@pytest.fixture
def watched(monkeypatch):
    """What a watch finds out from a driver."""

    def watch(driver):
        monkeypatch.setattr(memory_watch, "SECONDS_BETWEEN", 1e-4)
        monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
        with MemoryWatch() as memory:
            assert not memory._read or driver.all_read.wait(20)
        return memory.most_bytes

    return watch


def test_the_largest_rise_on_one_gpu_counts(watched):
    assert watched(Driver((100, 7000), (900, 7100), (600, 7200), (100, 7000))) == 800


@pytest.mark.parametrize(("visible", "most"), [("1", 200), ("0, 1", 800), ("7", 800), ("GPU-f1", 800), ("", 800)])
def test_gpus_that_programs_do_not_see_do_not_count(watched, monkeypatch, visible, most):
    """Others may work there. Where they are not numbered, all count."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert watched(Driver((100, 7000), (900, 7200), (100, 7000))) == most


def test_use_that_ends_early_is_not_the_base(watched):
    """A program of before may still be giving its memory back."""
    assert watched(Driver((500, 0), (100, 0), (900, 0))) == 800


def test_a_reading_that_fails_is_left_out(watched):
    assert watched(Driver((100, 0), None, (300, 0))) == 200


@pytest.mark.parametrize("fails", ["init", "handle"])
def test_without_an_answer_nothing_is_known(watched, fails):
    assert watched(Driver((1, 1), fails=fails)) is None


def test_without_the_library_nothing_is_known(monkeypatch):
    def absent(name):
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", absent)
    with MemoryWatch() as memory:
        pass
    assert memory.most_bytes is None
