"""What holds for every stored matrix, whatever its format, options, place and shape."""

from __future__ import annotations

import numpy as np
from stored_matrix import Expected, StoredMatrix, assert_close, assert_dot, assert_same_bits

from petsc_gpufmt.backends.plan import Fused

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


def dots(stored: StoredMatrix) -> None:
    """Products that leave a dot product as well are those without, bit by bit; the sum has the same bits again."""
    x, y = stored.vectors()
    w = np.linspace(-2, 2, y.size).astype(y.dtype)
    added = stored.fused(Fused.ADD_DOT, x=x, y=w, z=y)
    if added is None:
        return
    assert_same_bits(added.z, stored.multadd(x, y, in_place=True))
    assert_dot(added.sum, w, stored.mult(x))
    assert_same_bits(added.sum, stored.fused(Fused.ADD_DOT, x=x, y=w, z=y).sum)
    if stored.matrix.nrows == stored.matrix.ncols:
        made = stored.fused(Fused.MULT_DOT, x=x)
        assert_same_bits(made.z, stored.mult(x))
        assert_dot(made.sum, x, made.z)


def smoothing(stored: StoredMatrix) -> None:
    """z = alpha u + beta x + gamma d (b - A x), where u may be z; what has the factor 0 is not read."""
    x, b = stored.vectors()
    u, d = (np.linspace(first, 2, b.size).astype(b.dtype) for first in (-3, 1))
    nothing = np.full_like(b, np.nan)
    if stored.fused(Fused.ADD_SMOOTH, x=x, d=d, gamma=1, z=u) is None:
        return
    product = Expected.of(stored.matrix, x)

    def check(z: np.ndarray, alpha: float, beta: float, gamma: float, d: np.ndarray | float, b: np.ndarray) -> None:
        terms = [alpha * u, beta * x if beta else 0 * u, gamma * d * b]
        magnitude = np.sum(np.abs(terms), axis=0) + np.abs(gamma * d) * product.magnitude
        bound = (np.diff(stored.matrix.rowptr) + 8) * np.finfo(z.dtype).eps * magnitude
        assert_close(z, np.sum(terms, axis=0) - gamma * d * product.exact, bound, z.dtype)

    check(stored.fused(Fused.ADD_SMOOTH, x=x, d=d, gamma=0.5, z=u).z, 1, 0, 0.5, d, 0 * b)
    check(stored.fused(Fused.ADD_SMOOTH, x=x, d=None, gamma=-1, z=u).z, 1, 0, -1, 1, 0 * b)
    if stored.matrix.nrows != stored.matrix.ncols:
        return
    for alpha, beta, gamma, given_d in ((0.5, -2, 3, d), (1, 0, 0.5, None), (0, 1, -1, d)):
        given = {"alpha": alpha, "beta": beta, "gamma": gamma, "x": x, "b": b, "d": given_d}
        z = stored.fused(Fused.SMOOTH, u=u if alpha else nothing, **given).z
        check(z, alpha, beta, gamma, 1 if given_d is None else d, b)
        assert_same_bits(stored.fused(Fused.SMOOTH, u=u if alpha else nothing, in_place=True, **given).z, z)
    without_b = {"alpha": 1, "beta": 0, "gamma": 2, "x": x, "b": None, "d": d}
    check(stored.fused(Fused.SMOOTH, u=u, in_place=True, **without_b).z, 1, 0, 2, d, 0 * b)


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


CHECKS = (
    products,
    dots,
    smoothing,
    diagonal,
    refresh,
    non_finite_x,
    non_finite_value,
    repeatable,
    reference,
    stats,
    words,
)


def check(stored: StoredMatrix, what: str) -> None:
    """All CHECKS; AssertionError that begins with `what`, words for the matrix, and the name of the check."""
    for one in CHECKS:
        try:
            one(stored)
        except Exception as e:
            raise AssertionError(f"{what}, {one.__name__}: {e or type(e).__name__}") from e
