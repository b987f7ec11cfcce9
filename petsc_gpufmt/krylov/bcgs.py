"""Stabilised bi-conjugate gradients (van der Vorst 1992): launches for all that an iteration does with vectors.

PETSc's KSPBCGS takes five scalars to the host in each iteration, and goes over vectors eight times. Here the scalars
stay in a state that the kernels share, and s, the residual half-way, takes the place of the residual.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.kernel_modules import Instance, compiled_ahead
from petsc_gpufmt.backends.plan import Launch, Slot, Struct
from petsc_gpufmt.krylov.steps import ALONE, BLOCK_THREADS, OF_RANKS, Steps, blocks_for, state_with_records

MOST_SUMS = 3  # that a kernel makes at once

RECORD = np.dtype([(name, np.float64) for name in ("norm", "rho")])
STATE = state_with_records(6, ("rho", "rho_before", "alpha", "omega"), RECORD)
"""GpufmtBcgsState."""


class Step(enum.IntEnum):
    """Parts of an iteration, GPUFMT_BCGS_... in native/gpufmt_plan_krylov.h."""

    DIRECTION = 0
    SHADOW = 1
    HALF = 2
    DOTS = 3
    UPDATE = 4
    END = 5
    SHADOW_OF_RANKS = 6
    DOTS_OF_RANKS = 7
    UPDATE_OF_RANKS = 8


def stabilized_biconjugate_gradients(nrows: int, backend: Backend) -> Steps:
    """The steps for vectors of so many rows on this rank; the state is a STATE.

    Slot W has the product of the direction P, and for DOTS and UPDATE that of the residual half-way; Y has the shadow
    residual. The products are those of the preconditioned matrix: where D is given, SHADOW and DOTS make them from
    those of the matrix, in W. On the right, D is given to DIRECTION and HALF instead, which write D P and D R to Z for
    the product by the matrix. DIRECTION makes P of R and W; SHADOW the sum W Y; HALF changes R by W; DOTS makes sums
    over W and R; UPDATE changes X and R by P, R and W, and adds up what the new R gives, which ends the iteration. END
    ends it where other ranks had to add theirs.

    Where ranks reach memory of each other, the last three take the place of SHADOW, DOTS and UPDATE, of END and of the
    sums over ranks, as those of conjugate gradients do (cg.py).
    """
    blocks = blocks_for(nrows)
    state, ticket, parts = backend.empty(
        (STATE.itemsize, np.dtype(np.int8)), (1, np.dtype(np.int32)), (MOST_SUMS * blocks, backend.scalar), zeros=2
    )
    bcgs = Struct(state, parts, ticket, np.int64(nrows))

    def launch(kernel: str, *arguments: Any, instance: tuple[int, ...] = ()) -> Launch:
        function = backend.function("krylov/bcgs", kernel, (BLOCK_THREADS, *instance))
        return Launch(function, (blocks, 1, 1), (BLOCK_THREADS, 1, 1), (bcgs, *arguments))

    def sums(kernel: str, *arguments: Any) -> tuple[Launch, Launch]:
        return (
            launch(kernel, *arguments, *ALONE, instance=(0,)),
            launch(kernel, *arguments, *OF_RANKS, instance=(1,)),
        )

    shadow, shadow_of_ranks = sums("bcgs_shadow", Slot.W, Slot.Y, Slot.D)
    dots, dots_of_ranks = sums("bcgs_dots", Slot.W, Slot.R, Slot.D)
    update, update_of_ranks = sums("bcgs_update", Slot.X, Slot.R, Slot.P, Slot.W, Slot.Y)
    steps = {
        Step.DIRECTION: launch("bcgs_direction", Slot.P, Slot.R, Slot.W, Slot.D, Slot.Z),
        Step.SHADOW: shadow,
        Step.HALF: launch("bcgs_half", Slot.R, Slot.W, Slot.D, Slot.Z),
        Step.DOTS: dots,
        Step.UPDATE: update,
        Step.END: Launch(backend.function("krylov/bcgs", "bcgs_end", ()), (1, 1, 1), (1, 1, 1), (state,)),
        Step.SHADOW_OF_RANKS: shadow_of_ranks,
        Step.DOTS_OF_RANKS: dots_of_ranks,
        Step.UPDATE_OF_RANKS: update_of_ranks,
    }
    return Steps({step: [made] for step, made in steps.items()}, state)


@compiled_ahead("krylov/bcgs")
def default_kernels() -> Iterator[list[Instance]]:
    """All of the file; beside those of several ranks the assembler would give others more registers."""
    sums = ("bcgs_shadow", "bcgs_dots", "bcgs_update")
    others = (("bcgs_direction", (BLOCK_THREADS,)), ("bcgs_half", (BLOCK_THREADS,)), ("bcgs_end", ()))
    yield [*others, *((kernel, (BLOCK_THREADS, 0)) for kernel in sums)]
    yield [(kernel, (BLOCK_THREADS, 1)) for kernel in sums]
