"""Smoothed prolongators without a general product: each row has the columns of a few aggregates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

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


class Smoothed(NamedTuple):
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
    if not nmembers:
        (rowptr,) = backend.empty((nrows + 1, index), zeros=1)
        return Smoothed(CsrPattern(nrows, naggregates * nvectors, rowptr, *backend.empty((0, index))), [])
    arrays = (matrix.rowptr, matrix.colidx, aggregates, None if nmembers == aggregates.size else begins)
    of_this_rank = (np.int64(0), np.int64(naggregates))
    of_others = (None, None, *map(index.type, (0, 0)), None)
    smoothing = Struct(*map(index.type, (nrows, block, nvectors)), *arrays, *of_this_rank, *of_others)
    ((rowptr, colidx),) = blocks_of_columns(smoothing, 1, matrix.nnz / nrows, backend)
    pattern = CsrPattern(nrows, naggregates * nvectors, rowptr, colidx, row_block=block, col_block=nvectors)
    return Smoothed(pattern, [values_of_block(smoothing, 1, 0, pattern, Slot.B_VALUES, backend)])


def blocks_of_columns(smoothing: Struct, nblocks: int, mean: float, backend: Backend) -> list[tuple[Any, Any]]:
    """The row pointer and the columns of each of `nblocks` blocks of a smoothed prolongator. Waits for the device.

    Parameters
    ----------
    smoothing : `Smoothing` of kernels/coarsening/smoothed.cu, of a matrix with rows
    mean : entries of a row of the matrix

    Raises IndexOverflowError if the index type does not count the entries.
    """
    nrows, nvectors, index = int(smoothing[0]), smoothing[2], backend.index
    team, ntiles = _team(mean), tiles(nrows, NUMBERS_A_THREAD)
    sizes = [(2 + ntiles, COUNT), (nrows + 1, index)] * nblocks
    controls, rowptrs = (backend.empty(*sizes[k::2], zeros=nblocks * (not k)) for k in range(2))
    sums = backend.function("coarsening/smoothed", "smoothed_row_pointer", (NUMBERS_A_THREAD,))
    launches = [_launch("count", nrows, team, nblocks, (smoothing, *rowptrs, *[None] * (2 - nblocks)), backend)]
    for rowptr, control in zip(rowptrs, controls, strict=True):
        arguments = (np.int64(nrows), nvectors, rowptr, control)
        launches.append(launch_1d(sums, ntiles * SCAN_THREADS, SCAN_THREADS, arguments))
    backend.run(launches)
    counts = [backend.first(control, 1)[0] for control in controls]  # waits for the device
    for nnz in counts:
        check_entries(nnz, backend)
    colidxs = backend.empty(*((nnz, index) for nnz in counts))
    blocks = list(zip(rowptrs, colidxs, strict=True))
    arrays = [array for block in blocks for array in block] + [None] * (4 - 2 * nblocks)
    backend.run([_launch("columns", nrows, team, nblocks, (smoothing, *arrays), backend)])
    return blocks


def values_of_block(
    smoothing: Struct, nblocks: int, which: int, pattern: CsrPattern, tentative: Any, backend: Backend
) -> Launch:
    """Writes the values of block `which`, of `pattern`, to RESULT; B_VALUES are those of a second block of A."""
    others = Slot.B_VALUES if nblocks > 1 else None
    slots = (Slot.A_VALUES, others, tentative, Slot.X, backend.alpha, Slot.RESULT)
    arguments = (smoothing, which, pattern.rowptr, pattern.colidx, *slots)
    return _launch("values", pattern.nrows, _team(pattern.nnz / pattern.nrows), nblocks, arguments, backend)


def _team(entries: float) -> int:
    """Threads that share a row of so many entries."""
    return next((team for team in TEAMS if entries <= team), TEAMS[-1])


def _launch(what: str, nrows: int, team: int, nblocks: int, arguments: tuple, backend: Backend) -> Launch:
    function = backend.function("coarsening/smoothed", f"smoothed_{what}", (BLOCK_THREADS, team, nblocks))
    return launch_1d(function, nrows * team, BLOCK_THREADS, arguments)


@compiled_ahead("coarsening/smoothed")
def default_kernels() -> Iterator[list[Instance]]:
    """All kernels of the file: one module for each number of threads, on one rank and on several."""
    for nblocks in (1, 2):
        for team in TEAMS:
            yield [(f"smoothed_{what}", (BLOCK_THREADS, team, nblocks)) for what in ("count", "columns", "values")]
    yield [("smoothed_row_pointer", (NUMBERS_A_THREAD,))]
