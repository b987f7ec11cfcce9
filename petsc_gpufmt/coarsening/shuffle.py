"""The order in which PETSc's GAMG of type agg visits rows on one rank: a shuffle that is the same in every set-up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.kernel_modules import Instance, compiled_ahead
from petsc_gpufmt.backends.plan import ceil_div, launch_1d

BLOCK_THREADS = 256
SEED = 0x12345678 << 16 | 0x330E  # of a PetscRandom on the first rank, of type rander48
MULTIPLIER, INCREMENT, MODULUS = 0x5DEECE66D, 0xB, 1 << 48  # of that generator


def shuffled(nrows: int, backend: Backend) -> Any:
    """All rows in that order: (nrows,) array of the backend's index type. Does not wait for the device."""
    index = backend.index
    (order,) = backend.empty((nrows, index))
    if not nrows:
        return order
    draws, firsts = backend.empty((nrows, index), (nrows, index))
    backend.clear(firsts)
    draw, follow = (
        backend.function("coarsening/shuffle", f"shuffle_{what}", (BLOCK_THREADS,)) for what in ("draw", "follow")
    )
    blocks = ceil_div(backend.in_turns(nrows), BLOCK_THREADS)
    jump = [np.int64(number) for number in (SEED, *_steps(blocks * BLOCK_THREADS))]
    backend.run(
        [
            launch_1d(draw, blocks * BLOCK_THREADS, BLOCK_THREADS, (index.type(nrows), *jump, draws, firsts)),
            launch_1d(follow, nrows, BLOCK_THREADS, (index.type(nrows), draws, firsts, order)),
        ]
    )
    return order


def _steps(count: int) -> tuple[int, int]:
    """Multiplier and increment of so many steps of the generator at once."""
    multiplier, increment = 1, 0
    square = MULTIPLIER, INCREMENT
    while count:
        if count & 1:
            multiplier, increment = multiplier * square[0] % MODULUS, (increment * square[0] + square[1]) % MODULUS
        square = square[0] ** 2 % MODULUS, (square[0] + 1) * square[1] % MODULUS
        count >>= 1
    return multiplier, increment


@compiled_ahead("coarsening/shuffle")
def default_kernels() -> Iterator[list[Instance]]:
    """All kernels of the file."""
    yield [(f"shuffle_{what}", (BLOCK_THREADS,)) for what in ("draw", "follow")]
