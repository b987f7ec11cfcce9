"""A test matrix in a storage format on a backend, with its products as plain calls on host arrays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from builders import CsrMatrix, poisoned

from petsc_gpufmt.backend import Backend
from petsc_gpufmt.formats.base import Format
from petsc_gpufmt.plan import Operation, Slot


class StoredMatrix:
    """`matrix`, rounded to the backend's scalar, or its transpose; all memory is poisoned before its first use."""

    def __init__(
        self, matrix: CsrMatrix, cls: type[Format], backend: Backend, options: dict[str, int], transposed: bool = False
    ):
        self.backend = backend
        backend.xp = poisoned(backend.xp)
        pattern = matrix.pattern(backend.xp, backend.index)
        pattern.validate()
        if transposed:
            pattern = pattern.transposed(backend.xp)
        self.format = cls.build(pattern, backend, {**cls.default_options, **options})
        values = matrix.values.astype(backend.scalar)
        self.matrix = replace(matrix, values=values).transposed() if transposed else replace(matrix, values=values)
        self.refresh(values)

    def refresh(self, values: np.ndarray) -> None:
        """Store values given in the order of the matrix that was passed in (not of its transpose)."""
        slots = {Slot.VALUES: self.backend.xp.asarray(values.astype(self.backend.scalar))}
        self.backend.run(self.format.plan(Operation.REFRESH), slots)

    def mult(self, x: np.ndarray) -> np.ndarray:
        """A x, written over NaN."""
        z = self._vector(np.full(self.matrix.nrows, np.nan))
        self.backend.run(self.format.plan(Operation.MULT), {Slot.X: self._vector(x), Slot.Z: z})
        return self.backend.to_host(z)

    def multadd(self, x: np.ndarray, y: np.ndarray, in_place: bool = False) -> np.ndarray:
        """y + A x, written over y or over NaN."""
        y = self._vector(y)
        z = y if in_place else self._vector(np.full(self.matrix.nrows, np.nan))
        self.backend.run(self.format.plan(Operation.MULTADD), {Slot.X: self._vector(x), Slot.Y: y, Slot.Z: z})
        return self.backend.to_host(z)

    def vectors(self, seed: int = 30) -> tuple[np.ndarray, np.ndarray]:
        """Random x and y of fitting sizes."""
        rng = np.random.default_rng(seed)
        return tuple(rng.standard_normal(n).astype(self.backend.scalar) for n in (self.matrix.ncols, self.matrix.nrows))

    def _vector(self, host_array: np.ndarray):
        return self.backend.xp.asarray(host_array.astype(self.backend.scalar))


def assert_product(z: np.ndarray, matrix: CsrMatrix, x: np.ndarray, y: np.ndarray | float = 0.0) -> None:
    """z = y + A x to within the rounding of any order of summation: (nnz of the row + 2) eps (|y| + |A||x|)."""
    exact = y + matrix.product(x)
    magnitude = np.abs(y) + replace(matrix, values=np.abs(matrix.values)).product(np.abs(x))
    bound = (np.diff(matrix.rowptr) + 2) * np.finfo(matrix.values.dtype).eps * magnitude
    assert z.shape == exact.shape and z.dtype == matrix.values.dtype
    wrong = ~(np.abs(z - exact) <= bound)
    assert not wrong.any(), f"rows {np.flatnonzero(wrong)[:10]}: {z[wrong][:10]} is not {exact[wrong][:10]}"
