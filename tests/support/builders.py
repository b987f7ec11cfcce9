"""Matrices for the tests, named for their shape or for what is wrong or rare about them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from petsc_gpufmt.backends import driver
from petsc_gpufmt.backends.backend import Backend, CudaBackend
from petsc_gpufmt.patterns.csr import CsrPattern


@dataclass(frozen=True)
class CsrMatrix:
    """A sparse matrix on the host: rowptr (nrows + 1,) and colidx (nnz,) int64, values (nnz,) float64.

    `block` is the block size that the application has set, 1 if none.
    """

    nrows: int
    ncols: int
    rowptr: np.ndarray
    colidx: np.ndarray
    values: np.ndarray
    block: int = 1

    def pattern(self, xp: Any, index: Any) -> CsrPattern:
        """The pattern with arrays of the module `xp` (numpy, cupy) and indices of dtype `index`."""
        rowptr, colidx = (xp.asarray(a.astype(index)) for a in (self.rowptr, self.colidx))
        return CsrPattern(self.nrows, self.ncols, rowptr, colidx, row_block=self.block, col_block=self.block)

    def pattern_on(self, backend: Backend) -> CsrPattern:
        """The pattern on a backend."""
        on_host = self.pattern(np, backend.index)
        return replace(on_host, rowptr=backend.adopt(on_host.rowptr), colidx=backend.adopt(on_host.colidx))

    @property
    def rows(self) -> np.ndarray:
        """(nnz,) row of each entry."""
        return np.repeat(np.arange(self.nrows), np.diff(self.rowptr))

    def transposed(self) -> CsrMatrix:
        """The transpose, its rows in the order in which this matrix stores their entries."""
        order = np.argsort(self.colidx, kind="stable")
        rowptr = np.concatenate([[0], np.cumsum(np.bincount(self.colidx, minlength=self.ncols))])
        return CsrMatrix(self.ncols, self.nrows, rowptr, self.rows[order], self.values[order], self.block)

    def product(self, x: np.ndarray) -> np.ndarray:
        """A x in extended precision."""
        return self.row_sums(extended(self.values) * x[self.colidx])

    def diagonal(self) -> np.ndarray:
        """(nrows,) sum of the entries at (i, i) in extended precision."""
        return self.row_sums(np.where(self.rows == self.colidx, extended(self.values), 0))

    def row_sums(self, terms: np.ndarray) -> np.ndarray:
        """(nrows,) sum over the entries of each row of the (nnz,) `terms`."""
        sums = np.zeros(self.nrows, dtype=terms.dtype)
        nonempty = np.diff(self.rowptr) > 0
        sums[nonempty] = np.add.reduceat(terms, self.rowptr[:-1][nonempty]) if terms.size else 0
        return sums


def extended(numbers: np.ndarray) -> np.ndarray:
    """Real or complex numbers in extended precision."""
    return numbers.astype(np.result_type(numbers, np.longdouble))


def scalars(numbers: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Numbers in that dtype; if it is complex and they are real, the imaginary parts are those from the last on."""
    if dtype.kind == "c" and numbers.dtype.kind != "c":
        numbers = numbers + 1j * numbers[::-1]
    return numbers.astype(dtype)


def from_row_lengths(lengths: np.ndarray, ncols: int, seed: int) -> CsrMatrix:
    """Random distinct columns, sorted within each row, and values of many magnitudes and both signs."""
    rng = np.random.default_rng(seed)
    rowptr = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    columns = [np.sort(rng.choice(ncols, size=k, replace=False)) for k in lengths if k]
    colidx = np.concatenate(columns) if columns else np.zeros(0, dtype=np.int64)
    return CsrMatrix(len(lengths), ncols, rowptr, colidx.astype(np.int64), random_values(rng, colidx.size))


def from_entries(nrows: int, ncols: int, rows: np.ndarray, columns: np.ndarray, seed: int, block: int = 1) -> CsrMatrix:
    """Entries at (rows[i], columns[i]), sorted, with values as in `from_row_lengths`."""
    order = np.lexsort((columns, rows))
    rowptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=nrows))])
    values = random_values(np.random.default_rng(seed), order.size)
    return CsrMatrix(nrows, ncols, rowptr, columns[order].astype(np.int64), values, block)


