"""Matrices for the tests, named for their shape or for what is wrong or rare about them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from petsc_gpufmt.csr import CsrPattern


@dataclass(frozen=True)
class CsrMatrix:
    """A sparse matrix on the host: rowptr (nrows + 1,) and colidx (nnz,) int64, values (nnz,) float64."""

    nrows: int
    ncols: int
    rowptr: np.ndarray
    colidx: np.ndarray
    values: np.ndarray

    def pattern(self, xp: Any, index: Any) -> CsrPattern:
        """The pattern with arrays of the module `xp` (numpy, cupy) and indices of dtype `index`."""
        rowptr, colidx = (xp.asarray(a.astype(index)) for a in (self.rowptr, self.colidx))
        return CsrPattern(self.nrows, self.ncols, rowptr, colidx)

    @property
    def rows(self) -> np.ndarray:
        """(nnz,) row of each entry."""
        return np.repeat(np.arange(self.nrows), np.diff(self.rowptr))

    def transposed(self) -> CsrMatrix:
        """The transpose, its rows in the order in which this matrix stores their entries."""
        order = np.argsort(self.colidx, kind="stable")
        rowptr = np.concatenate([[0], np.cumsum(np.bincount(self.colidx, minlength=self.ncols))])
        return CsrMatrix(self.ncols, self.nrows, rowptr, self.rows[order], self.values[order])

    def product(self, x: np.ndarray) -> np.ndarray:
        """A x in extended precision, entry by entry."""
        z = np.zeros(self.nrows, dtype=np.longdouble)
        np.add.at(z, self.rows, self.values.astype(np.longdouble) * x[self.colidx])
        return z


def from_row_lengths(lengths: np.ndarray, ncols: int, seed: int) -> CsrMatrix:
    """Random distinct columns, sorted within each row, and values of many magnitudes and both signs."""
    rng = np.random.default_rng(seed)
    rowptr = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    columns = [np.sort(rng.choice(ncols, size=k, replace=False)) for k in lengths if k]
    colidx = np.concatenate(columns) if columns else np.zeros(0, dtype=np.int64)
    values = rng.standard_normal(colidx.size) * 10.0 ** rng.integers(-3, 4, colidx.size)
    return CsrMatrix(len(lengths), ncols, rowptr, colidx.astype(np.int64), values)


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


def explicit_zeros() -> CsrMatrix:
    matrix = uniform(140, 90, 6, seed=24)
    return replace(matrix, values=np.where(np.arange(matrix.values.size) % 4 == 0, 0.0, matrix.values))


def empty_rows() -> CsrMatrix:
    lengths = np.random.default_rng(25).integers(1, 9, 300)
    lengths[:40] = lengths[100:170] = lengths[::7] = lengths[-35:] = 0
    return from_row_lengths(lengths, 80, seed=26)


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
    "explicit_zeros": explicit_zeros,
    "empty_rows": empty_rows,
}
"""Matrices that every format must store."""


@cache
def shape(name: str) -> CsrMatrix:
    """SHAPES[name](), built once; not to be changed."""
    matrix = SHAPES[name]()
    for array in (matrix.rowptr, matrix.colidx, matrix.values):
        array.flags.writeable = False
    return matrix


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
        return self._xp.full(shape, np.nan if dtype.kind == "f" else np.iinfo(dtype).min, dtype=dtype)
