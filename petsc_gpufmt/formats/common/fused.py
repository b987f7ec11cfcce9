"""Launches that do more with the sum of a row than to store it (kernels/formats/results.cuh)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.kernel_modules import Instance, compiled_ahead
from petsc_gpufmt.backends.plan import Fused, Launch, Slot, Struct, ceil_div

TICKET = np.dtype(np.uint32)
FEW_BLOCKS = 1024  # which run at once, or nearly so: the last of them adds up their parts
SUM_THREADS, PARTS_OF_A_THREAD, MOST_SUM_BLOCKS = 256, 4, 64  # of the launch that adds up parts


def fused_argument(operation: Fused, nblocks: int, backend: Backend) -> tuple[Struct, list[Launch]]:
    """The struct Fused for a launch of so many blocks, and launches after it, which add up parts of a dot product."""
    if not leaves_a_sum(operation):
        return _struct(operation, backend, (None, None, None)), []
    (parts,) = backend.empty((nblocks, backend.scalar))
    if nblocks <= FEW_BLOCKS or backend.name == "host":
        (ticket,) = backend.empty((1, TICKET), zeros=1)
        return _struct(operation, backend, (parts, ticket, Slot.RESULT)), []
    return _struct(operation, backend, (parts, None, Slot.RESULT)), [_sum_of_parts(parts, nblocks, backend)]


def _struct(operation: Fused, backend: Backend, dot: tuple[Any, ...]) -> Struct:
    """The struct Fused; `dot` is the struct GridSum."""
    zero, one = backend.scalar.type(0), backend.scalar.type(1)
    match operation:
        case Fused.SMOOTH:
            return Struct(Slot.ALPHA, Slot.BETA, Slot.GAMMA, Slot.U, Slot.D, Slot.B, None, Slot.Z, *dot)
        case Fused.ADD_SMOOTH:
            return Struct(one, zero, Slot.GAMMA, Slot.Z, Slot.D, None, None, Slot.Z, *dot)
        case Fused.ADD_DOT:
            return Struct(one, zero, -one, Slot.Z, None, None, Slot.Y, Slot.Z, *dot)
        case Fused.MULT_DOT:
            return Struct(zero, zero, -one, None, None, None, Slot.X, Slot.Z, *dot)


def _sum_of_parts(parts: Any, nparts: int, backend: Backend) -> Launch:
    nblocks = min(MOST_SUM_BLOCKS, ceil_div(nparts, SUM_THREADS * PARTS_OF_A_THREAD))
    ticket, sums = backend.empty((1, TICKET), (nblocks, backend.scalar), zeros=1)
    function = backend.function("common/grid_sum", "grid_sum_of_parts", (SUM_THREADS,))
    arguments = (np.int64(nparts), parts, sums, ticket, Slot.RESULT)
    return Launch(function, (nblocks, 1, 1), (SUM_THREADS, 1, 1), arguments)


def leaves_a_sum(operation: Fused) -> bool:
    """Whether there is something to do even without rows."""
    return operation in (Fused.MULT_DOT, Fused.ADD_DOT)


def is_added(operation: Fused) -> bool:
    """Whether rows without entries need not be looked at."""
    return operation in (Fused.ADD_DOT, Fused.ADD_SMOOTH)


@compiled_ahead("common/grid_sum")
def default_kernels() -> Iterator[list[Instance]]:
    """The one of the file."""
    yield [("grid_sum_of_parts", (SUM_THREADS,))]
