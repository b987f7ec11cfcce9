"""Arguments of kernels that do more with the sum of a row than to store it (kernels/formats/results.cuh)."""

from __future__ import annotations

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.plan import Fused, Slot, Struct, ceil_div

GROUP_BLOCKS = 1024  # as in kernels/common/sums.cuh
TICKET = np.dtype(np.uint32)


def fused_argument(operation: Fused, nblocks: int, backend: Backend) -> Struct:
    """The struct Fused for a launch of so many blocks."""
    zero, one = backend.scalar.type(0), backend.scalar.type(1)
    nowhere = (None, None, None)
    if operation is Fused.SMOOTH:
        factors = (Slot.ALPHA, Slot.BETA, Slot.GAMMA)
        return Struct(*factors, Slot.U, Slot.D, Slot.B, None, Slot.Z, *nowhere)
    if operation is Fused.ADD_SMOOTH:
        return Struct(one, zero, Slot.GAMMA, Slot.Z, Slot.D, None, None, Slot.Z, *nowhere)
    ngroups = ceil_div(nblocks, GROUP_BLOCKS)
    tickets, parts = backend.empty((ngroups + 1, TICKET), (nblocks + ngroups, backend.scalar), zeros=1)
    dot = (parts, tickets, Slot.RESULT)
    if operation is Fused.ADD_DOT:
        return Struct(one, zero, -one, Slot.Z, None, None, Slot.Y, Slot.Z, *dot)
    return Struct(zero, zero, -one, None, None, None, Slot.X, Slot.Z, *dot)


def leaves_a_sum(operation: Fused) -> bool:
    """Whether there is something to do even without rows."""
    return operation in (Fused.MULT_DOT, Fused.ADD_DOT)


def is_added(operation: Fused) -> bool:
    """Whether rows without entries need not be looked at."""
    return operation in (Fused.ADD_DOT, Fused.ADD_SMOOTH)
