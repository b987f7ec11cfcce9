"""Rows, or rows and columns, of a matrix made zeros in place, on the backend: MatZeroRows and MatZeroRowsColumns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.kernel_modules import Instance, compiled_ahead
from petsc_gpufmt.backends.plan import Launch, Slot, launch_1d

BLOCK_THREADS = 256
ROW_THREADS = 8  # that share a row

BYTE = np.dtype(np.uint8)


def find_diagonal(rowptr: Any, colidx: Any, backend: Backend) -> tuple[Any, np.ndarray | None]:
    """Where the diagonal entry of each row is, and which rows have none. Waits for the device.

    Parameters
    ----------
    rowptr, colidx : (nrows + 1,), (nnz,) arrays of the backend's index type; the columns of a row in any order

    Returns
    -------
    places : (nrows,) array of the backend's index type, -1 where there is none
    missing : (nrows,) uint8 on the host, not 0 where there is none; None if all rows have one
    """
    nrows = rowptr.size - 1
    places, missing, found = backend.empty((nrows, backend.index), (nrows, BYTE), (1, backend.index))
    if not nrows:
        return places, None
    backend.clear(found)
    function = backend.function("patterns/zero_rows", "find_diagonal", (BLOCK_THREADS,))
    arguments = (backend.index.type(nrows), rowptr, colidx, places, missing, found)
    backend.run([launch_1d(function, nrows, BLOCK_THREADS, arguments)])
    lacking = backend.first(found, 1)[0]  # waits for the device
    return places, backend.to_host(missing) if lacking else None


def plan_zero_rows(rowptr: Any, ncols: int, places: Any, backend: Backend) -> list[Launch]:
    """Launches that make the entries of RESULT zeros in the rows of ROWS, and in the columns of COLUMNS unless null.

    In these rows the diagonal entry becomes ALPHA, and Z[i] becomes ALPHA X[i] where there is a column i. In all
    others COLUMNS' entries are subtracted from Z before, times X. Z null: there is no such vector.

    Parameters
    ----------
    rowptr : (nrows + 1,) array of the backend's index type; the columns are in slot COLIDX
    ncols : number of columns
    places : (nrows,) as from `find_diagonal`, or None
        None: no row has a diagonal entry, and Z stays as it is in the rows of ROWS, as for an off-diagonal block.
    """
    nrows, integer = rowptr.size - 1, backend.index.type
    if not nrows:
        return []
    function = backend.function("patterns/zero_rows", "zero_rows", (BLOCK_THREADS, ROW_THREADS))
    marks = (Slot.ROWS, Slot.COLUMNS, backend.alpha, Slot.X, Slot.Z, Slot.RESULT)
    arguments = (integer(nrows), integer(ncols), rowptr, Slot.COLIDX, places, *marks)
    return [launch_1d(function, nrows * ROW_THREADS, BLOCK_THREADS, arguments)]


@compiled_ahead("patterns/zero_rows")
def default_kernels() -> Iterator[list[Instance]]:
    """Both kernels of the file."""
    yield [("find_diagonal", (BLOCK_THREADS,)), ("zero_rows", (BLOCK_THREADS, ROW_THREADS))]
