"""Values of a matrix scaled and added to in place, on the backend.

MatScale, MatDiagonalScale, MatAXPY, MatShift and MatDiagonalSet.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.kernel_modules import Instance, compiled_ahead
from petsc_gpufmt.backends.plan import Launch, Slot, ceil_div, launch_1d

BLOCK_THREADS = 256
BATCH = 4  # entries a thread, as in kernels/patterns/scale_and_add.cu
TILE = BATCH * BLOCK_THREADS  # entries of a block


def plan_scale(nnz: int, backend: Backend) -> list[Launch]:
    """Launches for RESULT[e] *= ALPHA, for all `nnz` entries."""
    return _launch("scale_values", nnz, (backend.alpha, Slot.RESULT), backend)


def plan_scale_rows(nnz: int, rowptr: Any, backend: Backend) -> list[Launch]:
    """Launches for RESULT[e] *= X[row of e], with `rowptr` (nrows + 1,) of the backend's index type."""
    if not nnz:
        return []
    return _launch("scale_rows", nnz, (_tile_rows(rowptr, nnz, backend), rowptr, Slot.X, Slot.RESULT), backend)


def plan_scale_columns(colidx: Any, backend: Backend) -> list[Launch]:
    """Launches for RESULT[e] *= X[colidx[e]], with `colidx` (nnz,) of the backend's index type."""
    return _launch("scale_columns", colidx.size, (colidx, Slot.X, Slot.RESULT), backend)


def plan_add(nnz: int, backend: Backend) -> list[Launch]:
    """Launches for RESULT[e] += ALPHA A_VALUES[e]: matrices of one pattern."""
    return _launch("add_values", nnz, (None, backend.alpha, Slot.A_VALUES, Slot.RESULT), backend)


def plan_add_subset(
    target: tuple[Any, Any], added: tuple[Any, Any], columns: Any, backend: Backend
) -> list[Launch] | None:
    """Launches for RESULT += ALPHA A_VALUES, where the entries of one matrix are some of those of another.

    None if they are not, or if a row of either is not sorted: nothing is known about what a row has twice.

    Parameters
    ----------
    target, added : (rowptr, colidx) of RESULT and of A_VALUES, arrays of the backend's index type
    columns : array of the backend's index type, or None
        The number in `target` of each column of `added`, -1 where it has none; None: the same number.
    """
    rowptr, colidx = added
    nnz = colidx.size
    if not nnz:
        return []
    missing, index = backend.empty((1, backend.index), (nnz, backend.index), zeros=1)
    arguments = (_tile_rows(rowptr, nnz, backend), rowptr, colidx, columns, *target, index, missing)
    backend.run(_launch("locate_entries", nnz, arguments, backend))
    if backend.first(missing, 1)[0]:
        return None
    return _launch("add_values", nnz, (index, backend.alpha, Slot.A_VALUES, Slot.RESULT), backend)


def plan_set_diagonal(rowptr: Any, colidx: Any, backend: Backend) -> list[Launch] | None:
    """Launches for RESULT[diagonal entry of row i] = X[i], or ALPHA where X is null, for all rows i.

    If slot Y is not null, it is RESULT, and what is there is added. None if a row has no diagonal entry at the place
    that it has where columns ascend.

    Parameters
    ----------
    rowptr, colidx : arrays of the backend's index type, the pattern of RESULT
    """
    nrows, integer = rowptr.size - 1, backend.index.type
    if not nrows:
        return []
    places, missing = backend.empty((nrows, backend.index), (1, backend.index))
    backend.clear(missing)

    def over_rows(kernel: str, *arguments: Any) -> Launch:
        function = backend.function("patterns/scale_and_add", kernel, (BLOCK_THREADS,))
        return launch_1d(function, nrows, BLOCK_THREADS, (integer(nrows), *arguments))

    backend.run([over_rows("locate_diagonal", rowptr, colidx, places, missing)])
    if backend.first(missing, 1)[0]:
        return None
    return [over_rows("set_diagonal", places, backend.alpha, Slot.X, Slot.Y, Slot.RESULT)]


def _launch(kernel: str, nnz: int, arguments: tuple, backend: Backend) -> list[Launch]:
    if not nnz:
        return []
    function = backend.function("patterns/scale_and_add", kernel, (BLOCK_THREADS,))
    return [launch_1d(function, ceil_div(nnz, BATCH), BLOCK_THREADS, (backend.index.type(nnz), *arguments))]


def _tile_rows(rowptr: Any, nnz: int, backend: Backend) -> Any:
    """The row of the first entry of each tile, and that of the last entry of all."""
    ntiles, integer = ceil_div(nnz, TILE), backend.index.type
    (tile_rows,) = backend.empty((ntiles + 1, backend.index))
    function = backend.function("patterns/scale_and_add", "find_tile_rows", (BLOCK_THREADS,))
    arguments = (integer(nnz), integer(rowptr.size - 1), rowptr, integer(ntiles), tile_rows)
    backend.run([launch_1d(function, ntiles + 1, BLOCK_THREADS, arguments)])
    return tile_rows


@compiled_ahead("patterns/scale_and_add")
def default_kernels() -> Iterator[list[Instance]]:
    """All kernels of the file."""
    scaling = ("find_tile_rows", "scale_values", "scale_rows", "scale_columns", "add_values", "locate_entries")
    yield [(kernel, (BLOCK_THREADS,)) for kernel in (*scaling, "locate_diagonal", "set_diagonal")]
