"""Sums over vectors that estimates of eigenvalues want: many dot products at once, and a look at signs.

PETSc's take longer than they need: a few blocks for any vector, or a library that loads its kernels when it is first
called. One plan serves vectors of any length, and the sums come to the host together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.kernel_modules import Instance, compiled_ahead
from petsc_gpufmt.backends.plan import WARP, Launch, Slot, launch_1d

BLOCK_THREADS = 256
BATCH = 8  # vectors that share a look at the other
PARTS = 512  # blocks, each of which leaves a part of a sum
MOST = 32  # GPUFMT_MOST_DOTS in native/gpufmt_plan_multigrid.h


@dataclass(frozen=True)
class VectorSums:
    """Launches for vectors of ALPHA rows, an integer of 8 bytes, and what they read and write besides.

    Attributes
    ----------
    dots : launches for sums[k] = X . V_k
    not_positive : launches for sums[0] = how many entries of X are not above 0
    vectors : (1 + MOST,) int64, how many V_k there are, at most MOST, and the address of each; written by others
    sums : (MOST,) array of the backend's scalar type
    """

    dots: list[Launch]
    not_positive: list[Launch]
    vectors: Any
    sums: Any


def vector_sums(backend: Backend) -> VectorSums:
    """The sums over vectors of any length."""
    vectors, sums, parts = backend.empty(
        (1 + MOST, np.dtype(np.int64)), (MOST, backend.scalar), (MOST * PARTS, backend.scalar)
    )
    return VectorSums(
        [
            _parts("dots", (BATCH,), (Slot.ALPHA, vectors, Slot.X, parts), backend),
            _totals(vectors, parts, sums, backend),
        ],
        [_parts("not_positive", (), (Slot.ALPHA, Slot.X, parts), backend), _totals(None, parts, sums, backend)],
        vectors,
        sums,
    )


def _parts(what: str, shape: tuple[int, ...], arguments: tuple[Any, ...], backend: Backend) -> Launch:
    function = backend.function("coarsening/vector_sums", f"vector_{what}", (BLOCK_THREADS, *shape))
    return launch_1d(function, PARTS * BLOCK_THREADS, BLOCK_THREADS, arguments)


def _totals(vectors: Any, parts: Any, sums: Any, backend: Backend) -> Launch:
    threads = MOST * WARP
    function = backend.function("coarsening/vector_sums", "vector_totals", (threads,))
    return launch_1d(function, threads, threads, (PARTS, vectors, parts, sums))


@compiled_ahead("coarsening/vector_sums")
def default_kernels() -> Iterator[list[Instance]]:
    """All kernels of the file."""
    yield [
        ("vector_dots", (BLOCK_THREADS, BATCH)),
        ("vector_not_positive", (BLOCK_THREADS,)),
        ("vector_totals", (MOST * WARP,)),
    ]
