"""Conjugate gradients of mixed precision: what is done between vectors of double and of single precision.

An outer method in double precision corrects a solution by what inner conjugate gradients in single precision, `cg.py`
for that type, make of its residual (Cevahir, Nukada, Matsuoka 2009, section 2.2; Buttari et al. 2008).
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.kernel_modules import Instance, compiled_ahead
from petsc_gpufmt.backends.plan import Launch, Slot, Struct
from petsc_gpufmt.krylov.steps import BLOCK_THREADS, Steps, blocks_for

STATE = np.dtype([("sums", np.float64, 2), ("factor", np.float64), ("norm", np.int64)])
"""GpufmtMixedState in native/gpufmt_plan_krylov.h."""


class Step(enum.IntEnum):
    """Parts of an outer iteration, GPUFMT_MIXED_... in native/gpufmt_plan_krylov.h."""

    NARROW = 0
    RESIDUAL = 1
    CORRECT = 2
    WIDEN = 3


class Array(enum.IntEnum):
    """Vectors of single precision that belong to the method, GPUFMT_MIXED_ARRAY_..."""

    X = 0
    R = 1
    P = 2
    W = 3
    D = 4


def mixed_conjugate_gradients(nrows: int, backend: Backend) -> Steps:
    """The steps for vectors of so many rows on this rank, and the arrays of the inner method; the state is a STATE.

    D is the diagonal of a preconditioner or empty, and so is S, the diagonal of a scaling: slot Y. NARROW makes the
    inner D of D. RESIDUAL makes the inner R of Z - W, or of Z without W, its norm, and r z of the inner system. CORRECT
    adds the inner X to X, WIDEN writes it there; then it is 0.
    """
    blocks = blocks_for(nrows)
    single = (nrows, np.dtype(np.float32))
    state, ticket, x, parts, r, p, w, d = backend.empty(
        (STATE.itemsize, np.dtype(np.int8)),
        (1, np.dtype(np.int32)),
        single,
        (2 * blocks, backend.scalar),
        *(single,) * 4,
        zeros=3,
    )
    mixed = Struct(state, parts, ticket, np.int64(nrows))

    def launch(kernel: str, *arguments: Any) -> list[Launch]:
        function = backend.function("krylov/mixedcg", f"mixedcg_{kernel}", (BLOCK_THREADS,))
        return [Launch(function, (blocks, 1, 1), (BLOCK_THREADS, 1, 1), arguments)]

    steps = {
        Step.NARROW: launch("narrow", np.int64(nrows), Slot.D, Slot.Y, d),
        Step.RESIDUAL: launch("residual", mixed, Slot.Z, Slot.W, Slot.D, Slot.Y, r),
        Step.CORRECT: launch("correct", mixed, Slot.Y, x, Slot.X, np.int32(0)),
        Step.WIDEN: launch("correct", mixed, Slot.Y, x, Slot.X, np.int32(1)),
    }
    return Steps(steps, state, {Array.X: x, Array.R: r, Array.P: p, Array.W: w, Array.D: d})


@compiled_ahead("krylov/mixedcg")
def default_kernels() -> Iterator[list[Instance]]:
    """All of the file."""
    yield [(f"mixedcg_{kernel}", (BLOCK_THREADS,)) for kernel in ("narrow", "residual", "correct")]
