"""CUDA graphs: sequences of launches that the device runs without waiting for the host."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator

from petsc_gpufmt.backends import driver

NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED: other threads may do what they like


def graph_seconds(queue: Callable[[int], None], runs: int) -> float:
    """Seconds of the fastest of `runs` runs of what `queue` launches on the stream that it is given.

    Each run is one CUDA graph, after one that does not count. What the launches need must be there: their kernels
    loaded, and all work done that other streams have to do before.
    """
    with _new_stream() as stream, _captured(queue, stream) as graph, contextlib.ExitStack() as events:
        driver.call("cuGraphLaunch", graph, stream)
        pairs = [(events.enter_context(_new_event()), events.enter_context(_new_event())) for _ in range(runs)]
        for start, stop in pairs:
            driver.call("cuEventRecord", start, stream)
            driver.call("cuGraphLaunch", graph, stream)
            driver.call("cuEventRecord", stop, stream)
        driver.synchronize_stream(stream)  # device synchronisation: the times are known, and the graph may go
        return min(driver.answer(ctypes.c_float, "cuEventElapsedTime", *pair) for pair in pairs) * 1e-3


@contextlib.contextmanager
def _captured(queue: Callable[[int], None], stream: int) -> Iterator[int]:
    driver.call("cuStreamBeginCapture_v2", stream, RELAXED)
    recorded = ctypes.c_void_p()
    try:
        queue(stream)
    except BaseException:
        with contextlib.suppress(driver.DriverError):  # the capture failed, and why is known
            driver.call("cuStreamEndCapture", stream, ctypes.byref(recorded))
            driver.call("cuGraphDestroy", recorded)
        raise
    driver.call("cuStreamEndCapture", stream, ctypes.byref(recorded))
    try:
        graph = driver.answer(ctypes.c_void_p, "cuGraphInstantiateWithFlags", recorded, 0)
    finally:
        driver.call("cuGraphDestroy", recorded)
    try:
        yield graph
    finally:
        driver.call("cuGraphExecDestroy", graph)


@contextlib.contextmanager
def _new_stream() -> Iterator[int]:
    stream = driver.answer(ctypes.c_void_p, "cuStreamCreate", NON_BLOCKING)
    try:
        yield stream
    finally:
        with contextlib.suppress(driver.DriverError):  # one that ended this is on its way
            driver.synchronize_stream(stream)  # device synchronisation: what the launches use may go
        driver.call("cuStreamDestroy_v2", stream)


@contextlib.contextmanager
def _new_event() -> Iterator[int]:
    event = driver.answer(ctypes.c_void_p, "cuEventCreate", 0)
    try:
        yield event
    finally:
        driver.call("cuEventDestroy_v2", event)
