"""How much memory of the GPUs is in use while a program runs, as their driver (NVML) sees it."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

LIBRARY = "libnvidia-ml.so.1"
SECONDS_BETWEEN = 0.01


class Memory(ctypes.Structure):
    """nvmlMemory_t: bytes of one GPU."""

    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


def memory_reader() -> Callable[[], list[int]] | None:
    """What gives the bytes in use on each GPU of this machine, or nothing if it cannot; None without such a driver."""
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError:
        return None
    count = ctypes.c_uint()
    if library.nvmlInit_v2() or library.nvmlDeviceGetCount_v2(ctypes.byref(count)):
        return None
    handles = [ctypes.c_void_p() for _ in range(count.value)]
    for number, handle in enumerate(handles):
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
