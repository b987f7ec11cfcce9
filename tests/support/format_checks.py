"""What holds for every stored matrix, whatever its format, options, place and shape."""

from __future__ import annotations

import numpy as np
from stored_matrix import Expected, StoredMatrix, assert_close, assert_same_bits

LONG_FOR_A_LOOP = 1000
# alpha, beta, z is y
FACTORS = [(1, 1, True), (0.5, -2, False), (0.5, -2, True), (-3, 0, False), (-3, 0, True), (2, 1, True), (0, 3, False)]


def products(stored: StoredMatrix) -> None:
    """z = alpha A x + beta y for many alpha and beta; y is not read where beta is 0."""
    x, y = stored.vectors()
    expected = Expected.of(stored.matrix, x)
    expected.check(stored.mult(x))
    expected.check(stored.multadd(x, y), beta=1, y=y)
    expected.check(stored.multadd(x, y, in_place=True), beta=1, y=y)
    for alpha, beta, in_place in FACTORS:
        z = stored.mult_scaled(alpha, beta, x, y if beta else np.full_like(y, np.nan), in_place)
        expected.check(z, alpha, beta, y)


def diagonal(stored: StoredMatrix) -> None:
    """Repeated entries add up, a row without one has 0, and what is not finite elsewhere in the row does not matter."""
    matrix = stored.matrix
    on_diagonal = matrix.rows == matrix.colidx
    count = matrix.row_sums(on_diagonal.astype(int))
    magnitude = matrix.row_sums(np.where(on_diagonal, np.abs(matrix.values), 0))
    bound = np.maximum(count - 1, 0) * np.finfo(matrix.values.dtype).eps * magnitude

    clean = stored.diagonal()

    assert_close(clean, matrix.diagonal(), bound, matrix.values.dtype)
    given = stored.given
    stored.refresh(np.where(given.rows == given.colidx, given.values, np.nan))
    assert_same_bits(stored.diagonal(), clean)
    stored.refresh(given.values)


def refresh(stored: StoredMatrix) -> None:
    """New values take effect, each in its place."""
    x, _ = stored.vectors()
    values = stored.given.values
    stored.refresh(values * 2 + np.arange(values.size))
    Expected.of(stored.matrix, x).check(stored.mult(x))
    stored.refresh(values)


def non_finite_x(stored: StoredMatrix) -> None:
    """Inf and NaN in x reach the rows that have an entry in their column, and no other."""
    matrix = stored.matrix
    x, y = stored.vectors()
    clean = stored.multadd(x, y)
    if not x.size:
        return
    spoiled_columns = [0, x.size // 2, x.size - 1]
    x[spoiled_columns] = np.inf, np.nan, -np.inf
    spoiled = matrix.row_sums(np.isin(matrix.colidx, spoiled_columns).astype(int)) > 0

    z = stored.multadd(x, y)

    assert not np.isfinite(z[spoiled]).any()
    assert_same_bits(z[~spoiled], clean[~spoiled])


def non_finite_value(stored: StoredMatrix) -> None:
    """NaN in one value and in one entry of y reaches two rows."""
    values = stored.given.values
    if not values.size:
        return
    x, y = stored.vectors()
    clean = stored.multadd(x, y)
    spoiled_values = values.copy()
    spoiled_values[values.size // 2] = np.nan
    stored.refresh(spoiled_values)
    row = stored.matrix.rows[np.isnan(stored.matrix.values)][0]
    spoiled = sorted({row, y.size // 3})
    y[y.size // 3] = np.nan

    z = stored.multadd(x, y)

    assert np.flatnonzero(np.isnan(z)).tolist() == spoiled
    assert_same_bits(np.delete(z, spoiled), np.delete(clean, spoiled))
    stored.refresh(values)


def repeatable(stored: StoredMatrix) -> None:
    """The same bits in every run, also after a refresh."""
    x, y = stored.vectors()
    first = stored.multadd(x, y)
    assert_same_bits(stored.multadd(x, y), first)
    stored.refresh(stored.given.values)
    assert_same_bits(stored.multadd(x, y), first)


def reference(stored: StoredMatrix) -> None:
    """The format's own slow product over the stored arrays."""
    if stored.matrix.nrows > LONG_FOR_A_LOOP:
        return
    x, y = stored.vectors()
    expected = Expected.of(stored.matrix, x)
    expected.check(stored.format.reference(x))
    expected.check(stored.format.reference(x, y), beta=1, y=y)


def stats(stored: StoredMatrix) -> None:
    """Sizes count what is stored. Repeated entries may be stored as one; indices may be compressed, values not."""
    sizes, matrix, scalar_bytes = stored.format.stats(), stored.matrix, stored.backend.scalar.itemsize
    distinct = np.unique(matrix.rows * matrix.ncols + matrix.colidx).size
    assert sizes.nnz == matrix.values.size
    assert distinct <= sizes.nstored
    assert any(abs(sizes.fill_ratio * sizes.nstored - (sizes.nstored - n)) <= 1e-6 for n in (sizes.nnz, distinct))
    assert sizes.nonempty_rows == np.count_nonzero(np.diff(matrix.rowptr))
    assert sizes.bytes_held >= sizes.nstored * scalar_bytes
    assert sizes.bytes_per_mult >= (distinct + matrix.nrows + matrix.ncols) * scalar_bytes


def words(stored: StoredMatrix) -> None:
    """The words for MatView() fit their places in the C library."""
    assert 0 < len(stored.format.summary().encode()) < 256
    assert len(stored.format.detail().encode()) < 4096
    assert not stored.format.detail().endswith("\n")
    assert "storage:" not in stored.format.detail()  # MatView() begins each line with this word


CHECKS = (products, diagonal, refresh, non_finite_x, non_finite_value, repeatable, reference, stats, words)


def check(stored: StoredMatrix, what: str) -> None:
    """All CHECKS; AssertionError that begins with `what`, words for the matrix, and the name of the check."""
    for one in CHECKS:
        try:
            one(stored)
        except Exception as e:
            raise AssertionError(f"{what}, {one.__name__}: {e or type(e).__name__}") from e
