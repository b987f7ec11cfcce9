"""Loops in CUDA graphs, which native/runtime/graph.c makes: whether they go on is said by a kernel."""

from __future__ import annotations

from collections.abc import Iterator

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.kernel_modules import Instance, compiled_ahead
from petsc_gpufmt.backends.plan import Launch, Slot


def loop_condition(backend: Backend) -> Launch:
    """The last launch in the body of a loop, of which ALPHA is the handle: it ends if the 64 bits at X are not 0.

    On a device alone; it may be launched in the body of that loop, and nowhere else. GpufmtError or DriverError where
    the compiler or the driver is older than such loops.
    """
    return Launch(backend.function("common/loop", "loop_set_condition", ()), (1, 1, 1), (1, 1, 1), (Slot.ALPHA, Slot.X))


@compiled_ahead("common/loop", compiler=(12, 3))
def default_kernels() -> Iterator[list[Instance]]:
    """A module of its own, since drivers before CUDA 12.3 do not take it."""
    yield [("loop_set_condition", ())]
