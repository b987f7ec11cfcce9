"""All sparse products over test matrices: operands, exact result, and how far rounding may lead from it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from builders import CsrMatrix, from_row_lengths

from petsc_gpufmt.backends.plan import Product

NOTHING = CsrMatrix(0, 0, np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0))


def random_matrix(nrows: int, ncols: int, longest: int, seed: int) -> CsrMatrix:
    """Rows of 0 to `longest` entries."""
    lengths = np.random.default_rng(seed).integers(0, min(longest, ncols) + 1, nrows)
    return from_row_lengths(lengths, ncols, seed + 1)


def operands_of(product: Product, n: int, m: int, longest: int = 9, seed: int = 60) -> list[CsrMatrix]:
    """Operands of a product: A is n x n, the others n x m or m x n as the product needs them."""
    tall, wide = random_matrix(n, m, longest, seed + 2), random_matrix(m, n, longest, seed + 4)
    square = random_matrix(n, n, longest, seed)
    by_product = {
        Product.AB: [square, tall],
        Product.ATB: [tall, square],
        Product.ABT: [square, wide],
        Product.PTAP: [square, tall],
        Product.RART: [square, wide],
        Product.ABC: [wide, square, tall],
        Product.ATBC: [tall, square, tall],
    }
    return by_product[product]


def dense(matrix: CsrMatrix) -> np.ndarray:
    """(nrows, ncols) in extended precision; repeated entries add up."""
    entries = np.zeros((matrix.nrows, matrix.ncols), dtype=np.longdouble)
    np.add.at(entries, (matrix.rows, matrix.colidx), matrix.values)
    return entries


def evaluate(product: Product, arrays: list[np.ndarray]) -> np.ndarray:
    """The product of dense matrices."""
    A, B = arrays[:2]
    if product is Product.ATB:
        return A.T @ B
    if product is Product.ABT:
        return A @ B.T
    if product is Product.PTAP:
        return B.T @ A @ B
    if product is Product.RART:
        return B @ A @ B.T
    if product is Product.ATBC:
        return A.T @ B @ arrays[2]
    return A @ B @ arrays[2] if product is Product.ABC else A @ B


@dataclass(frozen=True)
class Exact:
    """What a product must be. Attributes: values, magnitude |A||B|..., pattern (bool), all (nrows, ncols) dense."""

    values: np.ndarray
    magnitude: np.ndarray
    pattern: np.ndarray

    @classmethod
    def of(cls, product: Product, operands: list[CsrMatrix]) -> Exact:
        absolute = [dense(replace(m, values=np.abs(m.values))) for m in operands]
        ones = [dense(replace(m, values=np.ones(m.values.size))) for m in operands]
        return cls(
            evaluate(product, [dense(m) for m in operands]),
            evaluate(product, absolute),
            evaluate(product, ones) > 0,
        )

    def check(self, rowptr: np.ndarray, colidx: np.ndarray, values: np.ndarray) -> None:
        """AssertionError unless the arrays are this product: its whole pattern, sorted, values to within rounding."""
        rows = np.repeat(np.arange(self.values.shape[0]), np.diff(rowptr))
        assert [rows.tolist(), colidx.tolist()] == [a.tolist() for a in np.nonzero(self.pattern)]
        bound = 4 * (sum(self.values.shape) + 100) * np.finfo(values.dtype).eps * self.magnitude[rows, colidx]
        wrong = ~(np.abs(values - self.values[rows, colidx]) <= bound)
        assert not wrong.any(), f"{values[wrong][:5]} is not {self.values[rows, colidx][wrong][:5]}"
