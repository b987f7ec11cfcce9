"""GMRES: launches for all that a cycle does with vectors beside products, and for its small matrix, on the backend.

PETSc's KSPGMRES takes all products of the new vector with the basis to the host in each iteration, and its norm. Here
they stay in a state that the kernels share, and so do the Hessenberg matrix and the rotations that make it triangular.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.kernel_modules import Instance, compiled_ahead
from petsc_gpufmt.backends.plan import Launch, Slot, Struct
from petsc_gpufmt.krylov.steps import ALONE, BLOCK_THREADS, OF_RANKS, Steps, blocks_for

BATCH = 8  # vectors of the basis that share a look at the new one

COLUMN = np.dtype(
    [
        *((name, np.float64) for name in ("norm", "cosine", "sine", "entry", "next", "residual")),
        ("happy", np.int64),
    ]
)
"""GpufmtGmresColumn."""
STATE = np.dtype(
    [
        *((name, np.float64) for name in ("limit", "divergence", "haptol", "square", "norm", "next")),
        *((name, np.int64) for name in ("iteration", "most", "stop", "alone", "flexible", "nterms")),
    ]
)
"""GpufmtGmresState."""


class Step(enum.IntEnum):
    """Parts of an iteration, and of a solution, GPUFMT_GMRES_... in native/gpufmt_plan_krylov.h."""

    SCALE = 0
    DOTS = 1
    UPDATE = 2
    END = 3
    ADD = 4
    SET = 5
    UPDATE_OF_RANKS = 6


def state_for(restart: int) -> np.dtype:
    """A STATE, and what follows it where a cycle has so many iterations."""
    each = restart + 1
    column = np.dtype(
        [
            *((name, COLUMN[name]) for name in COLUMN.names or ()),
            ("dots", np.float64, each),
            ("rotated", np.float64, each),
        ]
    )
    return np.dtype(
        [
            *((name, STATE[name]) for name in STATE.names or ()),
            ("columns", column, restart),
            ("sums", np.float64, each),
            ("basis", np.int64, each),
            ("weights", np.float64, each),
            ("terms", np.int64, each),
        ]
    )


def generalized_minimal_residuals(nrows: int, backend: Backend, restart: int) -> Steps:
    """The steps for vectors of so many rows on this rank and cycles of so many iterations; the state is state_for().

    SCALE gives the newest vector of the basis, W, norm 1. DOTS makes the sums of the basis with its product, W from
    then on; UPDATE subtracts from W what it has in common with the basis, which ends the iteration; END ends it where
    other ranks had to add their sums. ADD adds to X, and SET makes X, the sum of `nterms` vectors with their weights.

    Where ranks reach memory of each other, the last one takes the place of UPDATE, of the sum over ranks and of END, as
    those of conjugate gradients do (cg.py).
    """
    blocks = blocks_for(nrows)
    state, ticket, parts = backend.empty(
        (state_for(restart).itemsize, np.dtype(np.int8)),
        (1, np.dtype(np.int32)),
        ((restart + 1) * blocks, backend.scalar),
        zeros=2,
    )
    gmres = Struct(state, parts, ticket, np.int64(nrows), np.int64(restart))

    def launch(kernel: str, nblocks: int, *arguments: Any, shape: tuple[int, ...] = ()) -> Launch:
        function = backend.function("krylov/gmres", kernel, (BLOCK_THREADS, *shape))
        return Launch(function, (nblocks, 1, 1), (BLOCK_THREADS, 1, 1), (gmres, *arguments))

    steps = {
        Step.SCALE: launch("gmres_scale", blocks, Slot.W),
        Step.DOTS: launch("gmres_dots", blocks, Slot.W, shape=(BATCH,)),
        Step.UPDATE: launch("gmres_update", blocks, Slot.W, *ALONE, shape=(0,)),
        Step.END: launch("gmres_end", 1),
        Step.ADD: launch("gmres_combine", blocks, Slot.X, np.int32(1)),
        Step.SET: launch("gmres_combine", blocks, Slot.X, np.int32(0)),
        Step.UPDATE_OF_RANKS: launch("gmres_update", blocks, Slot.W, *OF_RANKS, shape=(1,)),
    }
    return Steps({step: [made] for step, made in steps.items()}, state)


@compiled_ahead("krylov/gmres")
def default_kernels() -> Iterator[list[Instance]]:
    """All of the file; what is for several ranks by itself, as in bcgs.py."""
    kernels = ("gmres_scale", "gmres_end", "gmres_combine")
    sums: list[Instance] = [("gmres_dots", (BLOCK_THREADS, BATCH)), ("gmres_update", (BLOCK_THREADS, 0))]
    yield [*((kernel, (BLOCK_THREADS,)) for kernel in kernels), *sums]
    yield [("gmres_update", (BLOCK_THREADS, 1))]
