"""Smoothed prolongators without a general product: each row has the columns of a few aggregates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.kernel_modules import Instance, compiled_ahead
from petsc_gpufmt.backends.plan import Launch, Slot, Struct, launch_1d
from petsc_gpufmt.coarsening.prolongator import check_entries, count_members
from petsc_gpufmt.errors import PatternError
from petsc_gpufmt.patterns.csr import CsrPattern
from petsc_gpufmt.patterns.scan import COUNT, SCAN_THREADS, tiles

BLOCK_THREADS = 256
TEAMS = (4, 8, 32)  # threads that share a row
NUMBERS_A_THREAD = 4  # of the prefix sum
LONGEST_ROW = 2048  # entries: of a longer row each neighbour would be looked at too often


@dataclass(frozen=True)
class Smoothed:
    """A smoothed prolongator.

    Attributes
    ----------
    pattern : CsrPattern
        The columns of each row ascend. It is that of the product A P0, and of P0 where A has no diagonal.
    numeric : launches for RESULT = P0 + ALPHA diag(X) A P0
        A_VALUES are those of A in the order of its pattern, B_VALUES those of P0; ALPHA is a scalar.
    """

    pattern: CsrPattern
    numeric: list[Launch]


def smoothed(
    matrix: CsrPattern, aggregates: Any, naggregates: int, block: int, nvectors: int, backend: Backend
) -> Smoothed | None:
    """A step of smoothing applied to the tentative prolongator P0 of aggregates; None if a row is too long for it.

    Waits for the device.

    Parameters
    ----------
    matrix : CsrPattern of A, square, whose longest row is known
    aggregates : (nnodes,) array of the backend's index type, the aggregate of each node, -1: none
    naggregates : how many there are
    block : rows of a node
    nvectors : columns of an aggregate

    Raises PatternError if the sizes do not fit, or an aggregate is not one of `naggregates`; IndexOverflowError if the
    index type does not count the entries.
    """
    nrows, index = matrix.nrows, backend.index
    if block < 1 or nvectors < 1 or matrix.ncols != nrows or aggregates.size * block != nrows:
        raise PatternError(
            f"a {nrows} x {matrix.ncols} matrix is to smooth {nvectors} columns for each aggregate of "
            f"{aggregates.size} nodes of {block} rows"
        )
    if (matrix.longest or 0) > LONGEST_ROW:
        return None
    begins, nmembers = count_members(aggregates, naggregates, backend)  # waits for the device
    (rowptr,) = backend.empty((nrows + 1, index), zeros=int(not nmembers))
    if not nmembers:
        return Smoothed(CsrPattern(nrows, naggregates * nvectors, rowptr, *backend.empty((0, index))), [])
    arrays = (matrix.rowptr, matrix.colidx, aggregates, None if nmembers == aggregates.size else begins)
    smoothing = Struct(*map(index.type, (nrows, block, nvectors)), *arrays)
    (control,) = backend.empty((2 + tiles(nrows, NUMBERS_A_THREAD), COUNT), zeros=1)
    team = _team(matrix.nnz / nrows)
    sums = backend.function("coarsening/smoothed", "smoothed_row_pointer", (NUMBERS_A_THREAD,))
    arguments = (np.int64(nrows), index.type(nvectors), rowptr, control)
    backend.run(
        [
            _launch("smoothed_count", nrows, team, (smoothing, rowptr), backend),
            launch_1d(sums, tiles(nrows, NUMBERS_A_THREAD) * SCAN_THREADS, SCAN_THREADS, arguments),
        ]
    )
    (nnz,) = backend.first(control, 1)  # waits for the device
    check_entries(nnz, backend)
    (colidx,) = backend.empty((nnz, index))
    backend.run([_launch("smoothed_columns", nrows, team, (smoothing, rowptr, colidx), backend)])
    slots = (Slot.A_VALUES, Slot.B_VALUES, Slot.X, Slot.ALPHA, Slot.RESULT)
    numeric = _launch("smoothed_values", nrows, _team(nnz / nrows), (smoothing, rowptr, colidx, *slots), backend)
    pattern = CsrPattern(nrows, naggregates * nvectors, rowptr, colidx, row_block=block, col_block=nvectors)
    return Smoothed(pattern, [numeric])


def _team(entries: float) -> int:
    """Threads that share a row of so many entries."""
    return next((team for team in TEAMS if entries <= team), TEAMS[-1])


def _launch(kernel: str, nrows: int, team: int, arguments: tuple, backend: Backend) -> Launch:
    function = backend.function("coarsening/smoothed", kernel, (BLOCK_THREADS, team))
    return launch_1d(function, nrows * team, BLOCK_THREADS, arguments)


@compiled_ahead("coarsening/smoothed")
def default_kernels() -> Iterator[list[Instance]]:
    """All kernels of the file: one module for each number of threads."""
    for team in TEAMS:
        yield [(f"smoothed_{what}", (BLOCK_THREADS, team)) for what in ("count", "columns", "values")]
    yield [("smoothed_row_pointer", (NUMBERS_A_THREAD,))]
