"""Jacobi's preconditioner: reciprocals of a diagonal with a look at signs, and products by them.

PETSc's are of a library that loads its kernels when each is first called, some milliseconds that a set-up waits for.
One plan serves vectors of any length.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.kernel_modules import Instance, compiled_ahead
from petsc_gpufmt.backends.plan import Launch, Slot
from petsc_gpufmt.krylov import steps
from petsc_gpufmt.krylov.steps import BLOCK_THREADS


class Jacobi(NamedTuple):
    """Launches for vectors of ALPHA rows, an integer of 8 bytes.

    Attributes
    ----------
    reciprocals : launches for Z = 1 / X, 0 where X is; `not_positive` is counted. Z may be X.
    products : launches for Z = D X, entry by entry. Z may be D or X.
    not_positive : (1,) array of the backend's scalar type, how many entries of X were not above 0
    """

    reciprocals: list[Launch]
    products: list[Launch]
    not_positive: Any


def jacobi(backend: Backend) -> Jacobi:
    """What Jacobi's preconditioner does with vectors of any length."""
    ticket, not_positive, parts = backend.empty(
        (1, np.dtype(np.int32)), (1, backend.scalar), (steps.MOST_BLOCKS, backend.scalar), zeros=1
    )

    def launch(what: str, *arguments: Any) -> Launch:
        function = backend.function("krylov/jacobi", f"jacobi_{what}", (BLOCK_THREADS,))
        return Launch(function, (steps.MOST_BLOCKS, 1, 1), (BLOCK_THREADS, 1, 1), (Slot.ALPHA, *arguments))

    return Jacobi(
        [launch("reciprocals", Slot.X, Slot.Z, parts, ticket, not_positive)],
        [launch("products", Slot.D, Slot.X, Slot.Z)],
        not_positive,
    )


@compiled_ahead("krylov/jacobi")
def default_kernels() -> Iterator[list[Instance]]:
    """All kernels of the file."""
    yield [(f"jacobi_{what}", (BLOCK_THREADS,)) for what in ("reciprocals", "products")]
