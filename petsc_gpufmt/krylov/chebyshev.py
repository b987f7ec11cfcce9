"""Chebyshev's iteration with a diagonal as preconditioner: one launch for all that a step does beside the product.

PETSc's KSPCHEBYSHEV goes over vectors three times in a step, and copies at the beginning and at the end. As a smoother
of multigrid it takes few steps, of which the first one, from zero, is a product by a diagonal.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.kernel_modules import Instance, compiled_ahead
from petsc_gpufmt.backends.plan import Launch, Slot, Struct
from petsc_gpufmt.krylov.steps import BLOCK_THREADS, Steps, blocks_for


class Step(enum.IntEnum):
    """GPUFMT_CHEBYSHEV_... in native/gpufmt_plan_krylov.h."""

    STEP = 0


def chebyshev_iteration(nrows: int, backend: Backend) -> Steps:
    """The step Z = ALPHA U + BETA X + GAMMA D (B - W) for vectors of so many rows on this rank; there is no state.

    B is the right-hand side and W = A X. Vectors that are not given are not read: U, X and W are 0 then, D is 1. The
    factors are scalars, passed by value. Z may be U or X.
    """
    step = Struct(Slot.ALPHA, Slot.BETA, Slot.GAMMA, Slot.U, Slot.X, Slot.W, Slot.D, Slot.B, Slot.Z, np.int64(nrows))
    function = backend.function("krylov/chebyshev", "chebyshev_step", (BLOCK_THREADS,))
    launch = Launch(function, (blocks_for(nrows), 1, 1), (BLOCK_THREADS, 1, 1), (step,))
    return Steps({Step.STEP: [launch]}, None)


@compiled_ahead("krylov/chebyshev")
def default_kernels() -> Iterator[list[Instance]]:
    """All of the file."""
    yield [("chebyshev_step", (BLOCK_THREADS,))]