def random_values(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.standard_normal(count) * 10.0 ** rng.integers(-3, 4, count)


def uniform(nrows: int, ncols: int, row_length: int, seed: int) -> CsrMatrix:
    return from_row_lengths(np.full(nrows, row_length), ncols, seed)


def power_law() -> CsrMatrix:
    lengths = np.minimum(400 // (1 + np.arange(300)), 300)
    return from_row_lengths(np.random.default_rng(15).permutation(lengths), 300, seed=16)


def one_huge_row() -> CsrMatrix:
    lengths = np.ones(200, dtype=np.int64)
    lengths[130] = 3000
    return from_row_lengths(lengths, 3000, seed=17)


def banded(n: int = 260, half_width: int = 3) -> CsrMatrix:
    rows, offsets = np.meshgrid(np.arange(n), np.arange(-half_width, half_width + 1), indexing="ij")
    inside = (rows + offsets >= 0) & (rows + offsets < n)
    matrix = from_row_lengths(inside.sum(axis=1), n, seed=18)
    return replace(matrix, colidx=(rows + offsets)[inside])


def unsorted_columns() -> CsrMatrix:
    matrix = from_row_lengths(np.random.default_rng(19).integers(0, 12, 140), 90, seed=20)
    shuffled = np.lexsort((np.random.default_rng(21).random(matrix.colidx.size), matrix.rows))
    return replace(matrix, colidx=matrix.colidx[shuffled], values=matrix.values[shuffled])


def duplicate_columns() -> CsrMatrix:
    matrix = from_row_lengths(np.random.default_rng(22).integers(0, 12, 140), 30, seed=23)
    return replace(matrix, colidx=matrix.colidx // 3 * 3)


def repeated_diagonal() -> CsrMatrix:
    matrix = banded(130, 2)
    repeated = (matrix.rows % 3 == 0) & (matrix.colidx == matrix.rows + 1)
    return replace(matrix, colidx=np.where(repeated, matrix.rows, matrix.colidx))


def explicit_zeros() -> CsrMatrix:
    matrix = uniform(140, 90, 6, seed=24)
    return replace(matrix, values=np.where(np.arange(matrix.values.size) % 4 == 0, 0.0, matrix.values))


def empty_rows() -> CsrMatrix:
    lengths = np.random.default_rng(25).integers(1, 9, 300)
    lengths[:40] = lengths[100:170] = lengths[::7] = lengths[-35:] = 0
    return from_row_lengths(lengths, 80, seed=26)


def rows_to_split() -> CsrMatrix:
    """Rows just below and above 32, 128, 512 and 4096 entries, and one that is worth many thread blocks."""
    lengths = np.random.default_rng(32).integers(0, 6, 40)
    lengths[[3, 9, 10, 11, 20, 21, 25, 26, 31, 39]] = [5500, 127, 128, 129, 31, 33, 511, 513, 4095, 4097]
    return from_row_lengths(lengths, 5600, seed=33)


def blocked(size: int, block_rows: int, declared: bool, missing: float = 0.0, seed: int = 34) -> CsrMatrix:
    """Dense blocks at random places, 0 to 6 in most block rows, but for the fraction `missing` of their entries."""
    block_lengths = np.random.default_rng(seed).integers(0, min(6, block_rows) + 1, block_rows)
    block_lengths[block_rows // 2] = block_rows
    blocks = from_row_lengths(block_lengths, block_rows, seed + 1)
    within = np.arange(size)
    rows = (blocks.rows[:, None, None] * size + within[:, None] + 0 * within).ravel()
    columns = (blocks.colidx[:, None, None] * size + 0 * within[:, None] + within).ravel()
    kept = np.random.default_rng(seed + 2).random(rows.size) >= missing
    n = block_rows * size
    return from_entries(n, n, rows[kept], columns[kept], seed + 3, block=size if declared else 1)


def stencil(nx: int = 9, ny: int = 7, nz: int = 5) -> CsrMatrix:
    """The nearest neighbours of each point of a grid, itself included: 27 row patterns at most."""
    points = np.arange(nx * ny * nz).reshape(nz, ny, nx)
    pairs = [(points, points)]
    for axis in range(3):
        lower, upper = np.delete(points, -1, axis), np.delete(points, 0, axis)
        pairs += [(lower, upper), (upper, lower)]
    rows, columns = (np.concatenate([end.ravel() for end in ends]) for ends in zip(*pairs, strict=True))
    return from_entries(points.size, points.size, rows, columns, seed=38)


def some_rows_wide() -> CsrMatrix:
    """Columns of most rows lie close together, those of some rows further apart than 16 bits can say."""
    ncols, nrows = 70_000, 600
    rng = np.random.default_rng(39)
    rows = np.repeat(np.arange(nrows), rng.integers(0, 9, nrows))
    columns = rows * 110 + rng.integers(0, 300, rows.size)
    wide = np.isin(rows // 100, [1, 4]) & (rows % 10 == 0)
    columns[wide] = rng.integers(0, ncols, wide.sum())
    distinct = np.unique(rows * ncols + columns)
    return from_entries(nrows, ncols, distinct // ncols, distinct % ncols, seed=40)


SHAPES: dict[str, Callable[[], CsrMatrix]] = {
    "0x0": lambda: uniform(0, 0, 0, seed=2),
    "0xN": lambda: uniform(0, 50, 0, seed=3),
    "Nx0": lambda: uniform(50, 0, 0, seed=4),
    "1xN": lambda: uniform(1, 500, 350, seed=5),
    "Nx1": lambda: uniform(300, 1, 1, seed=6),
    "1x1": lambda: uniform(1, 1, 1, seed=7),
    "wide": lambda: uniform(60, 700, 20, seed=8),
    "tall": lambda: from_row_lengths(np.random.default_rng(9).integers(0, 9, 700), 60, seed=10),
    # one less and one more than a multiple of every slice height and warp size
    "slices_minus_one": lambda: from_row_lengths(np.random.default_rng(11).integers(0, 7, 255), 255, seed=12),
    "slices_plus_one": lambda: from_row_lengths(np.random.default_rng(13).integers(0, 7, 257), 257, seed=14),
    "one_huge_row": one_huge_row,
    "all_empty": lambda: uniform(70, 70, 0, seed=27),
    "power_law": power_law,
    "banded": banded,
    "dense": lambda: uniform(40, 40, 40, seed=28),
    "unsorted_columns": unsorted_columns,
    "duplicate_columns": duplicate_columns,
    "repeated_diagonal": repeated_diagonal,
    "explicit_zeros": explicit_zeros,
    "empty_rows": empty_rows,
    "rows_to_split": rows_to_split,
    "blocked_3x3": lambda: blocked(3, 40, declared=True),
    "blocked_5x5_undeclared": lambda: blocked(5, 21, declared=False),
    "blocked_4x4_incomplete": lambda: blocked(4, 30, declared=True, missing=0.15),
    "stencil": stencil,
    "wide_columns": lambda: uniform(100, 70_000, 9, seed=41),
    "some_rows_wide": some_rows_wide,
}
"""Matrices that every format must store."""


@cache
def shape(name: str) -> CsrMatrix:
    """SHAPES[name](), built once; not to be changed."""
    matrix = SHAPES[name]()
    for array in (matrix.rowptr, matrix.colidx, matrix.values):
        array.flags.writeable = False
    return matrix


def poison(backend: Backend) -> None:
    """What a backend hands out from now on shows use of what was never written: NaN, and integers that are negative."""
    if isinstance(backend, CudaBackend):
        backend.empty = functools.partial(poisoned_empty, backend)
    else:
        backend.xp = poisoned(backend.xp)


def poisoned_empty(backend: CudaBackend, *arrays: tuple[int, np.dtype], zeros: int = 0) -> list[Any]:
    made = CudaBackend.empty(backend, *arrays, zeros=zeros)
    for array in made[zeros:]:
        if array.size:
            driver.fill(array.ptr, 0xFF, array.nbytes, backend.stream)
    return made


def poisoned(xp: Any) -> Any:
    """The module `xp` with an `empty` that shows use of what was never written: NaN, or the smallest integer."""
    return xp if isinstance(xp, PoisonedModule) else PoisonedModule(xp)


class PoisonedModule:
    def __init__(self, xp: Any):
        self._xp = xp

    def __getattr__(self, name: str) -> Any:
        return getattr(self._xp, name)

    def empty(self, shape: Any, dtype: Any) -> Any:
        dtype = np.dtype(dtype)
        return self._xp.full(shape, np.nan if dtype.kind in "fc" else np.iinfo(dtype).min, dtype=dtype)


# Shapes that take most of the ways through a kernel: rows of all lengths, many of them, none, blocks, wide columns
TELLING_SHAPES = ["power_law", "tall", "empty_rows", "blocked_4x4_incomplete", "rows_to_split"]
LARGEST_SHAPE = "rows_to_split"


def _telling_ones_quick(names: Iterable[str]) -> pytest.MarkDecorator:
    quick = {name for name in TELLING_SHAPES if name != LARGEST_SHAPE}
    parameters = [pytest.param(name, marks=() if name in quick else pytest.mark.slow) for name in names]
    return pytest.mark.parametrize("shape_name", parameters)


EVERY_SHAPE_MOST_SLOW, TELLING_SHAPES_LARGEST_SLOW = map(_telling_ones_quick, (SHAPES, TELLING_SHAPES))
"""For tests of many settings: the quick run takes the telling shapes but for the largest one."""
