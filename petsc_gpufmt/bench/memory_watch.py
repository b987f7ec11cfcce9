"""How much memory of the GPUs is in use while a program runs, as their driver (NVML) sees it."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from typing import Any

LIBRARY = "libnvidia-ml.so.1"
SECONDS_BETWEEN = 0.01


class Memory(ctypes.Structure):
    """nvmlMemory_t: bytes of one GPU."""

    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


def numbers_in_use(count: int) -> list[int]:
    """Which of `count` GPUs programs see: those that CUDA_VISIBLE_DEVICES numbers, all where it does not."""
    words = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    numbers = [int(word) for word in words if word.strip().isdecimal()]
    return [number for number in numbers if number < count] or list(range(count))


def memory_reader() -> Callable[[], list[int]] | None:
    """What gives the bytes in use on each GPU that programs see, or nothing if it cannot; None without a driver."""
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError:
        return None
    count = ctypes.c_uint()
    if library.nvmlInit_v2() or library.nvmlDeviceGetCount_v2(ctypes.byref(count)):
        return None
    numbers = numbers_in_use(count.value)
    handles = [ctypes.c_void_p() for _ in numbers]
    for number, handle in zip(numbers, handles, strict=True):
        if library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(number), ctypes.byref(handle)):
            return None

    def used() -> list[int]:
        memory = [Memory() for _ in handles]
        for handle, of_one in zip(handles, memory, strict=True):
            if library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(of_one)):
                return []
        return [of_one.used for of_one in memory]

    return used


class MemoryWatch:
    """Asks again and again, from entry to exit.

    `most_bytes` is then the most that was in use on one GPU, beyond the least that was in use there: what the programs
    of that time have taken, contexts of the driver included. None where nobody knows.
    """

    def __init__(self) -> None:
        self.most_bytes: int | None = None
        self._read = memory_reader()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._seen: list[list[int]] = []

    def __enter__(self) -> MemoryWatch:
        if self._read:
            self._seen = [self._read()]
            self._thread.start()
        return self

    def __exit__(self, *exception: Any) -> None:
        if self._read:
            self._ended.set()
            self._thread.join()
            self.most_bytes = max(
                (max(used) - min(used) for used in zip(*filter(None, self._seen), strict=True)), default=None
            )

    def _watch(self) -> None:
        while self._read and not self._ended.wait(SECONDS_BETWEEN):
            self._seen.append(self._read())
