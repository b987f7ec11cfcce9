"""Conjugate gradients: launches for all that an iteration does with vectors, with its scalars where these are.

PETSc's KSPCG takes three scalars to the host in each iteration, and goes over vectors eight times. Here the scalars
stay in a state that the kernels share, and each kernel does all that it can with what it has read.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.kernel_modules import Instance, compiled_ahead
from petsc_gpufmt.backends.plan import Launch, Slot, Struct
from petsc_gpufmt.krylov.steps import (
    ALONE,
    BLOCK_THREADS,
    MOST_WAITING_BLOCKS,
    OF_RANKS,
    Steps,
    blocks_for,
    state_with_records,
)

RECORD = np.dtype([(name, np.float64) for name in ("curvature", "rz", "norm")])
STATE = state_with_records(4, ("curvature", "rz", "rz_before"), RECORD)
"""GpufmtCgState."""


class Step(enum.IntEnum):
    """Parts of an iteration, GPUFMT_CG_... in native/gpufmt_plan_krylov.h."""

    DIRECTION = 0
    CURVATURE = 1
    UPDATE = 2
    UPDATE_SUMS = 3
    FIRST_DOTS = 4
    DOTS = 5
    END = 6
    UPDATE_OF_RANKS = 7
    UPDATE_SUMS_OF_RANKS = 8
    DOTS_OF_RANKS = 9


def conjugate_gradients(nrows: int, backend: Backend) -> Steps:
    """The steps for vectors of so many rows on this rank; the state is a STATE.

    The preconditioned residual z is in slot Z; where that is empty, z is D r, and r where D is empty too. DIRECTION
    makes P of R, D and Z; CURVATURE the sum P W; UPDATE changes X and R by P and W, UPDATE_SUMS also adds up what
    the new R gives, which ends the iteration. The sums over R, and Z or D R, are those of FIRST_DOTS before the first
    iteration; DOTS ends one with them. END ends it where other ranks had to add theirs.

    Where ranks reach memory of each other, the last three take the place of UPDATE, UPDATE_SUMS and DOTS, of END and of
    the sums over ranks. MESSAGES and ARRIVALS are what these have (halo/peer.py). A rank that has failed gives an
    ALPHA that is not 0, 64 bits, and no vectors; it sends what is not a number. Once the iterations have ended, nothing
    is sent.
    """
    blocks = blocks_for(nrows)
    state, ticket, parts = backend.empty(
        (STATE.itemsize, np.dtype(np.int8)), (1, np.dtype(np.int32)), (2 * blocks, backend.scalar), zeros=2
    )
    cg = Struct(state, parts, ticket, np.int64(nrows))

    def launch(kernel: str, *arguments: Any, instance: tuple[int, ...] = (), most: int = blocks) -> Launch:
        function = backend.function("krylov/cg", kernel, (BLOCK_THREADS, *instance))
        return Launch(function, (min(blocks, most), 1, 1), (BLOCK_THREADS, 1, 1), (cg, *arguments))

    def dots(ends: int, of_ranks: int = 0) -> Launch:
        ranks = OF_RANKS if of_ranks else ALONE
        return launch("cg_dots", Slot.R, Slot.D, Slot.Z, np.int32(ends), *ranks, instance=(of_ranks,))

    def update_of_ranks(sums: int) -> Launch:
        return launch("cg_update_of_ranks", *updated, np.int32(sums), *OF_RANKS, most=MOST_WAITING_BLOCKS)

    updated = (Slot.X, Slot.R, Slot.P, Slot.W, Slot.D)
    steps = {
        Step.DIRECTION: launch("cg_direction", Slot.P, Slot.R, Slot.D, Slot.Z),
        Step.CURVATURE: launch("cg_curvature", Slot.P, Slot.W),
        Step.UPDATE: launch("cg_update", *updated, np.int32(0)),
        Step.UPDATE_SUMS: launch("cg_update", *updated, np.int32(1)),
        Step.FIRST_DOTS: dots(ends=0),
        Step.DOTS: dots(ends=1),
        Step.END: Launch(backend.function("krylov/cg", "cg_end", ()), (1, 1, 1), (1, 1, 1), (state,)),
        Step.UPDATE_OF_RANKS: update_of_ranks(sums=0),
        Step.UPDATE_SUMS_OF_RANKS: update_of_ranks(sums=1),
        Step.DOTS_OF_RANKS: dots(ends=1, of_ranks=1),
    }
    return Steps({step: [made] for step, made in steps.items()}, state)


@compiled_ahead("krylov/cg")
def default_kernels() -> Iterator[list[Instance]]:
    """All of the file."""
    kernels = ("cg_direction", "cg_curvature", "cg_update", "cg_update_of_ranks")
    dots: list[Instance] = [("cg_dots", (BLOCK_THREADS, of_ranks)) for of_ranks in (0, 1)]
    yield [*((kernel, (BLOCK_THREADS,)) for kernel in kernels), *dots, ("cg_end", ())]
