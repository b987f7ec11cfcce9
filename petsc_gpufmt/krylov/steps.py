"""What Krylov methods have in common: steps that share a state."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from petsc_gpufmt.backends.plan import Launch, Slot, Struct

BLOCK_THREADS = 256
ITEMS = 2  # rows of a thread at once, as in kernels/krylov/rows.cuh
MOST_BLOCKS = 1024  # of a launch: about as many as a large device has at once
# Of a launch whose blocks wait for other ranks: six of a multiprocessor have registers, and those of a second wave
# would wait once more, with the memory half idle.
MOST_WAITING_BLOCKS = 768
RECORDS = 256  # GPUFMT_KRYLOV_RECORDS in native/gpufmt_plan_krylov.h
MOST_STEPS = 10  # GPUFMT_MOST_KRYLOV_STEPS in native/gpufmt_plan_krylov.h
MOST_ARRAYS = 8  # GPUFMT_MOST_KRYLOV_ARRAYS

OF_RANKS = (Struct(Slot.MESSAGES, Slot.ARRIVALS), Slot.ALPHA)
"""What kernels get that sum over ranks by themselves: tables (halo/peer.py), and not 0 where this rank has failed."""
ALONE = (Struct(None, None), np.int64(0))
"""The same where they do not."""


class Method(enum.IntEnum):
    """GPUFMT_KRYLOV_... in native/gpufmt_plan_krylov.h."""

    CG = 0
    MIXED = 1
    BCGS = 2
    CHEBYSHEV = 3
    GMRES = 4


class Steps(NamedTuple):
    """The launches of a method.

    Attributes
    ----------
    launches : of each step, by its number
    state : bytes on the backend, which the steps share, as the method lays them out; None if there are none
    arrays : others of the method that the library uses, by their numbers
    """

    launches: dict[Any, list[Launch]]
    state: Any
    arrays: Mapping[Any, Any] = MappingProxyType({})


def state_with_records(sums: int, scalars: tuple[str, ...], record: np.dtype) -> np.dtype:
    """A state of so many sums, scalars, limits of the norm and how far iterations are, and the records of these."""
    return np.dtype(
        [
            ("sums", np.float64, sums),
            *((name, np.float64) for name in (*scalars, "limit", "divergence")),
            *((name, np.int64) for name in ("iteration", "most", "stop", "norm", "alone")),
            ("records", record, RECORDS),
        ]
    )


def blocks_for(nrows: int) -> int:
    """Blocks of BLOCK_THREADS for vectors of so many rows."""
    return max(1, min(MOST_BLOCKS, -(-nrows // (BLOCK_THREADS * ITEMS))))
