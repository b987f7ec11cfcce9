"""Times of a call, on the host and on the stream of a device."""

from __future__ import annotations

import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Call = Callable[[], Any]

CALLS = 60
WARM_UP_CALLS = 60
"""On a device; more than the mults after which ``-mat_type gpufmt`` times formats and keeps the fastest."""
BATCHES = 9
HOST_SECONDS = 1.0
DEVICE_BATCH_SECONDS = 0.005
CALLS_PER_BATCH = 200
"""Small enough that launches of a batch never wait for room in the queue of the device (1024 launches)."""
FEWEST_PER_BATCH = 20


@dataclass(frozen=True)
class CallTimes:
    """Times of one call, in seconds.

    Attributes
    ----------
    least, largest : of single calls
    median : of single calls; on a device between two events around each, so with the host's time where that is longer
    back_to_back : a call of an uninterrupted sequence, on a device between two events around the sequence
    host : until a call returns to the caller, without waiting for a device
    calls : number of single calls behind the median
    """

    median: float
    back_to_back: float
    host: float
    calls: int
    least: float
    largest: float


class Timer(ABC):
    """Measures calls in one place."""

    place: str

    @abstractmethod
    def times(self, call: Call) -> CallTimes:
        """The three times of `call`, after warm-up."""

    @abstractmethod
    def elapsed(self, call: Call, repeats: int) -> float:
        """Median seconds until all that `call` started has ended, after one call that does not count."""

    @abstractmethod
    def single(self, call: Call, repeats: int) -> float:
        """Median seconds of single calls as in `times`, without its long warm-up: after one that does not count."""


class HostTimer(Timer):
    place = "host"

    def times(self, call: Call) -> CallTimes:
        first = self.elapsed(call, 1)
        calls = max(10, min(CALLS, int(HOST_SECONDS / max(first, 1e-9))))
        call()
        single = [_seconds(call, 1) for _ in range(calls)]
        median = statistics.median(single)
        per_batch = max(1, min(CALLS_PER_BATCH, int(HOST_SECONDS / BATCHES / max(median, 1e-9))))
        back_to_back = statistics.median(_seconds(call, per_batch) for _ in range(BATCHES)) / per_batch
        return CallTimes(median, back_to_back, back_to_back, calls, min(single), max(single))

    def elapsed(self, call: Call, repeats: int) -> float:
        call()
        return statistics.median(_seconds(call, 1) for _ in range(repeats))

    def single(self, call: Call, repeats: int) -> float:
        return self.elapsed(call, repeats)


class DeviceTimer(Timer):
    """Times work queued on `stream`, a CuPy stream that is current while the timer is used."""

    place = "cuda"

    def __init__(self, stream: Any):
        import cupy

        self.stream = stream
        self.cuda = cupy.cuda

    def times(self, call: Call) -> CallTimes:
        for _ in range(WARM_UP_CALLS):
            call()
        self.stream.synchronize()
        single = self._between_events([call] * CALLS)
        median = statistics.median(single)
        per_batch = max(FEWEST_PER_BATCH, min(CALLS_PER_BATCH, int(DEVICE_BATCH_SECONDS / max(median, 1e-9))))
        back_to_back = statistics.median(self._between_events([_repeat(call, per_batch)] * BATCHES)) / per_batch
        host = []
        for _ in range(BATCHES):
            host.append(_seconds(call, per_batch) / per_batch)
            self.stream.synchronize()
        return CallTimes(median, back_to_back, statistics.median(host), CALLS, min(single), max(single))

    def _between_events(self, calls: list[Call]) -> list[float]:
        """Seconds between two events around each call; the host waits for the device once, after the last."""
        pairs = [(self.cuda.Event(), self.cuda.Event()) for _ in calls]
        for call, (start, stop) in zip(calls, pairs, strict=True):
            start.record(self.stream)
            call()
            stop.record(self.stream)
        self.stream.synchronize()
        return [self.cuda.get_elapsed_time(start, stop) * 1e-3 for start, stop in pairs]

    def elapsed(self, call: Call, repeats: int) -> float:
        def finished() -> None:
            call()
            self.stream.synchronize()

        finished()
        return statistics.median(_seconds(finished, 1) for _ in range(repeats))

    def single(self, call: Call, repeats: int) -> float:
        call()
        self.stream.synchronize()
        return statistics.median(self._between_events([call] * repeats))


def _repeat(call: Call, count: int) -> Call:
    def calls() -> None:
        for _ in range(count):
            call()

    return calls


def _seconds(call: Call, count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        call()
    return time.perf_counter() - start
