"""Matrices with what a paper publishes of its own, where those are not to be had: rows, lengths of rows, dense blocks.

Row lengths are given; the columns of a row are spread evenly, at random within equal parts, over a band about the
diagonal. So they are distinct and ascend, and the width of the band says how much of x neighbouring rows share.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from petsc_gpufmt.bench.matrices import (
    SUFFIXES,
    BenchMatrix,
    blocked_pattern,
    check_sizes,
    make_matrix,
    with_random_values,
)


def columns_about_diagonal(
    lengths: np.ndarray, ncols: int, band: int, index: np.dtype, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Row pointer and columns of rows with (n,) `lengths`, none above `ncols`, in bands of `band` columns or more."""
    nrows = lengths.size
    rowptr = np.zeros(nrows + 1, dtype=np.int64)
    np.cumsum(lengths, out=rowptr[1:])
    check_sizes("a matrix like that of the paper", nrows, ncols, int(rowptr[-1]), index)
    widths = np.clip(lengths, min(band, ncols), ncols)
    first = np.clip(np.arange(nrows) * ncols // max(1, nrows) - widths // 2, 0, ncols - widths)
    inside = np.arange(rowptr[-1], dtype=np.int64)
    inside -= np.repeat(rowptr[:-1], lengths)
    # entry k of a row is one of the whole numbers from k parts of the band to k + 1 parts of it: no other is
    length, width = np.repeat(lengths, lengths), np.repeat(widths, lengths)
    columns, after = inside * width // length, (inside + 1) * width // length
    columns += (rng.random(columns.size) * (after - columns)).astype(np.int64)
    columns += np.repeat(first, lengths)
    return rowptr.astype(index), columns.astype(index)


def matrix_like(
    name: str,
    lengths: np.ndarray,
    band: int,
    scalar: np.dtype,
    index: np.dtype,
    rng: np.random.Generator,
    block: int = 1,
) -> BenchMatrix:
    """A square matrix of random values; with `block`, (n,) `lengths` and `band` count blocks of that size."""
    rowptr, columns = columns_about_diagonal(lengths, lengths.size, band, index, rng)
    if block > 1:
        check_sizes(name, lengths.size * block, lengths.size * block, columns.size * block**2, index)
        rowptr, columns = blocked_pattern(rowptr, columns, block)
    return BenchMatrix(name, with_random_values(rowptr, columns, lengths.size * block, scalar, rng), block)


def matrix_file(folder: Path | None, name: str) -> Path | None:
    """FOLDER/NAME.mtx.gz, or in another form, letters in any case; None if it is not there."""
    names = {f"{name.lower()}{suffix}" for suffix in SUFFIXES}
    return next((path for path in sorted(folder.iterdir()) if path.name.lower() in names), None) if folder else None


def real_matrix(
    folder: Path | None, name: str, scalar: np.dtype, index: np.dtype, rng: np.random.Generator
) -> BenchMatrix | None:
    """The pattern of `matrix_file` with random values; None if there is no such file."""
    path = matrix_file(folder, name)
    return make_matrix(str(path), scalar, index, rng) if path else None


def spread_lengths(
    nrows: int, mean: float, shortest: int, longest: int, concentration: float, rng: np.random.Generator
) -> np.ndarray:
    """(nrows,) lengths from `shortest` to `longest`, both taken, of a beta distribution with this mean.

    The larger `concentration`, the closer they are to the mean.
    """
    share = (mean - shortest) / (longest - shortest)
    places = rng.beta(concentration * share, concentration * (1 - share), nrows)
    places[[0, -1]] = 0, 1
    return shortest + np.rint((longest - shortest) * places).astype(np.int64)
