"""The rows of a matrix that a rank makes: as many as the others, whole planes of a stencil or else block rows."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from petsc_gpufmt.bench.errors import BenchError
from petsc_gpufmt.bench.matrices import (
    RESERVOIR_BLOCK,
    blocked_pattern,
    check_matrix,
    file_sizes,
    grid_and_block,
    read_pattern,
    reservoir_pattern,
    reservoir_refinement,
    stencil_pattern,
)
from petsc_gpufmt.distribute.deal import in_equal_numbers

VALUES = np.arange(1, 6)
X_VALUES = np.arange(1, 14)
"""Small whole numbers in turns, of entries and of x: every sum of their products is exact in any order."""

ROWS_AT_ONCE = 1 << 16  # with what belongs to them they stay in a cache


class RankRows(NamedTuple):
    """Rows of one rank of a square matrix.

    Attributes
    ----------
    rowptr : (nrows + 1,), colidx, values : (nnz,)
    size : int, rows of all ranks
    block_size : int
    """

    rowptr: np.ndarray
    colidx: np.ndarray
    values: np.ndarray
    size: int
    block_size: int

    def product(self) -> np.ndarray:
        """These rows of A x for the x of `x_values`: (nrows,)."""
        x, nrows = x_values(range(self.size), self.values.dtype), self.rowptr.size - 1
        z = np.zeros(nrows, dtype=self.values.dtype)
        for first in range(0, nrows, ROWS_AT_ONCE):
            ends = self.rowptr[first : first + ROWS_AT_ONCE + 1]
            entries = slice(ends[0], ends[-1])
            filled = np.flatnonzero(np.diff(ends))
            terms = x[self.colidx[entries]] * self.values[entries]
            z[first + filled] = np.add.reduceat(terms, ends[filled] - ends[0])
        return z


def x_values(numbers: range, scalar: np.dtype) -> np.ndarray:
    """Entries of x with these global numbers."""
    return X_VALUES.astype(scalar)[np.arange(numbers.start, numbers.stop) % X_VALUES.size]


def check_ranks_matrix(spec: str, size: int, weak: bool, index: np.dtype) -> None:
    """BenchError for a matrix that up to `size` ranks cannot make, as far as that is known before they do."""
    grid, most = grid_and_block(spec), np.iinfo(index).max
    if weak and grid is None:
        raise BenchError(f"--weak with --matrix {spec}: only a stencil grows with the ranks, such as 7point:200")
    if grid is None and "*" in spec:
        raise BenchError(f"--matrix {spec}: copies of a matrix have no halo; choose the file without copies")
    check_matrix(spec, index)
    if weak and grid and size * grid[1] ** 3 * grid[2] > most:
        raise BenchError(f"--matrix {spec}: on {size} ranks there are more rows than the {most} that {index} counts")
    if grid is None and not reservoir_refinement(spec):
        nrows, ncols, _ = file_sizes(Path(spec))
        if nrows != ncols:
            raise BenchError(f"--matrix {spec}: it is {nrows} x {ncols}; choose a square matrix")


def make_rows(spec: str, rank: int, size: int, weak: bool, scalar: np.dtype, index: np.dtype) -> RankRows:
    """Rows of a rank of `size`; with `weak` a stencil has as many planes on each of them as `spec` says."""
    if grid := grid_and_block(spec):
        stencil, points, block_size = grid
        planes = points * (size if weak else 1)
        nrows = planes * points**2 * block_size
        first, last = in_equal_numbers(planes, size).bounds[rank : rank + 2]
        pattern = stencil_pattern(stencil, points, index, range(first, last), planes)
    else:
        if refinement := reservoir_refinement(spec):
            block_size, (rowptr, colidx) = RESERVOIR_BLOCK, reservoir_pattern(refinement, index)
        else:
            read = read_pattern(Path(spec), index)
            block_size, rowptr, colidx = 1, read.indptr, read.indices
        nrows = (rowptr.size - 1) * block_size
        first, last = in_equal_numbers(rowptr.size - 1, size).bounds[rank : rank + 2]
        pattern = rowptr[first : last + 1] - rowptr[first], colidx[rowptr[first] : rowptr[last]]
    rowptr, colidx = pattern if block_size == 1 else blocked_pattern(*pattern, block_size)
    values = np.tile(VALUES.astype(scalar), colidx.size // VALUES.size + 1)[: colidx.size]
    return RankRows(rowptr, colidx, values, nrows, block_size)
