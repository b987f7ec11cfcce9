"""Chebyshev's iteration with a diagonal, or blocks on it, as preconditioner: one launch for a step beside its product.

PETSc's KSPCHEBYSHEV goes over vectors three times in a step, and copies at the beginning and at the end. As a smoother
of multigrid it takes few steps, of which the first one, from zero, is a product by that diagonal.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.kernel_modules import Instance, compiled_ahead
from petsc_gpufmt.backends.plan import Launch, Slot, Struct
from petsc_gpufmt.krylov.steps import BLOCK_THREADS, Steps, blocks_for

MOST_POINT_BLOCK = 16  # GPUFMT_MOST_POINT_BLOCK in native/gpufmt_plan_krylov.h


class Step(enum.IntEnum):
    """GPUFMT_CHEBYSHEV_... in native/gpufmt_plan_krylov.h."""

    STEP = 0


def chebyshev_iteration(nrows: int, backend: Backend, point_block: int = 0) -> Steps:
    """The step Z = ALPHA U + BETA X + GAMMA D (B - W) for vectors of so many rows on this rank; there is no state.

    B is the right-hand side and W = A X. Vectors that are not given are not read: U, X and W are 0 then, D is 1. The
    factors are scalars, passed by value. Z may be U or X.

    With `point_block`, 2 to MOST_POINT_BLOCK, which divides `nrows`, D is block diagonal and has to be given: blocks of
    so many rows one after another, each column by column.
    """
    step = Struct(Slot.ALPHA, Slot.BETA, Slot.GAMMA, Slot.U, Slot.X, Slot.W, Slot.D, Slot.B, Slot.Z, np.int64(nrows))
    geometry = (blocks_for(nrows), 1, 1), (BLOCK_THREADS, 1, 1)
    if point_block:
        function = backend.function("krylov/chebyshev", "chebyshev_block_step", (BLOCK_THREADS, point_block))
        launch = Launch(function, *geometry, (step, np.int64(point_block)))
    else:
        function = backend.function("krylov/chebyshev", "chebyshev_step", (BLOCK_THREADS,))
        launch = Launch(function, *geometry, (step,))
    return Steps({Step.STEP: [launch]}, None)


@compiled_ahead("krylov/chebyshev")
def default_kernels() -> Iterator[list[Instance]]:
    """Those with a diagonal, and with blocks of elasticity, its coarse levels and flows."""
    yield [("chebyshev_step", (BLOCK_THREADS,))]
    for point_block in (2, 3, 4, 5, 6):
        yield [("chebyshev_block_step", (BLOCK_THREADS, point_block))]
