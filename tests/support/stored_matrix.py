"""A test matrix in a storage format on a backend, with its products as plain calls on host arrays."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from builders import CsrMatrix, extended, poison, scalars

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.plan import Fused, Launch, Operation, Slot
from petsc_gpufmt.formats.common.base import Format
from petsc_gpufmt.patterns import transpose


class StoredMatrix:
    """`given`, rounded to the backend's scalar, or its transpose; all memory is poisoned before its first use.

    Attributes
    ----------
    matrix : what is stored, with the values of the last refresh
    """

    def __init__(
        self, given: CsrMatrix, cls: type[Format], backend: Backend, options: dict[str, int], transposed: bool = False
    ):
        self.backend, self.transposed = backend, transposed
        poison(backend)
        pattern = given.pattern_on(backend)
        pattern.validated(backend)
        if transposed:
            pattern = transpose.transposed(pattern, backend)
        self.format = cls.build(pattern, backend, {**cls.default_options, **options})
        self.given = given
        self.refresh(given.values)

    def refresh(self, values: np.ndarray) -> None:
        """Store values given in the order of the matrix that was passed in (not of its transpose)."""
        self.given = replace(self.given, values=scalars(values, self.backend.scalar))
        self.matrix = self.given.transposed() if self.transposed else self.given
        values_slot = {Slot.VALUES: self.backend.adopt(self.given.values)}
        self.backend.run(self.format.plan(Operation.REFRESH), values_slot)

    def mult(self, x: np.ndarray) -> np.ndarray:
        """A x, written over NaN."""
        return self._run(self.format.plan(Operation.MULT), x)

    def multadd(self, x: np.ndarray, y: np.ndarray, in_place: bool = False) -> np.ndarray:
        """y + A x, written over y or over NaN."""
        return self._run(self.format.plan(Operation.ADD if in_place else Operation.MULTADD), x, y, in_place)

    def mult_scaled(
        self, alpha: float, beta: float, x: np.ndarray, y: np.ndarray, in_place: bool = False
    ) -> np.ndarray:
        """alpha A x + beta y, written over y or over NaN."""
        return self._run(self.format.mult(alpha, beta), x, y, in_place)

    def diagonal(self) -> np.ndarray:
        """(nrows,) entries (i, i), written over NaN."""
        return self._run(self.format.plan(Operation.DIAGONAL))

    def fused(self, operation: Fused, in_place: bool = False, **given: np.ndarray | float | None) -> FusedResult | None:
        """What a launch leaves; None if the format does not offer it, as none does for complex numbers.

        `given` by the small letters of the slots. z is written over what is given, or NaN; over u if `in_place`.
        """
        launches = None if self.backend.scalar.kind == "c" else self.format.fused(operation)
        if launches is None:
            return None
        slots = {
            Slot.Z: self._vector(np.full(self.matrix.nrows, np.nan)),
            Slot.RESULT: self._vector(np.full(1, np.nan)),
        }
        for name, value in given.items():
            if isinstance(value, np.ndarray):
                slots[Slot[name.upper()]] = self._vector(value)
            else:
                slots[Slot[name.upper()]] = None if value is None else self.backend.scalar.type(value)
        if in_place:
            slots[Slot.Z] = slots[Slot.U]
        self.backend.run(launches, slots)
        return FusedResult(self.backend.to_host(slots[Slot.Z]), self.backend.to_host(slots[Slot.RESULT])[0])

    def vectors(self, seed: int = 30) -> tuple[np.ndarray, np.ndarray]:
        """Random x and y of fitting sizes."""
        rng = np.random.default_rng(seed)
        sizes = self.matrix.ncols, self.matrix.nrows
        return tuple(scalars(rng.standard_normal(n), self.backend.scalar) for n in sizes)

    def _run(self, launches: list[Launch], x=None, y=None, in_place: bool = False) -> np.ndarray:
        slots = {slot: self._vector(vector) for slot, vector in ((Slot.X, x), (Slot.Y, y)) if vector is not None}
        slots[Slot.Z] = slots[Slot.Y] if in_place else self._vector(np.full(self.matrix.nrows, np.nan))
        self.backend.run(launches, slots)
        return self.backend.to_host(slots[Slot.Z])

    def _vector(self, host_array: np.ndarray):
        return self.backend.adopt(host_array.astype(self.backend.scalar))


class FusedResult(NamedTuple):
    """The vector of a fused product, and its sum, NaN if it leaves none."""

    z: np.ndarray
    sum: np.floating


@dataclass(frozen=True)
class Expected:
    """What a product must be: A x in extended precision, and |A||x| to measure errors against.

    Rounding in any order of summation stays within (nnz of the row + 4) eps (|alpha| |A||x| + |beta y|).
    """

    matrix: CsrMatrix
    exact: np.ndarray
    magnitude: np.ndarray

    @classmethod
    def of(cls, matrix: CsrMatrix, x: np.ndarray) -> Expected:
        magnitude = replace(matrix, values=np.abs(matrix.values)).product(np.abs(x))
        return cls(matrix, matrix.product(x), magnitude)

    def check(self, z: np.ndarray, alpha: float = 1.0, beta: float = 0.0, y: np.ndarray | float = 0.0) -> None:
        """AssertionError unless z = alpha A x + beta y to within rounding."""
        exact, magnitude = alpha * self.exact, abs(alpha) * self.magnitude
        if beta:
            exact, magnitude = exact + beta * y, magnitude + np.abs(beta * y)
        eps = np.finfo(self.matrix.values.dtype).eps
        assert_close(z, exact, (np.diff(self.matrix.rowptr) + 4) * eps * magnitude, self.matrix.values.dtype)


def assert_product(z: np.ndarray, matrix: CsrMatrix, x: np.ndarray, y: np.ndarray | float = 0.0) -> None:
    """z = y + A x to within the rounding of any order of summation, in the precision of z."""
    Expected.of(replace(matrix, values=matrix.values.astype(z.dtype)), x).check(z, beta=1.0, y=y)


def assert_multiplies(stored: Format, matrix: CsrMatrix, backend: Backend) -> None:
    """What has been built on `backend` takes values, multiplies, and gives its diagonal."""
    x = np.random.default_rng(84).standard_normal(matrix.ncols)
    vectors = {Slot.VALUES: matrix.values, Slot.X: x, Slot.Z: np.full(matrix.nrows, np.nan)}
    slots = {slot: backend.adopt(vector) for slot, vector in vectors.items()}

    backend.run([*stored.plan(Operation.REFRESH), *stored.plan(Operation.MULT)], slots)

    assert_product(backend.to_host(slots[Slot.Z]), matrix, x)
    backend.run(stored.plan(Operation.DIAGONAL), slots)
    assert np.allclose(backend.to_host(slots[Slot.Z]), matrix.diagonal().astype(float), rtol=1e-14, atol=0)


def assert_close(z: np.ndarray, exact: np.ndarray, bound: np.ndarray, dtype: np.dtype) -> None:
    assert z.shape == exact.shape and z.dtype == dtype
    wrong = ~(np.abs(z - exact) <= bound)
    assert not wrong.any(), f"rows {np.flatnonzero(wrong)[:10]}: {z[wrong][:10]} is not {exact[wrong][:10]}"


def assert_same_bits(z: np.ndarray, expected: np.ndarray) -> None:
    assert z.shape == expected.shape and z.dtype == expected.dtype
    bits, wanted = (np.ascontiguousarray(a).view(np.uint8).reshape(z.size, z.itemsize) for a in (z, expected))
    different = np.flatnonzero((bits != wanted).any(axis=1))
    assert not different.size, f"rows {different[:10]}: {z[different[:10]]} is not {expected[different[:10]]}"


def assert_dot(found: np.floating, w: np.ndarray, z: np.ndarray) -> None:
    """The sum of w[row] z[row], whose products are rounded, within the rounding of eight sums in turns."""
    terms = extended(w) * z
    bound = (z.size / 8 + 16) * np.finfo(z.dtype).eps * np.abs(terms).sum()
    assert found.dtype == z.dtype and abs(found - terms.sum()) <= bound, f"{found} is not {terms.sum()}"
